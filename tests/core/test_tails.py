"""Tails of a cell's law, against exact sums, and the simultaneous intervals that they make.

Nothing here is simulated, except at the end: probabilities are sums over all counts.
"""

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import binom, hypergeom, nbinom

from veiltab.core.channel import DRAW_RANGE, GammaDiagonal
from veiltab.core.coin_design import CoinDesign
from veiltab.core.designs import release_design
from veiltab.core.mechanism import Coin, Geometric, Mechanism, WeightTable
from veiltab.core.plan import plan
from veiltab.core.publication import PublicationNoise
from veiltab.core.rank_design import RankDesign
from veiltab.core.resampling import apportion
from veiltab.core.tails import (
    cell_interval,
    lower_tail,
    needs_tails,
    simultaneous_interval,
    upper_tail,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from veiltab.core.cell_law import CellLaw

    Array = NDArray[np.float64]

HALF = Fraction(1, 2)


def assert_tails(law: "CellLaw", share: float, chances: "Array", first: int, within: float) -> None:
    """Compare both tails with sums of these chances, from 0.3 down to 1e-9."""
    counts = (np.arange(chances.size) + first).astype(np.float64)
    shares = np.full(counts.size, share)
    for tail, exact in (
        (upper_tail, chances[::-1].cumsum()[::-1]),
        (lower_tail, chances.cumsum()),
    ):
        far = (exact < 0.3) & (exact > 1e-9)
        found = tail(law, shares[far], counts[far])
        np.testing.assert_allclose(found, exact[far], rtol=within)


@pytest.mark.parametrize("size", [2_500, 25_000, 250_000])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.3])
def test_tails_by_rank_are_binomial(size: int, share: float) -> None:
    """With 0.5 to 75,000 rows in the cell; the worst is P(no row at all), 7% too small."""
    design = RankDesign(GammaDiagonal(2_500, HALF), 10 * size, size, "super")
    chances = binom.pmf(np.arange(size + 1), size, share / 2 + 1 / 5_000)
    assert_tails(design.cell_law(size), share, chances, 0, 0.07)


@pytest.mark.parametrize(
    ("people", "size", "inside", "keep"),
    [(400, 200, 40, HALF), (400, 400, 40, HALF), (400, 350, 100, Fraction(9, 10))],
)
def test_tails_of_a_sample_without_replacement(
    people: int, size: int, inside: int, keep: Fraction
) -> None:
    """By summing over how many of the cell's people are sampled."""
    design = RankDesign(GammaDiagonal(100, keep), people, size)
    stays, comes = float(keep + (1 - keep) / 100), float((1 - keep) / 100)
    chances = np.zeros(size + 1)
    for sampled in range(min(size, inside) + 1):
        kept = binom.pmf(np.arange(sampled + 1), sampled, stays)
        came = binom.pmf(np.arange(size - sampled + 1), size - sampled, comes)
        chances += hypergeom.pmf(sampled, people, inside, size) * np.convolve(kept, came)
    assert_tails(design.cell_law(size), inside / people, chances, 0, 0.07)


TWO_SIDED = plan(population_size=500_000, domain_size=2_500, epsilon=1, delta=1e-6).mechanism.decoys


@pytest.mark.parametrize("mean", [0.6, 2.6, 20.0])
@pytest.mark.parametrize("noisy", [False, True])
def test_tails_of_an_empty_cell_with_decoys(*, mean: float, noisy: bool) -> None:
    """The decoys alone, and with the noise of a published copy.

    With ρ = 1 nothing of the other cells' rows is taken off an empty cell.
    """
    law = Geometric(int(mean / (1 + mean) * DRAW_RANGE))
    publication = PublicationNoise.for_epsilon(1.0, 2_500) if noisy else None
    design = coin_design(law, publication)
    chances, first = nbinom.pmf(np.arange(3_000), 1, float(1 - law.ratio)), 0
    if publication is not None:
        ratio, steps = float(publication.law.ratio), np.arange(-200, 201)
        chances = np.convolve(chances, (1 - ratio) / (1 + ratio) * ratio ** np.abs(steps))
        first = -200
    assert_tails(design.cell_law(300_000), 0.0, chances, first, 0.25 if noisy else 0.05)


