"""Intervals for the ratio of two numbers that cannot be negative: Fieller's set, kept in bounds.

Odds are such a ratio, so are a conditional share (a part to the rest of its whole), a risk ratio
and a difference of two shares; all of them have their intervals from here.

Let x and y be estimates of a ≥ 0 and b ≥ 0, with a known covariance.  The pairs (a, b) with one
ratio ρ = a/b form a ray from the origin, and all of them together a quadrant.  For each ray,

    Z = (x − ρy)/σ(ρ),   σ²(ρ) = V_xx − 2ρV_xy + ρ²V_yy,

is standard normal if the truth lies on it, and independent of how far along the ray the estimate
lies.  Fieller's set holds the ρ with |Z| ≤ z.  It can be empty in the quadrant, where x or y is
negative by chance.  So each ray accepts −k ≤ Z ≤ d instead, with the k and d of Feldman and Cousins
for the distance to the nearer edge of the quadrant, seen from the most likely point of the ray:
that distance is independent of Z, so that the level is exact, at ρ = 0 and ρ = ∞ too.  A ray that
the estimate lies behind is accepted if both numbers together cannot be told from zero.

If b cannot be told from zero, there is no upper limit; the lower one still says something.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from scipy.special import ndtr

from veiltab.core.crossings import crossings
from veiltab.core.intervals import Interval, accepted_range
from veiltab.core.shape import Shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

Entries: TypeAlias = "tuple[Array, Array, Array]"
"""V_xx, V_xy and V_yy of the covariance of the two estimates."""

ErrorsAt: TypeAlias = "Callable[[Array, Array], tuple[Entries, Shape | None]]"
"""Returns the covariance of the estimates if p·a = q·b, for numbers p and q.

