"""How numbers are written: shares in per cent, intervals, p-values and powers of ten."""

import math
from collections.abc import Callable, Iterable
from statistics import median

from veiltab.errors import ParameterError

FEWEST_DECIMALS, MOST_DECIMALS = 2, 6
"""Decimals of a number in per cent."""

EXACT = 1e-8
"""A smaller standard error, in per cent, is rounding: the release is without noise."""

LEAST_P_VALUE = 0.001
"""Smaller p-values are shown as smaller than this."""

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def decimals(errors: Iterable[float | None]) -> int:
    """Return how many decimals show two significant digits of the median standard error."""
    percents = [100 * error for error in errors if error is not None and 100 * error > EXACT]
    if not percents:
        return FEWEST_DECIMALS
    return min(MOST_DECIMALS, max(FEWEST_DECIMALS, 1 - math.floor(math.log10(median(percents)))))


def points(share: float, digits: int = FEWEST_DECIMALS) -> str:
    """Return a share in per cent without the sign, or a difference in percentage points."""
    if not math.isfinite(share):
        raise ParameterError(
            f"{share} cannot be printed as a number", hint="this is a bug in veiltab; report it"
        )
    return f"{round(100 * share, digits) + 0.0:.{digits}f}"  # without the sign of a zero


def percent(share: float, digits: int = FEWEST_DECIMALS) -> str:
    """Return a share in per cent."""
    return f"{points(share, digits)}%"


def between(low: float | None, high: float | None, digits: int = FEWEST_DECIMALS) -> str:
    """Return an interval of shares, in per cent without the sign; it may have one end only."""
    return interval_text(low, high, lambda share: points(share, digits))


def interval_text(low: float | None, high: float | None, write: Callable[[float], str]) -> str:
    """Return both ends of an interval, or say which of them there is."""
    if low is None:
        return "" if high is None else f"at most {write(high)}"
    return f"at least {write(low)}" if high is None else f"{write(low)}–{write(high)}"


def significance(p_value: float) -> str:
    """Return a p-value with three decimals, or as below the smallest of these."""
    return f"< {LEAST_P_VALUE:g}" if p_value < LEAST_P_VALUE else f"{p_value:.3f}"


def small(number: float) -> str:
    """Return a number with its power of ten written out, as in 2.5·10⁻¹⁰."""
    digits, _, power = f"{number:.3g}".partition("e")
    if not power:
        return digits
    raised = str(int(power)).translate(_RAISED)
    return f"10{raised}" if digits == "1" else f"{digits}·10{raised}"
