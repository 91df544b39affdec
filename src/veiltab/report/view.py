"""What a report shows: all of a small table, and the readable parts of a large one."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Any

import numpy as np
import polars as pl

from veiltab.core.released import Estimator, ReleasedCounts
from veiltab.core.uncertainty import Population
from veiltab.inference.association import cramers_v
from veiltab.inference.conditions import read_condition
from veiltab.inference.diagnostics import table_warnings
from veiltab.inference.distributions import NUMBERS, conditional_table, joint_table
from veiltab.inference.hypotheses import HypothesisTest
from veiltab.inference.independence import independence_test
from veiltab.inference.people import people, population
from veiltab.inference.provenance import Provenance
from veiltab.inference.quantities import Quantity, Question, probability
from veiltab.inference.residuals import standardised_residuals
from veiltab.report.formatting import decimals

MOST_CELLS, LARGEST_CELLS = 400, 60
"""Of a joint table with more cells than the first number, the largest ones are shown."""

MOST_CATEGORIES = 40
MOST_PAIR_CELLS = 144
MOST_PAIRS = 10
"""Pairs that get pictures: those with the clearest dependence."""

NOTES = ("reason", "warning")
"""Columns of a table with words about a row, which become its footnote."""

NEAR = 0.1
"""A share this part of its interval's width from an end, or beyond it, is at an end."""

MOST_TESTS = 45
MOST_TESTED_CELLS = 1_000
"""A test draws thousands of tables, which takes too long for larger pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """How an estimate is shown, and for which conditions shares are estimated besides."""

    level: float = 0.95
    simultaneous: bool = False
    population: Population = "finite"
    estimator: Estimator = "clipped"
    conditions: tuple[str, ...] = ()

    @property
    def table(self) -> dict[str, Any]:
        """The options that concern tables, as keyword arguments."""
        return {
            "estimator": self.estimator,
            "level": self.level,
            "population": self.population,
            "simultaneous": self.simultaneous,
        }


@dataclass(frozen=True, slots=True)
class Row:
    """A share with its errors and its interval; all are None if it is not estimable.

    An interval may have one end only, and ``note`` holds words to be read with the numbers.
    """

    labels: tuple[str, ...]
    share: float | None
    standard_error: float | None
    sampling_error: float | None
    privacy_error: float | None
    low: float | None
    high: float | None
    note: str | None = None

    @property
    def estimable(self) -> bool:
        """Whether there is any number: a share, or an end of its interval."""
        return any(number is not None for number in (self.share, self.low, self.high))

    @property
    def at_end(self) -> bool:
        """Whether the share lies near an end of its interval, as one of zero does, or beyond it."""
        if self.share is None or self.low is None or self.high is None:
            return False
        margin = NEAR * (self.high - self.low)
        return self.share < self.low + margin or self.share > self.high - margin


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A table, or its largest rows: ``total`` says how many rows there are in all."""

    names: tuple[str, ...]
    rows: tuple[Row, ...]
    total: int

    @property
    def digits(self) -> int:
        """How many decimals its numbers have, in per cent."""
        return decimals(row.standard_error for row in self.rows)

    @property
    def whole(self) -> bool:
        """Whether all rows are there."""
        return len(self.rows) == self.total


@dataclass(frozen=True, slots=True)
class Comparison:
    """The shares of one attribute within each group of another, and among all.

    ``within`` names the groups first.
    """

    within: ShownTable
    overall: ShownTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two attributes: their joint table, each one within the other, and their association.

    The rows of the joint table, which are also the groups of ``comparison``, are the attribute
    with more categories: a page is longer than it is wide.  ``residuals`` has a number per cell.
    """

    names: tuple[str, str]
    test: HypothesisTest
    association: Quantity
    joint: ShownTable
    residuals: tuple[float, ...]
    comparison: Comparison
    reverse: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything that a report shows."""

    released: ReleasedCounts
    provenance: Provenance
    options: ReportOptions
    answers: tuple[Quantity, ...]
    people: tuple[Quantity, ...]
    marginals: tuple[ShownTable, ...]
    pairs: tuple[Pair, ...]
    tests: tuple[tuple[tuple[str, str], HypothesisTest], ...]
    associations: tuple[Quantity | None, ...]
    pairs_in_all: int
    joint: ShownTable
    population: Quantity
    warnings: tuple[str, ...]