def test_tails_of_two_sided_decoys() -> None:
    """They are nearly those of a Laplace law with two ends: within 30%."""
    assert isinstance(TWO_SIDED, WeightTable)
    chances = np.array([float(weight) for weight in TWO_SIDED.weights]) / DRAW_RANGE
    law = coin_design(TWO_SIDED).cell_law(300_000)
    assert_tails(law, 0.0, chances, 0, 0.3)
    beyond = np.array([chances.size + 1.0])
    assert upper_tail(law, np.zeros(1), beyond)[0] == 0
    assert lower_tail(law, np.zeros(1), beyond)[0] == 1


def coin_design(
    law: Geometric | WeightTable, publication: PublicationNoise | None = None
) -> CoinDesign:
    """Return half a million people over 2,500 cells, whose number is not known."""
    mechanism = Mechanism(Coin(DRAW_RANGE // 2), law, None)
    return CoinDesign(mechanism, 2_500, 2_500, 500_000, known=False, publication=publication)


@pytest.mark.parametrize("rows", [1, 10, 100])
@pytest.mark.parametrize("cells", [2_500, 125_000])
def test_a_band_by_rank_misses_as_rarely_as_it_says(rows: int, cells: int) -> None:
    """The chances of all cells' misses, summed over all counts, make at most 5%, and not far less.

    ``rows`` is the number of noise records in a cell.  Three quarters of the cells are empty, and
    the others are small and large, in twenty groups.
    """
    size = 2 * rows * cells
    design = RankDesign(GammaDiagonal(cells, HALF), 10 * size, size, "super")
    group = cells // 80
    shares = np.geomspace(1, 300, 20)
    shares = np.append(0, shares / (group * shares.sum()))
    numbers = np.append(cells - 20 * group, np.full(20, group))
    means = size * (shares / 2 + 0.5 / cells)
    counts = np.arange(int(means[-1] + 12 * means[-1] ** 0.5) + 50)
    interval = cell_interval(design.cell_law(size), counts.astype(np.float64), 0.05 / cells)
    assert (interval.low < interval.high).all()
    missed = 0.0
    for share, number, mean in zip(shares, numbers, means, strict=True):
        chances = binom.pmf(counts, size, mean / size)
        missed += number * float(chances[~interval.covers(share)].sum())
    assert 0.002 < missed < 0.052


@pytest.mark.parametrize("law", [Geometric(DRAW_RANGE // 10 * 6), TWO_SIDED])
def test_a_band_with_decoys_misses_as_rarely_as_it_says(law: Geometric | WeightTable) -> None:
    """The same for cells without people, whose counts are those of the decoys."""
    chances = np.array([float(law.probability(number)) for number in range(64)])
    design = coin_design(law)
    counts = np.arange(64)
    interval = cell_interval(design.cell_law(300_000), counts.astype(np.float64), 0.05 / 2_500)
    missed = 2_500 * float(chances[~interval.covers(0.0)].sum())
    assert 0.01 < missed < 0.063


def test_each_end_is_where_its_tail_is_as_rare_as_it_may_be() -> None:
    """Half of the misses for each side, but all of them below shares that are never missed above.

    Counts below the average of an empty cell, which is ten here, have its upper end.
    """
    design = RankDesign(GammaDiagonal(2_500, HALF), 500_000, 50_000, "super")
    law, missed = design.cell_law(50_000), 0.05 / 2_500
    counts = np.array([0.0, 4.0, 9.0, 10.0, 31.0, 60.0, 500.0])
    interval = cell_interval(law, counts, missed)
    above, below = (
        upper_tail(law, interval.low, counts),
        lower_tail(law, interval.high, np.maximum(counts, 10)),
    )
    np.testing.assert_allclose(below, missed / 2, rtol=1e-6)
    assert (interval.high[:4] == interval.high[3]).all()
    assert (interval.low[:4] == 0).all()
    assert interval.low[4] < interval.high[0] < interval.low[6]
    np.testing.assert_allclose(above[4], missed, rtol=1e-6)
    np.testing.assert_allclose(above[6], missed / 2, rtol=1e-6)


@pytest.mark.slow
def test_an_interval_is_never_empty_and_its_ends_rise_with_the_count() -> None:
    """Also where a count is far below what an empty cell has, or above all that is possible."""
    designs = [
        RankDesign(GammaDiagonal(2_500, HALF), 50_000, 25_000, population, publication)
        for population in ("finite", "super")
        for publication in (None, PublicationNoise.for_epsilon(1.0, 2_500))
    ]
    coin = coin_design(Geometric(DRAW_RANGE // 10 * 6), PublicationNoise.for_epsilon(1.0, 2_500))
    for design in (*designs, coin, replace(coin, known=True, population="super")):
        law = design.cell_law(25_000)
        counts = np.array([-400, -5, 0, 1, 3, 5, 8, 20, 100, 5_000, 20_000, 25_000, 300_000.0])
        interval = cell_interval(law, counts, 0.05 / 2_500)
        assert (interval.low < interval.high).all()
        assert interval.low.min() == 0
        assert interval.high.max() == 1
        assert (np.diff(interval.low) >= 0).all()
        assert (np.diff(interval.high) >= 0).all()


def test_ends_between_the_computed_counts_are_interpolated() -> None:
    """With tens of thousands of different counts, to a hundredth of the interval's width."""
    generator = np.random.default_rng(0)
    counts = np.rint(np.exp(generator.uniform(2, 14, 20_000))).astype(np.int64)
    size = int(counts.sum())
    design = RankDesign(GammaDiagonal(20_000, HALF), 10 * size, size, "super")
    band = simultaneous_interval(counts, design, 0.95)
    some = np.flatnonzero(counts > 2_000)[:200]
    law = design.cell_law(size)
    exact = cell_interval(law, counts[some].astype(np.float64), 0.05 / 20_000)
    width = exact.high - exact.low
    assert (np.abs(band.low[some] - exact.low) < 0.01 * width).all()
    assert (np.abs(band.high[some] - exact.high) < 0.01 * width).all()


def test_which_tables_are_drawn() -> None:
    """Those with few cells and enough rows in each of them."""

    def asked(cells: int, rows: int, people: int = 10**6) -> bool:
        design = RankDesign(GammaDiagonal(cells, HALF), people, 2 * rows * cells)
        return needs_tails(np.full(cells, 2 * rows), design)

    assert not asked(24, 4)
    assert asked(24, 1)
    assert not asked(1_000, 10)
    assert asked(1_001, 10)
    assert asked(24, 10, 10**10)  # too many people to draw from
    assert not asked(1, 1)


@pytest.mark.soak
@pytest.mark.parametrize("mechanism", ["pure", "delta", "matched", "channel", "published", "rank"])
def test_bands_hold(mechanism: str) -> None:
    """In 180 of 200 releases at least: with 95% that fails in one of a thousand tests."""
    generator, cells = np.random.default_rng(1), 2_500
    people = 40 * cells
    truth = apportion(1 / np.arange(1.0, cells + 1), people)
    shares, holding = truth / people, 0
    design = band_design(mechanism, cells, people)
    for _ in range(200):
        counts = design.draw(truth, 1, generator)[0]
        if isinstance(design, CoinDesign) and not design.known:
            design = replace(design, population_size=design.people(int(counts.sum()))[0])
        holding += bool(simultaneous_interval(counts, design, 0.95).covers(shares).all())
    assert holding >= 180


def band_design(mechanism: str, cells: int, people: int) -> RankDesign | CoinDesign:
    """Return the design of each mechanism, with ε = 1."""
    if mechanism == "rank":
        return RankDesign(GammaDiagonal(cells, HALF), people, people // 2)
    chosen = plan(
        population_size=people,
        domain_size=cells,
        epsilon=1,
        mechanism="decoys",
        delta=1e-6 if mechanism == "delta" else 0.0,
        linkage="matched" if mechanism == "matched" else "aligned",
        epsilon_with_curator=6.0 if mechanism == "channel" else None,
        anyway=True,
    )
    noise = PublicationNoise.for_epsilon(1.0, cells) if mechanism == "published" else None
    design = release_design(chosen, publication=noise)
    assert isinstance(design, CoinDesign)
    return replace(design, population_size=people)
