"""The three estimators: exact on small tables, optimal on random ones, better on average."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.channels import gamma_channel
from tests.support.laws import fractions
from veiltab.core.channel import GammaDiagonal
from veiltab.core.estimators import most_likely, project, projected, unbiased
from veiltab.core.rank_design import RankDesign
from veiltab.errors import ParameterError

Shares = NDArray[np.float64]


def design_for(channel: GammaDiagonal) -> RankDesign:
    """Return a design with this channel; estimates depend on nothing else."""
    return RankDesign(channel, 10**6, 1000)


values = st.lists(st.floats(-2, 2), min_size=1, max_size=30).map(np.array)
tables = st.lists(st.integers(0, 1000), min_size=1, max_size=20).filter(any).map(np.array)
gammas = st.fractions(Fraction(11, 10), 100, max_denominator=50)


def exact_most_likely(counts: NDArray[np.object_], channel: GammaDiagonal) -> NDArray[np.object_]:
    """Return the best of all active sets' solutions: slow, obvious, exact."""
    keep, floor = channel.keep_probability, channel.spread
    best: Fraction | None = None
    found: NDArray[np.object_] | None = None
    cells = range(counts.size)
    for size in range(1, counts.size + 1):
        for active in combinations(cells, size):
            total = sum(counts[list(active)])
            if not total:
                continue
            released = fractions([floor] * counts.size)
            for cell in active:
                released[cell] = counts[cell] * (keep + size * floor) / total
            if min(released) < floor:
                continue
            likelihood = Fraction(1)
            for cell in cells:
                likelihood *= released[cell] ** int(counts[cell])
            if best is None or likelihood > best:
                best, found = likelihood, (released - floor) / keep
    assert found is not None
    return found


def expectation_maximisation(counts: Shares, channel: GammaDiagonal, steps: int) -> Shares:
    """Return the most likely distribution by EM, as anybody would compute it."""
    keep, floor = float(channel.keep_probability), float(channel.spread)
    shares = counts / counts.sum(axis=-1, keepdims=True)
    current = np.full(counts.shape, 1 / counts.shape[-1])
    for _ in range(steps):
        ratio = shares / (keep * current + floor)
        current = current * (keep * ratio + floor * ratio.sum(axis=-1, keepdims=True))
    return current


@pytest.mark.parametrize(
    "counts",
    [
        [1],
        [5, 0],
        [0, 0, 1],
        [3, 3, 3],
        [1, 2, 3, 4],
        [10, 0, 0, 1],
        [7, 7, 1, 1],
        [6, 2, 2, 0],
        [9, 1, 1, 1],
        [4, 4, 0, 0],
    ],
)
@pytest.mark.parametrize("gamma", [Fraction(3, 2), Fraction(3), Fraction(20)])
def test_the_most_likely_is_the_best_of_all_active_sets(counts: list[int], gamma: Fraction) -> None:
    """Sorting finds what trying every set of cells finds, in exact arithmetic; ties included."""
    channel = gamma_channel(len(counts), gamma)
    table = fractions(counts)
    found = most_likely(table, design_for(channel))
    assert (found == exact_most_likely(table, channel)).all()
    assert sum(found) == 1
    assert min(found) >= 0
    everyday = most_likely(np.array(counts), design_for(channel))
    np.testing.assert_allclose(everyday, found.astype(float), atol=1e-12)


@given(counts=tables, gamma=gammas)
def test_the_most_likely_meets_the_conditions_of_an_optimum(
    counts: NDArray[np.int64], gamma: Fraction
) -> None:
    """Where a share is positive the gradient is the same; where it is zero it is no larger."""
    channel = gamma_channel(counts.size, gamma)
    found = most_likely(counts, design_for(channel))
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1, abs=1e-9)
    gradient = counts / counts.sum() / channel.transform(found)
    multiplier = gradient[found > 0].max()
    np.testing.assert_allclose(gradient[found > 0], multiplier, rtol=1e-8)
    assert (gradient <= multiplier * (1 + 1e-8)).all()


@given(counts=tables, gamma=gammas, factor=st.integers(2, 1000))
def test_estimates_depend_on_shares_alone(
    counts: NDArray[np.int64], gamma: Fraction, factor: int
) -> None:
    """Ten times the records in every cell say the same, whatever the estimator."""
    channel = gamma_channel(counts.size, gamma)
    for estimator in (unbiased, projected, most_likely):
        np.testing.assert_allclose(
            estimator(counts * factor, design_for(channel)),
            estimator(counts, design_for(channel)),
            atol=1e-9,
        )


