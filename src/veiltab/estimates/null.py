"""The hypothesis of independence: the distribution that fits it best, and the distance from it."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from veiltab.core import estimators
from veiltab.core.channel import GammaDiagonal
from veiltab.core.uncertainty import Design
from veiltab.estimates.released import Shares

CAUTION = 8.0
"""A group whose squared share is this many variances of a cell counts half, all others half.

Chosen by trial among 0 to 16 so that false alarms stay near 5% in small groups, then checked on
other tables; in large samples it does not matter.
"""


@dataclass(frozen=True, slots=True)
class Null:
    """Independence of two attributes, within each group of others: how to fit and measure it."""

    channel: GammaDiagonal
    rows: int
    columns: int
    groups: int

    def fit(self, counts: NDArray[np.int64]) -> Shares:
        """Return the distribution with the most likely margins under which both are independent.

        Releases run along the first axes; a cell is (row, column, group).
        """
        table = counts.reshape(*counts.shape[:-1], self.rows, self.columns, self.groups)
        within_rows = self._within(table.sum(axis=-2), self.rows)
        within_columns = self._within(table.sum(axis=-3), self.columns)
        groups = self._margin(table.sum(axis=(-3, -2)), (self.groups,))
        joint = (
            within_rows[..., :, np.newaxis, :]
            * within_columns[..., np.newaxis, :, :]
            * groups[..., np.newaxis, np.newaxis, :]
        )
        return joint.reshape(counts.shape)

    def plausible(self, counts: NDArray[np.int64], design: Design) -> Shares:
        """Return the independent distribution from which to draw other releases.

        In small groups the most likely shares lie on the boundary more often than true ones do,
        which would make the test too cautious.  So they are drawn towards the shares overall, the
        more so the less is known about the group.  In a single group nothing changes.
        """
        table = counts.reshape(self.rows, self.columns, self.groups)
        groups = self._margin(table.sum(axis=(0, 1)), (self.groups,))
        rows, columns = (
            self._drawn_together(table.sum(axis=axis), groups, design) for axis in (1, 0)
        )
        joint: Shares = rows[:, np.newaxis, :] * columns[np.newaxis, :, :] * groups
        return joint.reshape(-1)

    def _drawn_together(self, counts: NDArray[np.int64], groups: Shares, design: Design) -> Shares:
        size = counts.shape[0]
        overall = self._margin(counts.sum(axis=1), (size,))[:, np.newaxis]
        channel = self.channel.marginal(counts.size)
        typical = np.array([1 / counts.size])
        marginal = replace(design, channel=channel)
        variance = marginal.set_privacy(typical, 1) + marginal.set_sampling(typical)
        certainty = groups**2 / (groups**2 + CAUTION * variance)
        mixed: Shares = certainty * self._within(counts, size) + (1 - certainty) * overall
        return mixed

    def statistic(self, counts: NDArray[np.int64]) -> Shares:
        """Return Pearson's distance m Σ (s/m − v)²/v between a release and the fitted one.

        It is that between the unbiased estimate and the product of its margins, p(T̂ − T₀), with
        each cell weighted by what its noise makes of it.
        """
        size = counts.sum(axis=-1, keepdims=True)
        expected = self.channel.transform(self.fit(counts))
        distance: Shares = ((counts / size - expected) ** 2 / expected).sum(axis=-1) * size[..., 0]
        return distance

    def _within(self, counts: NDArray[np.int64], size: int) -> Shares:
        """Return the shares of ``size`` categories within each group; equal ones if it is empty."""
        joint = self._margin(counts, (size, self.groups))
        whole = joint.sum(axis=-2, keepdims=True)
        equal = np.full_like(joint, 1 / size)
        within: Shares = np.divide(joint, whole, where=whole > 0, out=equal)
        return within

    def _margin(self, counts: NDArray[np.int64], shape: tuple[int, ...]) -> Shares:
        """Return the most likely distribution of a margin."""
        cells = math.prod(shape)
        flat = counts.reshape(*counts.shape[: counts.ndim - len(shape)], cells)
        return estimators.most_likely(flat, self.channel.marginal(cells)).reshape(counts.shape)
