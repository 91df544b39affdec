"""Intervals and tests by the distance Q: the values that the release does not contradict.

For a combination c·β, the smallest Q with c·β = b is a function of b that is zero at the estimate.
Its root is about a standard normal deviate, and the interval holds the b up to the critical one.
Where it never gets there, the interval has no end on that side.
"""

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import null_space

from veiltab.core.released import Shares
from veiltab.inference.models.distance import Distance, Nearest
from veiltab.inference.models.equations import Flags

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


Search = Generator[float, float | None, float | None]
"""It yields how far from the estimate it asks, is sent the deviate there, and returns the end.

A deviate of None stands for a point where a predictor is beyond certainty; an end of None for an
interval that has none.
"""


@dataclass(frozen=True, eq=False)
class Profile:
    """The root of a fit, its covariance, and how far from certainty a predictor may go."""

    distance: Distance
    estimate: Shares
    covariance: Shares
    farthest: float | None

    def nearest(self, combinations: Shares, values: Shares) -> Nearest:
        """Return the nearest parameters at which each combination of them has its value."""
        starts = np.broadcast_to(self.estimate, combinations.shape)
        return self._nearest(combinations, values, starts, free_of(combinations))

    def ends(
        self, combinations: Shares, critical: float
    ) -> list[tuple[float | None, float | None]]:
        """Return the interval of each combination, one per row; None where it has no end.

        All ends are looked for together, each from the point that its search was at before.
        """
        sides, twice = np.tile([-1.0, 1.0], len(combinations)), np.repeat(combinations, 2, axis=0)
        middles, basis = twice @ self.estimate, free_of(twice)
        errors = np.sqrt(((twice @ self.covariance) * twice).sum(axis=-1))
        last = np.tile(self.estimate, (len(twice), 1))
        searches = [_search(critical, critical * error) for error in errors.tolist()]
        asked = {place: next(search) for place, search in enumerate(searches)}
        aways: list[float | None] = [None] * len(searches)
        while asked:
            places = np.array(list(asked))
            values = middles[places] + sides[places] * list(asked.values())
            near = self._nearest(twice[places], values, last[places], basis[places])
            certain = self._certain(near.parameters) & self._far(twice[places], values)
            last[places[~certain]] = near.parameters[~certain]
            deviates = np.where(near.settled, near.distance**0.5, 0.0)
            for place, beyond, deviate in zip(
                places.tolist(), certain.tolist(), deviates.tolist(), strict=True
            ):
                try:
                    asked[place] = searches[place].send(None if beyond else deviate)
                except StopIteration as ended:
                    aways[place] = ended.value
                    del asked[place]
        ends = [
            None if away is None else middle + side * away
            for middle, side, away in zip(middles.tolist(), sides.tolist(), aways, strict=True)
        ]
        return list(zip(ends[::2], ends[1::2], strict=True))

    def _far(self, combinations: Shares, values: Shares) -> Flags:
        """Tell where such values of the combinations themselves take a predictor to certainty.

        Another coefficient may be there alone, in a group of which the noise hides an outcome.
        That says nothing about these combinations.
        """
        starts = np.broadcast_to(self.estimate, combinations.shape)
        moved = moved_to(starts, combinations, values, combinations @ self.covariance)
        return self._certain(moved - self.estimate)

    def _certain(self, parameters: Shares) -> Flags:
        """Tell where a predictor is beyond certainty."""
        if self.farthest is None:
            return np.zeros(len(parameters), dtype=np.bool_)
        certain: Flags = self.distance.equations.extent(parameters) > self.farthest
        return certain

    def _nearest(
        self, combinations: Shares, values: Shares, starts: Shares, basis: Shares
    ) -> Nearest:
        origins = moved_to(starts, combinations, values, combinations @ self.covariance)
        return self.distance.nearest(origins, basis)


def moved_to(starts: Shares, combinations: Shares, values: Shares, shared: Shares) -> Shares:
    """Move parameters to where their combination has its value, along what they share with it."""
    along = shared / (combinations * shared).sum(axis=-1, keepdims=True)
    missing = values - (combinations * starts).sum(axis=-1)
    moved: Shares = starts + along * missing[..., np.newaxis]
    return moved


def free_of(combinations: Shares) -> Shares:
    """Return for each combination the directions in which it does not change, as columns."""
    return np.array([null_space(combination[np.newaxis]) for combination in combinations])


def _search(critical: float, first: float) -> Search:
    """Look for the end on one side."""
    away = yield from _bracketed(critical, first)
    if away is None:
        return None
    if away > SUSPICIOUS * first and not (yield from _stays(critical, away)):
        return None
    return away


def _bracketed(critical: float, first: float) -> Search:
    """Return how far the critical deviate is, by secants between bracketing points."""
    inner, outer, away = (0.0, 0.0), None, first
    limit = first * FARTHEST_ERRORS
    for _ in range(MOST_STEPS):
        deviate = yield away
        if deviate is None:
            limit = away
        elif abs(deviate - critical) <= CLOSE * critical:
            return away
        elif deviate < critical:
            inner = (away, deviate)
        else:
            outer = (away, deviate)
        away = _next(inner, outer, critical)
        if not inner[0] < away < limit:
            if limit <= NEARLY * inner[0]:
                return None
            away = (inner[0] + limit) / 2
    return None if outer is None else outer[0]


def _stays(critical: float, away: float) -> Generator[float, float | None, bool]:
    """Tell whether the distance stays beyond the critical one farther out."""
    for factor in (1.5, 3.0, 6.0, 12.0):
        deviate = yield factor * away
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
