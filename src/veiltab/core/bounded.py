"""Intervals for a number that lies between two limits, from the law of an estimate of it.

The law is given as a score: the normal deviate that is as unlikely as the estimate, if the number
were θ.  It falls with θ.  Near a limit the order is that of Feldman and Cousins, as for shares
(:mod:`veiltab.core.intervals`), with the distance to the limit measured in scores: it takes the
place of θ/σ.  So the interval lies within the limits, is never empty, and holds a limit exactly if
the estimate is not unusual there.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from veiltab.core.crossings import crossings
from veiltab.core.intervals import Interval, accepted_range

Array = NDArray[np.float64]
Score = Callable[[Array], Array]

FAR = 1e3
"""Scores beyond this are all the same."""


def bounded_interval(score: Score, least: Array, most: Array, critical: float) -> Interval:
    """Return the interval of each number between its limits.

    ``score`` takes one candidate for each number.  Only the limit that is nearer to the estimate
    changes the order.
    """
    at_least, at_most = _score(score, least), _score(score, most)
    upper_is_near = at_least + at_most > 0

    def accepted(scores: Array) -> tuple[Array, Array]:
        """Return the smallest and the largest accepted score where these scores are."""
        distance = np.where(upper_is_near, scores - at_most, at_least - scores)
        towards, away = accepted_range(np.maximum(distance, 0), critical)
        return np.where(upper_is_near, -towards, -away), np.where(upper_is_near, away, towards)

    def beyond_largest(scores: Array) -> Array:
        return scores - accepted(scores)[1]

    def beyond_smallest(scores: Array) -> Array:
        return scores - accepted(scores)[0]

    def crossing(beyond: Score) -> tuple[Array, Array]:
        ends = beyond(at_least), beyond(at_most)
        return crossings(lambda theta: beyond(_score(score, theta)), least, most, ends)

    # A limit that is not too small, or not too large, is itself the end.
    low = np.where(beyond_largest(at_least) > 0, crossing(beyond_largest)[0], least)
    high = np.where(beyond_smallest(at_most) >= 0, most, crossing(beyond_smallest)[1])
    return Interval(low, high, np.ones(low.shape, dtype=np.bool_))


def _score(score: Score, theta: Array) -> Array:
    return np.clip(score(theta), -FAR, FAR)
