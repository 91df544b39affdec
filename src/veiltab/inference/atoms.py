"""Atoms: the sets of cells that a few statistics do not tell apart.

Statistics of a table depend on it only through the shares of their atoms.  To estimate these, and
not all cells, makes the plug-in variance as exact as that of a small table.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veiltab.core import estimators
from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.shape import Shape
from veiltab.core.uncertainty import CovarianceForm, Population, ReleaseDesign

SHAPES_AT_ONCE = 1 << 15
"""For how many rows of atoms the shape of the error is computed at once: bounds the memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Atoms:
    """Sets of cells that divide a table, along the last axis: shares, and parts of all cells.

    Axes before the last one stand for several divisions of a table, or for several releases.
    """

    shares: Shares
    likely: Shares
    fractions: Shares
    design: ReleaseDesign

    @classmethod
    def of(cls, counts: NDArray[np.int64], sizes: Shares, design: ReleaseDesign) -> "Atoms":
        """Estimate sets with these counts and these numbers of cells."""
        shares = design.estimate_sets(counts, sizes)
        return cls(shares, estimators.project(shares), sizes / design.cells, design)

    def covariance(self, form: CovarianceForm, gradients: Shares) -> Shares:
        """Return the covariance of linear statistics, a row of ``gradients`` each."""
        return form.of_statistics(self.likely, gradients, self.fractions)

    def shape(self, weights: Shares, likely: Shares | None = None) -> Shape | None:
        """Return the shape of the error of linear statistics; None if it is taken as normal."""
        if self.design.normal:
            return None
        shares = self.likely if likely is None else likely
        if weights.ndim == 1 or self.design.many or weights.shape[0] <= SHAPES_AT_ONCE:
            return self.design.shape(weights, shares, self.fractions)
        fractions = np.broadcast_to(self.fractions, weights.shape)
        shares = np.broadcast_to(shares, weights.shape)
        parts = [slice(i, i + SHAPES_AT_ONCE) for i in range(0, len(weights), SHAPES_AT_ONCE)]
        shapes = [self.design.shape(weights[i], shares[i], fractions[i]) for i in parts]
        return Shape(
            np.concatenate([shape.skewness for shape in shapes]),
            np.concatenate([shape.excess for shape in shapes]),
        )


def atoms_of(
    released: ReleasedCounts, gradients: Shares, population: Population
) -> tuple[Atoms, Shares]:
    """Return the atoms of linear statistics, and the statistics' weights of each atom.

    ``gradients`` has a row per statistic and a column per cell.
    """
    atoms, columns = divide(gradients)
    counts, sizes = count_atoms(released.counts, atoms, columns.shape[1])
    return Atoms.of(counts, sizes, released.design(population)), columns


def divide(gradients: Shares) -> tuple[NDArray[np.int64], Shares]:
    """Return the atom of each cell, and the column of ``gradients`` that an atom's cells share."""
    order = np.lexsort(gradients)
    ordered = gradients[:, order]
    first = np.ones(order.size, dtype=np.bool_)
    first[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    atoms = np.empty(order.size, dtype=np.int64)
    atoms[order] = np.cumsum(first) - 1
    return atoms, ordered[:, first]


def count_atoms(
    counts: NDArray[np.int64], atoms: NDArray[np.int64], number: int
) -> tuple[NDArray[np.int64], Shares]:
    """Return the counts of the atoms, and of how many cells each consists."""
    order = np.argsort(atoms, kind="stable")
    starts = np.searchsorted(atoms[order], np.arange(number))
    sums = np.add.reduceat(counts[..., order], starts, axis=-1)
    return sums, np.bincount(atoms, minlength=number).astype(np.float64)
