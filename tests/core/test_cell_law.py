"""The law of a cell's count: its cumulant generating function, against enumeration."""

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest

from veiltab.core.cell_law import CoinLaw
from veiltab.core.channel import DRAW_RANGE, GammaDiagonal
from veiltab.core.coin_design import CoinDesign
from veiltab.core.mechanism import Coin, Geometric, Mechanism, WeightTable
from veiltab.core.publication import PublicationNoise
from veiltab.core.rank_design import RankDesign

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from veiltab.core.uncertainty import Population, ReleaseDesign

    Joint = NDArray[np.float64]

TABLE = WeightTable((DRAW_RANGE // 2, DRAW_RANGE // 4, DRAW_RANGE // 4))


def convolved(parts: list[tuple["Joint", int]]) -> "Joint":
    """Return the joint law of sums of independent pairs (rows in the cell, all rows)."""
    result = np.ones((1, 1))
    for part, times in parts:
        for _ in range(times):
            shape = np.add(result.shape, part.shape) - 1
            total = np.zeros(shape)
            for (i, j), chance in np.ndenumerate(part):
                total[i : i + result.shape[0], j : j + result.shape[1]] += chance * result
            result = total
    return result


def rows(chances: list[float], inside: float) -> "Joint":
    """Return the law of a number of rows, each of which is in the cell with this chance."""
    row, law = np.array([[0, 1 - inside], [0, inside]]), np.zeros((len(chances), len(chances)))
    for number, chance in enumerate(chances):
        one = convolved([(row, number)])
        law[: one.shape[0], : one.shape[1]] += chance * one
    return law


@pytest.mark.parametrize("population", ["finite", "super"])
@pytest.mark.parametrize("weight", [0.0, 0.4, 1.0])
def test_coins_decoys_and_channel_are_the_enumerated_ones(
    population: "Population", weight: float
) -> None:
    """E[exp(sL)] over all coins, decoys and moves, for three of five people in one cell."""
    keep, coin, cells, people, share = 0.7, 0.6, 4, 5, 0.6
    stays, comes = keep + (1 - keep) / cells, (1 - keep) / cells
    decoys = [0.5, 0.25, 0.25]
    if population == "finite":
        coins = [(rows([1 - coin, coin], stays), 3), (rows([1 - coin, coin], comes), 2)]
    else:
        mixed = share * stays + (1 - share) * comes
        coins = [(rows([1 - coin, coin], mixed), 5)]
    joint = convolved([*coins, (rows(decoys, stays), 1), (rows(decoys, comes), 3)])
    law = CoinLaw(
        cells=cells,
        surplus=0,
        people=people,
        keep=keep,
        finite=population == "finite",
        weight=weight,
        coin=coin,
        decoys=TABLE,
        decoy_terms=1,
    )
    inside, total = np.indices(joint.shape)
    statistic = inside - law.kappa(np.array([share]))[0] * total
    for s in (-2.0, -0.3, 0.0, 0.4, 1.5):
        tilted = joint * np.exp(s * statistic)
        mean = (tilted * statistic).sum() / tilted.sum()
        variance = (tilted * (statistic - mean) ** 2).sum() / tilted.sum()
        found = law.cumulants(np.array([share]), np.array([s]))
        exact = np.log(tilted.sum()), mean, variance
        np.testing.assert_allclose([value[0] for value in found], exact, rtol=1e-9, atol=1e-12)


PUBLISHED = PublicationNoise.for_epsilon(1.0, 40)
GEOMETRIC = Geometric(DRAW_RANGE // 3 * 2)


def coin_design(
    law: Geometric | WeightTable, *, published: bool, known: bool, keep: float | None
) -> CoinDesign:
    """Return 900 people over a marginal of 20 of 40 cells."""
    threshold = None if keep is None else DRAW_RANGE - 40 * int(DRAW_RANGE * (1 - keep) / 40)
    mechanism = Mechanism(Coin(DRAW_RANGE // 5 * 3), law, threshold)
    publication = PUBLISHED if published else None
    return CoinDesign(mechanism, 40, 20, 900, known, "finite", publication)


@pytest.mark.parametrize("law", [GEOMETRIC, TABLE])
@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("keep", [None, 0.8])
def test_the_second_cumulant_is_the_variance_of_a_share(
    *, law: Geometric | WeightTable, published: bool, known: bool, keep: float | None
) -> None:
    """L is the estimate, but for a factor: both have the same variance, in a marginal too."""
    design = coin_design(law, published=published, known=known, keep=keep)
    people = 900 * float(design.coin)
    expected = round(people + 40 * float(law.mean))
    assert_same_variance(design, expected, people * (keep or 1.0))


@pytest.mark.parametrize("population", ["finite", "super"])
@pytest.mark.parametrize("size", [300, 900])
@pytest.mark.parametrize("published", [False, True])
def test_the_second_cumulant_is_the_variance_by_rank(
    *, population: "Population", size: int, published: bool
) -> None:
    """Of a sample, of everybody, and of a larger population."""
    publication = PUBLISHED if published else None
    channel = GammaDiagonal(20, Fraction(2, 5))
    design = RankDesign(channel, 900, size, population, publication)
    assert_same_variance(design, size, size * 0.4)


def assert_same_variance(design: "ReleaseDesign", rows: int, scale: float) -> None:
    """Compare at several shares; a sample's function is that of n coins, so to 1/n."""
    shares = np.array([0.0, 0.01, 0.2, 0.9])
    law = design.cell_law(rows)
    variances = law.cumulants(shares, np.zeros(4))[2] / scale**2
    np.testing.assert_allclose(variances, design.total.of_sets(shares, 1 / 20), rtol=2 / 900)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("published", [False, True])
def test_a_count_at_its_mean_estimates_the_share(*, known: bool, published: bool) -> None:
    """The count that a share has on average, given all rows, is the one that estimates it."""
    counts = np.arange(20) * 4 + 10
    design = coin_design(GEOMETRIC, published=published, known=known, keep=0.8)
    if not known:
        design = replace(design, population_size=design.people(int(counts.sum()))[0])
    law = design.cell_law(int(counts.sum()))
    np.testing.assert_allclose(law.mean(design.estimate(counts)), counts, rtol=1e-9)
    ranked = RankDesign(GammaDiagonal(20, Fraction(2, 5)), 2_000, 900, "finite", PUBLISHED)
    by_rank = ranked.cell_law(int(counts.sum()))
    np.testing.assert_allclose(by_rank.mean(ranked.estimate(counts)), counts, rtol=1e-9)
