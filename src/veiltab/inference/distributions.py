"""Joint and conditional tables as polars frames: a row per cell, with its error and interval."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from veiltab.core.intervals import Interval, proportion_interval, share_band, share_interval, sup_t
from veiltab.core.released import Estimator, ReleasedCounts, Shares
from veiltab.core.resampling import seeded_generator
from veiltab.core.schema import Schema
from veiltab.core.shape import Shape
from veiltab.core.uncertainty import Population, ReleaseDesign, critical_value
from veiltab.errors import ParameterError

NUMBERS = ("share", "standard_error", "sampling_error", "privacy_error", "low", "high")
PEOPLE = "people"
INTERVAL = "interval"
ESTIMABLE, REASON = "estimable", "reason"
RESERVED = frozenset((*NUMBERS, PEOPLE, INTERVAL, ESTIMABLE, REASON))
"""Columns of the tables; an attribute with such a name gets another column name."""


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
    uncertainty = released.uncertainty(population)
    variances, design = uncertainty.cells(), uncertainty.design
    if simultaneous:
        critical = sup_t(uncertainty, level, seeded_generator(released, "sup-t"))
        interval = share_band(released.unbiased, 1, design, critical)
    else:
        interval = share_interval(released.unbiased, 1, design, critical_value(level))
    values = (
        shares,
        _root(variances.total),
        _root(variances.sampling),
        _root(variances.privacy),
        interval.low,
        interval.high,
    )
    return pl.DataFrame(
        [
            *category_columns(released.schema),
            *(pl.Series(name, column) for name, column in zip(NUMBERS, values, strict=True)),
            interval_column(shares.size, level, simultaneous=simultaneous),
        ]
    )


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
    errors, interval = _conditional_errors(joint, size, level, population)
    estimable = interval.bounded
    values = (_ratios(joint.shares(estimator), size), *errors, interval.low, interval.high)
    columns = [
        pl.Series(name, np.where(estimable, column, np.nan)).fill_nan(None)
        for name, column in zip(NUMBERS, values, strict=True)
    ]
    reason = "the share of this group cannot be distinguished from zero"
    return pl.DataFrame(
        [
            *category_columns(joint.schema),
            *columns,
            pl.Series(ESTIMABLE, estimable),
            pl.Series(REASON, estimable).replace_strict({True: None, False: reason}),
            interval_column(estimable.size, level, simultaneous=False),
        ]
    )


def _conditional_errors(
    joint: ReleasedCounts, size: int, level: float, population: Population
) -> tuple[tuple[Shares, Shares, Shares], Interval]:
    """Return the three errors of each conditional share (delta method), and the intervals.

    A group of ``size`` cells and one of its cells differ by a set of cells, and the variance of
    a set's share depends on that share alone; so all covariances together take O(N) time.
    """
    design, cells = joint.design(population), joint.schema.domain_size
    part = joint.unbiased
    whole = np.repeat(part.reshape(-1, size).sum(axis=1), size)
    likely_whole = np.clip(whole, 0, 1)
    likely_part = np.minimum(joint.plausible, likely_whole)
    ratio = np.divide(likely_part, likely_whole, where=likely_whole > 0, out=np.zeros_like(part))
    matrices = []
    for form in (design.sampling, design.privacy):
        cell, group = form.of_sets(likely_part, 1 / cells), form.of_sets(likely_whole, size / cells)
        rest = form.of_sets(likely_whole - likely_part, (size - 1) / cells)
        matrices.append(_matrices(cell, (cell + group - rest) / 2, group))
    sampling, privacy = matrices
    total = sampling + privacy
    with np.errstate(divide="ignore", invalid="ignore"):  # empty groups are not estimable
        errors = [
            _root(m[:, 0, 0] - 2 * ratio * m[:, 0, 1] + ratio**2 * m[:, 1, 1]) / likely_whole
            for m in (total, sampling, privacy)
        ]
    shape = None if design.normal else _conditional_shape(design, likely_part, likely_whole, size)
    interval = proportion_interval(part, whole, total, critical_value(level), shape)
    return (errors[0], errors[1], errors[2]), interval


def _conditional_shape(design: ReleaseDesign, part: Shares, whole: Shares, size: int) -> Shape:
    """Return the shape of each cell's estimate less its share of the group's."""
    ratio = np.divide(part, whole, where=whole > 0, out=np.zeros_like(part))
    fractions = np.array([1, size - 1, design.cells - size]) / design.cells
    shares = np.stack([part, whole - part, 1 - whole], axis=-1)
    weights = np.stack([1 - ratio, -ratio, np.zeros_like(ratio)], axis=-1)
    return design.shape(weights, shares, np.broadcast_to(fractions, shares.shape))


def _matrices(cell: Shares, shared: Shares, group: Shares) -> Shares:
    """Return the covariance matrix of each cell and its group."""
    rows = np.stack([cell, shared], axis=-1), np.stack([shared, group], axis=-1)
    return np.stack(rows, axis=-2)


def _ratios(shares: Shares, size: int) -> Shares:
    """Return each cell's share of its group of ``size`` cells; equal ones in an empty group."""
    groups = shares.reshape(-1, size)
    whole = groups.sum(axis=1, keepdims=True)
    empty = np.full_like(groups, 1 / size)
    ratios: Shares = np.divide(groups, whole, where=whole > 0, out=empty).reshape(-1)
    return ratios


def category_columns(schema: Schema) -> list[pl.Series]:
    """Return a column of categories for each attribute, one row per cell, in the cells' order."""
    codes = schema.codes(np.arange(schema.domain_size))
    return [
        pl.Series(name, column).cat.to(pl.Enum(attribute.categories))
        for name, attribute, column in zip(
            column_names(schema), schema.attributes, codes, strict=True
        )
    ]


def column_names(schema: Schema) -> list[str]:
    """Return a unique column name for each attribute."""
    names: list[str] = []
    for name in schema.names:
        column = name
        while column in RESERVED or (column != name and column in schema.names) or column in names:
            column += " (attribute)"
        names.append(column)
    return names


def interval_column(rows: int, level: float, *, simultaneous: bool) -> pl.Series:
    """State in every row what its interval promises, so that no row is quoted for more."""
    promise = f"{100 * level:g}% {'simultaneous' if simultaneous else 'per cell'}"
    return pl.Series(INTERVAL, np.zeros(rows, dtype=np.uint8)).cat.to(pl.Enum([promise]))


def _root(variances: Shares) -> Shares:
    """Return standard errors; rounding can make a variance of zero slightly negative."""
    roots: Shares = np.sqrt(np.maximum(variances, 0))
    return roots
