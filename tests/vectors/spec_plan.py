"""The plan and the noise (sections 4.1 and 9): written from the specification alone."""

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from typing import Any

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


def check_noise(r: int, epsilon: float) -> None:
    """Check exactly that r/2⁶⁴ is at least e^(−ε), in both readings of ε (section 13.1)."""
    require(Fraction(2**64, r) <= 1 + eta(epsilon), "there is too little noise")


def check_shuffled_promise(
    n: int, m: int, cells: int, t: int, promise: tuple[float, float]
) -> None:
    """Check the accounting shuffle-1, by its sum written out; for the small studies here."""
    epsilon, delta = promise
    require(m >= 100 * Fraction(repr(delta)) * n, "the sample is too small for delta")
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


def check_decoy_promise(mechanism: dict[str, Any], epsilon: float, delta: float) -> None:
    """Check the accounting decoys-1, exactly (section 4.3)."""
    coin = Fraction(int(mechanism["coin_threshold"]), 2**64)
    least = 1 + eta(epsilon)  # e^ε, rounded down
    law = mechanism["decoys"]
    if law["law"] == "geometric":
        require(coin < 1, "the coin always falls")
        ratio = Fraction(int(law["threshold"]), 2**64)
        require(1 + coin / (ratio * (1 - coin)) <= least, "the promise is broken")
        return
    weights = [Fraction(int(weight), 2**64) for weight in law["weights"]]
    with_decoys = [*weights, Fraction(0)]
    taking = [
        (1 - coin) * now + coin * before
        for now, before in zip(with_decoys, [Fraction(0), *weights], strict=True)
    ]
    spent = sum(
        (
            max(Fraction(0), taking[i] * with_decoys[j] - least * with_decoys[i] * taking[j])
            for i in range(len(taking))
            for j in range(len(taking))
        ),
        Fraction(0),
    )
    readings = Fraction(repr(float(delta))), Fraction(float(delta))
    require(delta > 0 and spent <= min(readings), "the promise is broken")


def check_public(epsilon: float) -> None:
    """Refuse an ε' for which no noise of a published copy is large enough (section 4.3)."""
    with localcontext() as context:
        context.prec = DIGITS
        reading = min(Decimal(repr(float(epsilon))), Decimal(float(epsilon)))
        ratio = (-reading / 2).exp() * 2**64
        require(ratio.to_integral_value(ROUND_CEILING) < 2**64, "no noise is large enough")


def moments(law: dict[str, Any]) -> tuple[Fraction, Fraction]:
    """Return the mean and the variance of a law of decoys."""
    if law["law"] == "geometric":
        ratio = Fraction(int(law["threshold"]), 2**64)
        return ratio / (1 - ratio), ratio / (1 - ratio) ** 2
    weights = [Fraction(int(weight), 2**64) for weight in law["weights"]]
    mean = sum((z * weight for z, weight in enumerate(weights)), Fraction(0))
    squares = sum((z * z * weight for z, weight in enumerate(weights)), Fraction(0))
    return mean, squares - mean**2


def is_plausible(mechanism: dict[str, Any], n: int | None, cells: int, rows: int) -> bool:
    """Tell whether a release with decoys can have so many rows (section 11)."""
    law, coin = mechanism["decoys"], Fraction(int(mechanism["coin_threshold"]), 2**64)
    mean, variance = moments(law)
    expected, spread = cells * mean, cells * variance
    if n is None:
        if rows >= expected:
            return True
    else:
        expected += n * coin
        spread += n * coin * (1 - coin)
    if law["law"] == "geometric":
        scale = mean + Fraction(1, 2)
    else:
        scale = Fraction(max(1, len(law["weights"]) - 1), 3)
    beyond = abs(rows - expected) - 22 * scale
    return beyond <= 0 or beyond**2 <= 44 * spread


def noise(sizes: Sequence[int], t: int, cell: int) -> tuple[int, list[int]]:
    """Return how many of 2⁶⁴ a noise cell's probability is, and its part in each attribute."""
    width, uneven = divmod(2**64 - t, math.prod(sizes))
    require(not uneven, "the cells are uneven")
    parts, rest = [], cell
    for size in reversed(sizes):
        rest, part = divmod(rest, size)
        parts.append(part)
    return (t + width if cell == 0 else width), parts[::-1]
