"""Binomial tails: against exact rational numbers, far out, and for a billion trials."""

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import accumulate, pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from veiltab.core.accounting import between, fair_excess, fair_probability, lower_tail, upper_tail

Numbers = NDArray[np.float64]

CHANCES = [0.5, 2 / 24, 2 / 3, 0.96875, 1e-5]
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
BERNOULLI = [
    Fraction(*pair)
    for pair in ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510))
]


def numbers(values: object) -> Numbers:
    """Return an array of floats."""
    return np.asarray(values, dtype=np.float64)


def exact_law(trials: int, chance: float) -> tuple[list[int], int]:
    """Return integers in proportion to P(X = 0), …, P(X = trials), and their sum.

    There is no rounding error, as a float is a fraction.
    """
    heads, whole = Fraction(chance).as_integer_ratio()
    tails = whole - heads
    # Each term follows from the one before it by a division that leaves no remainder.
    term, terms = tails**trials, []
    for count in range(trials + 1):
        terms.append(term)
        term = term * (trials - count) * heads // ((count + 1) * tails)
    return terms, whole**trials


def exact_excess(level: Fraction, tosses: int) -> Fraction:
    """Return E[(X − level)⁺] for a fair coin by adding up all outcomes."""
    total: Fraction = sum(
        (math.comb(tosses, heads) * max(Fraction(0), heads - level) for heads in range(tosses + 1)),
        Fraction(0),
    )
    return total / Fraction(2) ** tosses


def log_factorial(number: int) -> Decimal:
    """Return ln(number!) by Stirling's series; above 10⁵ its error is far below 10⁻⁶⁰."""
    x = Decimal(number)
    total = x * x.ln() - x + (2 * PI * x).ln() / 2
    for index, coefficient in enumerate(BERNOULLI, start=1):
        ratio = Decimal(coefficient.numerator) / coefficient.denominator
        total += ratio / (2 * index * (2 * index - 1) * x ** (2 * index - 1))
    return total


def precise_probability(heads: int, trials: int, chance: float) -> float:
    """Return P(X = heads) from 60 digits; all counts must be large."""
    with localcontext(prec=60):
        p = Decimal(chance)
        ways = log_factorial(trials) - log_factorial(heads) - log_factorial(trials - heads)
        return float((ways + heads * p.ln() + (trials - heads) * (1 - p).ln()).exp())


def precise_tail(least: int, trials: int, chance: float) -> tuple[Numbers, Numbers]:
    """Return the outcomes from ``least`` up that matter, and their probabilities."""
    terms = int(12 * math.sqrt(trials * chance * (1 - chance)))
    outcomes = np.arange(least, least + terms, dtype=np.float64)
    ratios = (trials - outcomes) / (outcomes + 1) * (chance / (1 - chance))
    first = precise_probability(least, trials, chance)
    return outcomes, first * np.append(1.0, np.cumprod(ratios[:-1]))


def assert_close(found: Numbers, exact: Sequence[float | Fraction], relative: float) -> None:
    """Fail unless every number has that relative error; a zero must be a zero."""
    np.testing.assert_allclose(found, [float(value) for value in exact], rtol=relative, atol=0)


@pytest.mark.parametrize("chance", CHANCES)
@pytest.mark.parametrize("trials", [*range(13), 40])
def test_tails_are_the_exact_sums(trials: int, chance: float) -> None:
    """All arguments, also those outside 0..trials, where a tail is nothing or everything."""
    law, whole = exact_law(trials, chance)
    edges = range(-2, trials + 4)
    above = [sum(law[max(0, edge) :]) / whole for edge in edges]
    below = [sum(law[: max(0, edge + 1)]) / whole for edge in edges]
    size = numbers(trials)
    assert_close(upper_tail(numbers(edges), size, chance), above, 1e-13)
    assert_close(lower_tail(numbers(edges), size, chance), below, 1e-13)


