"""Ratios of two numbers that cannot be negative: the level is exact, and one end may be missing."""

import numpy as np
import pytest
from scipy.special import ndtri

from veiltab.core.intervals import Interval, fieller
from veiltab.core.ratios import Entries, ratio_interval, share_of_both
from veiltab.core.shape import Shape

Z = 1.959963984540054
Array = np.ndarray
STEPS = 80
"""Points on each axis of a grid of normal numbers, all of the same probability."""


def interval(x: Array, y: Array, covariance: Array, shape: Shape | None = None) -> Interval:
    """Return the interval with a covariance that does not depend on the ratio."""
    entries: Entries = tuple(np.full(x.shape, covariance[i]) for i in ((0, 0), (0, 1), (1, 1)))  # type: ignore[assignment]
    scale = np.sqrt(entries[0]), np.sqrt(entries[2])
    return ratio_interval(x, y, lambda _p, _q: (entries, shape), scale, Z)


def normal_pairs(a: float, b: float, correlation: float) -> tuple[Array, Array]:
    """Return equally likely estimates of a and b, each with a standard error of one."""
    points = ndtri((np.arange(STEPS) + 0.5) / STEPS)
    first, second = (axis.reshape(-1) for axis in np.meshgrid(points, points))
    return a + first, b + correlation * first + np.sqrt(1 - correlation**2) * second


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [-0.6, 0.0, 0.9])
@pytest.mark.parametrize(
    ("a", "b"), [(0, 9), (0, 3), (0.7, 9), (6, 6), (9, 3), (3, 0), (9, 0.5), (0, 1), (1, 1), (2, 0)]
)
def test_the_level_is_exact_for_normal_estimates(a: float, b: float, correlation: float) -> None:
    """At ratios of zero and infinity too; only near the origin the set holds more often.

    The grid gives probabilities to about 0.005: nothing is random.
    """
    x, y = normal_pairs(a, b, correlation)
    found = interval(x, y, np.array([[1.0, correlation], [correlation, 1.0]]))
    truth = a / b if b else np.inf
    coverage = float(found.covers(truth).mean())
    assert coverage >= 0.945
    if a**2 - 2 * correlation * a * b + b**2 >= 9 * (1 - correlation**2):
        assert coverage == pytest.approx(0.95, abs=0.005)
    else:
        assert coverage <= 0.98


@pytest.mark.parametrize("correlation", [-0.99, -0.5, -1e-310, 0.0, 0.3, 0.99])
def test_an_interval_has_a_width_and_holds_the_estimate(correlation: float) -> None:
    """Wherever noise takes the two numbers, and however skew it is."""
    generator = np.random.default_rng(5)
    x, y = generator.uniform(-30, 30, (2, 800)) * generator.choice([0.0, 1e-3, 0.1, 1.0], (2, 800))
    skewness = generator.uniform(-2, 2, 800)
    covariance = np.array([[1.0, correlation], [correlation, 1.0]])
    for shape in (None, Shape(skewness, 2 * skewness**2)):
        found = interval(x, y, covariance, shape)
        assert (found.low >= 0).all()
        assert (found.low < found.high).all()
        assert (found.bounded == ((found.low > 0) | np.isfinite(found.high))).all()
        ratio = np.divide(np.maximum(x, 0), y, where=y > 0, out=np.ones_like(x))
        assert (found.low <= ratio * (1 + 1e-9))[y > 0].all()
        assert (found.high >= ratio * (1 - 1e-9))[y > 0].all()


@pytest.mark.parametrize("correlation", [-0.5, 0.0, 0.5])
def test_far_from_the_edges_it_is_fiellers_set(correlation: float) -> None:
    """And the ratio the other way round has the reciprocal ends."""
    covariance = np.array([[1.0, correlation], [correlation, 1.0]])
    x, y = np.random.default_rng(6).uniform(10, 30, (2, 200))
    found, known = interval(x, y, covariance), fieller(x, y, covariance, Z)
    np.testing.assert_allclose(found.low, known.low, rtol=1e-5)
    np.testing.assert_allclose(found.high, known.high, rtol=1e-5)
    np.testing.assert_allclose(interval(y, x, covariance).low, 1 / found.high, rtol=1e-5)


def test_a_vague_denominator_leaves_one_end() -> None:
    """A clear numerator over next to nothing has a lower limit; two vague numbers have none."""
    x, y = np.array([9.0, 9.0, 0.3, -3.0, -3.0]), np.array([0.5, -2.0, 0.3, 9.0, -3.0])
    found = interval(x, y, np.eye(2))
    assert found.bounded.tolist() == [True, True, False, True, False]
    assert np.isinf(found.high).tolist() == [True, True, True, False, True]
    assert 9 - 0.5 * found.low[0] == pytest.approx(Z * (1 + found.low[0] ** 2) ** 0.5, rel=1e-4)
    assert found.low[1] > found.low[0]
    assert found.low[3] == 0
    assert 0 < found.high[3] < 0.2
    shares = share_of_both(found)
    assert shares.high.tolist()[:3] == [1, 1, 1]
    assert shares.low[0] == pytest.approx(found.low[0] / (1 + found.low[0]))


def test_errors_may_depend_on_the_ratio() -> None:
    """Each end is judged by its own errors: here the variance of x is that of a Poisson number."""
    x, y = np.array([40.0]), np.array([1.0])

    def errors_at(p: Array, q: Array) -> tuple[Entries, None]:
        ratio = np.divide(q, p, where=p > 0, out=np.full_like(p, 1e9))
        return (np.maximum(ratio, 1e-9), 0 * p, 0 * p + 1e-12), None

    one = np.array([1.0])
    found = ratio_interval(x, y, errors_at, (one, one), Z)
    for end in (float(found.low[0]), float(found.high[0])):
        assert abs(40 - end) == pytest.approx(Z * end**0.5, rel=1e-3)


def test_an_estimate_that_every_ray_rejects_excludes_nothing() -> None:
    """As may be if errors differ by ray: here they reject both edges of the quadrant."""
    x, y, one = np.array([-10.0]), np.array([-9.0]), np.array([1.0])

    def errors_at(p: Array, q: Array) -> tuple[Entries, None]:
        return (np.where(p > q, 1.0, 0.1), 0.2 * one, np.where(p > q, 0.1, 1.0)), None

    found = ratio_interval(x, y, errors_at, (one, one), Z)
    assert not found.bounded[0]
    assert [found.low[0], found.high[0]] == [0, np.inf]
