"""What the explorer computes for a choice: a table, its pictures, and answers beside it.

Whole tables are computed once and kept while somebody turns their pages: a cell's numbers are
exactly those of the Python that the page shows.  How much is computed is bounded by counts of
cells, and what is beyond them is said, with what to choose instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import polars as pl
from markupsafe import Markup

from veiltab.console.choice import DEVIATIONS, WITHIN, Choice
from veiltab.console.estimates import Opened
from veiltab.errors import ParameterError
from veiltab.estimates import Estimate
from veiltab.inference.conditions import describe
from veiltab.inference.distributions import NUMBERS, category_columns, interval_column
from veiltab.inference.hypotheses import HypothesisTest
from veiltab.inference.quantities import Quantity
from veiltab.inference.residuals import standardised_residuals
from veiltab.report import words
from veiltab.report.dots import Scale, dot_table, key
from veiltab.report.formatting import decimals, interval_text, points, significance
from veiltab.report.heat import heat_map
from veiltab.report.html import Html
from veiltab.report.view import ReportOptions, ShownTable, shown_table

PAGE_ROWS = 60
"""Rows of a long table that one page shows."""

MOST_TILES = 400
"""Cells of two attributes that are shown as a map; larger tables are lists."""

MOST_CELLS = 300_000
"""Cells of a table; more take longer than anybody waits, and too much memory."""

MOST_ASKED = 120
"""Cells of a table among some people: each of its shares is a question of its own."""

MOST_TESTED, MOST_TESTED_ON_REQUEST = 150, 1_000
"""Cells of two attributes, layers included, that are tested at once, or after a click."""

SHARE, PEOPLE = "Share", "Number of people"
"""What stands before answers that are written in their own way."""

TWO = 2


@dataclass(frozen=True, slots=True)
class Answer:
    """Something that was computed beside the table, and the Python that gives it."""

    words: str
    result: Quantity | HypothesisTest
    code: str

    @property
    def headline(self) -> str:
        """What is read first: a number, a share in per cent, with its interval; or a p-value."""
        found = self.result
        if isinstance(found, HypothesisTest):
            p_value = significance(found.p_value)
            return f"p {p_value}" if p_value.startswith("<") else f"p = {p_value}"
        if not found.estimable:
            return "not estimable"
        ends = interval_text(found.low, found.high, self._end)
        interval = f"{100 * found.level:g}% interval {ends}" if ends else "no limits"
        return interval if found.value is None else f"{self._written(found.value)}, {interval}"

    def _written(self, number: float) -> str:
        return f"{self._end(number)}%" if self.words == SHARE else self._end(number)

    def _end(self, number: float) -> str:
        if self.words == SHARE:
            assert isinstance(self.result, Quantity)  # noqa: S101 - no test is a share
            return points(number, decimals([self.result.standard_error]))
        return f"{number:,.0f}" if self.words == PEOPLE else f"{number:.3g}"


@dataclass(frozen=True, slots=True)
class Shown:
    """What the page shows for a choice."""

    title: str
    picture: Markup
    total: int
    pages: int
    page: int
    answers: tuple[Answer, ...]
    testable: bool
    notes: tuple[str, ...]
    code: str


def show(opened: Opened, choice: Choice) -> Shown:
    """Compute what a choice shows."""
    frame = table(opened, choice)
    pages = max(1, -(-frame.height // PAGE_ROWS))
    is_map = as_map(choice, frame)
    page = 1 if is_map else min(choice.page, pages)
    answers = (*_questions(opened, choice), *_associations(opened, choice))
    return Shown(
        title=title(choice),
        picture=_picture(opened, choice, frame, page),
        total=frame.height,
        pages=1 if is_map else pages,
        page=page,
        answers=answers,
        testable=_testable(opened.estimate, choice),
        notes=_notes(opened.estimate, choice),
        code=code(opened, choice, answers),
    )


def table(opened: Opened, choice: Choice) -> pl.DataFrame:
    """Return the whole table of a choice in the study's order, a row per cell."""
    cells = opened.estimate.schema.subset(choice.names).domain_size
    _check(cells, MOST_CELLS, "choose fewer attributes")
    if choice.given:
        more = "choose fewer attributes, or show shares within groups instead of a condition"
        _check(cells, MOST_ASKED, f"a table of those who meet a condition is small: {more}")
    elif choice.show == DEVIATIONS:
        _check(cells, MOST_TESTED_ON_REQUEST, "choose attributes with fewer categories")
    question = ("table", choice.show, choice.names, choice.given, choice.level, choice.together)
    return opened.ask(question, lambda: _table(opened.estimate, choice))


def _check(cells: int, most: int, hint: str) -> None:
    if cells > most:
        raise ParameterError(
            f"this table has {cells:,} cells, more than the {most:,} that are shown", hint=hint
        )


