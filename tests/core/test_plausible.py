"""The number of rows of a release with decoys: honest ones pass, others are found."""

from fractions import Fraction
from math import exp

import numpy as np
import pytest
from scipy import stats

from tests.support.decoys import two_sided
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import Coin, Geometric, Law, Mechanism, Rank, WeightTable
from veiltab.core.plan import DECOYS, Plan
from veiltab.core.plausible import TAIL, plausible_rows
from veiltab.errors import ParameterError

SELDOM = WeightTable((DRAW_RANGE - DRAW_RANGE // 200, *[0] * 199, DRAW_RANGE // 200))
"""Nearly always no decoy, and now and then 200."""

ALLOWED = 1e-9
"""The chance with which an honest release may be refused."""


def plan_of(population: int | None, cells: int, chance: float, law: Law) -> Plan:
    """Return a plan with a promise that is always kept."""
    coin = Coin(int(chance * DRAW_RANGE))
    delta = 0.01 if isinstance(law, WeightTable) else 0.0
    return Plan(
        population_size=population,
        domain_size=cells,
        epsilon=50.0,
        delta=delta,
        mechanism=Mechanism(coin, law, None),
        accounting=DECOYS,
        linkage="aligned" if population is not None else "matched",
        curator_cells=(cells,),
    )


def accepted(plan: Plan, most: int) -> tuple[int, int]:
    """Return the least and the largest number of rows that are accepted."""
    fine = [rows for rows in range(most) if plausible_rows(plan, rows)]
    assert fine == list(range(fine[0], fine[-1] + 1))
    return fine[0], fine[-1]


def law_of_rows(plan: Plan, most: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the chance of each number of rows, by convolution."""
    coin, law = plan.mechanism.coin, plan.mechanism.decoys
    assert coin is not None
    assert law is not None
    if isinstance(law, Geometric):
        chances = stats.nbinom.pmf(np.arange(most), plan.domain_size, 1 - float(law.ratio))
    else:
        one = np.array([float(law.probability(z)) for z in range(len(law.weights))])
        chances = np.array([1.0])
        for _ in range(plan.domain_size):
            chances = np.convolve(chances, one)[:most]
    people = plan.population_size or 0
    taking = stats.binom.pmf(np.arange(people + 1), people, float(coin.probability))
    found = np.convolve(chances, taking)[:most]
    assert found.sum() > 1 - 1e-12
    return found


@pytest.mark.parametrize(
    ("population", "cells", "chance", "law"),
    [
        (1, 2, 0.01, Geometric(DRAW_RANGE // 1000)),
        (1, 2, 0.5, Geometric(DRAW_RANGE * 97 // 100)),
        (500, 24, 0.36, Geometric(DRAW_RANGE * 85 // 100)),
        (1000, 2, 0.999, Geometric(DRAW_RANGE // 2)),
        (20, 200, 0.1, Geometric(DRAW_RANGE // 20)),
        (300, 12, 1.0, two_sided(20)),
        (300, 12, 0.005, SELDOM),
    ],
)
def test_honest_releases_are_accepted(population: int, cells: int, chance: float, law: Law) -> None:
    """The exact chance of a false alarm is below one in a billion, however skewed the law is."""
    plan = plan_of(population, cells, chance, law)
    chances = law_of_rows(plan, 6_000)
    least, most = accepted(plan, 6_000)
    outside = chances[:least].sum() + chances[most + 1 :].sum()
    assert outside < ALLOWED
    assert 2 * exp(-TAIL) < ALLOWED


@pytest.mark.parametrize("law", [Geometric(DRAW_RANGE * 62 // 100), two_sided(20)])
def test_without_a_population_only_too_few_rows_are_refused(law: Law) -> None:
    """Fewer than the decoys of the joint cells alone; more can always be respondents."""
    plan = plan_of(None, 768, 0.3, law)
    assert plausible_rows(plan, 10**12)
    decoys = 768 * float(law.mean)
    assert plausible_rows(plan, int(decoys))
    assert not plausible_rows(plan, int(decoys / 2))
    assert not plausible_rows(plan, 0)


def test_what_is_left_out_is_found_where_it_is_much() -> None:
    """All decoys of a large table, and half of the respondents, on both sides."""
    law = Geometric(DRAW_RANGE * 62 // 100)
    plan = plan_of(45_222, 7680, 0.2866, law)
    people, decoys = 45_222 * 0.2866, 7680 * float(law.mean)
    assert plausible_rows(plan, int(people + decoys))
    assert not plausible_rows(plan, int(people))
    assert not plausible_rows(plan, int(people / 2 + decoys))
    assert not plausible_rows(plan, int(people + 2 * decoys))


def test_the_bound_is_exact() -> None:
    """The rule of the specification, in rational numbers: |M − E| ≤ √(2tV) + tb."""
    law = Geometric(DRAW_RANGE // 2)  # μ = 1, v = 2, b = 3/2
    plan = plan_of(100, 50, 0.5, law)  # E = 100, V = 25 + 100
    for rows in range(300):
        beyond = abs(rows - 100) - Fraction(3, 2) * 22
        expected = beyond <= 0 or beyond**2 <= 2 * 22 * 125
        assert plausible_rows(plan, rows) is expected


def test_by_rank_the_number_of_rows_is_certain() -> None:
    """There is nothing to judge."""
    plan = Plan.by_rank(
        population_size=100, domain_size=4, epsilon=1.0, sample_size=10, keep_threshold=4
    )
    assert isinstance(plan.mechanism.sampling, Rank)
    with pytest.raises(ParameterError, match="only releases with decoys"):
        plausible_rows(plan, 10)
