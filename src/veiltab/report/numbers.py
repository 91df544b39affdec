"""How numbers are written for people: shares in per cent, never more digits than they carry."""

from veiltab.errors import ParameterError

SMALL = 0.1
"""Below so many per cent two decimals would say too little."""

SMALLEST = 1e-6
"""In per cent; whatever is smaller is called so."""


def points(share: float) -> str:
    """Return a share in per cent without the sign, or a difference in percentage points."""
    number = 100 * share
    if number != number:  # noqa: PLR0124 - only NaN differs from itself; it is never printed
        raise ParameterError("a number is missing", hint="this is a mistake in veiltab; report it")
    size = abs(number)
    if size >= SMALL or round(size, 12) == 0:
        return f"{number:.2f}".replace("-0.00", "0.00")
    if size < SMALLEST:
        return f"under {SMALLEST:.6f}"
    digits = next(d for d in range(3, 9) if size >= 10.0 ** (1 - d))
    return f"{number:.{digits}f}"


def percent(share: float) -> str:
    """Return a share in per cent."""
    return f"{points(share)} %"


def between(low: float, high: float) -> str:
    """Return an interval of shares, in per cent without the sign."""
    return f"{points(low)}–{points(high)}"


def significance(p_value: float, replicates: int) -> str:
    """Return a p-value; the smallest that so many draws can show is given as a bound."""
    if p_value * (1 + replicates) < 1.5:  # noqa: PLR2004 - one of all: the least possible
        return f"< {_up(p_value)}"
    return f"{p_value:.3f}"


def small(number: float) -> str:
    """Return a small number as people write it: 1e-6."""
    return f"{number:.3g}".replace("e-0", "e-")


def _up(p_value: float) -> str:
    """Return the next rounder number above a small one."""
    return next((f"{bound:g}" for bound in (0.001, 0.005, 0.01, 0.05) if p_value < bound), "1")
