"""Intervals: each holds exactly the values that the data do not contradict."""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm

from veiltab.core import intervals
from veiltab.core.channel import GammaDiagonal
from veiltab.core.intervals import (
    feldman_cousins,
    fieller,
    proportion_interval,
    share_band,
    share_interval,
)
from veiltab.core.rank_design import RankDesign
from veiltab.core.uncertainty import Population

DESIGN = RankDesign(GammaDiagonal(24, Fraction(1, 2)), 10_000, 500)
Z = 1.96


@pytest.mark.slow
@pytest.mark.parametrize("critical", [1.0, 1.644853627, 1.96, 3.3])
@pytest.mark.parametrize("truth", [0.0, 0.01, 0.03, 0.09, 0.2, 0.5, 0.93, 1.0])
def test_an_interval_covers_exactly_as_often_as_it_says(truth: float, critical: float) -> None:
    """For normal estimates, at zero and one too: the estimates that accept the truth, summed up.

    Steps of σ/4,000 leave an error of less than 4e-5 at either end.
    """
    error = 0.03
    estimates = np.linspace(truth - 6 * error, truth + 6 * error, 48_001)
    interval = feldman_cousins(estimates, (error**2, 0.0, 0.0), critical)
    low, high = interval.low, interval.high
    assert (low < high).all()
    assert low.min() >= 0
    assert high.max() <= 1
    inside = (low <= truth) & (truth <= high)
    chance = float(norm.pdf(estimates[inside], truth, error).sum() * 12 * error / 48_000)
    assert chance == pytest.approx(1 - 2 * norm.sf(critical), abs=2e-4)


@pytest.mark.slow
@given(estimate=st.floats(-0.3, 1.3), cells=st.integers(1, 23))
def test_intervals_are_never_empty_and_nested(estimate: float, cells: int) -> None:
    """More confidence never takes anything away, and a band holds every interval within."""
    value = np.array([estimate])
    ends = []
    for critical in (1.0, 1.645, 1.96, 2.576):
        found = share_interval(value, cells, DESIGN, critical)
        assert 0 <= found.low[0] < found.high[0] <= 1
        ends.append((found.low[0], found.high[0]))
    for (inner_low, inner_high), (low, high) in pairwise(ends):
        assert low <= inner_low + 1e-8
        assert high >= inner_high - 1e-8
    band = share_band(value, cells, DESIGN, 2.576)
    assert band.low[0] <= ends[-1][0] + 1e-8
    assert band.high[0] >= ends[-1][1] - 1e-8


@given(
    estimate=st.floats(0.25, 0.75),
    cells=st.integers(1, 23),
    population=st.sampled_from(["finite", "super"]),
)
def test_far_from_the_edges_the_ends_are_z_standard_errors_away(
    estimate: float, cells: int, population: Population
) -> None:
    """With the standard error of the end itself: Wilson's interval, through the channel."""
    design = RankDesign(DESIGN.channel, 10_000, 500, population)
    found = share_interval(np.array([estimate]), cells, design, Z)
    for end in (float(found.low[0]), float(found.high[0])):
        share = np.array([end])
        variance = design.total.of_sets(share, cells / design.cells)
        if min(end, 1 - end) > 1.01 * Z * float(variance[0]) ** 0.5:
            assert abs(estimate - end) == pytest.approx(Z * float(variance[0]) ** 0.5, rel=1e-5)


def test_a_band_moves_estimates_that_lie_beyond() -> None:
    """Where no share would fit, the estimate counts as zero or one."""
    found = share_band(np.array([-0.5, 0.0, 1.5]), 1, DESIGN, 3.0)
    assert found.low[0] == 0
    assert found.high[0] == found.high[1] > 0.01
    assert found.high[2] == 1
    assert found.low[2] < 1


def test_many_cells_at_once_are_as_one_by_one() -> None:
    """Estimates and numbers of cells go together along the arrays."""
    estimates, cells = np.array([0.1, 0.5, -0.2]), np.array([1.0, 12.0, 3.0])
    together = share_interval(estimates, cells, DESIGN, Z)
    for i in range(3):
        alone = share_interval(estimates[i : i + 1], float(cells[i]), DESIGN, Z)
        ends = (float(alone.low[0]), float(alone.high[0]))
        # Ends are looked for until all are exact enough, so that those of one cell may be better.
        assert (together.low[i], together.high[i]) == pytest.approx(ends, abs=1e-8)


@pytest.mark.parametrize("population", ["finite", "super"])
def test_large_tables_have_the_intervals_of_their_few_different_estimates(
    population: Population, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each value is looked for once, whatever the order; a million cells have a few counts."""
    looked_for: list[int] = []

    def counted(estimate: NDArray[np.float64], *rest: Any) -> intervals.Interval:
        looked_for.append(estimate.size)
        return feldman_cousins(estimate, *rest)

    monkeypatch.setattr(intervals, "feldman_cousins", counted)
    design = RankDesign(DESIGN.channel, 10_000, 500, population)
    values = np.array([0.3, -0.01, 0.002, 0.3, 0.9])
    few = share_interval(values, 1, design, Z)
    many = share_interval(np.resize(values, (20, 5_000)), 1, design, Z)
    for end, ends in ((few.low, many.low), (few.high, many.high)):
        np.testing.assert_allclose(ends, np.resize(end, (20, 5_000)), atol=1e-8)
    assert many.bounded.shape == (20, 5_000)
    assert looked_for == [5, 4]
    several = share_interval(np.resize(values, 5_000), np.resize([1.0, 2.0], 5_000), design, Z)
    assert several.low[0] != several.low[5]  # the same estimate, of one cell and of two
    assert looked_for == [5, 4, 5_000]


@given(
    numerator=st.floats(-2, 2),
    denominator=st.floats(-2, 2),
    errors=st.tuples(st.floats(0.01, 1), st.floats(0.01, 1), st.floats(-0.99, 0.99)),
)
def test_fiellers_ends_are_where_the_linear_statistic_is_just_significant(
    numerator: float, denominator: float, errors: tuple[float, float, float]
) -> None:
    """At each end ρ, a − ρb is z of its own standard errors from zero; unbounded if b is vague."""
    first, second, correlation = errors
    shared = correlation * first * second
    covariance = np.array([[first**2, shared], [shared, second**2]])
    found = fieller(np.array(numerator), np.array(denominator), covariance, Z)
    assert bool(found.bounded) == (denominator > Z * second)
    if not found.bounded:
        assert [float(found.low), float(found.high)] == [-np.inf, np.inf]
        return
    for end in (float(found.low), float(found.high)):
        weights = np.array([1.0, -end])
        error = float(weights @ covariance @ weights) ** 0.5
        assert abs(numerator - end * denominator) == pytest.approx(Z * error, rel=1e-4, abs=1e-6)


def test_a_proportion_stays_between_zero_and_one() -> None:
    """Also for a part below zero, or above its whole; of a vague whole nothing is known."""
    covariance = np.array([[1e-4, 0.0], [0.0, 1e-4]])
    part, whole = np.array([-0.2, 0.25, 0.9, 0.2]), np.array([0.5, 0.5, 0.5, 0.0])
    found = proportion_interval(part, whole, covariance, Z)
    assert found.bounded.tolist() == [True, True, True, False]
    assert found.low[0] == 0
    assert 0 < found.high[0] < 0.1
    assert found.low[1] < 0.5 < found.high[1]
    assert 0.9 < found.low[2] < found.high[2] == 1
