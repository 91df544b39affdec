"""A joint table of counts: what is known in a simulation, and what a release estimates."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veiltab.core.schema import Schema


@dataclass(frozen=True, slots=True, eq=False)
class CountTable:
    """How many respondents fall in each joint cell of a schema."""

    schema: Schema
    counts: NDArray[np.int64]

    @property
    def population_size(self) -> int:
        """How many respondents there are in all."""
        return int(self.counts.sum())

    @property
    def distribution(self) -> NDArray[np.float64]:
        """The share of the respondents in each cell: the paper's type T."""
        shares: NDArray[np.float64] = self.counts / self.counts.sum()
        return shares

    @property
    def sum_of_squares(self) -> float:
        """‖T‖², through which alone the data enter the exact error."""
        return float((self.distribution**2).sum())

    def marginal(self, names: Sequence[str]) -> "CountTable":
        """Sum over all other attributes; the ones that stay take the given order."""
        subset = self.schema.subset(names)
        kept = [self.schema.names.index(name) for name in names]
        dropped = tuple(set(range(len(self.schema.names))) - set(kept))
        summed = self.counts.reshape(self.schema.sizes).sum(axis=dropped)
        ranks = np.argsort(np.argsort(kept))  # what is left stands in the schema's order
        return CountTable(subset, np.transpose(summed, ranks).reshape(-1))
