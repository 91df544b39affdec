"""Whole tables, joint and conditional: as polars frames, and as HTML in a notebook."""

from collections.abc import Sequence
from html import escape

import numpy as np
import polars as pl

from veiltab.core.intervals import Interval, proportion_interval, share_band, share_interval, sup_t
from veiltab.core.schema import Schema
from veiltab.core.uncertainty import Population, critical_value
from veiltab.errors import ParameterError
from veiltab.estimates.released import Estimator, Released, Shares

NUMBERS = ("share", "standard_error", "sampling_error", "privacy_error", "low", "high")
INTERVAL = "interval"
ESTIMABLE, REASON = "estimable", "reason"
TAKEN = frozenset((*NUMBERS, INTERVAL, ESTIMABLE, REASON))
"""Names of columns that an attribute of the same name has to make way for."""


def joint_table(
    released: Released,
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
        critical = sup_t(uncertainty, level, released.generator("sup-t"))
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
            _interval_column(shares.size, level, simultaneous=simultaneous),
        ]
    )


def conditional_table(
    released: Released,
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
    reason = "the share of this group cannot be told from zero"
    return pl.DataFrame(
        [
            *category_columns(joint.schema),
            *columns,
            pl.Series(ESTIMABLE, estimable),
            pl.Series(REASON, estimable).replace_strict({True: None, False: reason}),
            _interval_column(estimable.size, level, simultaneous=False),
        ]
    )


def _conditional_errors(
    joint: Released, size: int, level: float, population: Population
) -> tuple[tuple[Shares, Shares, Shares], Interval]:
    """Return the three errors of each conditional share (delta method), and the intervals.

    A group of ``size`` cells and one of its cells differ by a set of cells, and the variance of
    a set's share depends on that share alone; so the covariances cost O(N).
    """
    design = joint.design(population)
    part = joint.unbiased
    whole = np.repeat(part.reshape(-1, size).sum(axis=1), size)
    likely_whole = np.clip(whole, 0, 1)
    likely_part = np.minimum(joint.plausible, likely_whole)
    ratio = np.divide(likely_part, likely_whole, where=likely_whole > 0, out=np.zeros_like(part))
    matrices = []
    for variance in (
        lambda share, cells: design.set_sampling(share),  # noqa: ARG005 - as the other
        design.set_privacy,
    ):
        own, group = variance(likely_part, 1), variance(likely_whole, size)
        shared = (own + group - variance(likely_whole - likely_part, size - 1)) / 2
        matrices.append(_pairs(own, shared, group))
    sampling, privacy = matrices
    total = sampling + privacy
    with np.errstate(divide="ignore", invalid="ignore"):  # groups of nobody are not estimable
        errors = [
            _root(m[:, 0, 0] - 2 * ratio * m[:, 0, 1] + ratio**2 * m[:, 1, 1]) / likely_whole
            for m in (total, sampling, privacy)
        ]
    interval = proportion_interval(part, whole, total, critical_value(level))
    return (errors[0], errors[1], errors[2]), interval


def _pairs(own: Shares, shared: Shares, group: Shares) -> Shares:
    """Return a covariance matrix of a cell and its group for each cell."""
    return np.stack([np.stack([own, shared], axis=-1), np.stack([shared, group], axis=-1)], axis=-2)


def _ratios(shares: Shares, size: int) -> Shares:
    """Return each cell's share of its group of ``size`` cells; equal shares of a group of none."""
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
    """Return a name for each attribute's column that no other column has."""
    names: list[str] = []
    for name in schema.names:
        column = name
        while column in TAKEN or (column != name and column in schema.names) or column in names:
            column += " (attribute)"
        names.append(column)
    return names


def _interval_column(rows: int, level: float, *, simultaneous: bool) -> pl.Series:
    """Say in every row what the intervals promise: a row must not be quoted for more."""
    words = f"{100 * level:g}% {'simultaneous' if simultaneous else 'per cell'}"
    return pl.Series(INTERVAL, np.zeros(rows, dtype=np.uint8)).cat.to(pl.Enum([words]))


def _root(variances: Shares) -> Shares:
    """Return standard errors; rounding may leave a variance of zero just below it."""
    roots: Shares = np.sqrt(np.maximum(variances, 0))
    return roots


MOST_ROWS = 60
"""Of a larger table the largest cells are shown."""

LEVEL = 0.95


def estimate_html(released: Released, warnings: tuple[str, ...]) -> str:
    """Return the largest cells with their intervals, the promises and the warnings."""
    caption = escape(_caption(released))
    heads = "".join(
        f'<th scope="col">{escape(name)}</th>'
        for name in (*released.schema.names, "share", "standard error", "95% interval per cell")
    )
    rows = "".join(_rows(released))
    notes = "".join(f"<li>{escape(note)}</li>" for note in (*_facts(released), *warnings))
    return (
        f"<table><caption>{caption}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table><ul>{notes}</ul>"
    )


def _caption(released: Released) -> str:
    title = released.provenance.title or "Estimated shares"
    cells = released.schema.domain_size
    part = f" (the {MOST_ROWS} largest of {cells:,} cells)" if cells > MOST_ROWS else ""
    return f"{title}: {', '.join(released.schema.names)}{part}"


def _rows(released: Released) -> list[str]:
    shares = released.plausible
    shown = np.arange(shares.size)
    if shares.size > MOST_ROWS:
        largest = np.argpartition(-shares, MOST_ROWS)[:MOST_ROWS]
        shown = largest[np.lexsort((largest, -shares[largest]))]
    uncertainty = released.uncertainty()
    errors = np.sqrt(np.maximum(uncertainty.cells().total[shown], 0))
    unbiased = released.unbiased[shown]
    interval = share_interval(unbiased, 1, uncertainty.design, critical_value(LEVEL))
    rows = []
    for position, cell in enumerate(shown.tolist()):
        labels = "".join(
            f'<th scope="row">{escape(label)}</th>' for label in released.schema.labels(cell)
        )
        ends = f"{_percent(interval.low[position])} to {_percent(interval.high[position])}"
        numbers = (_percent(shares[cell]), _percent(errors[position]), ends)
        rows.append(f"<tr>{labels}{''.join(f'<td>{number}</td>' for number in numbers)}</tr>")
    return rows


def _facts(released: Released) -> list[str]:
    plan = released.plan
    facts = [
        (
            f"{plan.sample_size:,} of {plan.population_size:,} respondents were sampled;"
            f" each record was kept with probability {plan.keep_probability:.4g}, else a random"
            " one took its place"
        ),
        (
            "shares are the unbiased estimate, projected on the proper distributions; intervals"
            " come from the unbiased estimate itself"
        ),
    ]
    if released.provenance.perturbed_by:
        facts.append(f"perturbed by {released.provenance.perturbed_by}")
    return facts + [f"promised: {promise}" for promise in released.promises]


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
