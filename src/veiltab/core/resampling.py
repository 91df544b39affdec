"""Drawing releases from their law, without touching a record.

The parametric bootstrap draws what other releases would have said, by the same mechanism.  The
functions here draw its single steps; a :class:`~veiltab.core.uncertainty.ReleaseDesign` puts them
together.  Drawing is post-processing, or simulation: privacy does not depend on these generators.
"""

import hashlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import Geometric, Law, WeightTable
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from veiltab.core.publication import PublicationNoise
    from veiltab.core.released import ReleasedCounts
    from veiltab.core.uncertainty import ReleaseDesign

Counts = NDArray[np.int64]
Shares = NDArray[np.float64]

MAX_COUNTED_POPULATION = 10**9 - 1
"""The largest population that NumPy's hypergeometric sampler accepts."""

LONGEST_SUM = 1 << 20
"""Up to this many values the law of a sum of decoys is computed; above, it is drawn as normal."""


def draw_without_replacement(
    counts: Counts, sizes: Counts, generator: np.random.Generator
) -> Counts:
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


def draw_decoys(
    law: Law, cells: int, shape: tuple[int, ...], generator: np.random.Generator
) -> Counts:
    """Draw how many decoys tables have, each of whose entries sums over this many joint cells."""
    if isinstance(law, Geometric):
        return generator.negative_binomial(cells, float(1 - law.ratio), size=shape)
    if cells * len(law.weights) > LONGEST_SUM:
        spread = float(cells * law.variance) ** 0.5
        normal = generator.normal(float(cells * law.mean), spread, size=shape)
        return np.maximum(np.rint(normal), 0).astype(np.int64)
    return np.searchsorted(_sum_law(law, cells), generator.random(shape), side="right")


@lru_cache(maxsize=16)
def _sum_law(law: WeightTable, cells: int) -> Shares:
    """Return the distribution function of the sum of so many numbers of decoys."""
    chances = np.array([float(weight) for weight in law.weights]) / DRAW_RANGE
    length = cells * (chances.size - 1) + 1
    spectrum = np.fft.rfft(chances, length) ** cells
    summed = np.maximum(np.fft.irfft(spectrum, length), 0)
    cumulated: Shares = np.cumsum(summed) / summed.sum()
    return cumulated[:-1]  # no draw reaches the last entry


def perturb_counts(rows: Counts, keep: float, generator: np.random.Generator) -> Counts:
    """Send rows through the channel: each stays with this probability, or becomes any cell."""
    kept = generator.binomial(rows, keep)
    uniform = np.full(rows.shape[-1], 1 / rows.shape[-1])
    return kept + generator.multinomial(rows.sum(axis=-1) - kept.sum(axis=-1), uniform)


def add_publication_noise(
    counts: Counts, publication: "PublicationNoise | None", generator: np.random.Generator
) -> Counts:
    """Add the noise of a published copy; of a marginal, the sums of that noise."""
    if publication is None:
        return counts
    summed, chance = publication.cells // counts.shape[-1], float(1 - publication.law.ratio)
    more, fewer = (generator.negative_binomial(summed, chance, counts.shape) for _ in range(2))
    return counts + more - fewer


def apportion(weights: Shares, population_size: int) -> Counts:
    """Round weights to whole counts with the given sum, by largest remainders."""
    exact = weights / weights.sum() * population_size
    counts: Counts = np.floor(exact).astype(np.int64)
    missing = population_size - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[: max(0, missing)]] += 1
    counts[counts.argmax()] += population_size - counts.sum()  # lost to rounding
    return counts


Statistic = Callable[[Counts], Shares]
"""Takes releases, one per row, and returns a number for each."""

MOST_CELLS = 100_000
"""The largest table that is resampled."""

MOST_REPLICATES, FEWEST_REPLICATES = 1_999, 199
_COUNTS = 20_000_000
"""About how many counts are drawn in all: large tables have fewer replicates."""

_BATCH_COUNTS = 1 << 20


def seeded_generator(released: "ReleasedCounts", purpose: str) -> np.random.Generator:
    """Return a generator whose seed follows from the counts, so that results are reproducible."""
    counts = released.counts.astype("<i8").tobytes()
    digest = hashlib.sha256(purpose.encode() + b"\0" + counts)
    return np.random.default_rng(int.from_bytes(digest.digest()))


def resample(
    truth: Shares,
    design: "ReleaseDesign",
    statistic: Statistic,
    generator: np.random.Generator,
    most: int = MOST_REPLICATES,
) -> Shares:
    """Return the statistic of many releases, drawn as if ``truth`` were the distribution."""
    batches = _batches(truth, design, affordable(truth.size, most), generator)
    return np.concatenate([statistic(batch) for batch in batches])


def affordable(cells: int, most: int = MOST_REPLICATES) -> int:
    """Return how many releases of so many cells are drawn: fewer for a large table."""
    return min(most, max(FEWEST_REPLICATES, _COUNTS // cells))


def check_size(cells: int, most: int = MOST_CELLS) -> None:
    """Refuse a table that would take too long to resample."""
    if cells > most:
        raise ParameterError(
            f"a table of {cells:,} cells is too large to be resampled",
            hint=f"use attributes with at most {most:,} joint cells",
        )


def _batches(
    truth: Shares, design: "ReleaseDesign", replicates: int, generator: np.random.Generator
) -> Iterator[Counts]:
    size = max(1, _BATCH_COUNTS // truth.size)
    for start in range(0, replicates, size):
        yield design.redraw(truth, min(size, replicates - start), generator)
