"""(ε, δ) by shuffling: the bound against exact enumeration, plain sums and its own laws."""

import math
from collections.abc import Iterator
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import binom

from tests.support.cases import examples, in_soak
from tests.support.laws import channel_matrix
from veiltab.core import privacy
from veiltab.core.accounting import (
    RESERVE,
    Blanket,
    largest_gamma,
    rough_gamma,
    sampled_delta,
)

LOSS = 1.03
"""What summing ranges at their worse end may cost, besides the reserve."""


def counts_of(records: int, cells: int) -> Iterator[tuple[int, ...]]:
    """Yield every way in which the records can fall into the cells."""
    if cells == 1:
        yield (records,)
        return
    for first in range(records + 1):
        for rest in counts_of(records - first, cells - 1):
            yield (first, *rest)


def uniform_law(counts: tuple[int, ...]) -> Fraction:
    """Return the multinomial probability of these counts if all records are uniform."""
    ways = math.factorial(sum(counts)) // math.prod(map(math.factorial, counts))
    return Fraction(ways, len(counts) ** sum(counts))


def shuffled_law(counts: tuple[int, ...], output: list[Fraction]) -> Fraction:
    """Return the chance of these counts from uniform records and one with the given output."""
    return sum(
        (
            output[cell] * uniform_law((*counts[:cell], counts[cell] - 1, *counts[cell + 1 :]))
            for cell in range(len(counts))
            if counts[cell]
        ),
        Fraction(0),
    )


def exact_divergence(sample_size: int, cells: int, gamma: Fraction, ratio: Fraction) -> Fraction:
    """Return the blanket's divergence at e^ε = ratio: over all B and all counts, no formula."""
    matrix = channel_matrix(cells, gamma)
    outputs = [[row[target] for row in matrix] for target in (0, 1)]
    share = cells / (gamma + cells - 1)
    others, total = sample_size - 1, Fraction(0)
    for blanket in range(sample_size):
        chance = math.comb(others, blanket) * share**blanket * (1 - share) ** (others - blanket)
        for counts in counts_of(blanket + 1, cells):
            first, second = (shuffled_law(counts, output) for output in outputs)
            total += chance * max(Fraction(0), first - ratio * second)
    return total


def plain_divergence(sample_size: int, cells: int, gamma: float, epsilon: float) -> float:
    """Return the divergence as a plain sum over B, less terms below 10⁻¹⁷."""
    share = cells / (gamma + cells - 1)
    chances = binom.pmf(np.arange(sample_size), sample_size - 1, share)
    return sum(
        float(chances[blanket]) * plain_given(blanket, cells, gamma, epsilon)
        for blanket in map(int, np.flatnonzero(chances > 1e-17))
    )


def plain_given(blanket: int, cells: int, gamma: float, epsilon: float) -> float:
    """Return the divergence given B as a plain sum over K, less terms below 10⁻¹⁷.

    No ranges and no rounding up: SciPy's own tails give E[h₀; h₀ > x] = (K/2) P(Bin(K − 1) ≥ x).
    """
    records, ratio = blanket + 1, math.exp(epsilon)
    middle = round(2 * records / cells)
    span = int(50 + 10 * math.sqrt(2 * records / cells))  # all K that are not below 10⁻¹⁷
    pairs = np.arange(max(0, middle - span), min(records, middle + span) + 1)
    weights = binom.pmf(pairs, records, 2 / cells)
    # γh₀ + h₁ + … − e^ε(h₀ + γh₁ + …) = slope·h₀ − offset, which grows with h₀.
    slope = (gamma - 1) * (1 + ratio)
    offset = ratio * (gamma - 1) * pairs + (ratio - 1) * records
    most = np.floor(offset / slope)
    heads = pairs / 2 * binom.sf(most - 1, np.maximum(pairs - 1, 0), 0.5)
    positive = slope * heads - offset * binom.sf(most, pairs, 0.5)
    return cells / (gamma + cells - 1) / records * float((weights * positive).sum())


