"""A few conditions at once: their shares and the exact covariance between them.

The table is first divided into the sets of cells that the conditions tell apart.  Their shares
are estimated without bias, and their covariance depends on nothing within them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veiltab.core import estimators
from veiltab.core.uncertainty import Design
from veiltab.estimates.conditions import Mask
from veiltab.estimates.released import Shares


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Unbiased shares of events, with the privacy and the sampling part of their covariance."""

    shares: Shares
    privacy: Shares
    sampling: Shares

    @property
    def total(self) -> Shares:
        """The covariance: the sum of both parts."""
        return self.privacy + self.sampling

    def errors(self, gradient: Shares) -> tuple[float, float, float]:
        """Return standard, sampling and privacy error of a statistic with this gradient."""
        parts = (self.total, self.sampling, self.privacy)
        total, sampling, privacy = (max(float(gradient @ part @ gradient), 0.0) for part in parts)
        return total**0.5, sampling**0.5, privacy**0.5


def estimate_events(counts: NDArray[np.int64], design: Design, masks: Sequence[Mask]) -> Events:
    """Estimate the share of each event, a set of cells; cells run along the last axis."""
    pattern = np.zeros(masks[0].size, dtype=np.uint8)
    for position, mask in enumerate(masks):
        pattern |= mask.astype(np.uint8) << np.uint8(position)
    kinds = np.unique(pattern)
    sizes = np.array([np.count_nonzero(pattern == kind) for kind in kinds], dtype=np.float64)
    found = np.stack([counts[..., pattern == kind].sum(axis=-1) for kind in kinds], axis=-1)
    noise = sizes * float(design.channel.spread)
    released = found / found.sum(axis=-1, keepdims=True)
    atoms = (released - noise) / float(design.channel.keep_probability)
    likely = estimators.project(atoms)
    events = np.array([(kinds >> position) & 1 for position in range(len(masks))], dtype=float)
    return Events(
        atoms @ events.T,
        events @ design.partition_privacy(likely, sizes) @ events.T,
        events @ design.partition_sampling(likely) @ events.T,
    )