def view_release(released: ReleasedCounts, origin: Provenance, options: ReportOptions) -> View:
    """Compute everything that a report shows; pairs of attributes take most of the time."""
    names = released.schema.names
    tests = tuple(
        (pair, independence_test(released, *pair, given=(), population="super"))
        for pair in _tested_pairs(released)
    )
    associations = tuple(_association(released, options, pair) for pair, _ in tests)
    small = (place for place, strength in enumerate(associations) if strength is not None)
    clearest = sorted(small, key=lambda place: _doubt(tests[place][1]))[:MOST_PAIRS]
    pairs = [
        _pair(released, options, tests[place], association)
        for place, association in enumerate(associations)
        if place in clearest and association is not None
    ]
    answers = answer_conditions(released, options)
    return View(
        released=released,
        provenance=origin,
        options=options,
        answers=answers,
        people=count_people(released, options),
        marginals=marginal_parts(released, options),
        pairs=tuple(pairs),
        tests=tests,
        associations=associations,
        pairs_in_all=len(names) * (len(names) - 1) // 2,
        joint=joint_part(released, options),
        population=population(_question(released, options)),
        warnings=all_warnings(released, answers),
    )


def with_answers(view: View, options: ReportOptions) -> View:
    """Return a view with the answers to other conditions, and nothing else computed again."""
    answers = answer_conditions(view.released, options)
    return replace(
        view,
        options=options,
        answers=answers,
        people=count_people(view.released, options),
        warnings=all_warnings(view.released, answers),
    )


def answer_conditions(released: ReleasedCounts, options: ReportOptions) -> tuple[Quantity, ...]:
    """Estimate the share of every condition that was asked for."""
    question = _question(released, options)
    conditions = (read_condition(text, released.schema) for text in options.conditions)
    return tuple(probability(question, condition) for condition in conditions)


def count_people(released: ReleasedCounts, options: ReportOptions) -> tuple[Quantity, ...]:
    """Estimate how many people meet every condition that was asked for."""
    question = Question(released=released, level=options.level, population="finite")
    conditions = (read_condition(text, released.schema) for text in options.conditions)
    return tuple(people(question, condition) for condition in conditions)


def all_warnings(released: ReleasedCounts, answers: Iterable[Quantity]) -> tuple[str, ...]:
    """Return the warnings of the table and of all answers, each one once."""
    from_answers = (warning for answer in answers for warning in answer.warnings)
    return tuple(dict.fromkeys((*table_warnings(released), *from_answers)))


def joint_part(
    released: ReleasedCounts,
    options: ReportOptions,
    most: int = MOST_CELLS,
    largest: int = LARGEST_CELLS,
) -> ShownTable:
    """Return the joint table, or the largest cells of a table with more than ``most`` cells."""
    frame = joint_table(released, **options.table)
    return shown_table(frame, released.schema.names, most, largest)


def marginal_parts(released: ReleasedCounts, options: ReportOptions) -> tuple[ShownTable, ...]:
    """Return the table of each attribute by itself."""
    return tuple(
        shown_table(joint_table(released.marginal(name), **options.table), (name,), MOST_CATEGORIES)
        for name in released.schema.names
    )


def error_shares(released: ReleasedCounts, population: Population) -> tuple[float, float]:
    """Return the root mean square standard error of a cell, and the share that is due to privacy.

    It is a share of the variance, because only variances add up.
    """
    variances = released.uncertainty(population).cells()
    total, privacy = float(np.sum(variances.total)), float(np.sum(variances.privacy))
    return (total / variances.total.size) ** 0.5, privacy / total if total > 0 else 1.0


def quantity_row(quantity: Quantity, known: Iterable[str] = ()) -> Row:
    """Return a quantity as a row; its note has the warnings that are not known already."""
    already = frozenset(known)
    return Row(
        (quantity.label,),
        quantity.value,
        quantity.standard_error,
        quantity.sampling_error,
        quantity.privacy_error,
        quantity.low,
        quantity.high,
        "; ".join(warning for warning in quantity.warnings if warning not in already) or None,
    )


