"""The plan and the noise (sections 4.1 and 9): written from the specification alone."""

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction

from tests.vectors.spec_bytes import require

DIGITS = 400
"""Decimal digits carried: far more than ever decide anything."""


def eta(epsilon: float) -> Fraction:
    """Return e^ε − 1, rounded down, for the smaller of the two readings of ε."""
    double = float(epsilon)
    with localcontext() as context:
        context.prec = DIGITS
        reading = min(Decimal(repr(double)), Decimal(double))
        return Fraction(context.next_minus(reading.exp())) - 1


def check_promise(n: int, m: int, cells: int, t: int, epsilon: float) -> None:
    """Check exactly that 1 + (m/n)·t/M is at most e^ε, in both readings of ε."""
    width = (2**64 - t) // cells
    require(Fraction(m * t, n * width) <= eta(epsilon), "the promise is broken")


def check_shuffled_promise(
    n: int, m: int, cells: int, t: int, promise: tuple[float, float]
) -> None:
    """Check the accounting shuffle-1, by its sum written out; for the small studies here."""
    epsilon, delta = promise
    gamma = 1 + t / ((2**64 - t) // cells)
    normalizer = gamma + cells - 1
    ratio = 1 + n / m * math.expm1(epsilon)
    total = 0.0
    for blanket in range(m):
        chance = _binomial(m - 1, blanket, cells / normalizer)
        total += chance * _divergence(blanket + 1, cells, gamma, ratio)
    require(m / n * total <= delta, "the promise is broken")


def _divergence(records: int, cells: int, gamma: float, ratio: float) -> float:
    """Return the sum over h of max(0, P − ratio·Q) for T records."""
    total = 0.0
    for pair in range(records + 1):
        for first in range(pair + 1):
            uniform = _binomial(records, pair, 2 / cells) * _binomial(pair, first, 0.5)
            excess = records + (gamma - 1) * first
            excess -= ratio * (records + (gamma - 1) * (pair - first))
            total += uniform * max(0.0, excess)
    return total * cells / ((gamma + cells - 1) * records)


def _binomial(trials: int, successes: int, chance: float) -> float:
    return math.comb(trials, successes) * chance**successes * (1 - chance) ** (trials - successes)


def threshold(n: int, m: int, cells: int, epsilon: float) -> int:
    """Return the largest t = 2⁶⁴ − N·M that keeps the promise."""
    odds = Fraction(n, m) * eta(epsilon)
    t = 2**64 - cells * math.ceil(2**64 / (cells + odds))
    require(t >= 1 and odds >= Fraction(1, 10**10), "there is no plan")
    return t


def minimax_size(n: int, cells: int, epsilon: float) -> int:
    """Return the better one of the whole numbers beside m°."""
    if n == 1:
        return 1
    with localcontext() as context:
        context.prec = DIGITS
        factor = Fraction(n, cells) * eta(epsilon)
        best = Decimal(factor.numerator) / Decimal(factor.denominator)
        best *= (Decimal(n) / Decimal(n - 1)).sqrt()
        best = min(max(best, Decimal(1)), Decimal(n))
        beside = [int(best.to_integral_value(way)) for way in (ROUND_FLOOR, ROUND_CEILING)]
    return min(sorted(set(beside)), key=lambda m: _error(n, m, cells, epsilon))


def _error(n: int, m: int, cells: int, epsilon: float) -> Fraction:
    t = threshold(n, m, cells, epsilon)
    excess = Fraction(t, (2**64 - t) // cells)  # γ − 1
    error = (cells - 1) * (2 * excess + cells) / (m * excess**2)
    if m < n:
        error += (1 - Fraction(1, cells)) * Fraction(n - m, m * (n - 1))
    return error


def noise(sizes: Sequence[int], t: int, cell: int) -> tuple[int, list[int]]:
    """Return how many of 2⁶⁴ a noise cell's probability is, and its part in each attribute."""
    width, uneven = divmod(2**64 - t, math.prod(sizes))
    require(not uneven, "the cells are uneven")
    parts, rest = [], cell
    for size in reversed(sizes):
        rest, part = divmod(rest, size)
        parts.append(part)
    return (t + width if cell == 0 else width), parts[::-1]
