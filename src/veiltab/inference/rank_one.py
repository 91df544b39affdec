"""The nearest tables of rank one: independence within groups, or a common odds ratio.

Within a group, independent attributes have a table r cᵀ.  The nearest one to the unbiased estimate
T̂ minimises Σ (T̂ − r cᵀ)²/(a + b r cᵀ), each cell weighted by the inverse of its variance.  The
minimum over r for a given c is a weighted mean, and so is that over c for a given r; in turn they
converge within a few steps.

Tables are arrays of shape (rows, columns, groups, releases): with the releases last, each step is a
few operations on long vectors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tables = NDArray[np.float64]

STEPS = 6
"""Steps for many releases.  Weak groups are not at their minimum then, and need not be: drawn
releases are fitted by the same number of steps."""

MOST_STEPS = 30
"""Steps for the one fit from which releases are drawn."""

_TINY = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """What is fitted: T₀ = scale ∘ r cᵀ in each group, in cells with the variance a + bT₀.

    ``constant`` is a, a number or an array of shape (rows, columns, groups, 1); ``slope`` is b.
    ``scale`` is 1 for independence.  ``total`` is what all cells sum to, None if that is unknown.
    """

    constant: Any
    slope: float
    scale: Any = 1.0
    total: float | None = 1.0

    def weights(self, tables: Tables) -> Tables:
        """Return the inverse variances of cells with these shares; negative ones count as zero."""
        inverse: Tables = 1 / (self.constant + self.slope * np.maximum(tables, 0))
        return inverse

    def signed(self, tables: Tables, steps: int = STEPS) -> Tables:
        """Return the nearest tables of rank one, whose entries may be negative.

        They form a smooth surface: the distance to it has no corners where a share is zero.
        """
        strongest = (tables**2).sum(axis=1, keepdims=True).argmax(axis=0)[np.newaxis]
        columns = np.take_along_axis(tables, strongest, axis=0)
        return self._alternate(tables, columns, steps, lambda values: values)

    def proper(self, tables: Tables) -> Tables:
        """Return the nearest tables of rank one without negative entries, that sum to the total."""
        columns = np.maximum(tables, 0).sum(axis=0, keepdims=True)
        fitted = self._alternate(tables, columns, MOST_STEPS, lambda v: np.maximum(v, 0))
        if self.total is None:
            return fitted
        scaled: Tables = fitted * (self.total / np.maximum(fitted.sum(axis=(0, 1, 2)), _TINY))
        return scaled

    def _alternate(
        self, tables: Tables, columns: Tables, steps: int, bound: Callable[[Tables], Tables]
    ) -> Tables:
        weights = self.weights(tables)
        fitted = tables
        for _ in range(steps):
            rows = bound(self._half_step(tables, weights, self.scale * columns, 1))
            columns = bound(self._half_step(tables, weights, self.scale * rows, 0))
            fitted = self.scale * rows * columns
            weights = self.weights(fitted)
        return fitted

    def _half_step(self, tables: Tables, weights: Tables, known: Tables, axis: int) -> Tables:
        """Return the best r for a given c, or the other way round, with the right total.

        With a multiplier λ of the total, r = (Σ W T̂ c + λ Σ c)/Σ W c².
        """
        weighted = weights * known
        squares = np.maximum((weighted * known).sum(axis=axis, keepdims=True), _TINY)
        best: Tables = (weighted * tables).sum(axis=axis, keepdims=True) / squares
        if self.total is None:
            return best
        lengths = np.broadcast_to(known, tables.shape).sum(axis=axis, keepdims=True)
        every = (0, 1, 2)
        missing = self.total - (best * lengths).sum(axis=every)
        multiplier = missing / np.maximum((lengths**2 / squares).sum(axis=every), _TINY)
        corrected: Tables = best + multiplier * lengths / squares
        return corrected