@pytest.mark.slow
@settings(max_examples=30)
@given(
    counts=st.lists(st.integers(0, 300), min_size=2, max_size=12).filter(any).map(np.array),
    gamma=st.fractions(3, 60, max_denominator=9),
)
def test_the_most_likely_is_what_em_converges_to(
    counts: NDArray[np.int64], gamma: Fraction
) -> None:
    """Never less likely than EM's answer after many steps, and the same if EM has converged."""
    channel = gamma_channel(counts.size, gamma)
    found = most_likely(counts, design_for(channel))
    slow = expectation_maximisation(counts.astype(np.float64), channel, 3000)
    likelihood, reached = (
        float(counts @ np.log(channel.transform(each))) for each in (found, slow)
    )
    assert likelihood >= reached - 1e-9 * abs(reached)


@pytest.mark.slow
@pytest.mark.parametrize("cells", [2, 5, 12, 24])
def test_the_most_likely_equals_em_on_random_tables(cells: int) -> None:
    """To 1e-8, on fifty random tables each, with shares on the boundary."""
    generator = np.random.default_rng(cells)
    channel = gamma_channel(cells, Fraction(2 * cells + 1))
    released = channel.transform(generator.dirichlet(np.full(cells, 0.3), size=50))
    # Not whole numbers: where a cell is exactly at the edge of being empty, EM never arrives.
    counts = generator.gamma(released * generator.integers(20, 500, size=(50, 1)))
    found = most_likely(counts, design_for(channel))
    slow = expectation_maximisation(counts, channel, 60_000)
    np.testing.assert_allclose(slow, found, rtol=0, atol=1e-8)
    assert (found == 0).any(axis=1).sum() > 10


@given(values=values)
def test_projecting_twice_is_projecting_once(values: Shares) -> None:
    """A projection is a proper distribution, and stays where it is."""
    once = project(values)
    assert once.min() >= 0
    assert once.sum() == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(project(once), once, atol=1e-12)


@given(values=values, seed=st.integers(0, 2**32))
def test_no_distribution_is_nearer_than_the_projection(values: Shares, seed: int) -> None:
    """The way to any proper distribution makes a blunt angle at the projection."""
    nearest = project(values)
    generator = np.random.default_rng(seed)
    others = generator.dirichlet(np.full(values.size, 0.5), size=20)
    others = np.concatenate([others, np.eye(values.size)])
    assert ((others - nearest) @ (values - nearest) <= 1e-9).all()


def test_the_projection_is_exact_in_fractions() -> None:
    """A case by hand: the threshold is one sixth, and two cells are left."""
    found = project(fractions(["2/3", "2/3", "-1/3", "0"]))
    assert found.tolist() == [Fraction(1, 2), Fraction(1, 2), 0, 0]
    assert project(fractions(["-7"])).tolist() == [1]


def test_many_releases_are_estimated_at_once() -> None:
    """Cells run along the last axis, whatever comes before it."""
    generator = np.random.default_rng(1)
    counts = generator.integers(0, 9, size=(3, 4, 6)) + np.eye(6, dtype=np.int64)[0]
    channel = gamma_channel(6, Fraction(5))
    for estimator in (unbiased, projected, most_likely):
        together = estimator(counts, design_for(channel))
        for row in np.ndindex(3, 4):
            np.testing.assert_allclose(
                together[row], estimator(counts[row], design_for(channel)), atol=1e-15
            )


def test_the_unbiased_estimate_is_the_channels_own() -> None:
    """One formula, in two places."""
    channel = gamma_channel(3, Fraction(4))
    counts = np.array([1, 2, 5])
    np.testing.assert_array_equal(unbiased(counts, design_for(channel)), channel.estimate(counts))


@pytest.mark.parametrize("counts", [[1, 2], [0, 0, 0], [3, -1, 1]])
def test_what_is_no_release_is_refused(counts: list[int]) -> None:
    """A count for each cell, at least one record, none negative."""
    channel = gamma_channel(3, Fraction(4))
    for estimator in (unbiased, projected, most_likely):
        with pytest.raises(ParameterError) as caught:
            estimator(np.array(counts), design_for(channel))
        assert caught.value.hint
