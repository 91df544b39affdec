"""Simultaneous intervals of many cells, from the tails of each cell's own law.

Of N intervals that each miss with probability α/N at most, all hold with probability 1 − α at
least, however they depend on each other (Bonferroni).  So far out in the tails the normal law is
of no use where a cell has few rows.  The tails are those of the count's own law: the saddlepoint
formula of Lugannani and Rice (1980) with Daniels' second correction (1987) for whole numbers,

    P(L ≥ l) ≈ 1 − Φ(r) + φ(r)(1/u − 1/r),    K'(s) = l − ½,
    r = ±√(2(s(l − ½) − K(s))),    u = 2 sinh(s/2)√K''(s),

where K is the cumulant generating function (:mod:`veiltab.core.cell_law`).  An interval holds each
share θ under which neither P(L ≥ l) nor P(L ≤ l) is below α/2N.

Where the count lies below what an empty cell has on average, the upper end is that of this average,
so that no interval is empty.  Shares up to this end are therefore never missed by an interval that
lies too low, and the lower ends of all intervals may exclude such a share at α/N in full.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from veiltab.core.cell_law import CellLaw, Cumulants
from veiltab.core.intervals import Interval
from veiltab.core.uncertainty import ReleaseDesign

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

STEPS = 200
"""How often a saddlepoint is corrected at most; a handful of times is usual."""

CLOSE = 1e-9
"""A saddlepoint is found when its mean is this near, in standard deviations."""

FARTHEST = 32.0
"""No saddlepoint is searched beyond ±32: there a count is impossible."""

NARROW = 1e-14
"""A bracket of this width holds nothing more to search."""

CENTRE = 1e-2
"""Nearer to the mean than this, in standard deviations, the normal law is used: it is no tail."""

HALVINGS = 40
EVERY_COUNT = 1_000
RATIO = 0.005
"""Ends are computed for so many counts above the least, then at steps of this ratio."""


DRAWN_CELLS = 1_000
FEWEST_ROWS = 3.0
"""Up to so many cells whole releases are drawn instead, if by rank an empty cell has so many rows.

