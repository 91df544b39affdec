"""A test of independence that is valid under the noise.

The null distribution is the independent one that fits the release best; releases are drawn from it
by the mechanism itself, with its decoys and its noise.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core import estimators
from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.resampling import check_size, resample, seeded_generator
from veiltab.core.uncertainty import Population, ReleaseDesign
from veiltab.errors import ParameterError
from veiltab.inference.diagnostics import sample_warnings

METHOD = "Pearson's statistic of the release, parametric bootstrap under independence"

SHRINKAGE = 8.0
"""How strongly the shares within a group are shrunk towards the shares overall.

A group whose squared share is this many times the variance of a cell gets equal weights for both.
It was chosen by trial among 0 to 16 so that false alarms stay near 5% in small groups, then checked
on other tables; in large samples it does not matter.
"""


@dataclass(frozen=True, slots=True)
class Null:
    """The null hypothesis: two attributes are independent within each group of others."""

    design: ReleaseDesign
    rows: int
    columns: int
    groups: int

    def fit(self, counts: NDArray[np.int64]) -> Shares:
        """Return the independent distribution with the most likely margins.

        Releases run along the first axes; a cell is (row, column, group).
        """
        table = counts.reshape(*counts.shape[:-1], self.rows, self.columns, self.groups)
        within_rows = self._within(table.sum(axis=-2), self.rows)
        within_columns = self._within(table.sum(axis=-3), self.columns)
        groups = self._margin(table.sum(axis=(-3, -2)), (self.groups,))
        joint = (
            within_rows[..., :, np.newaxis, :]
            * within_columns[..., np.newaxis, :, :]
            * groups[..., np.newaxis, np.newaxis, :]
        )
        return joint.reshape(counts.shape)

    def plausible(self, counts: NDArray[np.int64]) -> Shares:
        """Return the independent distribution from which other releases are drawn.

        In small groups the most likely shares lie on the boundary more often than true ones do,
        which would make the test too cautious.  So they are shrunk towards the shares overall, the
        more strongly the less is known about the group.  In a single group nothing changes.
        """
        table = counts.reshape(self.rows, self.columns, self.groups)
        groups = self._margin(table.sum(axis=(0, 1)), (self.groups,))
        rows, columns = (self._shrunk(table.sum(axis=axis), groups) for axis in (1, 0))
        joint: Shares = rows[:, np.newaxis, :] * columns[np.newaxis, :, :] * groups
        return joint.reshape(-1)

    def _shrunk(self, counts: NDArray[np.int64], groups: Shares) -> Shares:
        size = counts.shape[0]
        overall = self._margin(counts.sum(axis=1), (size,))[:, np.newaxis]
        typical = np.array([1 / counts.size])
        variance = self.design.marginal(counts.size).total.of_sets(typical, typical)
        certainty = groups**2 / (groups**2 + SHRINKAGE * variance)
        mixed: Shares = certainty * self._within(counts, size) + (1 - certainty) * overall
        return mixed

    def statistic(self, counts: NDArray[np.int64]) -> Shares:
        """Return Pearson's distance Σ (T̂ − T₀)²/(a + bT₀) between a release and its fit.

        It measures how far the unbiased estimate is from independence, each cell weighted by the
        inverse of its variance.  By rank it is m Σ (s − v)²/v, with the expected released shares v.
        """
        constant, slope = map(float, self.design.cell_variance)
        fitted = self.fit(counts)
        apart = self.design.estimate(counts) - fitted
        distance: Shares = (apart**2 / (constant + slope * fitted)).sum(axis=-1)
        return distance

    def _within(self, counts: NDArray[np.int64], size: int) -> Shares:
        """Return the shares of ``size`` categories within each group; equal ones if it is empty."""
        joint = self._margin(counts, (size, self.groups))
        whole = joint.sum(axis=-2, keepdims=True)
        equal = np.full_like(joint, 1 / size)
        within: Shares = np.divide(joint, whole, where=whole > 0, out=equal)
        return within

    def _margin(self, counts: NDArray[np.int64], shape: tuple[int, ...]) -> Shares:
        """Return the most likely distribution of a margin."""
        cells = math.prod(shape)
        flat = counts.reshape(*counts.shape[: counts.ndim - len(shape)], cells)
        return estimators.most_likely(flat, self.design.marginal(cells)).reshape(counts.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndependenceTest:
    """How far a release is from independence, and how unusual that would be under independence.

    The p-value is (1 + the number of drawn statistics that are at least as large)/(1 + replicates).
    """

    label: str
    statistic: float
    p_value: float
    replicates: int
    population: Population
    method: str = METHOD
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return asdict(self) | {"warnings": list(self.warnings)}

    def __str__(self) -> str:
        """Return the result in one line, followed by a line for each warning."""
        return "\n".join([f"{self.label}: {self._text()}", *(f"  {w}" for w in self.warnings)])

    def _repr_html_(self) -> str:
        """Return a paragraph and a list of warnings for notebooks."""
        warnings = "".join(f"<li>{escape(warning)}</li>" for warning in self.warnings)
        listed = f"<ul>{warnings}</ul>" if warnings else ""
        return f"<p><b>{escape(self.label)}</b>: {escape(self._text())}</p>{listed}"

    def _text(self) -> str:
        return (
            f"p = {self.p_value:.3g} (statistic {self.statistic:.4g}, {self.replicates:,} drawn"
            " releases)"
        )


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
) -> IndependenceTest:
    """Test whether two attributes are independent, or independent within groups of others."""
    if {x, y} & set(given):
        raise ParameterError(
            "an attribute is both tested and conditioned on", hint="name each attribute only once"
        )
    pair = pair_table(released, x, y)
    table = released.marginal([x, y, *given]) if given else pair
    check_size(table.schema.domain_size)
    rows, columns = pair.schema.sizes
    groups = table.schema.domain_size // (rows * columns)
    null = Null(table.design(population), rows, columns, groups)
    observed = float(null.statistic(table.counts))
    label = f"independence of {x} and {y}" + (f" given {', '.join(given)}" if given else "")
    drawn = resample(
        null.plausible(table.counts), null.design, null.statistic, seeded_generator(table, label)
    )
    # Equal statistics may come out a rounding error apart.
    larger = int(np.count_nonzero(drawn >= observed * (1 - 1e-12)))
    return IndependenceTest(
        label=label,
        statistic=observed,
        p_value=(1 + larger) / (1 + drawn.size),
        replicates=int(drawn.size),
        population=population,
        warnings=sample_warnings(released),
    )
