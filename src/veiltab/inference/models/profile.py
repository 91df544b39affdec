"""Intervals and tests by the distance Q: the values that the release does not contradict.

For a combination c·β, the smallest Q with c·β = b is a function of b that is zero at the estimate.
Its root is about a standard normal deviate, and the interval holds the b up to the critical one.
Where it never gets there, the interval has no end on that side.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import null_space

from veiltab.core.released import Shares
from veiltab.inference.models.distance import Distance, Nearest

MOST_STEPS = 60
CLOSE = 1e-6
"""How near to the critical value the root of Q is at the end of an interval, relatively."""

FARTHEST_ERRORS = 1_000.0
"""An interval that reaches so many standard errors from the estimate has no end."""

LARGEST_STRETCH = 4.0
NEARLY = 1.05
"""An end that is not found up to so near to certainty is not there."""

SUSPICIOUS = 1.5
"""An end that is so many times as far as the standard error says is checked farther out."""


@dataclass(frozen=True, eq=False)
class Profile:
    """The root of a fit, its covariance, and how far from certainty a predictor may go."""

    distance: Distance
    estimate: Shares
    covariance: Shares
    farthest: float | None

    def nearest(self, combination: Shares, value: float, start: Shares | None = None) -> Nearest:
        """Return the nearest parameters at which a combination of them has this value."""
        origin = self.estimate if start is None else start
        along = self.covariance @ combination
        along = along / (combination @ along)
        origin = origin + along * (value - combination @ origin)
        return self.distance.nearest(origin, null_space(combination[np.newaxis]))

    def ends(self, combination: Shares, critical: float) -> tuple[float | None, float | None]:
        """Return the interval of a combination; None where it has no end."""
        return self._end(combination, critical, -1.0), self._end(combination, critical, 1.0)

    def _end(self, combination: Shares, critical: float, side: float) -> float | None:
        """Return the end on one side, found by secants between bracketing points."""
        middle = float(combination @ self.estimate)
        error = float(combination @ self.covariance @ combination) ** 0.5
        walk = _Walk(self, combination, middle, side)
        away = self._bracketed(walk, critical, critical * error)
        if away is None:
            return None
        if away > SUSPICIOUS * critical * error and not self._stays(walk, critical, away):
            return None
        return middle + side * away

    def _bracketed(self, walk: "_Walk", critical: float, first: float) -> float | None:
        """Return how far the critical deviate is, None if it is never reached."""
        inner, outer, away = (0.0, 0.0), None, first
        limit = first * FARTHEST_ERRORS
        for _ in range(MOST_STEPS):
            deviate = walk(away)
            if deviate is None:
                limit = away
            elif abs(deviate - critical) <= CLOSE * critical:
                return away
            elif deviate < critical:
                inner = (away, deviate)
            else:
                outer = (away, deviate)
            away = _next(inner, outer, critical)
            if away >= limit:
                if limit <= NEARLY * inner[0]:
                    return None
                away = (inner[0] + limit) / 2
        return None if outer is None else outer[0]

    def _stays(self, walk: "_Walk", critical: float, away: float) -> bool:
        """Tell whether the distance stays beyond the critical one farther out."""
        for factor in (1.5, 3.0, 6.0, 12.0):
            deviate = walk(factor * away)
            if deviate is None:
                return True
            if deviate < critical:
                return False
        return True


def _next(inner: tuple[float, float], outer: tuple[float, float] | None, critical: float) -> float:
    """Return where to look next: on the line through two points, well inside of the bracket."""
    if outer is None:
        away, deviate = inner
        stretch = critical / deviate if deviate > 0 else LARGEST_STRETCH
        return away * min(max(1.02 * stretch, 1.1), LARGEST_STRETCH)
    (near, low), (far, high) = inner, outer
    share = (critical - low) / (high - low)
    return near + (far - near) * min(max(share, 0.02), 0.98)


class _Walk:
    """The deviate at some way from the estimate; each search starts from the point before."""

    def __init__(self, profile: Profile, combination: Shares, middle: float, side: float) -> None:
        self._profile, self._combination = profile, combination
        self._middle, self._side = middle, side
        self._last: Shares | None = None

    def __call__(self, away: float) -> float | None:
        """Return the deviate; None where a predictor is beyond certainty."""
        value = self._middle + self._side * away
        nearest = self._profile.nearest(self._combination, value, self._last)
        farthest = self._profile.farthest
        if farthest is not None:
            extent = self._profile.distance.equations.extent(nearest.parameters)
            if extent > farthest:
                return None
        self._last = nearest.parameters
        return nearest.distance**0.5 if nearest.settled else 0.0