@pytest.mark.parametrize("chance", CHANCES)
@pytest.mark.parametrize("step", [1, 2, 5])
def test_ranges_are_the_exact_sums(step: int, chance: float) -> None:
    """Every range of every small number of trials, a broadcast row each, also empty ranges."""
    trials = np.arange(25)
    edges = np.minimum(np.arange(0, 40, step), trials[:, np.newaxis] + 1)
    found = between(numbers(edges), numbers(trials)[:, np.newaxis], chance)
    for size, ends, row in zip(trials, edges, found, strict=True):
        law, whole = exact_law(int(size), chance)
        assert_close(row, [sum(law[a:b]) / whole for a, b in pairwise(ends)], 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("chance", [0.5, 2 / 24, 0.9])
@pytest.mark.parametrize("trials", [100, 1000, 3000])
def test_tails_keep_their_digits_far_out(trials: int, chance: float) -> None:
    """Down to 10⁻³⁰⁰ on both sides, with ten digits; single terms and ranges as well."""
    law, whole = exact_law(trials, chance)
    size, counts = numbers(trials), numbers(range(trials + 1))
    upper = numbers([part / whole for part in accumulate(reversed(law))][::-1])
    lower = numbers([part / whole for part in accumulate(law)])
    single = numbers([part / whole for part in law])
    assert single.min() < 1e-29
    for exact, found in (
        (upper, upper_tail(counts, size, chance)),
        (lower, lower_tail(counts, size, chance)),
        (single, between(np.append(counts, trials + 1), size, chance)),
    ):
        inside = exact > 1e-300
        np.testing.assert_allclose(found[inside], exact[inside], rtol=1e-10)


@pytest.mark.parametrize("tosses", [*range(34), 200, 1000])
def test_a_fair_coins_probabilities_are_exact(tosses: int) -> None:
    """Every number of heads, also the impossible ones."""
    heads = range(-1, tosses + 3)
    exact = [
        Fraction(math.comb(tosses, count), 2**tosses) if count >= 0 else Fraction(0)
        for count in heads
    ]
    assert_close(fair_probability(numbers(heads), numbers(tosses)), exact, 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("tosses", [*range(26), 101])
def test_a_fair_coins_excess_is_exact(tosses: int) -> None:
    """Every level from the mean up, in quarters: on, just below and just above whole numbers."""
    levels = [Fraction(tosses, 2) + Fraction(quarter, 4) for quarter in range(2 * tosses + 8)]
    found = fair_excess(numbers([float(level) for level in levels]), numbers(tosses))
    assert_close(found, [exact_excess(level, tosses) for level in levels], 1e-10)


@pytest.mark.parametrize("tosses", [10**6, 10**7, 10**8, 10**9])
@pytest.mark.parametrize("deviations", [0, 1, -3, 11, 25])
def test_a_million_to_a_billion_fair_tosses(tosses: int, deviations: int) -> None:
    """Nine digits, from the middle to 10⁻¹³⁸, against Stirling's series in 60 digits."""
    heads = int(tosses / 2 + deviations * math.sqrt(tosses) / 2)
    found = float(fair_probability(numbers(heads), numbers(tosses)))
    assert found == pytest.approx(precise_probability(heads, tosses, 0.5), rel=1e-9)


@pytest.mark.parametrize("trials", [10**7, 10**9])
@pytest.mark.parametrize("chance", [0.5, 2 / 24, 0.75])
@pytest.mark.parametrize("deviations", [4, 11])
def test_tails_of_many_trials(trials: int, chance: float, deviations: int) -> None:
    """Both tails, ranges and the excess, against a sum of precise terms: 10⁻⁵ and 10⁻²⁸."""
    least = int(trials * chance + deviations * math.sqrt(trials * chance * (1 - chance)))
    outcomes, terms = precise_tail(least, trials, chance)
    tail, size = float(terms.sum()), numbers(trials)
    assert float(upper_tail(numbers(least), size, chance)) == pytest.approx(tail, rel=1e-9)
    edges = numbers([least, least + 300, trials + 1])
    shares = [terms[:300].sum(), terms[300:].sum()]
    np.testing.assert_allclose(between(edges, size, chance), shares, rtol=1e-6)
    if chance in {0.5, 0.75}:  # here 1 − p is a float too
        mirrored = lower_tail(numbers(trials - least), size, 1 - chance)
        assert float(mirrored) == pytest.approx(tail, rel=1e-9)
    if chance == 0.5:
        level = least - 0.3
        excess = float(((outcomes - level) * terms).sum())
        assert float(fair_excess(numbers(level), size)) == pytest.approx(excess, rel=1e-6)
