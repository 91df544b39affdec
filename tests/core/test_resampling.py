"""Drawn releases follow the law of the real ones."""

from fractions import Fraction

import numpy as np
import pytest

from tests.support.laws import assert_fits
from veiltab.core.channel import GammaDiagonal
from veiltab.core.rank_design import RankDesign
from veiltab.core.resampling import MAX_COUNTED_POPULATION
from veiltab.core.uncertainty import VarianceComponents
from veiltab.errors import ParameterError

CHANNEL = GammaDiagonal(3, Fraction(2, 5))
TRUTH = np.array([0.5, 0.3, 0.2])


@pytest.mark.parametrize("population", ["finite", "super"])
def test_redrawn_releases_have_the_mean_and_the_covariance_that_are_stated(
    population: str,
) -> None:
    """Per-cell means and variances of 40,000 releases; false alarm below 1e-6, fixed seed."""
    design = RankDesign(CHANNEL, 60, 50, population)  # type: ignore[arg-type]
    counts = design.redraw(TRUTH, 40_000, np.random.default_rng(2))
    assert (counts.sum(axis=1) == 50).all()
    errors = design.estimate(counts) - TRUTH
    stated = VarianceComponents(TRUTH, RankDesign(CHANNEL, 60, 50, design.population)).cells().total
    assert (np.abs(errors.mean(axis=0)) < 5.5 * np.sqrt(stated / 40_000)).all()
    np.testing.assert_allclose(errors.var(axis=0), stated, rtol=0.05)


def test_a_larger_population_gives_a_multinomial_release() -> None:
    """Single records of it are distributed as the channel says."""
    design = RankDesign(CHANNEL, 60, 1, "super")
    counts = design.redraw(TRUTH, 30_000, np.random.default_rng(4)).sum(axis=0)
    assert_fits(counts, CHANNEL.transform(TRUTH))


def test_a_finite_population_that_is_too_large_is_refused() -> None:
    """And the way out is named."""
    design = RankDesign(CHANNEL, MAX_COUNTED_POPULATION + 1, 50)
    with pytest.raises(ParameterError, match="too large to draw from") as caught:
        design.redraw(TRUTH, 1, np.random.default_rng(0))
    assert "super" in caught.value.hint
