"""Confidence intervals: for shares, for ratios, and for all cells at once.

Every function takes arrays, so that many cells or many releases are served at once.

A share cannot be negative, yet its unbiased estimate can, and the usual interval then holds little
or nothing that is possible.  Shares therefore get the intervals of Feldman and Cousins (1998): for
each true θ they accept the estimates x that are likeliest compared with the best possible θ for
that x.  With the normal law and μ = θ/σ these are θ − kσ ≤ x ≤ θ + dσ, where d = k = z for μ ≥ z,
and below that

    k = (μ² + d²)/(2μ)    and    Φ(d) − Φ(−k) = the level.

The interval holds all θ that accept the estimate: for a normal estimate with this variance it
covers as often as it says, at zero too.
Where the law of an estimate is not normal, because decoys are few or published noise has heavy
tails, the deviation (x − θ)/σ is replaced by its score (:mod:`veiltab.core.shape`).
Simultaneous intervals of a few cells use one critical value, larger than z, for all of them; those
of many cells are in :mod:`veiltab.core.tails`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy.special import ndtr

from veiltab.core.crossings import crossings
from veiltab.core.shape import Shape
from veiltab.core.uncertainty import ReleaseDesign, VarianceComponents, critical_value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from veiltab.core.coin_design import CoinDesign

    Array = NDArray[np.float64]

ShapeAt: TypeAlias = Callable[["Array"], Shape]
"""Returns the shape of the law of an estimate for each true value."""

Quadratic: TypeAlias = tuple[Any, Any, Any]
"""Coefficients a, b, c (numbers or arrays) of the variance a + bθ + cθ²."""

VarianceAt: TypeAlias = Callable[["Array"], "Array"]
"""Returns the variance of an estimate for each true value."""

_GRID = 512
_TINY = 1e-150
"""Replaces a standard error of zero as a divisor."""


DRAWN_NUMBERS = 20_000_000
"""About how many numbers are drawn for one critical value: a second or two."""

ROUNDING = 1e-12
"""A standard error below this is a rounded zero."""

MOST_SHAPES = 1 << 12
SHAPE_STEPS = 128
"""For more estimates, the shape of their errors is computed at so many shares and interpolated."""

FAR = 20.0
"""How many standard errors above its estimate a number of people is searched."""

FEWEST_DRAWS, MOST_DRAWS = 1_000, 20_000
_BATCH_NUMBERS = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Lower and upper ends; where ``bounded`` is false the data exclude no possible value."""

    low: "Array"
    high: "Array"
    bounded: "NDArray[np.bool_]"

    def covers(self, truth: Any) -> "NDArray[np.bool_]":  # noqa: ANN401 - a float or an array
        """Tell which intervals hold the truth."""
        inside: NDArray[np.bool_] = (self.low <= truth) & (truth <= self.high)
        return inside


def share_interval(
    estimate: "Array",
    cells: Any,  # noqa: ANN401 - how many cells: one number for all sets, or one for each
    design: ReleaseDesign,
    critical: float,
) -> Interval:
    """Return the intervals for the shares θ of sets of cells, from their unbiased estimates.

    A set's variance depends on its own share alone, as a + bθ + cθ², so that it need not be
    estimated: these are score intervals, as Wilson's is, for data from the mechanism.
    """
    fractions = cells / design.cells
    variance = design.total.quadratic(fractions)

    def find(values: "Array") -> Interval:
        shape_at = _shapes(design, fractions, values.size)
        return feldman_cousins(values, variance, critical, shape_at)

    return find(estimate) if np.ndim(fractions) or design.many else _of_different(estimate, find)


def _of_different(estimate: "Array", find: "Callable[[Array], Interval]") -> Interval:
    """Find the intervals of all estimates, each value once: large tables repeat a few counts."""
    if estimate.size <= MOST_SHAPES:
        return find(estimate)
    values, places = np.unique(estimate, return_inverse=True)
    found, places = find(values), places.reshape(estimate.shape)
    return Interval(found.low[places], found.high[places], found.bounded[places])


