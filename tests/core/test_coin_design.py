"""Coins and decoys: means, covariances and cumulants by enumeration; drawn releases agree."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.laws import fractions
from veiltab.core.channel import DRAW_RANGE, GammaDiagonal
from veiltab.core.coin_design import CoinDesign
from veiltab.core.mechanism import Coin, Geometric, Law, Mechanism, WeightTable
from veiltab.core.publication import PublicationNoise
from veiltab.core.shape import Shape
from veiltab.core.uncertainty import Population, VarianceComponents
from veiltab.errors import ParameterError

Released = dict[tuple[int, ...], Fraction]
"""The law of the released counts."""

LAW = WeightTable((DRAW_RANGE // 4, DRAW_RANGE // 2, 0, DRAW_RANGE // 4))
HALF = DRAW_RANGE // 2
THIRD = DRAW_RANGE // 3

CASES = {
    "everybody, no channel": ((0, 1, 1), 2, DRAW_RANGE, None),
    "a coin, no channel": ((0, 1, 1), 2, THIRD, None),
    "a coin and a channel": ((0, 1, 1), 2, THIRD, HALF),
    "everybody and a channel": ((1, 1), 2, DRAW_RANGE, HALF),
    "three cells": ((0, 0), 3, HALF, None),
}


def design_of(name: str, *, known: bool = True, published: bool = False) -> CoinDesign:
    """Return the design of a case."""
    database, cells, coin, keep = CASES[name]
    publication = PublicationNoise.for_epsilon(2.0, cells) if published else None
    mechanism = Mechanism(Coin(coin), LAW, keep)
    return CoinDesign(mechanism, cells, cells, len(database), known, "finite", publication)


def truth_of(name: str) -> NDArray[np.object_]:
    """Return the distribution of a case's respondents."""
    database, cells, _, _ = CASES[name]
    return fractions(Fraction(database.count(cell), len(database)) for cell in range(cells))


def released_law(name: str, respondents: tuple[int, ...] | None = None) -> Released:
    """Return the exact law of the released counts: every coin, every decoy, every noise."""
    database, cells, threshold, keep = CASES[name]
    database = database if respondents is None else respondents
    coin = Fraction(threshold, DRAW_RANGE)
    row = [
        [
            GammaDiagonal(cells, Fraction(keep, DRAW_RANGE)).probability(released=out, cell=cell)
            if keep
            else Fraction(int(out == cell))
            for out in range(cells)
        ]
        for cell in range(cells)
    ]
    law: Released = {(0,) * cells: Fraction(1)}
    for cell in database:
        law = mixed(law, [(1 - coin, 0), (coin, 1)], row[cell])
    for cell in range(cells):
        law = mixed(law, [(LAW.probability(z), z) for z in range(4)], row[cell])
    return law


def mixed(law: Released, rows: list[tuple[Fraction, int]], chances: list[Fraction]) -> Released:
    """Add a random number of rows, each of which is released in a random cell."""
    found: Released = {}
    for chance, number in rows:
        spread: Released = dict(law)
        for _ in range(number):
            spread = added(spread, chances)
        for counts, weight in spread.items():
            found[counts] = found.get(counts, Fraction(0)) + chance * weight
    return {counts: weight for counts, weight in found.items() if weight}


def added(law: Released, chances: list[Fraction]) -> Released:
    """Add one row."""
    found: Released = {}
    for counts, weight in law.items():
        for cell, chance in enumerate(chances):
            more = tuple(count + (cell == place) for place, count in enumerate(counts))
            found[more] = found.get(more, Fraction(0)) + weight * chance
    return found


def moments(
    law: Released, statistic: NDArray[np.object_]
) -> tuple[NDArray[np.object_], NDArray[np.object_]]:
    """Return the mean and the covariance of a statistic, given for every count of the law."""
    chances = fractions(law.values())
    mean = (statistic * chances[:, np.newaxis]).sum(axis=0)
    centred = statistic - mean
    return mean, np.einsum("r,ri,rj->ij", chances, centred, centred)


def unscaled(design: CoinDesign, law: Released) -> NDArray[np.object_]:
    """Return g for every count of the law."""
    counts = np.array([fractions(counts) for counts in law])
    return design.unscaled_sets(counts, 1)