def holm(p_values: Iterable[float]) -> list[float]:
    """Return p-values adjusted by Holm's method for testing several hypotheses.

    Rejecting those below α keeps the probability of any false rejection at α or less.
    """
    plain = list(p_values)
    adjusted, largest = [0.0] * len(plain), 0.0
    for rank, place in enumerate(sorted(range(len(plain)), key=plain.__getitem__)):
        largest = max(largest, min(1.0, plain[place] * (len(plain) - rank)))
        adjusted[place] = largest
    return adjusted


def _question(released: ReleasedCounts, options: ReportOptions) -> Question:
    return Question(released=released, level=options.level, population=options.population)


def _tested_pairs(released: ReleasedCounts) -> list[tuple[str, str]]:
    names = [attribute.name for attribute in released.schema.attributes if attribute.size > 1]
    small = (p for p in combinations(names, 2) if _cells(released, p) <= MOST_TESTED_CELLS)
    return list(islice(small, MOST_TESTS))


def _cells(released: ReleasedCounts, pair: tuple[str, str]) -> int:
    return released.schema.subset(pair).domain_size


def _doubt(test: HypothesisTest) -> tuple[float, float]:
    """Order tests by how clearly they show dependence, the clearest first."""
    return test.p_value, -test.statistic


def _association(
    released: ReleasedCounts, options: ReportOptions, names: tuple[str, str]
) -> Quantity | None:
    """Return Cramér's V of a pair; None if it has too many cells to be drawn."""
    if _cells(released, names) > MOST_PAIR_CELLS:
        return None
    return cramers_v(_question(released, options), *names)


def _pair(
    released: ReleasedCounts,
    options: ReportOptions,
    tested: tuple[tuple[str, str], HypothesisTest],
    association: Quantity,
) -> Pair:
    names, test = tested
    first, second = names
    sizes = released.schema.subset(names).sizes
    rows, columns = (first, second) if sizes[0] >= sizes[1] else (second, first)
    joint = released.marginal((rows, columns))
    return Pair(
        names=names,
        test=test,
        association=association,
        joint=shown_table(joint_table(joint, **options.table), (rows, columns), MOST_PAIR_CELLS),
        residuals=tuple(standardised_residuals(joint, test.population).tolist()),
        comparison=_comparison(joint, options, columns, rows),
        reverse=_comparison(joint, options, rows, columns),
    )


def _comparison(joint: ReleasedCounts, options: ReportOptions, of: str, given: str) -> Comparison:
    """Compare the groups of one attribute by another one."""
    within = conditional_table(
        joint,
        [of],
        [given],
        estimator=options.estimator,
        level=options.level,
        population=options.population,
    )
    overall = joint_table(joint.marginal(of), **options.table)
    return Comparison(
        shown_table(within, (given, of), MOST_PAIR_CELLS),
        shown_table(overall, (of,), MOST_PAIR_CELLS),
    )


def shown_table(
    frame: pl.DataFrame, names: tuple[str, ...], most: int, largest: int | None = None
) -> ShownTable:
    """Return the rows of a table whose first columns are these attributes.

    Of more than ``most`` rows only the ``largest`` are kept, as many as ``most`` by default.
    """
    if frame.height > most:
        shown = frame.sort("share", descending=True).head(most if largest is None else largest)
    else:
        shown = frame
    labels = shown[:, : len(names)].iter_rows()
    numbers = shown.select(NUMBERS).iter_rows()
    notes = _notes(shown[:, len(names) :])
    rows = tuple(
        replace(Row(tuple(a), *b), note=c) for a, b, c in zip(labels, numbers, notes, strict=True)
    )
    return ShownTable(names, rows, frame.height)


def _notes(frame: pl.DataFrame) -> list[str | None]:
    """Return the words about each row, None where there are none."""
    columns = [frame[name].to_list() for name in NOTES if name in frame.columns]
    if not columns:
        return [None] * frame.height
    return ["; ".join(filter(None, texts)) or None for texts in zip(*columns, strict=True)]
