"""Dots and intervals: tables in which every row has its share, its interval and their picture.

They are tables with numbers, so that a screen reader can read them.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from veiltab.report.formatting import between, percent
from veiltab.report.html import (
    NOT_ESTIMABLE,
    Html,
    Notes,
    element,
    label,
    minus,
    share_cell,
    unseen,
)
from veiltab.report.view import Row, ShownTable

STEPS = (1, 2, 2.5, 5, 10)
TICKS = 4
"""About how many steps an axis has."""

SHORT_TICK = 3
"""Labels of an axis that are longer have no room between the ends on paper."""

SHORT = 12
"""A table with more rows may go on on the next page of paper."""

NAME, LINE = 18, 0.6
"""How many letters of a name fit in a line on paper, and its height in rows."""

POINT = "estimate, with its interval"
END = "estimate at or near an end of its interval: rely on the interval"
ALL = "share among all"


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis from ``first`` to ``last`` steps; zero is one of its ticks."""

    step: float
    first: int
    last: int

    @classmethod
    def over(cls, rows: Iterable[Row], *others: float) -> "Scale":
        """Return an axis that covers all shares and intervals, and other numbers."""
        values = [0.0, *others]
        for row in rows:
            values += [x for x in (row.share, row.low, row.high) if x is not None]
        low, high = min(values), max(values)
        rough = (high - low) / TICKS or 0.25
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(s * power for s in STEPS if s * power >= rough * (1 - 1e-9))
        return cls(step, math.floor(low / step + 1e-9), max(1, math.ceil(high / step - 1e-9)))

    @property
    def ticks(self) -> list[float]:
        """The numbers at which the axis has labels."""
        return [self.step * number for number in range(self.first, self.last + 1)]

    def place(self, number: float) -> str:
        """Return the position of a number on the axis."""
        return f"{100 * (number / self.step - self.first) / (self.last - self.first):.2f}%"

    def axis(self, unit: float = 100, sign: str = "%") -> Html:
        """Return the labels of the axis, in per cent or in another unit.

        A narrow screen has room only for its ends: the ticks between them are ``inner``.
        """
        step, ticks = unit * self.step, self.ticks
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        digits += not math.isclose(round(step, digits), step)
        texts = []
        for number, tick in enumerate(ticks):
            anchor = "start" if number == 0 else "end" if tick == ticks[-1] else "middle"
            text = minus(f"{unit * tick:.{digits}f}") + (sign if tick == ticks[-1] else "")
            kind = "inner" if len(text) <= SHORT_TICK else "inner long"
            inner = {"class_": kind} if anchor == "middle" else {}
            texts.append(
                element("text", text, x=self.place(tick), y="75%", text_anchor=anchor, **inner)
            )
        title = element("title", "scale of the picture")
        return Html(
            unseen("picture") + element("svg", title, *texts, class_="axis", aria_hidden="true")
        )


def dot_table(
    caption: object, part: ShownTable, scale: Scale, overall: float | None = None
) -> Html:
    """Return a table with a share, its dot and its interval per row, under headings for groups.

    ``overall`` is the share among all, drawn as a line through all rows.
    """
    head = element(
        "tr",
        element("th", label(part.names[-1]), scope="col"),
        element("th", scale.axis(), scope="col", class_="picture"),
        element("th", "share", scope="col", class_="number"),
    )
    notes = Notes()
    bodies = [
        element(
            "tbody",
            *heading,
            *(_row(row, scale, part.digits, notes, overall) for row in rows),
            **({"class_": "short"} if heading and _height(rows) <= SHORT else {}),
        )
        for heading, rows in _grouped(part)
    ]
    shown = element(
        "table", element("caption", caption), element("thead", head), *bodies, class_="dots"
    )
    return Html(shown + notes.listed())


