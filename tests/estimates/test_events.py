"""Events: intervals of differences and of ratios of products, with a covariance of one's own."""

from fractions import Fraction

import numpy as np
import pytest

from veiltab.core.channel import GammaDiagonal
from veiltab.core.rank_design import RankDesign
from veiltab.core.ratios import share_of_both
from veiltab.inference.events import (
    Events,
    doubled,
    products,
    risks_apart,
    sum_and_difference,
)

Z = 1.959963984540054
DESIGN = RankDesign(GammaDiagonal(24, Fraction(1, 2)), 10_000, 500)


def events(shares: list[float], variances: list[float]) -> Events:
    """Return events with independent errors."""
    size = len(shares)
    even = np.full(size, 1 / size)
    covariance = np.diag(variances)
    return Events(
        np.array(shares), covariance / 2, covariance / 2, np.eye(size), even, even, DESIGN
    )


def test_a_ratio_of_products_agrees_with_the_delta_method_when_errors_are_small() -> None:
    """And is turned over with its factors."""
    shares, variances = [0.3, 0.2, 0.1, 0.4], [1e-8, 2e-8, 1e-8, 3e-8]
    ratio = 0.3 * 0.4 / (0.2 * 0.1)
    relative = float(np.sqrt((np.array(variances) / np.array(shares) ** 2).sum()))
    found = events(shares, variances).ratio(products, Z)
    assert float(found.low) == pytest.approx(ratio * (1 - Z * relative), rel=1e-5)
    assert float(found.high) == pytest.approx(ratio * (1 + Z * relative), rel=1e-5)
    order = [1, 0, 3, 2]
    turned = events([shares[i] for i in order], [variances[i] for i in order]).ratio(products, Z)
    assert float(turned.low) == pytest.approx(1 / float(found.high), rel=1e-6)


def test_two_negative_factors_speak_for_zero() -> None:
    """Their product is positive only by chance: a clear numerator has no upper limit then."""
    vague = events([0.3, -0.2, -0.1, 0.4], [1e-3] * 4).ratio(products, Z)
    assert np.isinf(vague.high)
    below = events([-0.1, 0.3, 0.4, -0.1], [1e-3] * 4).ratio(products, Z)
    above = events([0.1, 0.3, 0.4, 0.1], [1e-3] * 4).ratio(products, Z)
    assert below.low == 0
    assert 0 < float(below.high) < float(above.high)


def test_differences_of_risks_agree_with_the_delta_method_when_errors_are_small() -> None:
    """P(outcome | group) − P(outcome | other), and two shares within one group."""
    a, b, c, d = shares = [0.1, 0.3, 0.2, 0.5]
    gradient = np.array([1 / b, -a / b**2, -1 / d, c / d**2])
    error = float(np.sqrt((gradient**2 * 1e-8).sum()))
    found = doubled(share_of_both(events(shares, [1e-8] * 4).ratio(risks_apart, Z)))
    assert float(found.low) == pytest.approx(a / b - c / d - Z * error, abs=1e-6)
    assert float(found.high) == pytest.approx(a / b - c / d + Z * error, abs=1e-6)
    first, second, whole = 0.1, 0.2, 0.5
    gradient = np.array([1.0, -1.0, -(first - second) / whole]) / whole
    error = float(np.sqrt((gradient**2 * 1e-8).sum()))
    within = events([first, second, whole], [1e-8] * 3).ratio(sum_and_difference, Z)
    ends = doubled(share_of_both(within))
    assert float(ends.low) == pytest.approx(-0.2 - Z * error, abs=1e-6)
    assert float(ends.high) == pytest.approx(-0.2 + Z * error, abs=1e-6)


def test_a_difference_is_never_cut_off() -> None:
    """Beyond 1 the interval still has a width, and reaches as far down as it must."""
    gradient, errors = np.array([1.0, -1.0]), [1e-4, 1e-4]
    inside = events([0.6, 0.1], errors).difference(gradient, Z)
    assert float(inside.low) == pytest.approx(0.5 - Z * 2e-4**0.5, abs=1e-6)
    assert float(inside.high) == pytest.approx(0.5 + Z * 2e-4**0.5, abs=1e-6)
    for first in (0.99, 1.0, 1.05, 1.2):
        beyond = events([first, 0.0], errors).difference(gradient, Z)
        assert 0.95 < float(beyond.low) < float(beyond.high) == 1