@pytest.mark.parametrize(
    ("sample_size", "cells"), [(1, 2), (1, 5), (2, 2), (2, 3), (3, 4), (5, 3), (6, 2), (12, 2)]
)
@pytest.mark.parametrize("gamma", [Fraction(3, 2), Fraction(3), Fraction(40)])
@pytest.mark.parametrize("ratio", [Fraction(101, 100), Fraction(2), Fraction(9)])
def test_the_bound_is_the_exact_divergence_and_its_reserve(
    sample_size: int, cells: int, gamma: Fraction, ratio: Fraction
) -> None:
    """Never below what rational enumeration of the multinomials gives; at most 7% above."""
    exact = exact_divergence(sample_size, cells, gamma, ratio)
    epsilon, blanket = math.log(ratio), Blanket(sample_size, cells, float(gamma))
    assert (exact == 0) == (gamma <= ratio)
    for scale in (0.5, 1e-3, 1e-9, 1e-40):
        bound = blanket.delta(epsilon, scale)
        assert bound == 1 or bound >= exact
        if scale == 1e-3:
            assert bound <= RESERVE * LOSS * exact + 1e-12


def small_blanket_divergence(sample_size: int, cells: int, gamma: int, ratio: int) -> Fraction:
    """Return the exact divergence for more records, all cells but the pair taken as one."""
    share, total = Fraction(cells, gamma + cells - 1), Fraction(0)
    for blanket in range(sample_size):
        records, inner = blanket + 1, 0
        for rest in range(records + 1):
            ways = math.comb(records, rest) * (cells - 2) ** rest
            pair = records - rest
            for heads in range(pair + 1):
                first = records + (gamma - 1) * heads
                second = records + (gamma - 1) * (pair - heads)
                inner += ways * math.comb(pair, heads) * max(0, first - ratio * second)
        chance = share**blanket * (1 - share) ** (sample_size - records)
        chance *= math.comb(sample_size - 1, blanket)
        total += chance * share / records * Fraction(inner, cells**records)
    return total


@pytest.mark.parametrize(
    ("sample_size", "cells", "gamma", "ratio"),
    [(60, 768, 10, 7), (60, 100, 60, 40), (80, 24, 20, 15), (40, 24, 3, 2), (60, 2, 10, 7)],
)
def test_rare_small_blankets_are_counted(
    sample_size: int, cells: int, gamma: int, ratio: int
) -> None:
    """A δ far below 10⁻¹⁶ comes from blankets that are as rare, and must not be rounded away."""
    exact = small_blanket_divergence(sample_size, cells, gamma, ratio)
    epsilon, blanket = math.log(ratio), Blanket(sample_size, cells, gamma)
    assert blanket.delta(epsilon, 1e-6) >= exact
    assert exact <= blanket.delta(epsilon, float(exact)) <= RESERVE * LOSS * exact


REFERENCES = [  # n, N, ε and γ
    (n, cells, epsilon, gamma)
    for n, cells, gammas in (
        (45222, 24, (31.58, 355.9, 1084.0)),
        (45222, 768, (124.9, 723.0, 1696.6)),
        (10000, 6, (8.02, 79.9, 240.1)),
        (1000, 24, (4.22, 19.1, 42.4)),
    )
    for epsilon, gamma in zip((0.1, 0.5, 1.0), gammas, strict=True)
]

KEPT = (0, 4, 8, 11)
"""Every population and number of cells once, and every ε."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "cells", "epsilon", "gamma"),
    [
        *REFERENCES[::4],
        REFERENCES[-1],
        *in_soak(*REFERENCES[1:4], *REFERENCES[5:8], *REFERENCES[9:11]),
    ],
)
def test_reference_values(n: int, cells: int, epsilon: float, gamma: float) -> None:
    """The design's γ for δ = 10⁻⁶, everybody sampled; and a plain double sum agrees with δ."""
    found = largest_gamma(n, n, cells, epsilon, 1e-6)
    assert found is not None
    assert found == pytest.approx(gamma, rel=0.005)
    plain = plain_divergence(n, cells, found, epsilon)
    bound = Blanket(n, cells, found).delta(epsilon, 1e-6)
    assert RESERVE * plain * (1 - 1e-6) <= bound <= 1e-6 <= RESERVE * LOSS * plain


