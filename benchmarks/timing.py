"""Measuring: medians of several runs, and ratios between things measured side by side.

Only the standard library is used here: the other libraries' environments run this file too.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

REPEATS = 5

Works = Mapping[str, Callable[[], object]]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Ratio:
    """How a piece of work compares with its reference, measured in the same run."""

    name: str
    seconds: float
    reference: str
    reference_seconds: float
    goal: str
    met: bool
    records: int = 0
    note: str = ""

    @property
    def ratio(self) -> float:
        """How many times faster than the reference it is."""
        return self.reference_seconds / self.seconds

    @property
    def rate(self) -> float:
        """Millions of records a second, or 0 if records are not what is counted."""
        return self.records / self.seconds / 1e6


@dataclass(frozen=True, slots=True)
class Figure:
    """A number other than a speed: memory, bytes, or how one of them grows."""

    name: str
    value: float
    unit: str
    goal: str = ""
    met: bool = True
    note: str = ""


def compared(
    name: str,
    seconds: float,
    reference: tuple[str, float],
    *,
    least: float | None = None,
    records: int = 0,
) -> Ratio:
    """Return a row; ``least`` is the goal: how many times as fast as the reference it should be."""
    what, reference_seconds = reference
    goal = "" if least is None else f"at least {least:g}"
    met = least is None or reference_seconds / seconds >= least
    return Ratio(name, seconds, what, reference_seconds, goal, met, records)


def number(value: float) -> str:
    """Write three digits, or as many as there are before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the median time of ``repeats`` runs of the work."""
    return median_of({"work": work}, repeats)["work"]


def median_of(
    works: Works, repeats: int = REPEATS, turns: int = 1, clock: Clock = time.perf_counter
) -> dict[str, float]:
    """Return the median time of each piece of work, done ``turns`` times, after a warm-up.

    They take turns: a machine that is slow for a while is then slow for all of them.
    """
    for work in works.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, seconds in _in_turns(works, turns, clock).items():
            times[name].append(seconds)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def _in_turns(works: Works, turns: int, clock: Clock) -> dict[str, float]:
    seconds = dict.fromkeys(works, 0.0)
    for _ in range(turns):
        for name, work in works.items():
            start = clock()
            work()
            seconds[name] += clock() - start
    return seconds
