"""Shuffle accounting of samples as large as any: an upper bound of the divergence everywhere.

With so many records that a rounding error of 10⁻¹⁶ in a probability is a whole record, tails must
not be computed from 1 − chance.
"""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from veiltab.core.accounting import RESERVE, Blanket, between, lower_tail

DIGITS = 60
LARGEST = 2**53
LOSS = 1.05
"""What summing ranges at their worse end may cost, besides the reserve."""


def binomial(trials: int, successes: int, chance: Decimal) -> Decimal:
    """Return P(X = successes), to sixty digits, for few successes in any number of trials."""
    ways = Decimal(math.comb(trials, successes))
    return ways * chance**successes * ((trials - successes) * (1 - chance).ln()).exp()


def divergence(records: int, cells: int, gamma: Decimal, ratio: Decimal) -> Decimal:
    """Return the divergence of T records as a plain sum over the counts of the two cells."""
    total, pair_chance = Decimal(0), 2 / Decimal(cells)
    for pair in range(records + 1):
        inner = Decimal(0)
        for first in range(pair + 1):
            excess = records + (gamma - 1) * first
            excess -= ratio * (records + (gamma - 1) * (pair - first))
            inner += math.comb(pair, first) * max(Decimal(0), excess)
        uniform = math.comb(records, pair) * pair_chance**pair
        uniform *= (1 - pair_chance) ** (records - pair) if pair < records else 1
        total += uniform * inner / 2**pair
    return total * cells / ((gamma + cells - 1) * records)


def reference(m: int, cells: int, gamma: float, epsilon: float, most: int) -> Decimal:
    """Return the divergence from blankets of at most ``most`` records, to sixty digits."""
    with localcontext() as context:
        context.prec = DIGITS
        exact, ratio = Decimal(gamma), Decimal(epsilon).exp()
        share = cells / (exact + cells - 1)
        return sum(
            (
                binomial(m - 1, blanket, share) * divergence(blanket + 1, cells, exact, ratio)
                for blanket in range(min(m, most + 1))
            ),
            Decimal(0),
        )


@pytest.mark.parametrize("m", [LARGEST, LARGEST - 1, 2 * 10**15, 3 * 10**14])
@pytest.mark.parametrize("cells", [2, 24])
@pytest.mark.parametrize("blanket", [0.01, 0.6, 7.6, 20.55])
def test_few_blankets_in_a_huge_sample_are_counted_in_full(
    m: int, cells: int, blanket: float
) -> None:
    """The bound is above a sum to sixty digits where hardly anybody's record is replaced.

    1 − N/q is then off by up to 10⁻¹⁶, and (1 − N/q)^m by a factor of e.
    """
    gamma = cells * m / blanket - cells + 1
    exact = reference(m, cells, gamma, 2.0, 40)
    bound = Blanket(m, cells, gamma).delta(2.0, min(0.5, float(exact)))
    assert Decimal(bound) >= exact
    assert Decimal(bound) <= Decimal(RESERVE * LOSS) * exact + Decimal("1e-9")


@pytest.mark.parametrize("trials", [LARGEST - 1, 2 * 10**15, 10**14])
@pytest.mark.parametrize("mean", [0.3, 5.0, 20.0])
def test_lower_tails_keep_their_digits(trials: int, mean: float) -> None:
    """P(X ≤ k), and P(j ≤ X < k), agree with sums to sixty digits."""
    chance = mean / trials
    with localcontext() as context:
        context.prec = DIGITS
        terms = [binomial(trials, k, Decimal(chance)) for k in range(12)]
    for most in range(12):
        found = lower_tail(np.array([float(most)]), np.array([float(trials)]), chance)[0]
        assert float(sum(terms[: most + 1])) == pytest.approx(found, rel=1e-11)
    edges = np.arange(12.0)
    found_between = between(edges, np.array(float(trials)), chance)
    np.testing.assert_allclose(found_between, [float(term) for term in terms[:11]], rtol=1e-9)


@pytest.mark.parametrize("m", [LARGEST, 2 * 10**15])
@pytest.mark.parametrize("cells", [2**48, 10**14])
def test_few_records_in_the_pair_of_a_huge_domain(m: int, cells: int) -> None:
    """K is small if there are as many cells as records; 1 − 2/N is off by a whole record too."""
    gamma, epsilon = float(cells), 1.0
    share = Fraction(cells) / (Fraction(gamma) + cells - 1)
    records = round(m * share)  # the blanket is this large to eight digits
    exact = large_divergence(records, cells, gamma, epsilon)
    bound = Blanket(m, cells, gamma).delta(epsilon, float(exact))
    assert Decimal(bound) >= exact * (1 - Decimal("1e-6"))
    assert Decimal(bound) <= Decimal(RESERVE * LOSS) * exact


def large_divergence(records: int, cells: int, gamma: float, epsilon: float) -> Decimal:
    """Return the divergence given very many records, of which few are in the pair."""
    with localcontext() as context:
        context.prec = DIGITS
        ratio, odds, total = Decimal(epsilon).exp(), Decimal(gamma) - 1, Decimal(0)
        for pair in range(400):
            inner = Decimal(0)
            for first in range(pair + 1):
                excess = records + odds * first - ratio * (records + odds * (pair - first))
                inner += math.comb(pair, first) * max(Decimal(0), excess)
            total += binomial(records, pair, 2 / Decimal(cells)) * inner / 2**pair
        return total * cells / ((Decimal(gamma) + cells - 1) * records)
