"""How numbers are written: shares in per cent, intervals, p-values and powers of ten."""

import math
from collections.abc import Iterable
from statistics import median

from veiltab.errors import ParameterError

FEWEST_DECIMALS, MOST_DECIMALS = 2, 6
"""Decimals of a number in per cent."""

EXACT = 1e-8
"""A smaller standard error, in per cent, is rounding: the release is without noise."""

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
    return f"{points(share, digits)} %"


def between(low: float, high: float, digits: int = FEWEST_DECIMALS) -> str:
    """Return an interval of shares, in per cent without the sign."""
    return f"{points(low, digits)}–{points(high, digits)}"


def significance(p_value: float, replicates: int) -> str:
    """Return a p-value; the smallest one possible with these replicates becomes a bound."""
    if is_smallest(p_value, replicates):
        bound = next((b for b in (0.001, 0.005, 0.01, 0.05) if p_value < b), 1)
        return f"< {bound:g}"
    return f"{p_value:.3f}"


def is_smallest(p_value: float, replicates: int) -> bool:
    """Tell whether a p-value is the smallest one possible with this many replicates."""
    return round(p_value * (1 + replicates)) == 1


def small(number: float) -> str:
    """Return a number with its power of ten written out, as in 2.5·10⁻¹⁰."""
    digits, _, power = f"{number:.3g}".partition("e")
    if not power:
        return digits
    raised = str(int(power)).translate(_RAISED)
    return f"10{raised}" if digits == "1" else f"{digits}·10{raised}"
