"""Intervals: each holds exactly the values that the data do not contradict."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veiltab.core.channel import GammaDiagonal
from veiltab.core.design import Design
from veiltab.core.intervals import (
    fieller,
    product_ratio,
    proportion_interval,
    share_interval,
)

DESIGN = Design(GammaDiagonal(24, Fraction(1, 2)), 10_000, 500)
Z = 1.96


@given(
    estimate=st.floats(-0.3, 1.3),
    cells=st.integers(1, 23),
    population=st.sampled_from(["finite", "super"]),
)
def test_the_ends_of_a_share_are_z_standard_errors_away(
    estimate: float, cells: int, population: str
) -> None:
    """At an end that is not cut off, the estimate is z errors away, with the error of that end.

    (Or zero or one is, where the estimate lies too far beyond.)
    """
    design = Design(DESIGN.channel, 10_000, 500, population)  # type: ignore[arg-type]
    found = share_interval(np.array([estimate]), cells, design, Z)
    low, high = float(found.low[0]), float(found.high[0])
    assert 0 <= low <= high <= 1
    assert found.bounded.all()
    centres = estimate, min(max(estimate, 0), 1)
    for end in (low, high):
        if 0 < end < 1:
            share = np.array([end])
            variance = design.set_privacy(share, cells) + design.set_sampling(share)
            away = pytest.approx(Z * float(variance[0]) ** 0.5, rel=1e-6)
            assert away in [abs(centre - end) for centre in centres]


def test_an_estimate_far_below_zero_still_has_an_interval() -> None:
    """No share fits it, so it counts as zero: the interval is never empty."""
    found = share_interval(np.array([-0.5, 0.0, 1.5]), 1, DESIGN, Z)
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
        assert (together.low[i], together.high[i]) == (alone.low[0], alone.high[0])


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
        assert (found.low, found.high) == (-np.inf, np.inf)
        return
    for end in (float(found.low), float(found.high)):
        weights = np.array([1.0, -end])
        error = float(weights @ covariance @ weights) ** 0.5
        assert abs(numerator - end * denominator) == pytest.approx(Z * error, rel=1e-4, abs=1e-6)


def test_a_proportion_stays_between_zero_and_one() -> None:
    """A part below zero, or above its whole, is moved first where nothing would fit."""
    covariance = np.array([[1e-4, 0.0], [0.0, 1e-4]])
    part, whole = np.array([-0.2, 0.25, 0.9, 0.2]), np.array([0.5, 0.5, 0.5, 0.0])
    found = proportion_interval(part, whole, covariance, Z)
    assert found.bounded.tolist() == [True, True, True, False]
    assert found.low[0] == 0
    assert 0 < found.high[0] < 0.1
    assert found.low[1] < 0.5 < found.high[1]
    assert 0.9 < found.low[2] < found.high[2] == 1


def test_a_ratio_of_products_agrees_with_the_delta_method_when_errors_are_small() -> None:
    """And is turned over with its factors."""
    factors = np.array([0.3, 0.2, 0.1, 0.4])
    covariance = np.diag([1e-8, 2e-8, 1e-8, 3e-8])
    ratio = 0.3 * 0.4 / (0.2 * 0.1)
    relative = float(np.sqrt((np.diag(covariance) / factors**2).sum()))
    found = product_ratio(factors, covariance, Z)
    assert float(found.low) == pytest.approx(ratio * (1 - Z * relative), rel=1e-5)
    assert float(found.high) == pytest.approx(ratio * (1 + Z * relative), rel=1e-5)
    turned = product_ratio(factors[[1, 0, 3, 2]], covariance[[1, 0, 3, 2]][:, [1, 0, 3, 2]], Z)
    assert float(turned.low) == pytest.approx(1 / float(found.high), rel=1e-9)


@pytest.mark.parametrize("factors", [[0.3, 0.01, 0.1, 0.4], [0.3, -0.2, -0.1, 0.4]])
def test_a_ratio_by_next_to_nothing_is_unbounded(factors: list[float]) -> None:
    """Also by a product that is positive only because both factors are negative."""
    found = product_ratio(np.array(factors), np.eye(4) * 1e-3, Z)
    assert not found.bounded
    assert found.covers(10**9)
