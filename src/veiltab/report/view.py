"""What is shown of an estimate: all of a small table, and of a large one what people can read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations, islice
from typing import Any

import numpy as np
import polars as pl

from veiltab.core.uncertainty import Population
from veiltab.estimates import Estimate, IndependenceTest, Quantity
from veiltab.estimates.released import Estimator
from veiltab.estimates.tables import NUMBERS
from veiltab.report.words import decimals

MOST_CELLS, LARGEST_CELLS = 400, 60
"""Of a joint table with more cells than the first, so many of the largest are shown."""

MOST_CATEGORIES = 40
MOST_PAIR_CELLS = 144
MOST_PAIRS = 10
"""Pairs that are drawn: those that depend on each other most clearly."""

MOST_TESTS = 45
MOST_TESTED_CELLS = 1_000
"""A test draws thousands of tables; of larger pairs that would take long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How an estimate is to be shown, and which shares are asked for by a condition."""

    level: float = 0.95
    simultaneous: bool = False
    population: Population = "finite"
    estimator: Estimator = "best"
    conditions: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """The options of :meth:`Estimate.table`."""
        return {
            "estimator": self.estimator,
            "level": self.level,
            "population": self.population,
            "simultaneous": self.simultaneous,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """Who took part, as far as it is known, and when; the estimate itself holds the rest.

    ``holders`` are the curators' names by attribute.
    """

    made: str
    researcher: str | None = None
    holders: Mapping[str, str] = field(default_factory=dict)
    sampled_by: str | None = None
    pads: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A share with its errors and its interval; None throughout if it is not estimable."""

    labels: tuple[str, ...]
    share: float | None
    standard_error: float | None
    sampling_error: float | None
    privacy_error: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a table, the largest if ``total`` says that there are more."""

    names: tuple[str, ...]
    rows: tuple[Row, ...]
    total: int

    @property
    def digits(self) -> int:
        """How many decimals its numbers are written with, in per cent."""
        return decimals(row.standard_error for row in self.rows)

    @property
    def whole(self) -> bool:
        """Whether nothing is left out."""
        return len(self.rows) == self.total


@dataclass(frozen=True, slots=True)
class Pair:
    """Two attributes: together, the second within the first, and the other way round."""

    test: IndependenceTest
    association: Quantity
    joint: Part
    within_first: Part
    within_second: Part


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything that a report shows."""

    estimate: Estimate
    asked: Asked
    answers: tuple[Quantity, ...]
    marginals: tuple[Part, ...]
    pairs: tuple[Pair, ...]
    tests: tuple[tuple[tuple[str, str], IndependenceTest], ...]
    pairs_in_all: int
    joint: Part
    warnings: tuple[str, ...]


def view_estimate(estimate: Estimate, asked: Asked) -> View:
    """Compute everything that a report shows."""
    tests = tuple((pair, estimate.independence_test(*pair)) for pair in _tested(estimate))
    drawn = sorted(
        (each for each in tests if _cells(estimate, each[0]) <= MOST_PAIR_CELLS),
        key=lambda each: (each[1].p_value, -each[1].statistic),
    )[:MOST_PAIRS]
    names = estimate.schema.names
    pairs = [_pair(estimate, asked, pair, test) for pair, test in sorted(drawn, key=tests.index)]
    answers = answer_all(estimate, asked)
    return View(
        estimate=estimate,
        asked=asked,
        answers=answers,
        marginals=marginals(estimate, asked),
        pairs=tuple(pairs),
        tests=tests,
        pairs_in_all=len(names) * (len(names) - 1) // 2,
        joint=cells(estimate, asked),
        warnings=all_warnings(estimate, answers),
    )


def answer_all(estimate: Estimate, asked: Asked) -> tuple[Quantity, ...]:
    """Estimate the share of every condition that was asked for."""
    return tuple(
        estimate.probability(condition, level=asked.level, population=asked.population)
        for condition in asked.conditions
    )


def all_warnings(estimate: Estimate, answers: Iterable[Quantity]) -> tuple[str, ...]:
    """Return what a reader has to know, each sentence once."""
    every = [*estimate.warnings, *(warning for answer in answers for warning in answer.warnings)]
    return tuple(dict.fromkeys(every))


def cells(
    estimate: Estimate, asked: Asked, most: int = MOST_CELLS, largest: int = LARGEST_CELLS
) -> Part:
    """Return the joint table, or the largest cells of one that is too large to be read."""
    return _part(estimate.table(**asked.options), estimate.schema.names, most, largest)


def marginals(estimate: Estimate, asked: Asked) -> tuple[Part, ...]:
    """Return every attribute by itself."""
    return tuple(
        _part(
            estimate.marginal(name).table(**asked.options),
            (name,),
            MOST_CATEGORIES,
            MOST_CATEGORIES,
        )
        for name in estimate.schema.names
    )


def error_shares(estimate: Estimate, population: Population) -> tuple[float, float]:
    """Return the root mean square standard error of a cell, and the privacy error's part of it.

    The part is of the variance: only variances add up.
    """
    variances = estimate.uncertainty(population).cells()
    total, private = float(np.sum(variances.total)), float(np.sum(variances.privacy))
    return (total / variances.total.size) ** 0.5, private / total if total > 0 else 1.0


def adjusted(p_values: Iterable[float]) -> list[float]:
    """Return Holm's p-values: those below a level are wrong, any of them, no oftener than it."""
    given = list(p_values)
    found, worst = [0.0] * len(given), 0.0
    for rank, place in enumerate(sorted(range(len(given)), key=given.__getitem__)):
        worst = max(worst, min(1.0, given[place] * (len(given) - rank)))
        found[place] = worst
    return found


def _tested(estimate: Estimate) -> list[tuple[str, str]]:
    names = [each.name for each in estimate.schema.attributes if each.size > 1]
    small = (p for p in combinations(names, 2) if _cells(estimate, p) <= MOST_TESTED_CELLS)
    return list(islice(small, MOST_TESTS))


def _cells(estimate: Estimate, pair: tuple[str, str]) -> int:
    return estimate.schema.subset(pair).domain_size


def _pair(estimate: Estimate, asked: Asked, names: tuple[str, str], test: IndependenceTest) -> Pair:
    first, second = names
    options: dict[str, Any] = {"level": asked.level, "population": asked.population}
    table = estimate.marginal(names).table(**asked.options)
    within = [
        _part(
            estimate.conditional(of, given, estimator=asked.estimator, **options),
            (given, of),
            MOST_PAIR_CELLS,
            MOST_PAIR_CELLS,
        )
        for of, given in ((second, first), (first, second))
    ]
    association = estimate.cramers_v(first, second, **options)
    joint = _part(table, names, MOST_PAIR_CELLS, MOST_PAIR_CELLS)
    return Pair(test, association, joint, *within)


def _part(frame: pl.DataFrame, names: Iterable[str], most: int, largest: int) -> Part:
    """Return the rows of a table whose first columns are these attributes."""
    every = tuple(names)
    shown = frame if frame.height <= most else frame.sort("share", descending=True).head(largest)
    labels = shown[:, : len(every)].iter_rows()
    numbers = shown.select(NUMBERS).iter_rows()
    rows = tuple(Row(tuple(a), *b) for a, b in zip(labels, numbers, strict=True))
    return Part(every, rows, frame.height)
