"""Numbers of people: how many a release is about, and how many of them are in a cell or a group.

Where the curators compared their populations, the number of respondents n is known, and a number
of people is n times a share.  Where the server matched rows among decoys, n itself is estimated.
"""

import numpy as np
import polars as pl

from veiltab.core.coin_design import CoinDesign
from veiltab.core.intervals import people_interval
from veiltab.core.released import ReleasedCounts
from veiltab.core.uncertainty import critical_value
from veiltab.inference import wording
from veiltab.inference.conditions import Condition, Mask
from veiltab.inference.distributions import (
    category_columns,
    interval_column,
    joint_table,
    warning_column,
)
from veiltab.inference.quantities import KNOWN, Quantity, Question, probability

PEOPLE = "linear, score interval"

COLUMNS = ("people", "standard_error", "sampling_error", "privacy_error", "low", "high")


def people(question: Question, event: Condition) -> Quantity:
    """Estimate how many people meet a condition."""
    label = f"people with {event.text}"
    released = question.released
    size = released.plan.population_size
    if released.size_known and size is not None:
        return _scaled(question, event, label, size)
    return _number(question, label, event.mask)


def population(question: Question) -> Quantity:
    """Estimate how many people the release is about: those whom all curators have in common."""
    label = "people in common"
    released = question.released
    size = released.plan.population_size
    if released.size_known and size is not None:
        return question.answer(label, KNOWN, float(size), (0.0, 0.0, 0.0), (size, size))
    return _number(question, label, np.ones(released.counts.size, dtype=np.bool_))


def _scaled(question: Question, event: Condition, label: str, size: int) -> Quantity:
    """Turn a share of a known number of people into a number of them."""
    share = probability(question, event)
    if share.method == KNOWN:
        return question.answer(label, KNOWN, float(size), (0.0, 0.0, 0.0), (size, size))

    def times(number: float | None) -> float | None:
        return None if number is None else size * number

    events = question.events(event)
    return question.answer(
        label,
        PEOPLE,
        times(share.value),
        events.errors(np.array([float(size)])),
        (times(share.low), times(share.high)),
        *wording.beyond(size * float(events.shares[0]), 0.0, size),
    )


def _number(question: Question, label: str, mask: Mask) -> Quantity:
    """Estimate a number of people where their sum is not known either."""
    design, counts = _coin_design(question.released), question.released.counts
    sets = np.array([counts[mask].sum(), counts[~mask].sum()])
    sizes = np.array([np.count_nonzero(mask), np.count_nonzero(~mask)], dtype=np.float64)
    value = design.estimate_people(sets, sizes)[:1]
    interval = people_interval(value, sizes[:1], design, question.critical)
    number = max(float(value[0]), 0.0)
    errors = design.people_errors(np.array([number]), sizes[:1] / design.cells)
    ends = float(interval.low[0]), float(interval.high[0])
    standard, sampling, privacy = (float(error[0]) for error in errors)
    words = wording.beyond(float(value[0]), 0.0, np.inf)
    return question.answer(label, PEOPLE, number, (standard, sampling, privacy), ends, *words)


def people_table(released: ReleasedCounts, *, level: float) -> pl.DataFrame:
    """Return a row for each cell: its categories, how many people it has, and the interval."""
    size = released.plan.population_size
    if released.size_known and size is not None:
        shares = joint_table(
            released, estimator="clipped", level=level, population="finite", simultaneous=False
        )
        numbers = {name: shares[_share_column(name)].to_numpy() * size for name in COLUMNS}
        words = warning_column(released.unbiased * size, float(size), shown=True)
    else:
        numbers = _unknown_numbers(released, level)
        unbiased = _coin_design(released).estimate_people(released.counts, 1)
        words = warning_column(unbiased, np.inf, shown=True)
    return pl.DataFrame(
        [
            *category_columns(released.schema),
            *(pl.Series(name, numbers[name]) for name in COLUMNS),
            words,
            interval_column(released.counts.size, level, simultaneous=False),
        ]
    )


def _unknown_numbers(released: ReleasedCounts, level: float) -> dict[str, np.ndarray]:
    design = _coin_design(released)
    unbiased = design.estimate_people(released.counts, 1)
    interval = people_interval(unbiased, 1, design, critical_value(level))
    people = np.maximum(unbiased, 0)
    errors = design.people_errors(people, 1 / design.cells)
    values = (people, *errors, interval.low, interval.high)
    return dict(zip(COLUMNS, values, strict=True))


def _share_column(name: str) -> str:
    return "share" if name == "people" else name


def _coin_design(released: ReleasedCounts) -> CoinDesign:
    design = released.count_design()
    assert isinstance(design, CoinDesign)  # noqa: S101 - by rank the number is known
    return design