@pytest.mark.slow
@pytest.mark.parametrize(("m", "cells"), [(5000, 2), (3000, 24), *in_soak((3000, 3), (5000, 300))])
def test_ranges_only_ever_add(m: int, cells: int) -> None:
    """However wide the ranges of B and of K, the bound keeps above the plain sum, less reserve.

    At a far larger scale much is left to the tails, which count in full.
    """
    for epsilon, delta in ((0.1, 1e-5), (0.7, 1e-3)):
        gamma = largest_gamma(m, m, cells, epsilon, delta) or math.nan
        plain = plain_divergence(m, cells, gamma, epsilon)
        likely = round((m - 1) * cells / (gamma + cells - 1))
        given = plain_given(likely, cells, gamma, epsilon)
        for slack, scale in ((0.02, delta), (0.3, delta), (1.0, delta), (0.02, 0.5), (0.02, 0.99)):
            blanket, reach = Blanket(m, cells, gamma, slack), 2 * math.log(1 / scale)
            assert blanket.delta(epsilon, scale) >= RESERVE * plain * (1 - 1e-6)
            inner = blanket._given_blanket(np.array([float(likely)]), epsilon, reach)
            assert float(inner[0]) >= given * (1 - 1e-6)
        assert Blanket(m, cells, gamma).delta(epsilon, delta) <= RESERVE * LOSS * plain


cases = st.tuples(
    st.integers(1, 2000),  # the population
    st.floats(0.1, 1),  # the share of it that is sampled
    st.sampled_from([2, 3, 4, 24, 768, 10**6]),
    st.floats(0.02, 3),  # ε
    st.floats(-12, -2).map(lambda exponent: 10.0**exponent),  # δ
)
Case = tuple[int, float, int, float, float]


def sampled(n: int, share: float) -> int:
    """Return a sample size from 1 to n."""
    return max(1, round(share * n))


def best_gamma(n: int, m: int, cells: int, epsilon: float, delta: float) -> float:
    """Return the largest γ that either accounting allows."""
    return max(largest_gamma(n, m, cells, epsilon, delta) or 0.0, privacy.gamma_for(n, m, epsilon))


@pytest.mark.slow
@given(case=cases, factor=st.floats(1.05, 3))
@examples(40)
def test_delta_falls_with_epsilon_and_grows_with_gamma(case: Case, factor: float) -> None:
    """Around the γ that just keeps δ."""
    n, share, cells, epsilon, delta = case
    m = sampled(n, share)
    gamma = best_gamma(n, m, cells, epsilon, delta)
    here = sampled_delta(n, Blanket(m, cells, gamma), epsilon, delta)
    assert sampled_delta(n, Blanket(m, cells, gamma), epsilon * factor, delta) <= here
    assert sampled_delta(n, Blanket(m, cells, gamma * factor), epsilon, delta) >= here


@pytest.mark.slow
@given(case=cases, factor=st.floats(1.05, 3))
@examples(40)
def test_the_largest_gamma_grows_with_epsilon_and_delta(case: Case, factor: float) -> None:
    """It keeps δ, 0.1% more does not, and Theorem 1 never allows more."""
    n, share, cells, epsilon, delta = case
    m = sampled(n, share)
    gamma = largest_gamma(n, m, cells, epsilon, delta)
    if gamma is None:  # δ is so small that Theorem 1's γ is all there is
        blanket = Blanket(m, cells, privacy.gamma_for(n, m, epsilon) * 1.001)
        assert sampled_delta(n, blanket, epsilon, delta) > delta
        return
    rough = rough_gamma(n, m, cells, epsilon, delta)
    assert rough is not None
    assert privacy.gamma_for(n, m, epsilon) * (1 - 1e-12) <= rough <= gamma
    assert sampled_delta(n, Blanket(m, cells, gamma), epsilon, delta) <= delta
    assert sampled_delta(n, Blanket(m, cells, gamma * 1.001), epsilon, delta) > delta
    known = gamma * (1 - 1e-4)  # either is found to five digits only
    assert best_gamma(n, m, cells, epsilon * factor, delta) >= known
    assert best_gamma(n, m, cells, epsilon, min(delta * factor, 0.01)) >= known


def rounding(epsilon: float, recovered: float) -> float:
    """Return how much two evaluations of δ_m, at ε_m and at ``recovered``, may differ by rounding.

    δ_m is the greatest P(A) − e^ε Q(A), so it falls by at most e^ε for each unit of ε.  It is
    computed as a factor times E[(h₀ − level)⁺].  The factor times E[h₀; h₀ > level] is at most
    (1 + e^ε)P(A), so a level rounded by a share r changes δ_m by at most (1 + e^ε)r.  There
    are fewer than eight roundings of 2⁻⁵³ in either level, hence r = 2⁻⁴⁹; LEVEL_ROUNDING is five
    times as much, which is why these errors never make the bound too small.
    """
    return RESERVE * (1 + math.exp(epsilon)) * (abs(recovered - epsilon) + 2**-49)


