"""The covariance by cause, exactly; normal draws with that covariance; critical values."""

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from tests.support.channels import gamma_channel
from tests.support.laws import fractions
from veiltab.core.channel import GammaDiagonal
from veiltab.core.intervals import sup_t
from veiltab.core.rank_design import RankDesign, finite_population_correction
from veiltab.core.uncertainty import (
    Population,
    VarianceComponents,
    critical_value,
)
from veiltab.errors import ParameterError

# Every root in the formulas is rational here, so that they can be checked exactly.


def matrix_of(uncertainty: VarianceComponents) -> NDArray[np.object_]:
    """Return the whole covariance matrix, entry by entry."""
    units = np.eye(uncertainty.distribution.size, dtype=np.int64)
    return np.array([[uncertainty.between(u, w) for w in units] for u in units])


@pytest.mark.parametrize(("n", "m"), [(9, 4), (4, 4), (1, 1)])
def test_both_parts_sum_to_the_textbook_covariance(n: int, m: int) -> None:
    """(1/m)[A⁻¹ diag(AT) A⁻ᵀ − diag(T)] + (f/m)(diag(T) − TTᵀ), written out as matrices."""
    truth, gamma = fractions(["1/2", "1/3", "1/6"]), Fraction(7, 2)
    channel = gamma_channel(3, gamma)
    uncertainty = VarianceComponents(truth, RankDesign(channel, n, m))
    inverse = (np.diag(fractions([1] * 3)) * channel.normalizer - 1) / (gamma - 1)
    factor = finite_population_correction(n, m)
    privacy = (inverse @ np.diag(channel.transform(truth)) @ inverse.T - np.diag(truth)) / m
    sampling = (np.diag(truth) - np.outer(truth, truth)) * factor / m
    assert (matrix_of(uncertainty) == privacy + sampling).all()
    weights = fractions([1, -2, "1/2"])
    assert uncertainty.privacy(weights) == weights @ privacy @ weights
    assert uncertainty.sampling(weights) == weights @ sampling @ weights
    assert uncertainty.total(weights) == weights @ (privacy + sampling) @ weights
    assert (uncertainty.cells().total == (privacy + sampling).diagonal()).all()
    assert (uncertainty.sampling(weights) == 0) == (n == m)


def test_a_larger_population_is_a_multinomial_sample_through_the_channel() -> None:
    """With f = 1 the covariance is A⁻¹(diag(v) − vvᵀ)A⁻ᵀ/m, whatever n is."""
    truth, gamma = fractions(["1/2", "1/3", "1/6"]), Fraction(7, 2)
    channel = gamma_channel(3, gamma)
    released = channel.transform(truth)
    inverse = (np.diag(fractions([1] * 3)) * channel.normalizer - 1) / (gamma - 1)
    expected = inverse @ (np.diag(released) - np.outer(released, released)) @ inverse.T / 4
    for n in (4, 9):
        assert (
            matrix_of(VarianceComponents(truth, RankDesign(channel, n, 4, "super"))) == expected
        ).all()


@pytest.mark.parametrize("population", ["finite", "super"])
def test_a_set_of_cells_has_the_variance_of_its_own_share(population: Population) -> None:
    """Closed forms for sets and partitions agree with sums over the joint covariance, exactly."""
    truth, channel = fractions(["1/2", "1/6", "1/6", "1/6"]), GammaDiagonal(4, Fraction(2, 5))
    uncertainty = VarianceComponents(truth, RankDesign(channel, 9, 4, population))
    design = uncertainty.design
    sets = fractions([1, 1, 0, 0]), fractions([0, 0, 1, 0]), fractions([0, 0, 0, 1])
    shares, parts = fractions(["2/3", "1/6", "1/6"]), fractions(["1/2", "1/4", "1/4"])
    privacy = design.privacy.of_partition(shares, parts)
    sampling = design.sampling.of_partition(shares, parts)
    constant, slope, square = design.total.quadratic(parts)
    for i, left in enumerate(sets):
        assert design.privacy.of_sets(shares, parts)[i] == uncertainty.privacy(left)
        assert design.sampling.of_sets(shares, parts)[i] == uncertainty.sampling(left)
        polynomial = constant[i] + slope[i] * shares[i] + square * shares[i] ** 2
        assert polynomial == uncertainty.total(left)
        for j, right in enumerate(sets):
            assert privacy[i, j] + sampling[i, j] == uncertainty.between(left, right)
            assert privacy[i, j] == design.privacy.between(truth, left, right)


def test_many_distributions_at_once() -> None:
    """One per row; each has its own variances."""
    truths = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    channel, weights = GammaDiagonal(3, Fraction(2, 5)), np.array([1.0, -1.0, 0.5])
    together = VarianceComponents(truths, RankDesign(channel, 50, 20)).total(weights)
    for row in range(2):
        alone = VarianceComponents(truths[row], RankDesign(channel, 50, 20)).total(weights)
        assert together[row] == pytest.approx(alone, rel=1e-12)


def test_critical_values() -> None:
    """The usual one, and a refusal of what is no level."""
    assert critical_value(0.95) == pytest.approx(1.959964, abs=1e-6)
    for level in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(ParameterError):
            critical_value(level)


def test_the_band_lies_between_one_cell_and_sidak() -> None:
    """Wider than for one cell; no wider than Šidák's by more than the draws' own error."""
    channel = GammaDiagonal(24, Fraction(1, 2))
    uncertainty = VarianceComponents(
        np.full(24, 1 / 24), RankDesign(channel, 10**8, 10**6, "super")
    )
    found = sup_t(uncertainty, 0.95, np.random.default_rng(0))
    sidak = float(norm.ppf((1 + 0.95 ** (1 / 24)) / 2))
    assert critical_value(0.95) < found < sidak + 0.05
    assert found == pytest.approx(sidak, abs=0.05)  # the cells are almost independent


def test_the_band_needs_draws_of_the_release_where_cells_are_small() -> None:
    """With eight records a cell the counts are skewed, and the normal value is too small."""
    channel = GammaDiagonal(24, Fraction(1, 2))
    uncertainty = VarianceComponents(np.full(24, 1 / 24), RankDesign(channel, 10**6, 198))
    generator = np.random.default_rng(0)
    found = sup_t(uncertainty, 0.95, generator)
    design = RankDesign(channel, 10**6, 198)
    releases = design.redraw(uncertainty.distribution, 20_000, generator)
    errors = design.estimate(releases) - 1 / 24
    largest = (np.abs(errors) / np.sqrt(uncertainty.cells().total)).max(axis=1)
    # The standard error of both is 0.15%, and counts come in steps: false alarm below 1e-6.
    assert 0.94 < float((largest <= found).mean()) < 0.975
    normal = critical_value(0.95 ** (1 / 24))
    assert float((largest <= normal).mean()) < 0.93


def test_a_table_without_uncertainty_has_the_value_of_one_cell() -> None:
    """A single cell holds everybody; there is nothing to be wrong about."""
    uncertainty = VarianceComponents(
        np.ones(1), RankDesign(GammaDiagonal(1, Fraction(1, 2)), 10, 10)
    )
    assert sup_t(uncertainty, 0.9, np.random.default_rng(0)) == critical_value(0.9)


def test_only_two_populations_are_known() -> None:
    """A word that is neither is refused, with both named."""
    with pytest.raises(ParameterError, match="no population 'infinite'") as caught:
        RankDesign(GammaDiagonal(2, Fraction(1, 2)), 3, 2, "infinite")  # type: ignore[arg-type]
    assert "super" in caught.value.hint
