"""The parametric bootstrap: drawing releases as they would be if a given distribution were true."""

import hashlib
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.resampling import redraw_releases
from veiltab.core.uncertainty import ReleaseDesign
from veiltab.errors import ParameterError

Statistic = Callable[[NDArray[np.int64]], Shares]
"""Takes releases, one per row, and returns a number for each."""

MOST_CELLS = 100_000
"""The largest table that is resampled."""

MOST_REPLICATES, FEWEST_REPLICATES = 1_999, 199
_COUNTS = 20_000_000
"""About how many counts are drawn in all: large tables have fewer replicates."""

_BATCH_COUNTS = 1 << 20


def seeded_generator(released: ReleasedCounts, purpose: str) -> np.random.Generator:
    """Return a generator whose seed follows from the counts, so that results are reproducible.

    Privacy does not depend on it: resampling is post-processing.
    """
    counts = released.counts.astype("<i8").tobytes()
    digest = hashlib.sha256(purpose.encode() + b"\0" + counts)
    return np.random.default_rng(int.from_bytes(digest.digest()))


def resample(
    truth: Shares,
    design: ReleaseDesign,
    statistic: Statistic,
    generator: np.random.Generator,
    most: int = MOST_REPLICATES,
) -> Shares:
    """Return the statistic of many releases, drawn as if ``truth`` were the distribution."""
    replicates = min(most, max(FEWEST_REPLICATES, _COUNTS // truth.size))
    batches = _batches(truth, design, replicates, generator)
    return np.concatenate([statistic(batch) for batch in batches])


def check_size(cells: int, most: int = MOST_CELLS) -> None:
    """Refuse a table that would take too long to resample."""
    if cells > most:
        raise ParameterError(
            f"a table of {cells:,} cells is too large to be resampled",
            hint=f"use attributes with at most {most:,} joint cells",
        )


def _batches(
    truth: Shares, design: ReleaseDesign, replicates: int, generator: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    size = max(1, _BATCH_COUNTS // truth.size)
    for start in range(0, replicates, size):
        yield redraw_releases(truth, design, min(size, replicates - start), generator)
