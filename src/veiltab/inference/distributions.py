"""Joint and conditional tables as polars frames: a row per cell, with its error and interval."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from veiltab.core.intervals import Interval, proportion_interval, share_band, share_interval, sup_t
from veiltab.core.released import Estimator, ReleasedCounts, Shares
from veiltab.core.resampling import seeded_generator
from veiltab.core.schema import Schema
from veiltab.core.shape import Shape
from veiltab.core.uncertainty import CovarianceForm, Population, ReleaseDesign, critical_value
from veiltab.errors import ParameterError

NUMBERS = ("share", "standard_error", "sampling_error", "privacy_error", "low", "high")
PEOPLE = "people"
INTERVAL = "interval"
ESTIMABLE, REASON = "estimable", "reason"
RESERVED = frozenset((*NUMBERS, PEOPLE, INTERVAL, ESTIMABLE, REASON))
"""Columns of the tables; an attribute with such a name gets another column name."""

SHAPES_AT_ONCE = 1 << 15
"""For how many cells the shape of the error is computed at once, which bounds the memory."""


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
    design, part = joint.design(population), joint.unbiased
    whole = np.repeat(part.reshape(-1, size).sum(axis=1), size)
    likely = np.minimum(joint.plausible, np.clip(whole, 0, 1)), np.clip(whole, 0, 1)
    sampling, privacy, total = (
        _conditional_covariance(form, *likely, size)
        for form in (design.sampling, design.privacy, design.total)
    )
    errors = [_conditional_error(matrix, *likely) for matrix in (total, sampling, privacy)]
    del sampling, privacy
    shape = None if design.normal else _conditional_shape(design, *likely, size)
    interval = proportion_interval(part, whole, total, critical_value(level), shape)
    return (errors[0], errors[1], errors[2]), interval


def _conditional_covariance(form: CovarianceForm, part: Shares, whole: Shares, size: int) -> Shares:
    """Return the covariance matrix of each cell and its group."""
    cell, group = form.of_sets(part, 1 / part.size), form.of_sets(whole, size / part.size)
    rest = form.of_sets(whole - part, (size - 1) / part.size)
    shared = (cell + group - rest) / 2
    rows = np.stack([cell, shared], axis=-1), np.stack([shared, group], axis=-1)
    return np.stack(rows, axis=-2)


def _conditional_error(covariance: Shares, part: Shares, whole: Shares) -> Shares:
    """Return the standard error of each cell's share of its group, by the delta method."""
    ratio = np.divide(part, whole, where=whole > 0, out=np.zeros_like(part))
    variance = covariance[:, 0, 0] - 2 * ratio * covariance[:, 0, 1]
    variance += ratio**2 * covariance[:, 1, 1]
    with np.errstate(divide="ignore", invalid="ignore"):  # empty groups are not estimable
        error: Shares = _root(variance) / whole
    return error


def _conditional_shape(design: ReleaseDesign, part: Shares, whole: Shares, size: int) -> Shape:
    """Return the shape of each cell's estimate less its share of the group's."""
    ratio = np.divide(part, whole, where=whole > 0, out=np.zeros_like(part))
    fractions = np.array([1, size - 1, design.cells - size]) / design.cells
    shapes = []
    for start in range(0, part.size, SHAPES_AT_ONCE):
        where = slice(start, start + SHAPES_AT_ONCE)
        a, b, r = part[where], whole[where], ratio[where]
        shares = np.stack([a, b - a, 1 - b], axis=-1)
        weights = np.stack([1 - r, -r, np.zeros_like(r)], axis=-1)
        shapes.append(design.shape(weights, shares, fractions))
    return Shape(
        np.concatenate([shape.skewness for shape in shapes]),
        np.concatenate([shape.excess for shape in shapes]),
    )


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