def share_band(estimate: "Array", cells: Any, design: ReleaseDesign, critical: float) -> Interval:  # noqa: ANN401 - as above
    """Return the intervals of a simultaneous band, whose critical value comes from :func:`sup_t`.

    They are plain score intervals.  Estimates outside 0..1 are moved to its ends first, which only
    makes the band hold more often.
    """
    constant, linear, square = design.total.quadratic(cells / design.cells)
    inside, squared = np.clip(estimate, 0, 1), critical**2
    leading = 1 - squared * square
    safe = np.where(leading > 0, leading, 1.0)
    middle = (inside + squared * linear / 2) / safe
    root = np.sqrt(np.maximum(middle**2 - (inside**2 - squared * constant) / safe, 0))
    low = np.where(leading > 0, np.clip(middle - root, 0, 1), 0.0)  # otherwise all is possible
    high = np.where(leading > 0, np.clip(middle + root, 0, 1), 1.0)
    return Interval(low, high, np.ones(low.shape, dtype=np.bool_))


def people_interval(
    estimate: "Array",
    cells: Any,  # noqa: ANN401 - as above
    design: "CoinDesign",
    critical: float,
) -> Interval:
    """Return the intervals for numbers of people in sets of cells, where their sum is not known.

    They are those of shares, of a number that is far larger than any of these.
    """
    fractions = cells / design.cells
    constant, slope = design.people_variance(fractions)
    people = np.maximum(estimate, 0)
    error = np.sqrt(np.maximum(constant + slope * people, 0))
    whole = 4 * float(np.max(people + FAR * error + 1))

    def shape_at(share: "Array") -> Shape:
        return design.people_shape(share * whole, fractions)

    def find(values: "Array") -> Interval:
        return feldman_cousins(
            values / whole,
            (constant / whole**2, slope / whole, 0.0),
            critical,
            shape_at if values.size <= MOST_SHAPES else _interpolated(shape_at),
        )

    interval = find(estimate) if np.ndim(fractions) else _of_different(estimate, find)
    return Interval(interval.low * whole, interval.high * whole, interval.bounded)


def widened(critical: float, shape: Shape | None) -> Any:  # noqa: ANN401 - a number or an array
    """Return the critical value for an interval in both directions that a skew law needs."""
    if shape is None:
        return critical
    return np.maximum(shape.deviation(critical), -shape.deviation(-critical))


def _shapes(design: ReleaseDesign, fractions: Any, values: int) -> ShapeAt | None:  # noqa: ANN401 - as above
    """Return the shape of the estimate of a set by its share, None for the normal law.

    For very many ``values`` it is interpolated.
    """

    def shape_at(shares: "Array") -> Shape:
        pair = np.stack([shares, 1 - shares], axis=-1)
        part = np.stack(np.broadcast_arrays(fractions, 1 - fractions), axis=-1)
        return design.shape(np.array([1.0, 0.0]), pair, part)

    if design.normal:
        return None
    if values <= MOST_SHAPES or np.ndim(fractions) or design.many:
        return shape_at
    return _interpolated(shape_at)


def _interpolated(shape_at: ShapeAt) -> ShapeAt:
    """Compute shapes at a few shares, more of them near 0 and 1, where laws change quickly."""
    near = np.linspace(0, 1, SHAPE_STEPS, endpoint=False) ** 4 / 2
    grid = np.concatenate([near, [1 / 2], 1 - near[::-1]])
    shapes = shape_at(grid)
    return lambda shares: Shape(
        np.interp(shares, grid, shapes.skewness), np.interp(shares, grid, shapes.excess)
    )


def feldman_cousins(
    estimate: "Array",
    variance: Quadratic | VarianceAt,
    critical: float,
    shape_at: ShapeAt | None = None,
) -> Interval:
    """Return the interval within 0..1 of a number from its estimate.

    The variance of the estimate is quadratic in the number, as that of a share is, or any function.
    """
    low, high = _feldman_cousins_ends(estimate, variance, critical, shape_at)
    inside = np.clip(estimate, 0, 1)  # every interval holds it, except for rounding
    low, high = np.minimum(low, inside), np.maximum(high, inside)
    return Interval(low, high, np.ones(low.shape, dtype=np.bool_))


