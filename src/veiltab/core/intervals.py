"""Confidence intervals: for shares, for ratios of two estimates, and for ratios of products.

Every function takes arrays, so that many cells or many releases are served at once.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from veiltab.core.design import Design
from veiltab.core.unified import Quadratic, proper_ends

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

FACTORS = 4
"""A ratio of products x₀x₃/(x₁x₂) has four factors."""


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Lower and upper ends; where ``bounded`` is false the data set no limits: ends are ±∞."""

    low: "Array"
    high: "Array"
    bounded: "NDArray[np.bool_]"

    def covers(self, truth: Any) -> "NDArray[np.bool_]":  # noqa: ANN401 - a float or an array
        """Tell where the truth lies within."""
        inside: NDArray[np.bool_] = (self.low <= truth) & (truth <= self.high)
        return inside


def proper_interval(estimate: "Array", variance: Quadratic, critical: float) -> Interval:
    """Return the interval within 0..1 of an estimate whose variance is quadratic in the truth."""
    low, high = proper_ends(estimate, variance, critical)
    return Interval(low, high, np.ones(low.shape, dtype=np.bool_))


def share_interval(estimate: "Array", cells: Any, design: Design, critical: float) -> Interval:  # noqa: ANN401 - a number of cells per set, or one for all
    """Return the shares θ of sets of cells that their unbiased estimates do not contradict.

    A set's variance depends on its own share alone, as a + bθ + gθ(1 − θ), so no estimate of the
    variance is needed: Wilson's interval, seen through the channel, and within 0..1.
    """
    return proper_interval(estimate, _variance(estimate, cells, design), critical)


def share_band(estimate: "Array", cells: Any, design: Design, critical: float) -> Interval:  # noqa: ANN401 - as above
    """Return the same for a simultaneous band, whose critical value is for both sides alike.

    Estimates beyond 0 and 1 are moved there first: a band then holds at least as often.
    """
    constant, linear, square = _variance(estimate, cells, design)
    inside, squared = np.clip(estimate, 0, 1), critical**2
    leading = 1 - squared * square
    middle = (inside + squared * linear / 2) / leading
    root = np.sqrt(np.maximum(middle**2 - (inside**2 - squared * constant) / leading, 0))
    low, high = np.clip(middle - root, 0, 1), np.clip(middle + root, 0, 1)
    return Interval(low, high, np.ones(low.shape, dtype=np.bool_))


def _variance(estimate: "Array", cells: Any, design: Design) -> "Quadratic":  # noqa: ANN401 - as above
    """Return the coefficients of a set's variance over its share."""
    constant, slope = design.privacy_line(cells, estimate)
    factor = float(design.sampling_factor / design.sample_size)
    return constant, slope + factor, -factor


def fieller(
    numerator: "Array", denominator: "Array", covariance: "Array", critical: float
) -> Interval:
    """Return the ratios ρ with (a − ρb)² ≤ z²·Var(a − ρb): Fieller's set.

    It is an interval only if the denominator is clearly not zero, b² > z²·Var(b); everywhere else
    it is the outside of one, or everything, and is given as unbounded.
    """
    squared = critical**2
    leading = denominator**2 - squared * covariance[..., 1, 1]
    middle = numerator * denominator - squared * covariance[..., 0, 1]
    constant = numerator**2 - squared * covariance[..., 0, 0]
    bounded = (leading > 0) & (denominator > 0)
    safe = np.where(bounded, leading, 1.0)
    root = np.sqrt(np.maximum(middle**2 - leading * constant, 0))
    low = np.where(bounded, (middle - root) / safe, -np.inf)
    high = np.where(bounded, (middle + root) / safe, np.inf)
    return Interval(low, high, bounded)


def proportion_interval(
    part: "Array", whole: "Array", covariance: "Array", critical: float
) -> Interval:
    """Return Fieller's interval for the share of a part in its whole, within 0..1."""
    bounded = fieller(part, whole, covariance, critical).bounded
    safe = np.where(bounded, whole, 1.0)
    variance = (
        covariance[..., 0, 0] / safe**2,
        -2 * covariance[..., 0, 1] / safe**2,
        covariance[..., 1, 1] / safe**2,
    )
    found = proper_interval(part / safe, variance, critical)
    low, high = np.where(bounded, found.low, -np.inf), np.where(bounded, found.high, np.inf)
    return Interval(low, high, bounded)


def product_ratio(factors: "Array", covariance: "Array", critical: float) -> Interval:
    """Return an interval for x₀x₃/(x₁x₂), such as an odds ratio: Fieller's, on the two products.

    The products' covariance is taken to first order (delta method); nothing is divided by an
    estimate and no logarithm taken, so that a small cell makes it wide, not wrong.
    """
    x0, x1, x2, x3 = (factors[..., i] for i in range(FACTORS))
    zero = np.zeros_like(x0)
    upper = np.stack([x3, zero, zero, x0], axis=-1)
    lower = np.stack([zero, x2, x1, zero], axis=-1)
    gradients = np.stack([upper, lower], axis=-2)
    products = np.einsum("...ai,...ij,...bj->...ab", gradients, covariance, gradients)
    found = fieller(x0 * x3, x1 * x2, products, critical)
    bounded = found.bounded & (x1 > 0)
    low = np.where(bounded, np.maximum(found.low, 0), -np.inf)
    return Interval(low, np.where(bounded, np.maximum(found.high, 0), np.inf), bounded)