def published_part(design: CoinDesign) -> NDArray[np.object_]:
    """Return what published noise of one unit of variance in every cell adds to Cov(g)."""
    keep, cells = design._exact.keep, design.cells
    spread = fractions([1] * cells)
    matrix = (np.diag(spread) - np.outer(spread, spread) * (1 - keep) / cells) / keep
    covariance: NDArray[np.object_] = matrix @ matrix.T
    return covariance


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_covariance_is_the_enumerated_one(name: str, known: bool, published: bool) -> None:  # noqa: FBT001 - parameters
    """To first order, nβ(T̂ − T) is g − tΣg: its covariance is exactly the stated form.

    With n known t = ρT + (1 − ρ)/N, else t = T.  The mean of g is nβT, whatever the noise.
    """
    law, truth = released_law(name), truth_of(name)
    design = design_of(name, known=known, published=published)
    numbers = design._exact
    took = len(CASES[name][0]) * numbers.coin
    mean, covariance = moments(law, unscaled(design, law))
    assert (mean == took * truth).all()
    if design.publication is not None:
        covariance = covariance + published_part(design) * design.publication.variance
    coins = took * (1 - numbers.coin)
    weight = coins / (coins + numbers.noise) if known else Fraction(1)
    taken_off = weight * truth + (1 - weight) * Fraction(1, design.cells)
    first_order = np.diag(fractions([1] * design.cells)) - taken_off[:, np.newaxis]
    expected = first_order @ covariance @ first_order.T / took**2
    components = VarianceComponents(truth, design)
    units = np.array([fractions(row) for row in np.eye(design.cells, dtype=int)])
    for i, j in product(range(design.cells), repeat=2):
        assert components.between(units[i], units[j]) == expected[i, j]
    assert (components.cells().total == expected.diagonal()).all()


@pytest.mark.parametrize("name", ["everybody, no channel", "everybody and a channel"])
def test_with_everybody_in_the_estimate_is_linear_and_exactly_unbiased(name: str) -> None:
    """Where no coin is thrown, the mean and the covariance of T̂ itself are as stated."""
    law, truth, design = released_law(name), truth_of(name), design_of(name)
    estimates = design.estimate(np.array([fractions(counts) for counts in law]))
    mean, covariance = moments(law, estimates)
    assert (mean == truth).all()
    assert (estimates.sum(axis=1) == 1).all()
    components = VarianceComponents(truth, design)
    assert (covariance.diagonal() == components.cells().total).all()


@pytest.mark.parametrize("name", CASES)
def test_the_cumulants_are_the_enumerated_ones(name: str) -> None:
    """The first four, of several statistics; the second is the stated variance."""
    law, truth = released_law(name), truth_of(name).astype(float)
    chances = np.array([float(chance) for chance in law.values()])
    for known in (True, False):
        design = design_of(name, known=known)
        even = np.full(design.cells, 1 / design.cells)
        counts = np.array(list(law))
        weights = np.arange(design.cells) ** 2 - 0.3
        found = design.cumulants(weights, truth, even)
        numbers = design._exact.rounded
        took = design.population_size * numbers.coin
        coins = took * (1 - numbers.coin)
        weight = coins / (coins + numbers.noise) if known else 1.0
        net = weights - weights @ (weight * truth + (1 - weight) * even)
        statistic = design.unscaled_sets(counts, 1) @ net
        centred = statistic - chances @ statistic
        second, third, fourth = (float(chances @ centred**power) for power in (2, 3, 4))
        assert found[1] == pytest.approx(second, rel=1e-9)
        assert found[2] == pytest.approx(third, rel=1e-9, abs=1e-9)
        assert found[3] == pytest.approx(fourth - 3 * second**2, rel=1e-9, abs=1e-9)
        variance = VarianceComponents(truth, design).total(weights) * took**2
        assert found[1] == pytest.approx(variance, rel=1e-9)


