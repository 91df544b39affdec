"""Intervals for numbers that cannot be negative: neither empty, nor too short, nor too wide.

Near zero an estimate may come out negative, and the usual interval then holds little or nothing
that is possible.  Feldman and Cousins (1998) accept, for each true θ, the estimates x that are
likeliest compared with the best possible θ for that x.  With the normal law and μ = θ/σ these are
x ≤ θ + dσ and x ≥ θ − kσ, where d = k = z for μ ≥ z, and below that

    k = (μ² + d²)/(2μ)    and    Φ(d) − Φ(−k) = the level.

The interval holds all θ that accept the estimate: it covers as often as it says, at zero too.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy.special import ndtr

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

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
