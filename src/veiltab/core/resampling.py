"""Drawing releases from their exact law, without touching a record.

The parametric bootstrap draws what other releases would have said, through the same channel.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.uncertainty import ReleaseDesign
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    Counts = NDArray[np.int64]


MAX_COUNTED_POPULATION = 10**9 - 1
"""The largest population that NumPy's hypergeometric sampler accepts."""


def draw_releases(
    respondents: "Counts", design: ReleaseDesign, runs: int, generator: np.random.Generator
) -> "Counts":
    """Draw the released counts, one row per run, of a sample of these ``respondents``."""
    kept = generator.binomial(design.sample_size, float(design.channel.keep_probability), size=runs)
    uniform = np.full(respondents.size, 1 / respondents.size)
    replaced = generator.multinomial(design.sample_size - kept, uniform)
    return draw_without_replacement(respondents, kept, generator) + replaced


def redraw_releases(
    distribution: "NDArray[np.float64]",
    design: ReleaseDesign,
    runs: int,
    generator: np.random.Generator,
) -> "Counts":
    """Draw the released counts, one row per run, that a ``distribution`` would have led to.

    The distribution is that of the respondents, rounded to whole people, or of a larger population.
    """
    if design.population == "super":
        released = design.channel.transform(distribution)
        return generator.multinomial(design.sample_size, released / released.sum(), size=runs)
    if design.population_size > MAX_COUNTED_POPULATION:
        raise ParameterError(
            f"a finite population of {design.population_size:,} is too large to draw from",
            hint="ask about the larger population instead, with population='super'",
        )
    return draw_releases(apportion(distribution, design.population_size), design, runs, generator)


def draw_without_replacement(
    counts: "Counts", sizes: "Counts", generator: np.random.Generator
) -> "Counts":
    """Draw a multivariate hypergeometric table for each sample size.

    The cells are the leaves of a binary tree.  How many of a node's draws fall into its left half
    is hypergeometric, so one vectorised call serves a whole level for all runs.
    """
    width = 1 << (counts.size - 1).bit_length()
    levels = [np.concatenate([counts, np.zeros(width - counts.size, dtype=np.int64)])]
    while levels[-1].size > 1:
        levels.append(levels[-1].reshape(-1, 2).sum(axis=1))
    drawn = sizes[:, np.newaxis]
    for level in reversed(levels[:-1]):
        halves = np.empty((sizes.size, level.size), dtype=np.int64)
        halves[:, 0::2] = generator.hypergeometric(level[0::2], level[1::2], drawn)
        halves[:, 1::2] = drawn - halves[:, 0::2]
        drawn = halves
    return drawn[:, : counts.size]


def apportion(weights: "NDArray[np.float64]", population_size: int) -> "Counts":
    """Round weights to whole counts with the given sum, by largest remainders."""
    exact = weights / weights.sum() * population_size
    counts: Counts = np.floor(exact).astype(np.int64)
    missing = population_size - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[: max(0, missing)]] += 1
    counts[counts.argmax()] += population_size - counts.sum()  # lost to rounding
    return counts


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