Then dependence between cells is used too.  Drawing needs an estimate of the whole table, and where
rows are few the estimate is too rough for that.
"""


def needs_tails(counts: "NDArray[np.int64]", design: ReleaseDesign) -> bool:
    """Tell whether drawing whole releases would be too slow, or wrong."""
    if counts.size > DRAWN_CELLS or not design.drawable:
        return True
    empty = design.cell_law(int(counts.sum())).mean(np.zeros(1))[0]
    return design.normal and counts.size > 1 and bool(empty < FEWEST_ROWS)


def upper_tail(law: CellLaw, share: "Array", count: "Array") -> "Array":
    """Return the probability that a cell with this share has so large a count, or a larger one."""
    return _Tail(law, count, 1)(share)


def lower_tail(law: CellLaw, share: "Array", count: "Array") -> "Array":
    """Return the probability that a cell with this share has so small a count, or a smaller one."""
    return _Tail(law, count, -1)(share)


class _Tail:
    """One of both tails of a cell with these counts; each call starts at the last saddlepoints."""

    def __init__(self, law: CellLaw, counts: "Array", side: int) -> None:
        self._law, self._counts, self._side = law, counts, side
        self._start = np.zeros_like(counts)

    def __call__(self, share: "Array") -> "Array":
        law, side = self._law, self._side
        value = law.statistic(share, self._counts) - side / 2
        s, cumulants = _saddlepoint(lambda s: law.cumulants(share, s), value, self._start)
        self._start = np.where(np.abs(s) == FARTHEST, 0.0, s)
        return _lugannani_rice(side * s, side * value, cumulants)


def _lugannani_rice(s: "Array", value: "Array", cumulants: Cumulants) -> "Array":
    """Return the probability of the value or more, given the saddlepoint s."""
    height, _, variance = cumulants
    with np.errstate(all="ignore"):  # at the centre, and where a count is impossible
        r = np.sign(s) * np.sqrt(np.maximum(2 * (s * value - height), 0))
        u = 2 * np.sinh(s / 2) * np.sqrt(variance)
        tail = ndtr(-r) + np.exp(-(r**2) / 2) / np.sqrt(2 * np.pi) * (1 / u - 1 / r)
    tail = np.where((np.abs(r) >= CENTRE) & np.isfinite(tail), np.clip(tail, 0, 1), ndtr(-r))
    return np.where(s == FARTHEST, 0.0, np.where(s == -FARTHEST, 1.0, tail))


def _saddlepoint(
    cumulants: Callable[["Array"], Cumulants], value: "Array", start: "Array"
) -> "tuple[Array, Cumulants]":
    """Return where K' has these values, ±:data:`FARTHEST` where it has not, and K there.

    It is Newton's method within a bracket; outside of the domain of K it is too far from zero.
    """
    low, high = np.full_like(value, -FARTHEST), np.full_like(value, FARTHEST)
    # Where the function is not defined so far out, both comparisons are false.
    beyond = (cumulants(high)[1] < value) * high + (cumulants(low)[1] > value) * low
    s = np.where(beyond == 0, start, beyond)
    for _ in range(STEPS):
        found = cumulants(s)
        height, mean, variance = found
        outside = ~(np.isfinite(height) & np.isfinite(mean) & np.isfinite(variance))
        above = np.where(outside, s > 0, mean > value)
        low, high = np.where(above, low, s), np.where(above, s, high)
        with np.errstate(all="ignore"):
            step = s - (mean - value) / variance
            done = ~outside & (np.abs(mean - value) <= CLOSE * np.sqrt(variance))
        done |= (beyond != 0) | (high - low < NARROW)
        if done.all():
            break
        inside = ~outside & (step > low) & (step < high)
        s = np.where(done, s, np.where(inside, step, (low + high) / 2))
    return s, found


def simultaneous_interval(
    counts: "NDArray[np.int64]", design: ReleaseDesign, level: float
) -> Interval:
    """Return intervals for the shares of all cells, which hold together with this confidence."""
    law = design.cell_law(int(counts.sum()))
    missed = (1 - level) / counts.size
    nodes = _nodes(np.unique(counts))
    ends = cell_interval(law, nodes.astype(np.float64), missed)
    scale = law.mean(np.ones(1))[0] - law.mean(np.zeros(1))[0]
    line = nodes / scale  # so that what is interpolated hardly bends
    low, high = (
        np.clip(np.interp(counts, nodes, end - line) + counts / scale, 0, 1)
        for end in (ends.low, ends.high)
    )
    return Interval(low, high, np.ones(counts.shape, dtype=np.bool_))


def _nodes(counts: "NDArray[np.int64]") -> "NDArray[np.int64]":
    """Return the counts for which ends are computed: all of them, unless they are very many."""
    above, last = counts - counts[0], counts.size - 1
    steps = np.exp(np.arange(math.log(EVERY_COUNT), math.log(above[last] + 2), RATIO))
    few = np.arange(np.searchsorted(above, EVERY_COUNT))
    chosen = np.concatenate([few, np.searchsorted(above, steps).clip(max=last), [last]])
    nodes: NDArray[np.int64] = counts[np.unique(chosen)]
    return nodes


def cell_interval(law: CellLaw, counts: "Array", missed: float) -> Interval:
    """Return an interval for a cell with each of these counts, which misses that rarely."""
    empty, full = (float(law.mean(np.array([share]))[0]) for share in (0.0, 1.0))

    def middle(numbers: "Array") -> "Array":
        return np.clip((numbers - empty) / (full - empty), 0, 1)

    average = math.ceil(empty)
    raised = np.maximum(np.append(counts, average), average)
    below, above = _Tail(law, raised, -1), _Tail(law, counts, 1)
    high = _bisect(lambda share: below(share) <= missed / 2, np.ones_like(raised), middle(raised))
    never_too_low = high[-1]
    low = _bisect(
        lambda share: above(share) <= np.where(share <= never_too_low, missed, missed / 2),
        np.zeros_like(counts),
        middle(counts),
    )
    return Interval(low, high[:-1], np.ones(counts.shape, dtype=np.bool_))


def _bisect(
    excluded: "Callable[[Array], NDArray[np.bool_]]", outside: "Array", inside: "Array"
) -> "Array":
    """Return the last share from outside that is excluded, or the limit if none is."""
    for _ in range(HALVINGS):
        share = (outside + inside) / 2
        out = excluded(share)
        outside, inside = np.where(out, share, outside), np.where(out, inside, share)
    return outside
