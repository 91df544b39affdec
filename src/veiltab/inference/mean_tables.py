"""Means of a scored variable within groups, as a polars frame with a row for each group."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from veiltab.errors import ParameterError
from veiltab.inference.atoms import Atoms, divide
from veiltab.inference.bounded import BoundedRatio
from veiltab.inference.conditions import Condition, Mask
from veiltab.inference.distributions import (
    ESTIMABLE,
    REASON,
    RESERVED,
    WARNING,
    category_columns,
    interval_column,
)
from veiltab.inference.means import Scored, boundary
from veiltab.inference.quantities import CLEARLY, DOUBT, Question
from veiltab.inference.scores import Variable

NUMBERS = ("value", "standard_error", "sampling_error", "privacy_error", "low", "high")
NO_GROUP = "the share of this group cannot be distinguished from zero"
EXCLUDED = "nobody who meets the condition `given` can be in this group"


def mean_table(
    question: Question, variable: Variable, by: Sequence[str], given: Condition
) -> pl.DataFrame:
    """Return a row for each group with the mean score in it."""
    released = question.released
    if not by or variable.name in by or len(set(by)) != len(by):
        raise ParameterError(
            f"cannot group {variable.name!r} by {list(by)}",
            hint="name each attribute once, at least one, and not the variable itself",
        )
    groups = released.schema.subset(by)
    scored = Scored.of(released, variable, given.mask)
    ratio = _group_ratios(question, [*by, variable.name], scored, given.mask)
    interval = ratio.interval(question.critical)
    estimable = interval.bounded
    value, spread = np.clip(ratio.value, 0, 1), scored.spread
    numbers = (
        scored.low + spread * value,
        *(spread * error for error in ratio.errors()),
        *(scored.low + spread * end for end in (interval.low, interval.high)),
    )
    warnings = _group_warnings(question, ratio, estimable, scored)
    possible = (ratio.atoms.fractions * ratio.whole).sum(axis=-1) > 0
    reasons = [
        None if known else NO_GROUP if there else EXCLUDED
        for known, there in zip(estimable.tolist(), possible.tolist(), strict=True)
    ]
    return pl.DataFrame(
        [
            *category_columns(groups, RESERVED.union(NUMBERS)),
            *(
                pl.Series(name, np.where(estimable, column, np.nan)).fill_nan(None)
                for name, column in zip(NUMBERS, numbers, strict=True)
            ),
            pl.Series(ESTIMABLE, estimable),
            pl.Series(REASON, reasons, dtype=pl.String),
            pl.Series(WARNING, warnings, dtype=pl.String),
            interval_column(estimable.size, question.level, simultaneous=False),
        ]
    )


def _group_warnings(
    question: Question, ratio: BoundedRatio, estimable: Mask, scored: Scored
) -> list[str | None]:
    """Return the warnings that the mean of each group would have as an answer of its own."""
    doubtful, value = ~ratio.clear(question.critical, CLEARLY), ratio.value
    warnings: list[str | None] = [None] * estimable.size
    for group in np.flatnonzero(estimable & (doubtful | (value < 0) | (value > 1))).tolist():
        texts = boundary(float(value[group]), scored)
        warnings[group] = "; ".join([*texts, *([DOUBT] if doubtful[group] else [])])
    return warnings


def _group_ratios(
    question: Question, names: Sequence[str], scored: Scored, mask: Mask
) -> BoundedRatio:
    """Divide the table once for each group: by score within it, and into all the others.

    The last of the names is that of the variable; those before it make the groups.
    """
    schema = question.released.schema
    axes = [schema.names.index(name) for name in names]
    size = schema.sizes[axes[-1]]
    groups = schema.subset(names).domain_size // size
    axes += [i for i in range(len(schema.names)) if i not in axes]

    def arranged(numbers: np.ndarray) -> np.ndarray:
        return numbers.reshape(schema.sizes).transpose(axes).reshape(groups, size, -1)

    inside = arranged(mask)
    kinds, [units] = divide(arranged(scored.units)[:1, :, 0])
    same = np.arange(units.size) == kinds[:, np.newaxis]
    counts = (arranged(question.released.counts) * inside).sum(axis=-1) @ same.astype(np.int64)
    sizes = inside.sum(axis=-1) @ same.astype(np.float64)
    counts = np.column_stack([counts, question.released.counts.sum() - counts.sum(axis=1)])
    sizes = np.column_stack([sizes, schema.domain_size - sizes.sum(axis=1)])
    atoms = Atoms.of(counts, sizes, question.design)
    whole = np.append(np.ones(units.size), 0.0)
    return BoundedRatio(
        atoms,
        np.broadcast_to(np.append(units, 0.0), sizes.shape),
        np.broadcast_to(whole, sizes.shape),
    )