def _table(estimate: Estimate, choice: Choice) -> pl.DataFrame:
    if choice.given:
        return _among(estimate, choice)
    if choice.show == WITHIN:
        return estimate.conditional(choice.columns, choice.groups, level=choice.level)
    if choice.show == DEVIATIONS:
        return estimate.deviations(choice.rows, choice.columns, level=choice.level)
    marginal = estimate.marginal(choice.names)
    return marginal.table(level=choice.level, simultaneous=choice.together)


def _among(estimate: Estimate, choice: Choice) -> pl.DataFrame:
    """Return the shares of all cells among those who meet a condition."""
    part = estimate.schema.subset(choice.names)
    cells = product(*(attribute.categories for attribute in part.attributes))
    shares = [
        estimate.probability(
            dict(zip(choice.names, cell, strict=True)), given=choice.given, level=choice.level
        )
        for cell in cells
    ]
    numbers = {"share": "value"} | {name: name for name in NUMBERS[1:]}
    return pl.DataFrame(
        [
            *category_columns(part),
            *(
                pl.Series(name, [getattr(share, field) for share in shares], pl.Float64)
                for name, field in numbers.items()
            ),
            pl.Series("warning", ["; ".join(one.warnings) or None for one in shares], pl.String),
            interval_column(len(shares), choice.level, simultaneous=False),
        ]
    )


def title(choice: Choice) -> str:
    """Say in words what a table shows."""
    if choice.show == DEVIATIONS:
        return f"{choice.rows} and {choice.columns}: deviations from independence"
    if choice.show == WITHIN:
        return f"{choice.columns} within {' and '.join(choice.groups)}"
    *others, last = choice.names
    return (f"{', '.join(others)} and {last}" if others else last) + (
        f", among those with {choice.given}" if choice.given else ""
    )


def options(choice: Choice) -> ReportOptions:
    """Return a choice as the options of a report."""
    return ReportOptions(level=choice.level, simultaneous=choice.together)


def as_map(choice: Choice, frame: pl.DataFrame) -> bool:
    """Tell whether a table is shown as a map of two attributes."""
    return (
        choice.show != WITHIN
        and len(choice.names) == TWO
        and frame.height <= MOST_TILES
        and choice.order == "schema"
    )


def residuals(opened: Opened, choice: Choice) -> list[float]:
    """Return the colours of a map; among some people there are none."""
    pair = opened.estimate.marginal(choice.names)
    if choice.given or min(pair.schema.sizes) == 1:
        return [0.0] * pair.schema.domain_size
    return opened.ask(
        ("residuals", choice.names), lambda: standardised_residuals(pair, "super").tolist()
    )


def part(choice: Choice, frame: pl.DataFrame, page: int) -> ShownTable:
    """Return the rows of one page, as pictures take them."""
    value = "deviation" if choice.show == DEVIATIONS else "share"
    if choice.order == "largest":
        by = pl.col(value).abs() if value == "deviation" else pl.col(value)
        frame = frame.sort(by, descending=True, nulls_last=True, maintain_order=True)
    if not as_map(choice, frame):
        frame = frame.slice((page - 1) * PAGE_ROWS, PAGE_ROWS)
    if value == "deviation":
        frame = frame.with_columns(pl.col(value).alias("share"))
    shown = shown_table(frame, choice.names, frame.height)
    return flat(shown) if choice.order == "largest" else shown


def flat(shown: ShownTable) -> ShownTable:
    """Write all categories of a cell as one name."""
    rows = tuple(replace(row, labels=(" · ".join(row.labels),)) for row in shown.rows)
    return ShownTable((" · ".join(shown.names),), rows, shown.total)


def _picture(opened: Opened, choice: Choice, frame: pl.DataFrame, page: int) -> Markup:
    """Draw a map of two attributes where it fits, and dots with intervals otherwise."""
    shown = part(choice, frame, page)
    if as_map(choice, frame):
        drawn: Html | str = heat_map(caption(choice), shown, residuals(opened, choice))
    else:
        scale = Scale.over(shown.rows, *_ends(choice, frame))
        drawn = key(shown.rows) + dot_table(caption(choice), shown, scale)
    return Markup(drawn)  # noqa: S704 - every text is escaped


def caption(choice: Choice) -> str:
    """Say what the numbers of a table are."""
    if choice.show == DEVIATIONS:
        return (
            "Share less what it would be under independence, in percentage points, with"
            f" {words.interval_name(options(choice), simultaneous=False)}"
        )
    whole = "share of the group" if choice.show == WITHIN else "share"
    return f"{whole.capitalize()} and {words.interval_name(options(choice))}, in\u00a0%"


