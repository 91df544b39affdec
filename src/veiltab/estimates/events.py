"""A few conditions at once: their shares and the exact covariance between them.

The table is first divided into the sets of cells that the conditions tell apart.  Their shares
are estimated without bias, and their covariance depends on nothing within them.
"""

from dataclasses import dataclass

import numpy as np

from veiltab.core import estimators
from veiltab.core.design import Design, Population
from veiltab.estimates.conditions import Mask
from veiltab.estimates.released import Released, Shares


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Unbiased shares of events, with the privacy and the sampling part of their covariance."""

    shares: Shares
    privacy: Shares
    sampling: Shares
    design: Design

    @property
    def total(self) -> Shares:
        """The covariance: the sum of both parts."""
        return self.privacy + self.sampling

    def errors(self, gradient: Shares) -> tuple[float, float, float]:
        """Return standard, sampling and privacy error of a statistic with this gradient."""
        parts = (self.total, self.sampling, self.privacy)
        total, sampling, privacy = (max(float(gradient @ part @ gradient), 0.0) for part in parts)
        return total**0.5, sampling**0.5, privacy**0.5


def estimate_events(released: Released, masks: list[Mask], population: Population) -> Events:
    """Estimate the share of each event, a set of cells."""
    pattern = np.zeros(released.schema.domain_size, dtype=np.int64)
    for position, mask in enumerate(masks):
        pattern += mask.astype(np.int64) << position
    kinds = 1 << len(masks)
    cells = np.bincount(pattern, minlength=kinds)
    counts = np.bincount(pattern, weights=released.counts, minlength=kinds)
    present = np.flatnonzero(cells)
    sizes = cells[present].astype(np.float64)
    design = released.design(population)
    noise = sizes * float(design.channel.spread)
    atoms = (counts[present] / counts.sum() - noise) / float(design.channel.keep_probability)
    likely = estimators.project(atoms)
    events = np.array([(present >> position) & 1 for position in range(len(masks))], dtype=float)
    return Events(
        events @ atoms,
        events @ design.partition_privacy(likely, sizes) @ events.T,
        events @ design.partition_sampling(likely) @ events.T,
        design,
    )