def _grouped(part: ShownTable) -> Iterator[tuple[list[Html], list[Row]]]:
    """Yield the rows of each group, after its heading if the table has several attributes."""
    for group, rows in groupby(part.rows, key=lambda row: row.labels[:-1]):
        text = ", ".join(f"{n}: {c}" for n, c in zip(part.names, group, strict=False))
        heading = element("th", label(text), scope="rowgroup", colspan="3")
        yield ([element("tr", heading)] if group else []), list(rows)


def card(table: Html, rows: Sequence[Row]) -> Html:
    """Return a table in a box; a short one stays on one page of paper."""
    return element("div", table, class_="card short" if _height(rows) <= SHORT else "card")


def _height(rows: Sequence[Row]) -> float:
    """Return about how high a table is on paper, in rows; long names take several lines."""
    return sum(max(1.0, LINE * math.ceil(len(row.labels[-1]) / NAME)) for row in rows)


def key(rows: Sequence[Row], *, overall: bool = False) -> Html:
    """Explain the marks that these rows have."""
    marks = [(_symbol(_dot("50%", "d")), POINT)]
    if any(row.at_end for row in rows):
        marks.append((_symbol(_dot("50%", "d end")), END))
    if overall:
        line = element("line", class_="all", x1="50%", x2="50%", y1="0", y2="100%")
        marks.append((_symbol(line, interval=False), ALL))
    items = (element("li", symbol, text) for symbol, text in marks)
    return element("ul", *items, class_="key")


def _symbol(mark: Html, *, interval: bool = True) -> Html:
    line = element("line", class_="w", x1="0", x2="100%", y1="50%", y2="50%") if interval else ""
    title = element("title", "mark")
    return element("svg", title, line, mark, class_="symbol", aria_hidden="true")


def _row(row: Row, scale: Scale, digits: int, notes: Notes, overall: float | None) -> Html:
    heading = element("th", label(row.labels[-1]), scope="row")
    mark = notes.mark(row.note)
    if not row.estimable:
        words = element("td", NOT_ESTIMABLE, mark, colspan="2", class_="none")
        return element("tr", heading, words)
    number = element("td", share_cell(row, digits, mark), class_="number")
    ends = minus(between(row.low, row.high, digits))
    value = "" if row.share is None else f"{minus(percent(row.share, digits))}, "
    title = f"{row.labels[-1]}: {value}interval {ends}%"
    drawn = picture(title, (row.share, row.low, row.high), scale, end=row.at_end, overall=overall)
    said = unseen("at or near an end of its interval") if row.at_end else ""
    return element("tr", heading, element("td", drawn, said, class_="picture"), number)


def picture(
    title: str,
    numbers: tuple[float | None, float | None, float | None],
    scale: Scale,
    *,
    end: bool,
    overall: float | None = None,
) -> Html:
    """Return a dot and its interval; an interval without an end goes on to the edge."""
    value, low, high = numbers
    left = "0%" if low is None else scale.place(low)
    right = "100%" if high is None else scale.place(high)
    shapes = [element("line", class_="w", x1=left, x2=right, y1="50%", y2="50%")]
    for place, there in ((left, low is not None), (right, high is not None)):
        if there:
            shapes.append(element("line", class_="w", x1=place, x2=place, y1="30%", y2="70%"))
        else:
            arrow = "‹" if place == left else "›"
            shapes.append(element("text", arrow, class_="on", x=place, y="50%", dy=".34em",
                                  text_anchor="middle"))  # fmt: skip
    if overall is not None:
        across = scale.place(overall)
        shapes.insert(0, element("line", class_="all", x1=across, x2=across, y1="0", y2="100%"))
    if value is not None:
        shapes.append(_dot(scale.place(value), "d end" if end else "d"))
    return element(
        "svg", element("title", title), *shapes,
        class_="dot", aria_hidden="true", style=f"--steps:{scale.last - scale.first}",
    )  # fmt: skip


def _dot(place: str, kind: str) -> Html:
    return element("circle", class_=kind, cx=place, cy="50%", r="4")
