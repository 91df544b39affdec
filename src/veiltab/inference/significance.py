"""p-values of a statistic whose null distribution is drawn.

Most p-values are counted: (1 + how many drawn statistics are at least as large)/(1 + how many were
drawn).  Where hardly any is as large, more are drawn.  Where still hardly any is, the tail of the
drawn ones is continued by a generalised Pareto law, in which an excess over a high threshold
exceeds y with the chance (1 + ξy/σ)^(−1/ξ).

It must not promise too much.  So ξ is raised by 1.5 standard errors, and is never negative: with
ξ = 0 the tail falls exponentially, and those of squares of normal errors fall faster.  A tail as
that of squares of decoys, exp(−√y), has a positive ξ at any threshold, but one that falls to zero
further out, so that the law lies above it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from veiltab.core.released import Shares
from veiltab.core.resampling import MOST_REPLICATES, affordable

FoundBy = Literal["draws", "tail", "law"]
"""How a p-value was found: counted among drawn releases, from the tail of these, or by a law."""

COUNTED, TAIL, LAW = get_args(FoundBy)

ENOUGH = 10
"""A p-value is counted if at least this many drawn statistics are as large."""

MOST_DRAWN = 9_999
"""How many releases are drawn at most; at first there are ``MOST_REPLICATES``."""

EXCEEDANCES = 500
"""How many of the largest statistics the tail is fitted to."""

ALLOWANCE = 1.5
"""By how many standard errors ξ is raised."""

HEAVIEST = 0.9
"""The largest ξ: the mean of the excesses, from which σ is found, is finite below one."""

SMALLEST = 1e-9
"""The smallest p-value; the tail was checked down to it."""

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Significance:
    """A p-value, how many releases were drawn for it, and how it was found."""

    p_value: float
    replicates: int
    found_by: FoundBy


def significance(
    observed: float, cells: int, draw: Callable[[int], Shares], most: int = MOST_DRAWN
) -> Significance:
    """Return the chance of a statistic at least as large as the observed one.

    ``draw`` returns so many statistics of releases under the hypothesis, each of this many cells.
    """
    drawn = draw(affordable(cells, min(most, MOST_REPLICATES)))
    further = affordable(cells, most) - drawn.size
    if further > 0 and _as_large(drawn, observed) < ENOUGH:
        drawn = np.concatenate([drawn, draw(further)])
    larger = _as_large(drawn, observed)
    counted = (1 + larger) / (1 + drawn.size)
    if larger >= ENOUGH or drawn.size < min(most, MOST_REPLICATES):
        return Significance(counted, drawn.size, COUNTED)
    tail = Tail.of(drawn)
    if tail is None or observed < tail.threshold:
        return Significance(counted, drawn.size, COUNTED)
    return Significance(max(tail.chance(observed), SMALLEST), drawn.size, TAIL)


@dataclass(frozen=True, slots=True)
class Tail:
    """A generalised Pareto law of what lies above a threshold: its ξ and σ.

    ``share`` is the chance to lie above it.
    """

    threshold: float
    share: float
    index: float
    scale: float

    @classmethod
    def of(cls, drawn: Shares) -> "Tail | None":
        """Fit the tail of drawn statistics, from probability-weighted moments of the excesses.

        They are those of Hosking and Wallis (1987); of an exponential tail, ξ has the variance
        4/(3 · exceedances).  If the statistics are all the same, there is no tail.
        """
        count = min(EXCEEDANCES, drawn.size // 4)
        largest = np.sort(np.partition(drawn, drawn.size - count - 1)[drawn.size - count - 1 :])
        excesses = largest[1:] - largest[0]
        mean = float(excesses.mean())
        weighted = float(excesses @ np.arange(count - 1, -1, -1)) / (count * (count - 1))
        if not mean > 2 * weighted:
            return None
        index = 2 - mean / (mean - 2 * weighted) + ALLOWANCE * (4 / (3 * count)) ** 0.5
        index = min(max(index, 0.0), HEAVIEST)
        share = (1 + count) / (1 + drawn.size)
        return cls(float(largest[0]), share, index, mean * (1 - index))

    def chance(self, statistic: float) -> float:
        """Return the chance of a statistic at least as large as this one, above the threshold."""
        beyond = (statistic - self.threshold) / self.scale
        if self.index * beyond < _ROUNDING:  # the limit as ξ goes to zero
            return self.share * math.exp(-beyond)
        return float(self.share * (1 + self.index * beyond) ** (-1 / self.index))


def _as_large(drawn: Shares, observed: float) -> int:
    # Equal statistics may come out a rounding error apart.
    return int(np.count_nonzero(drawn >= observed * (1 - 1e-12)))
