"""Simultaneous intervals: the critical value with which all cells' intervals hold together."""

from typing import TYPE_CHECKING

import numpy as np

from veiltab.core.resampling import MAX_COUNTED_POPULATION, redraw_releases
from veiltab.core.uncertainty import Uncertainty, critical_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

SIDAK_CELLS = 100_000
"""Above it the critical value is Šidák's, which needs no draws and is never too small."""

RELEASED_CELLS = 2_000
"""Up to it whole releases are drawn; above it normal errors with the same covariance, faster."""

DRAWN_NUMBERS = 20_000_000
"""About how many numbers are drawn for one critical value: a second or two."""

ROUNDING = 1e-9
"""A smaller standard error is zero, less precisely computed."""

FEWEST_DRAWS, MOST_DRAWS = 1_000, 20_000
_BATCH_NUMBERS = 1 << 20


def sup_t(
    uncertainty: Uncertainty, level: float, generator: np.random.Generator, draws: int | None = None
) -> float:
    """Return c such that all |T̂ⱼ − Tⱼ| ≤ c·(standard error) hold together with this confidence.

    It is a quantile of the largest standardised error, drawn from the law of the release, or from
    the normal law with the exact covariance.  It is never below the value for one cell alone.
    """
    single = critical_value(level)
    cells = uncertainty.distribution.size
    if cells > SIDAK_CELLS:
        return critical_value(level ** (1 / cells))
    errors = np.sqrt(np.maximum(uncertainty.cells().total, 0))
    uncertain = errors > ROUNDING
    if not uncertain.any():
        return single
    if draws is None:
        draws = min(MOST_DRAWS, max(FEWEST_DRAWS, DRAWN_NUMBERS // cells))
    largest = [
        (np.abs(drawn[:, uncertain]) / errors[uncertain]).max(axis=1)
        for drawn in _drawn_errors(uncertainty, draws, generator)
    ]
    found = np.quantile(np.concatenate(largest), level, method="higher")
    return max(single, float(found))


def _drawn_errors(
    uncertainty: Uncertainty, draws: int, generator: np.random.Generator
) -> "Iterator[NDArray[np.float64]]":
    """Yield errors of the unbiased estimate, in batches so that memory stays bounded."""
    truth, design = uncertainty.distribution, uncertainty.design
    countable = design.population == "super" or design.population_size <= MAX_COUNTED_POPULATION
    whole = countable and truth.size <= RELEASED_CELLS
    batch = max(1, _BATCH_NUMBERS // truth.size)
    for start in range(0, draws, batch):
        size = min(batch, draws - start)
        if whole:
            yield design.channel.estimate(redraw_releases(truth, design, size, generator)) - truth
        else:
            yield uncertainty.draw(size, generator)
