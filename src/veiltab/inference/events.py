"""Events, that is, sets of cells: their shares, how those vary together, and their intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core import estimators
from veiltab.core.intervals import Interval, product_ratio, proportion_interval, widened
from veiltab.core.released import Shares
from veiltab.core.shape import Shape
from veiltab.core.uncertainty import ReleaseDesign
from veiltab.inference.conditions import Mask


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Unbiased shares of events, and the privacy and sampling parts of their covariance.

    The events divide the table into atoms: ``parts`` says which atoms belong to which event,
    ``likely`` and ``fractions`` are the atoms' plausible shares and their parts of all cells.
    """

    shares: Shares
    privacy: Shares
    sampling: Shares
    parts: Shares
    likely: Shares
    fractions: Shares
    design: ReleaseDesign

    @property
    def total(self) -> Shares:
        """The covariance: the sum of both parts."""
        return self.privacy + self.sampling

    def errors(self, gradient: Shares) -> tuple[float, float, float]:
        """Return standard, sampling and privacy error of a statistic with this gradient."""
        parts = (self.total, self.sampling, self.privacy)
        total, sampling, privacy = (max(float(gradient @ part @ gradient), 0.0) for part in parts)
        return total**0.5, sampling**0.5, privacy**0.5

    def shape(self, gradient: Shares) -> Shape | None:
        """Return the shape of the error of a statistic with this gradient; None if it is normal."""
        if self.design.normal:
            return None
        return self.design.shape(gradient @ self.parts, self.likely, self.fractions)

    def margins(self, gradient: Shares, critical: float) -> tuple[Any, Any]:
        """Return how far an interval of a linear statistic reaches down and up.

        There is a number for each release.
        """
        variance = np.einsum("i,...ij,j->...", gradient, self.total, gradient)
        error, shape = np.sqrt(np.maximum(variance, 0)), self.shape(gradient)
        if shape is None:
            return critical * error, critical * error
        return shape.deviation(critical) * error, -shape.deviation(-critical) * error

    def ends(self, gradient: Shares, value: float, critical: float) -> tuple[float, float]:
        """Return the interval of a difference of two shares, within −1..1."""
        below, above = self.margins(gradient, critical)
        return clipped(float(value - below)), clipped(float(value + above))

    def widened(self, gradient: Shares, critical: float) -> Any:  # noqa: ANN401 - a number, or one per release
        """Return the critical value for an interval of the statistic in both directions."""
        return widened(critical, self.shape(gradient))


def estimate_events(
    counts: NDArray[np.int64], design: ReleaseDesign, masks: Sequence[Mask]
) -> Events:
    """Estimate the share of each event, a set of cells; cells run along the last axis."""
    pattern = np.zeros(masks[0].size, dtype=np.uint8)
    for position, mask in enumerate(masks):
        pattern |= mask.astype(np.uint8) << np.uint8(position)
    kinds = np.unique(pattern)
    sizes = np.array([np.count_nonzero(pattern == kind) for kind in kinds], dtype=np.float64)
    summed = np.stack([counts[..., pattern == kind].sum(axis=-1) for kind in kinds], axis=-1)
    atoms = design.estimate_sets(summed, sizes)
    likely, fractions = estimators.project(atoms), sizes / pattern.size
    events = np.array([(kinds >> position) & 1 for position in range(len(masks))], dtype=float)
    return Events(
        atoms @ events.T,
        events @ design.privacy.of_partition(likely, fractions) @ events.T,
        events @ design.sampling.of_partition(likely, fractions) @ events.T,
        events,
        likely,
        fractions,
        design,
    )


def conditional_interval(events: Events, critical: float) -> Interval:
    """Return the interval of the first event's share of the second, which holds it."""
    part, whole = events.shares[..., 0], events.shares[..., 1]
    ratio = np.divide(part, whole, where=whole > 0, out=np.zeros_like(part))
    gradient = np.stack([np.ones_like(ratio), -np.clip(ratio, 0, 1)], axis=-1)
    return proportion_interval(part, whole, events.total, critical, events.shape(gradient))


def ratio_interval(events: Events, critical: float) -> Interval:
    """Return the interval of x₀x₃/(x₁x₂), the ratio of two products of four events' shares."""
    x0, x1, x2, x3 = np.moveaxis(events.shares, -1, 0)
    ratio = np.divide(x0 * x3, x1 * x2, where=x1 * x2 > 0, out=np.zeros_like(x0))
    apart = np.stack([x3, -ratio * x2, -ratio * x1, x0], axis=-1)  # of x₀x₃ − (ratio)x₁x₂
    return product_ratio(events.shares, events.total, events.widened(apart, critical))


def clipped(value: float) -> float:
    """Keep a difference of two shares within −1..1."""
    return min(max(value, -1.0), 1.0)
