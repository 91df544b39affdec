"""Joint and conditional tables as polars frames: a row per cell, with its error and interval.

The share of a condition is its unbiased estimate, moved into 0..1: the same number, with the same
interval and the same words, whichever table it is asked of.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from veiltab.core.intervals import Interval, share_band, share_interval, sup_t
from veiltab.core.ratios import share_of_both
from veiltab.core.released import Estimator, ReleasedCounts, Shares
from veiltab.core.resampling import seeded_generator
from veiltab.core.schema import Schema
from veiltab.core.tails import needs_tails, simultaneous_interval
from veiltab.core.uncertainty import Population, ReleaseDesign, critical_value
from veiltab.errors import ParameterError
from veiltab.inference import wording
from veiltab.inference.conditions import describe
from veiltab.inference.events import events_of_atoms, part_and_rest
from veiltab.inference.quantities import clearness

NUMBERS = ("share", "standard_error", "sampling_error", "privacy_error", "low", "high")
PEOPLE = "people"
INTERVAL = "interval"
ESTIMABLE, REASON = "estimable", "reason"
WARNING = "warning"
RESERVED = frozenset((*NUMBERS, PEOPLE, INTERVAL, ESTIMABLE, REASON, WARNING))
"""Columns of the tables; an attribute with such a name gets another column name."""

AT_ONCE = 1 << 14
"""How many conditional shares are estimated at once, which bounds the memory."""


def joint_table(
    released: ReleasedCounts,
    *,
    estimator: Estimator,
    level: float,
    population: Population,
    simultaneous: bool,
) -> pl.DataFrame:
    """Return a row for each cell: its categories, its share, its errors and its interval."""
    shares = released.shares(estimator)
    design = released.design(population)
    if simultaneous:
        interval = _band(released, population, level)
    else:
        interval = share_interval(released.unbiased, 1, design, critical_value(level))
    values = (shares, *cell_errors(released, design), interval.low, interval.high)
    return pl.DataFrame(
        [
            *category_columns(released.schema),
            *(pl.Series(name, column) for name, column in zip(NUMBERS, values, strict=True)),
            warning_column(released.unbiased, 1.0, shown=estimator == "clipped"),
            interval_column(shares.size, level, simultaneous=simultaneous),
        ]
    )


def _band(released: ReleasedCounts, population: Population, level: float) -> Interval:
    """Return intervals that hold all together, by drawing releases or from each cell's tails."""
    uncertainty = released.uncertainty(population)
    if needs_tails(released.counts, uncertainty.design):
        return simultaneous_interval(released.counts, uncertainty.design, level)
    critical = sup_t(uncertainty, level, seeded_generator(released, "sup-t"))
    return share_band(released.unbiased, 1, uncertainty.design, critical)


def cell_errors(released: ReleasedCounts, design: ReleaseDesign) -> tuple[Shares, Shares, Shares]:
    """Return standard, sampling and privacy error of each cell, at its share within 0..1."""
    shares, fraction = np.clip(released.unbiased, 0, 1), 1 / design.cells
    sampling, privacy = (
        np.maximum(form.of_sets(shares, fraction), 0) for form in (design.sampling, design.privacy)
    )
    return np.sqrt(sampling + privacy), np.sqrt(sampling), np.sqrt(privacy)


def conditional_table(
    released: ReleasedCounts,
    of: Sequence[str],
    given: Sequence[str],
    *,
    estimator: Estimator,
    level: float,
    population: Population,
) -> pl.DataFrame:
    """Return the shares of ``of`` within each group of ``given``, with Fieller's intervals."""
    if not of or not given or set(of) & set(given):
        raise ParameterError(
            f"cannot condition {list(of)} on {list(given)}",
            hint="name at least one attribute on each side, and none on both",
        )
    joint = released.marginal([*given, *of])
    size = joint.schema.subset(of).domain_size
    within, kinds = _within_groups(joint, size, level, population)
    ratios = within.ratio
    if estimator in {"projected", "most_likely"}:
        ratios = _ratios(joint.shares(estimator), size)
    elif estimator == "clipped":
        ratios = np.clip(ratios, 0, 1)
    errors = within.standard_error, within.sampling_error, within.privacy_error
    values = (ratios, *errors, within.low, within.high)
    clipped = estimator == "clipped"
    words = _conditional_words(joint, within, kinds, len(given), clipped=clipped)
    return pl.DataFrame(
        [
            *category_columns(joint.schema),
            *(
                pl.Series(name, np.where(within.bounded, column, np.nan)).fill_nan(None)
                for name, column in zip(NUMBERS, values, strict=True)
            ),
            pl.Series(ESTIMABLE, within.bounded),
            *words,
            interval_column(ratios.size, level, simultaneous=False),
        ]
    )


