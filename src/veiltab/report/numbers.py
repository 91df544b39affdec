"""How numbers are written for people: shares in per cent, with the digits that they carry."""

import math
from collections.abc import Iterable
from statistics import median

from veiltab.errors import ParameterError

FEWEST, MOST = 2, 6
"""Decimals of a number in per cent."""

EXACT = 1e-8
"""A standard error below it, in per cent, is none: a release without noise is exact."""


def decimals(errors: Iterable[float | None]) -> int:
    """Return how many decimals show two digits of a typical one of these standard errors."""
    known = [100 * error for error in errors if error is not None and 100 * error > EXACT]
    if not known:
        return FEWEST
    return min(MOST, max(FEWEST, 1 - math.floor(math.log10(median(known)))))


def points(share: float, digits: int = FEWEST) -> str:
    """Return a share in per cent without the sign, or a difference in percentage points."""
    if not math.isfinite(share):
        raise ParameterError(
            f"{share} is no number to print", hint="this is a mistake in veiltab; report it"
        )
    return f"{round(100 * share, digits) + 0.0:.{digits}f}"  # without the sign of a zero


def percent(share: float, digits: int = FEWEST) -> str:
    """Return a share in per cent."""
    return f"{points(share, digits)} %"


def between(low: float, high: float, digits: int = FEWEST) -> str:
    """Return an interval of shares, in per cent without the sign."""
    return f"{points(low, digits)}–{points(high, digits)}"


def significance(p_value: float, replicates: int) -> str:
    """Return a p-value; the smallest that so many draws can show is given as a bound."""
    if least(p_value, replicates):
        return f"< {next((b for b in (0.001, 0.005, 0.01, 0.05) if p_value < b), 1):g}"
    return f"{p_value:.3f}"


def least(p_value: float, replicates: int) -> bool:
    """Tell whether a p-value is the smallest that so many draws can show."""
    return round(p_value * (1 + replicates)) == 1


def small(number: float) -> str:
    """Return a small number as people write it: 10⁻⁶."""
    digits, _, power = f"{number:.3g}".partition("e")
    if not power:
        return digits
    raised = str(int(power)).translate(_RAISED)
    return f"10{raised}" if digits == "1" else f"{digits}·10{raised}"


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
