"""The parametric bootstrap: what other releases would have said, drawn through the channel."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from veiltab.core.resampling import redraw_releases
from veiltab.core.uncertainty import Design
from veiltab.errors import ParameterError

Shares = NDArray[np.float64]
Statistic = Callable[[NDArray[np.int64]], Shares]
"""Takes releases, one per row, and returns a number for each."""

MOST_CELLS = 100_000
"""The largest table that is drawn again and again."""

MOST_REPLICATES, FEWEST_REPLICATES = 1_999, 199
_NUMBERS = 20_000_000
_BATCH_NUMBERS = 1 << 20


def resample(
    truth: Shares,
    design: Design,
    statistic: Statistic,
    generator: np.random.Generator,
    most: int = MOST_REPLICATES,
) -> Shares:
    """Return the statistic of many releases, as they would be if ``truth`` were true."""
    runs = min(most, max(FEWEST_REPLICATES, _NUMBERS // truth.size))
    return np.concatenate([statistic(batch) for batch in _batches(truth, design, runs, generator)])


def check_size(cells: int, most: int = MOST_CELLS) -> None:
    """Refuse a table that would take too long to be drawn again and again."""
    if cells > most:
        raise ParameterError(
            f"a table of {cells:,} cells is too large to be drawn again and again",
            hint=f"use attributes with at most {most:,} joint cells",
        )


def _batches(
    truth: Shares, design: Design, runs: int, generator: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    batch = max(1, _BATCH_NUMBERS // truth.size)
    for start in range(0, runs, batch):
        yield redraw_releases(truth, design, min(batch, runs - start), generator)
