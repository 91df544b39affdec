"""Confidence intervals: for shares, for ratios of two estimates, and for ratios of products.

Every function takes arrays, so that many cells or many releases are served at once.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from veiltab.core.design import Design

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


def share_interval(estimate: "Array", cells: Any, design: Design, critical: float) -> Interval:  # noqa: ANN401 - a number of cells per set, or one for all
    """Return all shares θ of sets of cells that their unbiased estimates do not contradict.

    A set's variance depends on its own share alone, as a + bθ + (f/m)θ(1 − θ), so
    (θ̂ − θ)² ≤ z²·Var(θ) is solved in closed form, without an estimate of the variance: Wilson's
    interval, seen through the channel.  The ends lie in 0..1; where no share at all would fit,
    the estimate is first moved to 0 or 1.
    """
    low, high = _score_ends(estimate, cells, design, critical)
    fits = (high >= 0) & (low <= 1)
    if not fits.all():
        moved = _score_ends(np.clip(estimate, 0, 1), cells, design, critical)
        low, high = np.where(fits, low, moved[0]), np.where(fits, high, moved[1])
    return Interval(np.clip(low, 0, 1), np.clip(high, 0, 1), np.ones(fits.shape, dtype=np.bool_))


def _score_ends(
    estimate: "Array",
    cells: Any,  # noqa: ANN401 - as above
    design: Design,
    critical: float,
) -> "tuple[Array, Array]":
    """Return both roots of (θ̂ − θ)² = z²(a + bθ + gθ(1 − θ))."""
    constant, slope = design.privacy_line(cells, estimate)
    factor = float(design.sampling_factor / design.sample_size)
    squared = critical**2
    leading = 1 + squared * factor
    middle = (estimate + squared * (slope + factor) / 2) / leading
    root = np.sqrt(np.maximum(middle**2 - (estimate**2 - squared * constant) / leading, 0))
    return middle - root, middle + root


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
    """Return Fieller's interval for the share of a part in its whole, within 0..1.

    Where no such share would fit, the part is first moved into 0..whole.
    """
    found = fieller(part, whole, covariance, critical)
    fits = (found.high >= 0) & (found.low <= 1)
    moved = fieller(np.clip(part, 0, np.maximum(whole, 0)), whole, covariance, critical)
    low = np.where(fits, found.low, moved.low)
    high = np.where(fits, found.high, moved.high)
    return Interval(np.clip(low, 0, 1), np.clip(high, 0, 1), found.bounded)


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