@pytest.mark.parametrize("name", ["a coin, no channel", "a coin and a channel", "three cells"])
@pytest.mark.parametrize("known", [False, True])
def test_the_cumulants_of_a_larger_population_are_the_enumerated_ones(
    name: str,
    known: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Of a statistic of one respondent who may be in any cell; the second is the variance."""
    design = replace(design_of(name, known=known), population="super", population_size=1)
    truth = np.array([0.2, 0.5, 0.3])[: design.cells]
    truth /= truth.sum()
    even, weights = np.full(design.cells, 1 / design.cells), np.arange(design.cells) ** 2 - 0.3
    found = design.cumulants(weights, truth, even)
    numbers = design._exact.rounded
    took = numbers.coin
    coins = took * (1 - numbers.coin)
    weight = coins / (coins + numbers.noise) if known else 1.0
    net = weights - weights @ (weight * truth + (1 - weight) * even)
    drawn = [
        (float(chance) * share, counts)
        for cell, share in enumerate(truth.tolist())
        for counts, chance in released_law(name, (cell,)).items()
    ]
    chances, counts = np.array([c for c, _ in drawn]), np.array([counts for _, counts in drawn])
    statistic = design.unscaled_sets(counts, 1) @ net
    centred = statistic - chances @ statistic
    second, third, fourth = (float(chances @ centred**power) for power in (2, 3, 4))
    assert found[1] == pytest.approx(second, rel=1e-9)
    assert found[2] == pytest.approx(third, rel=1e-9, abs=1e-9)
    assert found[3] == pytest.approx(fourth - 3 * second**2, rel=1e-9, abs=1e-9)
    variance = VarianceComponents(truth, design).total(weights) * took**2
    assert found[1] == pytest.approx(variance, rel=1e-9)


@pytest.mark.parametrize("law", [Geometric(int(0.8 * DRAW_RANGE)), LAW])
def test_the_cumulants_of_laws(law: Law) -> None:
    """Of nothing but decoys: those of the law itself, summed over its probabilities."""
    design = CoinDesign(Mechanism(Coin(1), law, None), 1, 1, 1, known=False)
    chances = np.array([float(law.probability(z)) for z in range(400)])
    mean = chances @ np.arange(400)
    second, third, fourth = (chances @ (np.arange(400) - mean) ** power for power in (2, 3, 4))
    weights = np.array([1.0])
    found = design._row_cumulants(weights, weights * 0, weights)
    assert found == pytest.approx((mean, second, third, fourth - 3 * second**2), rel=1e-9)


def test_published_noise_has_no_skewness_and_heavy_tails() -> None:
    """It adds its variance and its fourth cumulant, and nothing to the third."""
    plain, published = design_of("three cells"), design_of("three cells", published=True)
    weights, even = np.array([1.0, 0.0, 0.0]), np.full(3, 1 / 3)
    before, after = (d._row_cumulants(weights, even, even) for d in (plain, published))
    publication = published.publication
    assert publication is not None
    ratio = publication.threshold / DRAW_RANGE
    chances = ratio ** np.abs(np.arange(-900, 901.0))
    chances /= chances.sum()
    second, fourth = (chances @ np.arange(-900, 901.0) ** power for power in (2, 4))
    assert float(publication.variance) == pytest.approx(second, rel=1e-9)
    assert after[1] - before[1] == pytest.approx(second, rel=1e-9)
    assert after[2] - before[2] == pytest.approx(0, abs=1e-9)
    assert after[3] - before[3] == pytest.approx(fourth - 3 * second**2, rel=1e-9)


JOINT = CoinDesign(
    Mechanism(Coin(THIRD), Geometric(int(0.7 * DRAW_RANGE)), DRAW_RANGE // 4 * 3), 12, 12, 900
)
PUBLISHED = replace(JOINT, publication=PublicationNoise.for_epsilon(0.5, 12))


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("design", [JOINT, PUBLISHED])
def test_marginals_are_sums(design: CoinDesign, known: bool) -> None:  # noqa: FBT001 - a parameter
    """Estimates, variances and cumulants of a marginal are those of sums of cells."""
    generator = np.random.default_rng(3)
    design = replace(design, known=known)
    truth = generator.dirichlet(np.ones(12))
    counts = design.draw((900 * truth).astype(np.int64), 5, generator)
    part = design.marginal(4)
    summed = counts.reshape(5, 4, 3).sum(axis=2)
    joint = design.estimate(counts).reshape(5, 4, 3).sum(axis=2)
    np.testing.assert_allclose(part.estimate(summed), joint, atol=1e-12)
    np.testing.assert_allclose(design.estimate_sets(summed, 3), joint, atol=1e-12)
    components = VarianceComponents(truth.reshape(4, 3).sum(axis=1), part)
    weights = np.repeat(np.array([1.0, -2.0, 0.5, 0.0]), 3)
    whole = VarianceComponents(truth, design)
    assert components.total(weights[::3]) == pytest.approx(whole.total(weights), rel=1e-12)
    even = np.full(12, 1 / 12)
    small = part.cumulants(weights[::3], components.distribution, np.full(4, 1 / 4))
    assert small == pytest.approx(design.cumulants(weights, truth, even), rel=1e-9)


RUNS = 20_000
"""Enough for variances to 1%, and the tolerance of 5.5% is 5.5 standard errors: chance 4e-8."""

DRAWN = {
    "geometric": Mechanism(Coin(THIRD), Geometric(int(0.7 * DRAW_RANGE)), None),
    "geometric, channel": Mechanism(
        Coin(THIRD), Geometric(int(0.7 * DRAW_RANGE)), DRAW_RANGE // 4 * 3
    ),
    "table": Mechanism(Coin(DRAW_RANGE), LAW, None),
    "table, coin, channel": Mechanism(Coin(HALF), LAW, DRAW_RANGE // 4 * 3),
}


@pytest.mark.parametrize("population", ["finite", "super"])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("name", DRAWN)
def test_drawn_releases_have_the_stated_mean_and_variance(
    name: str,
    known: bool,  # noqa: FBT001 - a parameter
    population: Population,
) -> None:
    """Also of a marginal of a joint table with 12 cells, published, with 4,000 people."""
    truth = np.array([0.6, 0.25, 0.15, 0.0])
    design = CoinDesign(
        DRAWN[name], 12, 4, 4000, known, population, PublicationNoise.for_epsilon(1.0, 12)
    )
    counts = design.redraw(truth, RUNS, np.random.default_rng(2))
    errors = design.estimate(counts) - truth
    stated = VarianceComponents(truth, design).cells().total
    assert (np.abs(errors.mean(axis=0)) < 5.5 * np.sqrt(stated / RUNS)).all()
    np.testing.assert_allclose(errors.var(axis=0), stated, rtol=0.055)
    people, error = design.people(round(counts.sum() / RUNS))
    assert people == pytest.approx(4000, abs=5.5 * error / RUNS**0.5 + 2)
    numbers = design.estimate_people(counts, 1)
    if population == "finite":
        constant, slope = design.people_variance(1 / 4)
        np.testing.assert_allclose(numbers.var(axis=0), constant + slope * 4000 * truth, rtol=0.055)
        assert design.estimate_people(counts, 1).sum(axis=1).std() == pytest.approx(error, rel=0.05)


def test_a_release_of_next_to_nobody_has_finite_shares() -> None:
    """Where the correction for n would divide by nothing, it is made evenly."""
    design = CoinDesign(DRAWN["geometric"], 12, 12, 3)
    for counts in (np.zeros(12, dtype=np.int64), np.full(12, 50)):
        shares = design.estimate(counts)
        assert np.isfinite(shares).all()
        assert shares.sum() == pytest.approx(1)


def test_the_shape_of_the_estimate_of_an_empty_cell_is_that_of_its_decoys() -> None:
    """Geometric decoys: skewness 2 and excess 6 in the limit of many cells and many decoys."""
    law = Geometric(int(0.99 * DRAW_RANGE))
    design = CoinDesign(Mechanism(Coin(1 << 60), law, None), 10**6, 10**6, 10**9)
    pair, part = np.array([0.0, 1.0]), np.array([1e-6, 1 - 1e-6])
    shape = design.shape(np.array([1.0, 0.0]), pair, part)
    assert isinstance(shape, Shape)
    assert float(shape.skewness) == pytest.approx(2, abs=0.01)
    assert float(shape.excess) == pytest.approx(6, abs=0.03)


def test_a_table_that_is_no_marginal_is_refused() -> None:
    """Its cells would have different numbers of decoys."""
    with pytest.raises(ParameterError, match="has no marginal of 5 cells"):
        replace(JOINT, cells=5)
    with pytest.raises(ParameterError, match="no population"):
        replace(JOINT, population="infinite")  # type: ignore[arg-type]
