"""Measuring: medians of several runs, and ratios between things measured side by side."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ratio:
    """How a piece of work compares with its reference, measured in the same run."""

    name: str
    seconds: float
    reference: str
    reference_seconds: float
    goal: str
    met: bool

    @property
    def ratio(self) -> float:
        """How many times faster than the reference it is."""
        return self.reference_seconds / self.seconds


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the median time of ``repeats`` runs of the work."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