@dataclass(frozen=True, slots=True, eq=False)
class _WithinGroups:
    """Conditional shares: a number for each; NaN stands for a ratio or error without a meaning."""

    ratio: Shares
    standard_error: Shares
    sampling_error: Shares
    privacy_error: Shares
    low: Shares
    high: Shares
    bounded: NDArray[np.bool_]
    clear: NDArray[np.bool_]
    clearly: NDArray[np.bool_]

    def take(self, places: NDArray[np.int64]) -> "_WithinGroups":
        """Return the numbers at these places."""
        return _WithinGroups(*(getattr(self, field.name)[places] for field in fields(self)))


def _within_groups(
    joint: ReleasedCounts, size: int, level: float, population: Population
) -> tuple[_WithinGroups, NDArray[np.int64]]:
    """Estimate each cell's share of its group of ``size`` cells, as one quantity is estimated.

    It depends on two counts alone, so that cells with the same counts share the work.  The second
    array has the same number for all cells with the same counts.
    """
    counts = joint.counts.reshape(-1, size)
    sums, group = np.unique(counts.sum(axis=1), return_inverse=True)
    least = int(counts.min())
    span = int(counts.max()) - least + 1
    keys = (group[:, np.newaxis] * span + (counts - least)).reshape(-1)
    distinct, kinds = np.unique(keys, return_inverse=True)
    whole, part = sums[distinct // span], distinct % span + least
    design, total = joint.design(population), int(joint.counts.sum())
    chunks = [
        _estimate_within(
            np.stack([total - whole[at], whole[at] - part[at], part[at]], axis=-1),
            size,
            design,
            critical_value(level),
        )
        for at in (slice(start, start + AT_ONCE) for start in range(0, distinct.size, AT_ONCE))
    ]
    together = (np.concatenate([getattr(c, f.name) for c in chunks]) for f in fields(chunks[0]))
    return _WithinGroups(*together).take(kinds), kinds


def _estimate_within(
    counts: NDArray[np.int64], size: int, design: ReleaseDesign, critical: float
) -> _WithinGroups:
    """Estimate shares from the counts of other groups, of the rest of a group, and of a cell."""
    sizes = np.array([design.cells - size, size - 1, 1], dtype=np.float64)
    parts, there = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 1.0]]), sizes > 0
    events = events_of_atoms(counts[:, there], sizes[there], parts[:, there], design)
    part, whole = events.shares[:, 0], events.shares[:, 1]
    some = whole > 0
    ratio = np.divide(part, whole, where=some, out=np.full_like(part, np.nan))
    if size == 1:  # the only category
        one, zero, true = np.ones_like(part), np.zeros_like(part), np.ones(part.size, dtype=bool)
        return _WithinGroups(one, zero, zero, zero, one, one, true, true, true)
    interval = share_of_both(events.ratio(part_and_rest, critical))
    safe = np.where(some, whole, 1.0)
    gradient = np.stack([np.ones_like(part), -np.clip(np.where(some, ratio, 0), 0, 1)], axis=-1)
    standard, sampling, privacy = (
        np.where(some, error, np.nan)
        for error in events.error_parts(gradient / safe[:, np.newaxis])
    )
    low, high, bounded = interval.low, interval.high, interval.bounded
    clear, clearly = clearness(events, 1, critical)
    return _WithinGroups(ratio, standard, sampling, privacy, low, high, bounded, clear, clearly)


