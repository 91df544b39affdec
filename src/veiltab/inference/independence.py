"""A test of independence that is valid under the noise.

The statistic is the distance of the unbiased estimate from the nearest independent table; within
groups, from the nearest table that is independent in each of them.  Its null distribution is drawn
by the mechanism itself, with its decoys and its noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.resampling import check_size
from veiltab.core.uncertainty import Population, ReleaseDesign
from veiltab.errors import ParameterError
from veiltab.inference.hypotheses import DrawnTest, HypothesisTest
from veiltab.inference.rank_one import Model, Tables

METHOD = "minimum distance from independence, parametric bootstrap"


@dataclass(frozen=True, slots=True)
class Independence:
    """The hypothesis that two attributes are independent within each group of others.

    Releases have their cells along the last axis; a cell is (row, column, group).
    """

    design: ReleaseDesign
    rows: int
    columns: int
    groups: int

    @property
    def degrees_of_freedom(self) -> int:
        """How many numbers of the table independence leaves no choice of."""
        return self.groups * (self.rows - 1) * (self.columns - 1)

    @property
    def model(self) -> Model:
        """Tables of rank one, with the variance of a cell."""
        return Model(*map(float, self.design.cell_variance))

    def tables(self, counts: NDArray[np.int64]) -> Tables:
        """Return the unbiased estimates, with the releases along the last axis."""
        shape = self.rows, self.columns, self.groups, -1
        return np.ascontiguousarray(self.design.estimate(counts).T).reshape(shape)

    def statistic(self, counts: NDArray[np.int64]) -> Shares:
        """Return the distance of each release, the sum of those of its groups.

        The distance X of a group is small by construction if the fitted table is hardly larger
        than the noise, since the fit is to noise then.  How small depends on the size Q of the
        fitted table, and hardly on the true one: X is close to 1 − exp(−Q/(R + C)) times its mean
        in large groups, and is divided by that.
        """
        tables, model = self.tables(counts), self.model
        fitted = model.signed(tables)
        weights = model.weights(fitted)
        distance = (weights * (tables - fitted) ** 2).sum(axis=(0, 1))
        size = (weights * fitted**2).sum(axis=(0, 1))
        # The fit takes the largest of the singular values: none that is left over is larger.
        size = np.maximum(size, distance / (min(self.rows, self.columns) - 1))
        part = -np.expm1(-size / (self.rows + self.columns))
        whole: Shares = np.divide(distance, part, where=part > 0, out=distance).sum(axis=0)
        return whole

    def plausible(self, counts: NDArray[np.int64]) -> Shares:
        """Return the nearest proper distribution that is independent within each group."""
        fitted = self.model.proper(self.tables(counts[np.newaxis]))
        return fitted.reshape(-1)


def pair_table(released: ReleasedCounts, x: str, y: str) -> ReleasedCounts:
    """Return the table of two different attributes that both have several categories."""
    if x == y:
        raise ParameterError(f"{x!r} is named twice", hint="name two different attributes")
    pair = released.marginal([x, y])
    for attribute in pair.schema.attributes:
        if attribute.size == 1:
            raise ParameterError(
                f"{attribute.name!r} has only one category", hint="choose an attribute that varies"
            )
    return pair


def independence_test(
    released: ReleasedCounts, x: str, y: str, given: Sequence[str], population: Population
) -> HypothesisTest:
    """Test whether two attributes are independent, or independent within groups of others."""
    pair, table = grouped_pair(released, x, y, given)
    rows, columns = pair.schema.sizes
    groups = table.schema.domain_size // (rows * columns)
    null = Independence(table.design(population), rows, columns, groups)
    label = f"independence of {x} and {y}" + (f" given {', '.join(given)}" if given else "")
    test = DrawnTest(
        table=table,
        label=label,
        method=METHOD,
        design=null.design,
        truth=null.plausible(table.counts),
        measure=null.statistic,
    )
    return test.result(degrees_of_freedom=null.degrees_of_freedom)


def grouped_pair(
    released: ReleasedCounts, x: str, y: str, given: Sequence[str]
) -> tuple[ReleasedCounts, ReleasedCounts]:
    """Return the table of two attributes, and that of these within groups of others."""
    pair = pair_table(released, x, y)
    if x in given or y in given:
        raise ParameterError(
            "an attribute is both tested and conditioned on", hint="name each attribute only once"
        )
    table = released.marginal([x, y, *given]) if given else pair
    check_size(table.schema.domain_size)
    return pair, table
