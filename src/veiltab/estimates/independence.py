"""A test of independence that is valid under the noise.

The null distribution is the one that fits independence best; releases are drawn from it through the
channel.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core import estimators
from veiltab.core.channel import GammaDiagonal
from veiltab.core.resampling import redraw_releases
from veiltab.core.uncertainty import Population, ReleaseDesign
from veiltab.errors import ParameterError
from veiltab.estimates.released import Released, Shares, sample_warnings

Statistic = Callable[[NDArray[np.int64]], Shares]
"""Takes releases, one per row, and returns a number for each."""

MOST_CELLS = 100_000
"""The largest table that is drawn again and again."""

MOST_REPLICATES, FEWEST_REPLICATES = 1_999, 199
_NUMBERS = 20_000_000
_BATCH_NUMBERS = 1 << 20


def resample(
    truth: Shares,
    design: ReleaseDesign,
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
    truth: Shares, design: ReleaseDesign, runs: int, generator: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    batch = max(1, _BATCH_NUMBERS // truth.size)
    for start in range(0, runs, batch):
        yield redraw_releases(truth, design, min(batch, runs - start), generator)


CAUTION = 8.0
"""A group whose squared share is this many variances of a cell counts half, all others half.

Chosen by trial among 0 to 16 so that false alarms stay near 5% in small groups, then checked on
other tables; in large samples it does not matter.
"""


@dataclass(frozen=True, slots=True)
class Null:
    """Independence of two attributes, within each group of others: how to fit and measure it."""

    channel: GammaDiagonal
    rows: int
    columns: int
    groups: int

    def fit(self, counts: NDArray[np.int64]) -> Shares:
        """Return the distribution with the most likely margins under which both are independent.

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

    def plausible(self, counts: NDArray[np.int64], design: ReleaseDesign) -> Shares:
        """Return the independent distribution from which to draw other releases.

        In small groups the most likely shares lie on the boundary more often than true ones do,
        which would make the test too cautious.  So they are drawn towards the shares overall, the
        more so the less is known about the group.  In a single group nothing changes.
        """
        table = counts.reshape(self.rows, self.columns, self.groups)
        groups = self._margin(table.sum(axis=(0, 1)), (self.groups,))
        rows, columns = (
            self._drawn_together(table.sum(axis=axis), groups, design) for axis in (1, 0)
        )
        joint: Shares = rows[:, np.newaxis, :] * columns[np.newaxis, :, :] * groups
        return joint.reshape(-1)

    def _drawn_together(
        self, counts: NDArray[np.int64], groups: Shares, design: ReleaseDesign
    ) -> Shares:
        size = counts.shape[0]
        overall = self._margin(counts.sum(axis=1), (size,))[:, np.newaxis]
        channel = self.channel.marginal(counts.size)
        typical = np.array([1 / counts.size])
        marginal = replace(design, channel=channel)
        variance = marginal.set_privacy(typical, 1) + marginal.set_sampling(typical)
        certainty = groups**2 / (groups**2 + CAUTION * variance)
        mixed: Shares = certainty * self._within(counts, size) + (1 - certainty) * overall
        return mixed

    def statistic(self, counts: NDArray[np.int64]) -> Shares:
        """Return Pearson's distance m Σ (s/m − v)²/v between a release and the fitted one.

        It is that between the unbiased estimate and the product of its margins, p(T̂ − T₀), with
        each cell weighted by what its noise makes of it.
        """
        size = counts.sum(axis=-1, keepdims=True)
        expected = self.channel.transform(self.fit(counts))
        distance: Shares = ((counts / size - expected) ** 2 / expected).sum(axis=-1) * size[..., 0]
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
        return estimators.most_likely(flat, self.channel.marginal(cells)).reshape(counts.shape)


METHOD = "Pearson's statistic of the release, parametric bootstrap under independence"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndependenceTest:
    """How far the release is from what independence would give, and how unusual that is.

    The p-value is (1 + how many of the drawn statistics are at least as large)/(1 + all of them).
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
        """Say it in a line; warnings follow on lines of their own."""
        return "\n".join([f"{self.label}: {self._text()}", *(f"  {w}" for w in self.warnings)])

    def _repr_html_(self) -> str:
        """Return it as a paragraph and a list of warnings, for notebooks."""
        warnings = "".join(f"<li>{escape(warning)}</li>" for warning in self.warnings)
        listed = f"<ul>{warnings}</ul>" if warnings else ""
        return f"<p><b>{escape(self.label)}</b>: {escape(self._text())}</p>{listed}"

    def _text(self) -> str:
        return (
            f"p = {self.p_value:.3g} (statistic {self.statistic:.4g}, {self.replicates:,} drawn"
            " releases)"
        )


def pair_table(released: Released, x: str, y: str) -> Released:
    """Return the table of two attributes; refuse one twice, or one that cannot vary."""
    if x == y:
        raise ParameterError(f"{x!r} is named twice", hint="name two different attributes")
    pair = released.marginal([x, y])
    for attribute in pair.schema.attributes:
        if attribute.size == 1:
            raise ParameterError(
                f"{attribute.name!r} has only one category", hint="it goes together with nothing"
            )
    return pair


def independence_test(
    released: Released, x: str, y: str, given: Sequence[str], population: Population
) -> IndependenceTest:
    """Test whether two attributes are independent, or independent within groups of others."""
    if {x, y} & set(given):
        raise ParameterError(
            "an attribute is both tested and conditioned on", hint="name each attribute once"
        )
    pair = pair_table(released, x, y)
    table = released.marginal([x, y, *given]) if given else pair
    check_size(table.schema.domain_size)
    rows, columns = pair.schema.sizes
    groups = table.schema.domain_size // (rows * columns)
    null = Null(table.channel, rows, columns, groups)
    observed = float(null.statistic(table.counts))
    label = f"independence of {x} and {y}" + (f" given {', '.join(given)}" if given else "")
    design = table.design(population)
    drawn = resample(
        null.plausible(table.counts, design), design, null.statistic, table.generator(label)
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