def fieller(
    numerator: "Array",
    denominator: "Array",
    covariance: "Array",
    critical: Any,  # noqa: ANN401 - a number, or one for each
) -> Interval:
    """Return the ratios ρ with (a − ρb)² ≤ z²·Var(a − ρb): Fieller's set.

    It is an interval only if the denominator is clearly not zero, b² > z²·Var(b).  Otherwise it is
    the outside of an interval, or every number, and the answer is unbounded.
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
    part: "Array",
    whole: "Array",
    covariance: "Array",
    critical: float,
    shape_at: ShapeAt | None = None,
) -> Interval:
    """Return Fieller's interval for the share of a part in its whole, within 0..1.

    ``shape_at`` is that of the part less its share of the whole, None for the normal law.
    """
    bounded = fieller(part, whole, covariance, critical).bounded
    safe = np.where(bounded, whole, 1.0)
    variance = (
        covariance[..., 0, 0] / safe**2,
        -2 * covariance[..., 0, 1] / safe**2,
        covariance[..., 1, 1] / safe**2,
    )
    interval = feldman_cousins(part / safe, variance, critical, shape_at)
    low, high = np.where(bounded, interval.low, -np.inf), np.where(bounded, interval.high, np.inf)
    return Interval(low, high, bounded)


def sup_t(
    components: VarianceComponents,
    level: float,
    generator: np.random.Generator,
    draws: int | None = None,
) -> float:
    """Return c such that all |T̂ⱼ − Tⱼ| ≤ c·(standard error) hold together with this confidence.

    It is a quantile of the largest standardised error, drawn from the law of the release, of
    estimates that are moved into 0..1 as those of the band are.  It is never below the value for
    one cell alone.  Tables with many cells, or with few rows in each, have
    :func:`veiltab.core.tails.simultaneous_interval` instead.
    """
    single, cells = critical_value(level), components.distribution.size
    errors = np.sqrt(np.maximum(components.cells().total, 0))
    uncertain = errors > ROUNDING
    if not uncertain.any():
        return single
    if draws is None:
        draws = min(MOST_DRAWS, max(FEWEST_DRAWS, DRAWN_NUMBERS // cells))
    largest = [
        (np.abs(drawn[:, uncertain]) / errors[uncertain]).max(axis=1)
        for drawn in _drawn_errors(components, draws, generator)
    ]
    quantile = np.quantile(np.concatenate(largest), level, method="higher")
    return max(single, float(quantile))


def _drawn_errors(
    components: VarianceComponents, draws: int, generator: np.random.Generator
) -> "Iterator[Array]":
    """Yield drawn errors of estimates within 0..1, in batches so that memory stays bounded."""
    truth, design = components.distribution, components.design
    batch = max(1, _BATCH_NUMBERS // truth.size)
    for start in range(0, draws, batch):
        size = min(batch, draws - start)
        estimates = design.estimate(design.redraw(truth, size, generator))
        yield np.clip(estimates, 0, 1) - truth


def feldman_cousins_side(
    truth: "Array",
    estimate: "Array",
    variance: Quadratic | VarianceAt,
    critical: float,
    shape_at: ShapeAt | None = None,
) -> "NDArray[np.int8]":
    """Tell on which side of the interval a number lies: −1 below it, 1 above it, 0 within.

    It is much quicker than to find the interval.
    """
    folded = _Folded(estimate, variance, shape_at)
    number = np.where(folded.mirrored, 1 - truth, truth)
    too_small = folded.exceeds(number, critical, upper=False)
    too_large = ~folded.exceeds(number, critical, upper=True)
    side = too_large.astype(np.int8) - too_small.astype(np.int8)
    return np.where(folded.mirrored, -side, side).astype(np.int8)


def _feldman_cousins_ends(
    estimate: "Array",
    variance: Quadratic | VarianceAt,
    critical: float,
    shape_at: ShapeAt | None,
) -> "tuple[Array, Array]":
    """Return both ends."""
    folded = _Folded(estimate, variance, shape_at)
    low, high = folded.end(critical, upper=False), folded.end(critical, upper=True)
    mirrored = folded.mirrored
    return np.where(mirrored, 1 - high, low), np.where(mirrored, 1 - low, high)


class _Folded:
    """Estimates within 0..1/2: above one half, where 1 is the near limit, 1 − θ is estimated."""

    def __init__(
        self, estimate: "Array", variance: Quadratic | VarianceAt, shape_at: ShapeAt | None
    ) -> None:
        self.mirrored = estimate > 1 / 2
        self._value = np.where(self.mirrored, 1 - estimate, estimate)
        self._variance, self._shape_at = variance, shape_at

    def exceeds(self, theta: "Array", critical: float, *, upper: bool) -> "NDArray[np.bool_]":
        """Tell whether θ lies below the lower end, or not above the upper one."""
        exceeds: NDArray[np.bool_] = self._gap(theta, critical, upper=upper) >= 0
        return exceeds

    def _gap(self, theta: "Array", critical: float, *, upper: bool) -> "Array":
        """Return by how much the estimate lies above what is accepted, or above its least."""
        true = np.where(self.mirrored, 1 - theta, theta)
        error = self._error(true)
        deviation = (self._value - theta) / error
        if self._shape_at is not None:
            side = np.where(self.mirrored, -1.0, 1.0)
            deviation = side * self._shape_at(true).score(side * deviation)
        above, below = accepted_range(theta / error, critical)
        gap: Array = deviation + below if upper else deviation - above
        return gap

    def _error(self, true: "Array") -> "Array":
        """Return the standard errors of estimates of these numbers."""
        spread = (
            self._variance(true) if callable(self._variance) else _variance_at(self._variance, true)
        )
        return np.sqrt(np.maximum(spread, _TINY**2))

    def end(self, critical: float, *, upper: bool) -> "Array":
        """Return the last θ that is too small, or the first too large one."""
        inside = np.clip(self._value, 0, 1)  # every interval holds it, except for rounding
        least, most = (inside, np.ones_like(inside)) if upper else (np.zeros_like(inside), inside)
        error = self._error(np.where(self.mirrored, 1 - inside, inside))
        guess = self._value + critical * error if upper else self._value - critical * error
        below, above = crossings(
            lambda theta: self._gap(theta, critical, upper=upper),
            least,
            most,
            near=(guess, error),
        )
        return above if upper else below


def _variance_at(variance: Quadratic, theta: "Array") -> "Array":
    a, b, c = variance
    variances: Array = a + theta * (b + theta * c)
    return variances


def accepted_range(distance: "Array", critical: float) -> "tuple[Array, Array]":
    """Return how far above and below its true value an estimate may lie: d and k.

    ``distance`` is that of the true value from its lower boundary, in standard errors.
    """
    above = np.interp(distance, *_accepted_above_grid(critical))
    return above, _accepted_below(distance, above)


def _accepted_below(distance: "Array", above: "Array") -> "Array":
    """Return k for each distance μ and its d."""
    near = distance < above
    safe = np.maximum(distance, _TINY)
    return np.where(near, safe / 2 + above * (above / (2 * safe)), above)


@lru_cache(maxsize=64)
def _accepted_above_grid(critical: float) -> "tuple[Array, Array]":
    """Return a grid of μ from 0 to z, and d there by bisection: Φ(d) − Φ(−k) grows with d."""
    level = float(ndtr(critical) - ndtr(-critical))
    distance = np.linspace(0, critical, _GRID)
    below, above = np.zeros(_GRID), np.full(_GRID, critical)
    for _ in range(60):
        middle = (below + above) / 2
        enough = ndtr(middle) - ndtr(-_accepted_below(distance, middle)) >= level
        below, above = np.where(enough, below, middle), np.where(enough, middle, above)
    above[-1] = critical
    return distance, above