def _conditional_words(
    joint: ReleasedCounts,
    within: _WithinGroups,
    kinds: NDArray[np.int64],
    given: int,
    *,
    clipped: bool,
) -> tuple[pl.Series, pl.Series]:
    """Return why shares are not estimable, and what to know about the others."""
    names, cells = joint.schema.names[:given], np.arange(kinds.size)
    size = joint.schema.subset(joint.schema.names[given:]).domain_size
    outside = (within.ratio < 0) | (within.ratio > 1) if clipped else np.zeros(cells.size, bool)
    # The words name a group only if its share may be zero; else cells of a kind have the same.
    keys = kinds * (cells.size // size + 1) + np.where(within.clear, 0, cells // size + 1)

    def vague(cell: int) -> str:
        return "" if within.clear[cell] else describe(names, joint.schema.labels(cell)[:given])

    def reason(cell: int) -> str:
        return wording.nothing_known(vague(cell), clear=bool(within.clear[cell]))

    def warning(cell: int) -> str:
        clear = bool(within.clear[cell]), bool(within.clearly[cell])
        ends = float(within.low[cell]), float(within.high[cell])
        moved = wording.beyond(float(within.ratio[cell])) if outside[cell] else ()
        return "; ".join((*moved, *wording.about_quotient(clear, ends, (0.0, 1.0), vague(cell))))

    doubtful = within.bounded & (outside | ~within.clearly)
    return (
        _text_column(REASON, ~within.bounded, keys, reason),
        _text_column(WARNING, doubtful, keys, warning),
    )


def _text_column(
    name: str, where: NDArray[np.bool_], keys: NDArray[Any], text: Callable[[int], str]
) -> pl.Series:
    """Write a text in these cells; those with the same key have the same."""
    cells = np.flatnonzero(where)
    _, first, places = np.unique(keys[cells], return_index=True, return_inverse=True)
    texts = pl.Series(name, [text(cell) for cell in cells[first].tolist()], pl.String)
    rows = np.full(where.size, -1)
    rows[cells] = places
    chosen = pl.Series(rows, dtype=pl.Int64)
    return texts.gather(chosen.set(chosen < 0, None))


def _ratios(shares: Shares, size: int) -> Shares:
    """Return each cell's share of its group of ``size`` cells; NaN in an empty group."""
    groups = shares.reshape(-1, size)
    whole = groups.sum(axis=1, keepdims=True)
    empty = np.full_like(groups, np.nan)
    ratios: Shares = np.divide(groups, whole, where=whole > 0, out=empty).reshape(-1)
    return ratios


def warning_column(estimates: Shares, most: float, *, shown: bool) -> pl.Series:
    """Say which estimates the noise has taken beyond 0..``most``, if they are moved back."""
    outside = ((estimates < 0) | (estimates > most)) & shown

    def text(cell: int) -> str:
        return "".join(wording.beyond(float(estimates[cell]), 0.0, most))

    return _text_column(WARNING, outside, estimates, text)


def category_columns(schema: Schema, reserved: frozenset[str] = RESERVED) -> list[pl.Series]:
    """Return a column of categories for each attribute, one row per cell, in the cells' order.

    ``reserved`` are the names of other columns of the table, which an attribute's cannot have.
    """
    codes = schema.codes(np.arange(schema.domain_size))
    return [
        pl.Series(name, column).cat.to(pl.Enum(attribute.categories))
        for name, attribute, column in zip(
            column_names(schema, reserved), schema.attributes, codes, strict=True
        )
    ]


def column_names(schema: Schema, reserved: frozenset[str] = RESERVED) -> list[str]:
    """Return a unique column name for each attribute."""
    names: list[str] = []
    for name in schema.names:
        column = name
        while column in reserved or (column != name and column in schema.names) or column in names:
            column += " (attribute)"
        names.append(column)
    return names


def interval_column(rows: int, level: float, *, simultaneous: bool) -> pl.Series:
    """State in every row what its interval promises, so that no row is quoted for more."""
    promise = f"{100 * level:g}% {'simultaneous' if simultaneous else 'per cell'}"
    return pl.Series(INTERVAL, np.zeros(rows, dtype=np.uint8)).cat.to(pl.Enum([promise]))
