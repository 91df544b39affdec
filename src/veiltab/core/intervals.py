"""Confidence intervals: for one share, for a ratio, and for all cells at once.

Numbers that cannot be negative get intervals in the manner of Feldman and Cousins (1998), which
are neither empty nor too short.  Simultaneous intervals use one critical value for all cells.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy.special import ndtr

from veiltab.core.resampling import MAX_COUNTED_POPULATION, redraw_releases
from veiltab.core.uncertainty import Design, Uncertainty, critical_value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    from collections.abc import Iterator


Quadratic: TypeAlias = tuple[Any, Any, Any]
"""Coefficients a, b, c (numbers or arrays) of the variance a + bθ + cθ²."""

HALVINGS = 30
_GRID = 512
_TINY = 1e-150
"""Stands for a standard error of zero, so that nothing is divided by it."""


def proper_ends(estimate: "Array", variance: Quadratic, critical: float) -> "tuple[Array, Array]":
    """Return both ends, within 0..1; an estimate above one half is looked at from one downwards."""
    a, b, c = variance
    turned = estimate > 1 / 2
    value = np.where(turned, 1 - estimate, estimate)
    seen = (np.where(turned, a + b + c, a), np.where(turned, -b - 2 * c, b), c)
    low = _find(value, seen, critical, upper=False)
    high = _find(value, seen, critical, upper=True)
    return np.where(turned, 1 - high, low), np.where(turned, 1 - low, high)


def _find(value: "Array", variance: Quadratic, critical: float, *, upper: bool) -> "Array":
    """Halve 0..1 again and again around the last θ that is too small, or the first too large."""
    below, above = np.zeros_like(value), np.ones_like(value)
    for _ in range(HALVINGS):
        theta = (below + above) / 2
        error = np.sqrt(np.maximum(_at(variance, theta), _TINY**2))
        deviation = (value - theta) / error
        room = _room(theta / error, critical)
        bound = -_lower_room(theta / error, room) if upper else room
        smaller = deviation >= bound
        below, above = np.where(smaller, theta, below), np.where(smaller, above, theta)
    return above if upper else below


def _at(variance: Quadratic, theta: "Array") -> "Array":
    a, b, c = variance
    found: Array = a + theta * (b + theta * c)
    return found


def _room(distance: "Array", critical: float) -> "Array":
    """Return d for each μ."""
    return np.interp(distance, np.linspace(0, critical, _GRID), _rooms(critical))


def _lower_room(distance: "Array", room: "Array") -> "Array":
    """Return k for each μ and d."""
    near = distance < room
    safe = np.maximum(distance, _TINY)
    return np.where(near, safe / 2 + room * (room / (2 * safe)), room)


@lru_cache(maxsize=64)
def _rooms(critical: float) -> "Array":
    """Return d on a grid of μ from 0 to z, by halving: Φ(d) − Φ(−k) grows with d."""
    level = float(ndtr(critical) - ndtr(-critical))
    distance = np.linspace(0, critical, _GRID)
    below, above = np.zeros(_GRID), np.full(_GRID, critical)
    for _ in range(60):
        room = (below + above) / 2
        enough = ndtr(room) - ndtr(-_lower_room(distance, room)) >= level
        below, above = np.where(enough, below, room), np.where(enough, room, above)
    above[-1] = critical
    return above


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


SIDAK_CELLS = 100_000
"""Above it the critical value is Šidák's, which needs no draws and is never too small."""

RELEASED_CELLS = 2_000
"""Up to it whole releases are drawn; above it normal errors with the same covariance, faster."""

DRAWN_NUMBERS = 20_000_000
"""About how many numbers are drawn for one critical value: a second or two."""

ROUNDING = 1e-9
"""A smaller standard error is zero, less precisely computed."""

FEWEST_DRAWS, MOST_DRAWS = 1_000, 20_000
_BATCH_NUMBERS = 1 << 20


def sup_t(
    uncertainty: Uncertainty, level: float, generator: np.random.Generator, draws: int | None = None
) -> float:
    """Return c such that all |T̂ⱼ − Tⱼ| ≤ c·(standard error) hold together with this confidence.

    It is a quantile of the largest standardised error, drawn from the law of the release, or from
    the normal law with the exact covariance.  It is never below the value for one cell alone.
    """
    single = critical_value(level)
    cells = uncertainty.distribution.size
    if cells > SIDAK_CELLS:
        return critical_value(level ** (1 / cells))
    errors = np.sqrt(np.maximum(uncertainty.cells().total, 0))
    uncertain = errors > ROUNDING
    if not uncertain.any():
        return single
    if draws is None:
        draws = min(MOST_DRAWS, max(FEWEST_DRAWS, DRAWN_NUMBERS // cells))
    largest = [
        (np.abs(drawn[:, uncertain]) / errors[uncertain]).max(axis=1)
        for drawn in _drawn_errors(uncertainty, draws, generator)
    ]
    found = np.quantile(np.concatenate(largest), level, method="higher")
    return max(single, float(found))


def _drawn_errors(
    uncertainty: Uncertainty, draws: int, generator: np.random.Generator
) -> "Iterator[NDArray[np.float64]]":
    """Yield errors of the unbiased estimate, in batches so that memory stays bounded."""
    truth, design = uncertainty.distribution, uncertainty.design
    countable = design.population == "super" or design.population_size <= MAX_COUNTED_POPULATION
    whole = countable and truth.size <= RELEASED_CELLS
    batch = max(1, _BATCH_NUMBERS // truth.size)
    for start in range(0, draws, batch):
        size = min(batch, draws - start)
        if whole:
            yield design.channel.estimate(redraw_releases(truth, design, size, generator)) - truth
        else:
            yield uncertainty.draw(size, generator)