@pytest.mark.slow
@given(case=cases)
@example(case=(3, 0.25, 2, 0.23828125, 1e-11))  # γ = e^{ε_m}: δ is 0, and the bound all rounding
@examples(30)
def test_sampling_composes_as_stated(case: Case) -> None:
    """ε = ln(1 + (m/n)(e^{ε_m} − 1)) and δ = (m/n)δ_m, from the sample's own (ε_m, δ_m)."""
    n, share, cells, inner, inner_delta = case
    m = sampled(n, share)
    blanket = Blanket(m, cells, best_gamma(m, m, cells, inner, inner_delta))
    epsilon, delta = math.log1p(m / n * math.expm1(inner)), m / n * inner_delta
    composed = sampled_delta(n, blanket, epsilon, delta)
    recovered = math.log1p(math.expm1(epsilon) / (m / n))  # as ε_m comes back out of floats
    assert composed == pytest.approx(
        m / n * blanket.delta(inner, inner_delta),
        rel=1e-6,
        abs=1e-6 * delta + m / n * rounding(inner, recovered),
    )


def ratio_in_the_sample(n: int, m: int, epsilon: float) -> Fraction:
    """Return e^{ε_m} = 1 + (n/m)(e^ε − 1), to sixty digits."""
    return 1 + Fraction(n, m) * (Fraction(Context(prec=60).exp(Decimal(epsilon))) - 1)


@pytest.mark.parametrize("epsilon", [0.08587134, 1e-6, 1e-3, 0.1, 1.0, 2.7])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 1), (7, 2), (4, 3)])
@pytest.mark.parametrize("cells", [2, 3])
def test_rounding_never_makes_delta_too_small(n: int, m: int, cells: int, epsilon: float) -> None:
    """Where γ is e^{ε_m}, or a few units in the last place more, δ is all but cancelled."""
    ratio = ratio_in_the_sample(n, m, epsilon)
    nearest = float(ratio)
    for units in (-2, -1, 0, 1, 2, 3, 5, 20, 1000):
        gamma = nearest + units * math.ulp(nearest)
        bound = sampled_delta(n, Blanket(m, cells, gamma), epsilon, 1e-11)
        assert bound >= Fraction(m, n) * exact_divergence(m, cells, Fraction(gamma), ratio)


@pytest.mark.parametrize("cells", [2, 3, 10**6])
@pytest.mark.parametrize("n", [1, 2, 10])
def test_a_sample_of_one_hides_behind_nobody(n: int, cells: int) -> None:
    """δ_m is then the channel's own divergence, (γ − e^ε)/q; n = 1 and n = 2 are populations."""
    gamma, inner = 50.0, 0.7
    own = (gamma - math.exp(inner)) / (gamma + cells - 1)
    epsilon = math.log1p(math.expm1(inner) / n)
    found = sampled_delta(n, Blanket(1, cells, gamma), epsilon, own / n)
    assert found == pytest.approx(RESERVE * own / n, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("cells", [2, 24])
@pytest.mark.parametrize("n", [1, 2, 30, *in_soak(1000)])
def test_a_tiny_delta_and_a_huge_epsilon(n: int, cells: int) -> None:
    """Where δ = 10⁻³⁰ or ε > 15 the arithmetic still errs on the safe side, and finds Theorem 1."""
    for epsilon, delta in ((0.5, 1e-30), (16.0, 1e-6), (40.0, 1e-6), (49.0, 1e-30)):
        theorem = privacy.gamma_for(n, n, epsilon)
        gamma = largest_gamma(n, n, cells, epsilon, delta)
        assert gamma is None or theorem * (1 - 1e-12) <= gamma
        assert sampled_delta(n, Blanket(n, cells, theorem * 0.999), epsilon, delta) <= delta
        if gamma is not None:
            assert sampled_delta(n, Blanket(n, cells, gamma), epsilon, delta) <= delta


def test_more_epsilon_never_costs_gamma_where_the_arithmetic_ends() -> None:
    """Above ε = 15 a smaller ε's δ is used: no cliff, down which 50 times more noise would lie."""
    gammas = [largest_gamma(700_000, 700_000, 10**5, epsilon, 1e-9) for epsilon in (14, 15, 16)]
    below, at, above = (gamma or 0.0 for gamma in gammas)
    assert below < at <= above * (1 + 1e-4)
    assert above > 50 * math.exp(15)
