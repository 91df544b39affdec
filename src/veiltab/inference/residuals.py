"""Standardised residuals of two attributes: which cells depart from independence, and how clearly.

A residual is T̂ − r̂ĉ, the share of a cell less the product of its row's and its column's, divided
by the standard error that it has under independence: sampling, decoys and noise included.  Without
noise it is Haberman's adjusted residual.
"""

import numpy as np
import polars as pl

from veiltab.core import estimators
from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.uncertainty import Population, critical_value
from veiltab.inference.distributions import (
    RESERVED,
    WARNING,
    category_columns,
    interval_column,
    warning_column,
)

FARTHEST = 0.25
"""No share lies farther from the product of its row's and its column's than this."""

TOO_FAR = (
    "the noise has taken the deviation farther than a deviation can be; it is shown as the nearest"
    " one that can be"
)

SMALLEST_ERROR = 1e-12
"""A standard error below it is rounding: nothing about the cell is uncertain."""


DEVIATIONS = (
    "share", "expected", "deviation", "standard_error", "sampling_error", "privacy_error",
    "low", "high", "residual",
)  # fmt: skip
"""The numbers of a table of deviations, in the order of its columns."""


def standardised_residuals(pair: ReleasedCounts, population: Population) -> Shares:
    """Return the residual of each cell in standard errors; 0 where the error is zero.

    Under independence each has mean 0 and variance 1, to first order.
    """
    apart, independent = _apart(pair)
    gradients = _gradients(independent.reshape(pair.schema.sizes))
    total = pair.design(population).total.of_statistics(independent, gradients)
    return _standardised(apart, np.sqrt(np.maximum(np.diag(total), 0.0)))


def deviation_table(pair: ReleasedCounts, level: float, population: Population) -> pl.DataFrame:
    """Return how far each cell of two attributes lies from independence: T̂ − r̂ĉ, a row per cell.

    Its error and interval are those of the delta method at the nearest proper distribution; the
    residual is divided by the error that the cell would have under independence.
    """
    apart, independent = _apart(pair)
    gradients = _gradients(independent.reshape(pair.schema.sizes))
    design = pair.design(population)
    null = np.diag(design.total.of_statistics(independent, gradients))
    sampling, privacy = (
        np.maximum(np.diag(form.of_statistics(pair.plausible, gradients)), 0.0)
        for form in (design.sampling, design.privacy)
    )
    error, margin = np.sqrt(sampling + privacy), critical_value(level)
    # Noise can take an estimate out of the range; its interval is then that around the nearest end.
    middle = np.clip(apart, -FARTHEST, FARTHEST)
    low, high = (np.clip(middle + side * margin * error, -FARTHEST, FARTHEST) for side in (-1, 1))
    values = (
        pair.shares("clipped"), independent, middle, error, np.sqrt(sampling), np.sqrt(privacy),
        low, high,
        _standardised(apart, np.sqrt(np.maximum(null, 0.0))),
    )  # fmt: skip
    return pl.DataFrame(
        [
            *category_columns(pair.schema, RESERVED | frozenset(DEVIATIONS)),
            *(pl.Series(name, column) for name, column in zip(DEVIATIONS, values, strict=True)),
            _warnings(pair, apart),
            interval_column(apart.size, level, simultaneous=False),
        ]
    )


def _warnings(pair: ReleasedCounts, apart: Shares) -> pl.Series:
    """Say which shares and which deviations the noise has taken beyond what they can be."""
    frame = pl.DataFrame(
        {
            "share": warning_column(pair.unbiased, 1.0, shown=True),
            "deviation": pl.select(
                pl.when(pl.Series(np.abs(apart) > FARTHEST)).then(pl.lit(TOO_FAR))
            ).to_series(),
        }
    )
    both = pl.concat_str("share", "deviation", separator="; ", ignore_nulls=True)
    return frame.select(pl.when(both != "").then(both).alias(WARNING)).to_series()


def _apart(pair: ReleasedCounts) -> tuple[Shares, Shares]:
    """Return T̂ − r̂ĉ of each cell, and the independent distribution with proper margins."""
    table = pair.unbiased.reshape(pair.schema.sizes)
    rows, columns = (
        estimators.project(table.sum(axis=axis)).reshape(shape)
        for axis, shape in ((1, (-1, 1)), (0, (1, -1)))
    )
    return (table - _product(table)).reshape(-1), (rows * columns).reshape(-1)


def _standardised(apart: Shares, errors: Shares) -> Shares:
    residuals: Shares = np.divide(
        apart, errors, where=errors > SMALLEST_ERROR, out=np.zeros_like(apart)
    )
    return residuals


def _product(table: Shares) -> Shares:
    product: Shares = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True)
    return product


def _gradients(independent: Shares) -> Shares:
    """Return the derivatives of every cell's T − rc, a row per cell."""
    rows, columns = independent.sum(axis=1), independent.sum(axis=0)
    same_row = np.eye(rows.size)[:, np.newaxis, :, np.newaxis]
    same_column = np.eye(columns.size)[np.newaxis, :, np.newaxis, :]
    shares_of_row = rows[:, np.newaxis, np.newaxis, np.newaxis]
    shares_of_column = columns[np.newaxis, :, np.newaxis, np.newaxis]
    slopes = same_row * same_column - same_row * shares_of_column - shares_of_row * same_column
    cells = independent.size
    flat: Shares = slopes.reshape(cells, cells)
    return flat
