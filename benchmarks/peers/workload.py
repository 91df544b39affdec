"""What every peer is given, and the one JSON object that it prints.

This file runs inside the peers' environments too, so it needs the standard library alone.
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import TypeVar

from benchmarks.timing import median_seconds

CELLS = 24
EPSILON = 1.0
REPEATS = 5
KEPT = math.exp(EPSILON) / (math.exp(EPSILON) + CELLS - 1)
"""How likely k-ary randomised response at ε reports the truth."""

WEIGHTS = [cell + 1 for cell in range(CELLS)]
"""How often each cell occurs: unevenly, for an estimate that forgets the noise must not pass."""
SHARES = [weight / sum(WEIGHTS) for weight in WEIGHTS]

Output = TypeVar("Output")


@dataclass(frozen=True, slots=True)
class Check:
    """A number computed from what the peer returned, and what it must be close to."""

    what: str
    value: float
    expected: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the output can be right."""
        return abs(self.value - self.expected) <= self.tolerance


@dataclass(frozen=True, slots=True)
class Work:
    """One piece of work: what, on how many records, its median time, and its check."""

    kind: str
    work: str
    records: int
    seconds: float
    check: Check


def measure(
    kind: str,
    work: str,
    records: int,
    run: Callable[[], Output],
    verify: Callable[[Output], Check],
) -> Work:
    """Run once to warm up and to check the output, then take the median of the repeats."""
    check = verify(run())
    return Work(kind, work, records, median_seconds(run, REPEATS), check)


def check_kept(
    kept: int, records: int, expected: float = KEPT, what: str = "share of records kept"
) -> Check:
    """Check how many records were reported as they are: a binomial count, to 5 deviations."""
    tolerance = 5 * math.sqrt(expected * (1 - expected) / records)
    return Check(what, kept / records, expected, tolerance)


def check_estimate(largest_error: float, reports: int) -> Check:
    """Check estimated shares against the true ones: the largest of 24 errors, to 6 deviations."""
    other = (1 - KEPT) / (CELLS - 1)
    most_reported = other + max(SHARES) * (KEPT - other)
    deviation = math.sqrt(most_reported / reports) / (KEPT - other)
    return Check("largest error of a share", largest_error, 0.0, 6 * deviation)


def check_histogram(largest_error: float) -> Check:
    """Check noisy counts against the true ones: noise of scale 1/ε never reaches 60."""
    return Check("largest error of a count", largest_error, 0.0, 60 / EPSILON)


def print_report(distribution: str, works: list[Work]) -> None:
    """Print the one JSON object that ``run.py`` reads."""
    report = {
        "library": distribution,
        "version": version(distribution),
        "cells": CELLS,
        "epsilon": EPSILON,
        "repeats": REPEATS,
        "works": [asdict(work) for work in works],
    }
    print(json.dumps(report))