The second is the shape of the error of p·x − q·y, None for the normal law.
"""

_TINY = 1e-150
_LEAST = 1e-12
"""By how much a correlation stays away from one."""


def ratio_interval(
    numerator: "Array",
    denominator: "Array",
    errors_at: ErrorsAt,
    scale: "tuple[Array, Array]",
    critical: float,
) -> Interval:
    """Return the interval of the ratio of two numbers that are not negative, within 0..∞.

    ``scale`` has a standard error of each, of which only the order of magnitude matters.
    """
    rays = _Rays(numerator, denominator, errors_at, scale, critical)
    likely = rays.most_likely()
    at_likely = rays.gap(likely)
    everything = at_likely < 0  # the estimate lies behind the whole quadrant
    low, high = (rays.first_accepted(edge, likely, at_likely) for edge in (0.0, 1.0))
    low, high = np.where(everything, 0.0, low), np.where(everything, 1.0, high)
    factor = scale[0] / scale[1]
    with np.errstate(divide="ignore"):
        low, high = factor * low / (1 - low), factor * high / (1 - high)
    return Interval(low, high, (low > 0) | np.isfinite(high))


def share_of_both(ratio: Interval) -> Interval:
    """Turn the interval of a ratio a/b into that of the share a/(a + b)."""

    def share(end: "Array") -> "Array":
        finite = np.where(np.isfinite(end), end, 0.0)
        return np.where(np.isfinite(end), finite / (1 + finite), 1.0)

    return Interval(share(ratio.low), share(ratio.high), ratio.bounded)


class _Rays:
    """The rays in the directions (u, 1 − u) with 0 ≤ u ≤ 1, in units of the two scales."""

    def __init__(
        self,
        numerator: "Array",
        denominator: "Array",
        errors_at: ErrorsAt,
        scale: "tuple[Array, Array]",
        critical: float,
    ) -> None:
        self._x, self._y = numerator / scale[0], denominator / scale[1]
        self._errors_at, self._scale, self._critical = errors_at, scale, critical
        self._most = -2 * float(np.log(2 * ndtr(-critical)))
        self._likely: Entries | None = None

    def _errors(self, u: "Array") -> tuple[Entries, Shape | None]:
        """Return the covariance if the truth lies on these rays, in units of the scales."""
        first, second = self._scale
        (xx, xy, yy), shape = self._errors_at((1 - u) / first, u / second)
        return (xx / first**2, xy / (first * second), yy / second**2), shape

    def _errors_of_likely(self, likely: "Array") -> Entries:
        if self._likely is None:  # both ends need it
            self._likely = self._errors(likely)[0]
        return self._likely

    def most_likely(self) -> "Array":
        """Return the ray of the estimate, or the edge that is nearest to it."""
        x, y = self._x, self._y
        inside = (x >= 0) & (y >= 0) & (x + y > 0)
        within = np.divide(x, x + y, where=inside, out=np.zeros_like(x))
        return np.where(inside, within, np.where(x > y, 1.0, 0.0))

    def first_accepted(self, edge: float, likely: "Array", at_likely: "Array") -> "Array":
        """Return the accepted ray that is nearest to an edge of the quadrant."""
        at_edge = self.gap(np.full_like(likely, edge))
        guess, way = self._guess(likely, edge)
        # From the likely ray to the edge, a part of the way is accepted.
        _, part = crossings(
            lambda way: self.gap(likely + way * (edge - likely)),
            np.zeros_like(likely),
            np.ones_like(likely),
            (at_likely, at_edge),
            near=(guess, way),
        )
        return np.where(at_edge >= 0, edge, likely + part * (edge - likely))

    def _guess(self, likely: "Array", edge: float) -> "tuple[Array, Array]":
        """Return which part of the way to an edge is accepted about, and that of an error of 1."""
        v, (xx, xy, yy) = 1 - likely, self._errors_of_likely(likely)
        variance = v * v * xx - 2 * likely * v * xy + likely * likely * yy
        length = np.maximum(np.abs((self._x + self._y) * (edge - likely)), _TINY)
        one = np.minimum(np.sqrt(np.maximum(variance, _TINY)) / length, 1.0)
        return np.minimum(self._critical * one, 1.0), one

    def gap(self, u: "Array") -> "Array":
        """Return how far rays are from being contradicted; the estimates contradict negative ones.

        It is in standard errors; for a ray that the estimate lies behind it is 1 or −1.
        """
        v, ((xx, xy, yy), shape) = 1 - u, self._errors(u)
        error = np.sqrt(np.maximum(v * v * xx - 2 * u * v * xy + u * u * yy, _TINY))
        z = (v * self._x - u * self._y) / error
        to_x, to_y = yy * self._x - xy * self._y, xx * self._y - xy * self._x
        along = u * to_x + v * to_y
        to_low = _reach(along * u, error * (v * xx - u * xy))
        to_high = _reach(along * v, error * (u * yy - v * xy))
        above, below = accepted_range(np.minimum(to_low, to_high), self._critical)
        score = z if shape is None else shape.score(z)
        turned = np.where(to_low <= to_high, score, -score)
        vague = np.where(self._vague((xx, xy, yy), to_x, to_y), 1.0, -1.0)
        return np.where(along > 0, np.minimum(above - turned, turned + below), vague)

    def _vague(self, entries: Entries, to_x: "Array", to_y: "Array") -> "NDArray[np.bool_]":
        """Tell whether the nearest point of the quadrant cannot be told from the origin."""
        xx, xy, yy = entries
        x, y = self._x, self._y
        spread = np.maximum(xx * yy - xy**2, _LEAST * xx * yy + _TINY)
        inside = (x >= 0) & (y >= 0)
        edges = np.maximum(
            np.maximum(to_x, 0) ** 2 / np.maximum(yy, _TINY),
            np.maximum(to_y, 0) ** 2 / np.maximum(xx, _TINY),
        )
        distance = np.where(inside, x * to_x + y * to_y, edges)
        nothing: NDArray[np.bool_] = distance <= self._most * spread
        return nothing


def _reach(numerator: "Array", denominator: "Array") -> "Array":
    """Return how far an edge is from a ray: infinitely far where they do not meet."""
    meets = denominator > _TINY
    distance: Array = np.maximum(
        np.divide(numerator, denominator, where=meets, out=np.full_like(numerator, np.inf)), 0
    )
    return distance