def _ends(choice: Choice, frame: pl.DataFrame) -> Iterator[float]:
    """Yield the least and the largest number of a table, so that all its pages have one scale."""
    value = "deviation" if choice.show == DEVIATIONS else "share"
    for column in (frame[name].drop_nulls() for name in (value, "low", "high")):
        for end in (column.min(), column.max()):
            if isinstance(end, float):
                yield end


def _questions(opened: Opened, choice: Choice) -> Iterator[Answer]:
    """Answer the condition that somebody has typed; of two conditions, also their odds ratio."""
    if not choice.condition:
        return
    estimate, level = opened.estimate, choice.level
    given = choice.given or None
    among = f", given={given!r}" if given else ""
    yield Answer(
        SHARE,
        estimate.probability(choice.condition, given=given, level=level),
        f"estimate.probability({choice.condition!r}{among}, level={level:g})",
    )
    if given:
        yield Answer(
            "Odds ratio, versus everybody else",
            estimate.odds_ratio(choice.condition, given, level=level),
            f"estimate.odds_ratio({choice.condition!r}, {given!r}, level={level:g})",
        )
    else:
        yield Answer(
            PEOPLE,
            estimate.people(choice.condition, level=level),
            f"estimate.people({choice.condition!r}, level={level:g})",
        )


def _tested_cells(estimate: Estimate, choice: Choice) -> int | None:
    """Return how many cells a test is about; None if there is nothing to test."""
    if not choice.columns or choice.given:
        return None
    part = estimate.schema.subset(choice.names)
    pair = estimate.schema.subset((choice.rows, choice.columns))
    return None if min(pair.sizes) == 1 else part.domain_size


def _testable(estimate: Estimate, choice: Choice) -> bool:
    """Tell whether a click would test what was not tested at once."""
    cells = _tested_cells(estimate, choice)
    return cells is not None and not choice.tests and MOST_TESTED < cells <= MOST_TESTED_ON_REQUEST


def _associations(opened: Opened, choice: Choice) -> tuple[Answer, ...]:
    """Return strength, test and odds ratio of two attributes, unless they take too long."""
    cells = _tested_cells(opened.estimate, choice)
    if cells is None or cells > (MOST_TESTED_ON_REQUEST if choice.tests else MOST_TESTED):
        return ()
    question = ("associations", choice.names, choice.level)
    return opened.ask(question, lambda: tuple(_associated(opened.estimate, choice)))


def _associated(estimate: Estimate, choice: Choice) -> Iterator[Answer]:
    x, y, level = choice.rows, choice.columns, choice.level
    yield Answer(
        "Strength of association",
        estimate.cramers_v(x, y, level=level),
        f"estimate.cramers_v({x!r}, {y!r}, level={level:g})",
    )
    layer = choice.layer or None
    among = f", given={layer!r}" if layer else ""
    yield Answer(
        "Test of independence",
        estimate.independence_test(x, y, given=layer),
        f"estimate.independence_test({x!r}, {y!r}{among})",
    )
    rows, columns = estimate.schema.subset((x, y)).attributes
    if rows.size == columns.size == TWO:
        outcome = describe([y], columns.categories[-1:])
        group = describe([x], rows.categories[-1:])
        yield Answer(
            "Odds ratio",
            estimate.odds_ratio(outcome, group, level=level),
            f"estimate.odds_ratio({outcome!r}, {group!r}, level={level:g})",
        )
        if layer:
            yield Answer(
                "Odds ratio within layers, by Mantel and Haenszel",
                estimate.mantel_haenszel(outcome, group, within=layer, level=level),
                f"estimate.mantel_haenszel({outcome!r}, {group!r}, within={layer!r},"
                f" level={level:g})",
            )


def _notes(estimate: Estimate, choice: Choice) -> tuple[str, ...]:
    """Say what the numbers do not say themselves."""
    notes = [*estimate.marginal(choice.names).warnings]
    if choice.simultaneous and not choice.together:
        notes.append(
            "intervals that hold all together are there for shares of everybody alone: these hold"
            " one by one"
        )
    cells = _tested_cells(estimate, choice)
    if cells is not None and cells > MOST_TESTED_ON_REQUEST:
        notes.append(
            f"{cells:,} cells are too many to be tested here; veiltab can in Python, in minutes"
        )
    return tuple(notes)


def code(opened: Opened, choice: Choice, answers: tuple[Answer, ...]) -> str:
    """Return the Python that gives the same estimate, table and answers."""
    imports = "import itertools\n\nimport veiltab as vt" if choice.given else "import veiltab as vt"
    others = "\n".join(answer.code for answer in answers)
    return f"{imports}\n\n{opened.code}\n{choice.code()}\n{others}".rstrip()
