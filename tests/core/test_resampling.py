"""Drawn releases follow the law of the real ones."""

from fractions import Fraction

import numpy as np
import pytest

from tests.support.laws import assert_fits
from veiltab.core.channel import GammaDiagonal
from veiltab.core.resampling import MAX_COUNTED_POPULATION, redraw_releases
from veiltab.core.uncertainty import ReleaseDesign, VarianceComponents
from veiltab.errors import ParameterError

CHANNEL = GammaDiagonal(3, Fraction(2, 5))
TRUTH = np.array([0.5, 0.3, 0.2])


@pytest.mark.parametrize("population", ["finite", "super"])
def test_redrawn_releases_have_the_mean_and_the_covariance_that_are_stated(
    population: str,
) -> None:
    """Per-cell means and variances of 40,000 releases; false alarm below 1e-6, fixed seed."""
    design = ReleaseDesign(CHANNEL, 60, 50, population)  # type: ignore[arg-type]
    counts = redraw_releases(TRUTH, design, 40_000, np.random.default_rng(2))
    assert (counts.sum(axis=1) == 50).all()
    errors = CHANNEL.estimate(counts) - TRUTH
    stated = (
        VarianceComponents(TRUTH, ReleaseDesign(CHANNEL, 60, 50, design.population)).cells().total
    )
    assert (np.abs(errors.mean(axis=0)) < 5.5 * np.sqrt(stated / 40_000)).all()
    np.testing.assert_allclose(errors.var(axis=0), stated, rtol=0.05)


def test_a_larger_population_gives_a_multinomial_release() -> None:
    """Single records of it are distributed as the channel says."""
    design = ReleaseDesign(CHANNEL, 60, 1, "super")
    counts = redraw_releases(TRUTH, design, 30_000, np.random.default_rng(4)).sum(axis=0)
    assert_fits(counts, CHANNEL.transform(TRUTH))


def test_a_finite_population_that_is_too_large_is_refused() -> None:
    """And the way out is named."""
    design = ReleaseDesign(CHANNEL, MAX_COUNTED_POPULATION + 1, 50)
    with pytest.raises(ParameterError, match="too large to draw from") as caught:
        redraw_releases(TRUTH, design, 1, np.random.default_rng(0))
    assert "super" in caught.value.hint
