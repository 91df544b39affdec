"""Finding where functions of many numbers pass zero, in few evaluations, all of them at once.

The method is that of Chandrupatla (1997): inverse quadratic interpolation where three points allow
it, else bisection.  It needs a third of the evaluations of bisection.  What it is given may be
infinite or jump; only the signs have to be right.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

PRECISION = 2.0**-30
"""How near to each other both sides of a crossing are at the end, as a part of where they began."""

MOST_STEPS = 90
"""Three times as many as bisection would need: no function takes longer."""

BEYOND = 1.25
"""A step from a guess goes so many times as far as the crossing seems to be, to get past it."""


def crossings(
    gap: "Callable[[Array], Array]",
    low: "Array",
    high: "Array",
    at: "tuple[Array, Array] | None" = None,
    near: "tuple[Array, Array] | None" = None,
) -> "tuple[Array, Array]":
    """Return the last number where ``gap`` is not negative and the first where it is, of each.

    Below its crossing a gap is positive, above it negative.  Where it is so everywhere, the
    crossing is at the end of the range.  ``at`` has the gaps at both ends, if they are known.
    ``near`` has a guess of each crossing, and how far a gap of one is from it about: a good guess
    halves the number of evaluations, a bad one costs two.
    """
    tolerance = PRECISION * np.maximum(np.abs(high - low), np.finfo(np.float64).tiny)
    part = np.full(low.shape, 1 / 2)
    between = None if near is None else _around(gap, low, high, near)
    if between is not None:
        (old, new), (at_old, at_new) = between
        part = np.clip(at_new / (at_new - at_old), 1 / 64, 63 / 64)
    else:
        # Arcs keep the signs and the slope at zero, and make of what is far away a finite number.
        at_low, at_high = (np.arctan(end) for end in (at or (gap(low), gap(high))))
        new, old = high, low
        at_new, at_old = np.where(at_high < 0, at_high, -1.0), np.where(at_low >= 0, at_low, 1.0)
    for _ in range(MOST_STEPS):
        middle = new + part * (old - new)
        value = np.arctan(gap(middle))
        same = (value >= 0) == (at_new >= 0)
        third, at_third = np.where(same, new, old), np.where(same, at_new, at_old)
        old, at_old = np.where(same, old, new), np.where(same, at_old, at_new)
        new, at_new = middle, value
        least = tolerance / np.maximum(np.abs(old - new), tolerance)
        if (least > 1 / 2).all():
            break
        part = np.clip(
            _interpolated((new, old, third), (at_new, at_old, at_third)), least, 1 - least
        )
    return np.where(at_new >= 0, new, old), np.where(at_new >= 0, old, new)


def _around(
    gap: "Callable[[Array], Array]", low: "Array", high: "Array", near: "tuple[Array, Array]"
) -> "tuple[tuple[Array, Array], tuple[Array, Array]] | None":
    """Return places a little below and above every crossing and their arcs; None if one fails."""
    guess, scale = near
    first = np.clip(guess, low, high)
    at_first = gap(first)
    second = np.clip(first + BEYOND * at_first * scale, low, high)
    at_second = gap(second)
    below = at_first >= 0
    if not (below != (at_second >= 0)).all():
        return None
    at_first, at_second = np.arctan(at_first), np.arctan(at_second)
    places = np.where(below, first, second), np.where(below, second, first)
    return places, (np.where(below, at_first, at_second), np.where(below, at_second, at_first))


def _interpolated(
    places: "tuple[Array, Array, Array]", values: "tuple[Array, Array, Array]"
) -> "Array":
    """Return how far from the first place to the second one zero is, one half if it is not known.

    It is known where a parabola through all three places, as a function of the value, is monotone.
    """
    (x1, x2, x3), (f1, f2, f3) = places, values
    with np.errstate(divide="ignore", invalid="ignore"):
        xi, phi = (x1 - x2) / (x3 - x2), (f1 - f2) / (f3 - f2)
        smooth = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi)
        part = f1 / (f2 - f1) * f3 / (f2 - f3) + (x3 - x1) / (x2 - x1) * f1 / (f3 - f1) * f2 / (
            f3 - f2
        )
    return np.where(smooth & np.isfinite(part), part, 1 / 2)
