"""Elements of a page, from plain tables to bar charts and heat maps; all text is escaped.

Bar charts and heat maps are tables with numbers, so that a screen reader can read them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from veiltab.report.formatting import between, percent, points
from veiltab.report.view import Row, ShownTable

STEPS = (1, 2, 2.5, 5, 10)
TICKS = 4
"""About how many steps an axis has."""

SHADES = 7
"""Colours of a heat map; the page's style has as many."""

NOT_ESTIMABLE = "not estimable"


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def html(text: object) -> str:
    """Escape text; leave alone what is HTML already."""
    return text if isinstance(text, Html) else escape(str(text))


def element(name: str, *content: object, **attributes: str) -> Html:
    """Return an element; ``class_`` stands for ``class``, and ``aria_label`` for ``aria-label``."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
    )
    return Html(f"<{name}{given}>{''.join(map(html, content))}</{name}>")


def table(
    caption: str, names: Sequence[str], rows: Iterable[Sequence[object]], numbers: int = 0
) -> Html:
    """Return a table with row headings in its first column and ``numbers`` columns at its end.

    A row of one cell is a heading over the rows that follow.
    """
    head = element("tr", *_cells("th", names, len(names) - numbers, scope="col"))
    body = [
        element("tr", element("th", *row, scope="rowgroup", colspan=str(len(names))))
        if len(row) == 1
        else element(
            "tr",
            element("th", row[0], scope="row"),
            *_cells("td", row[1:], len(names) - numbers - 1),
        )
        for row in rows
    ]
    # In a span, so that the style can keep it in view while the table is scrolled.
    title = element("caption", element("span", caption))
    return scroll(element("table", title, element("thead", head), element("tbody", *body)), caption)


def scroll(table: Html, caption: str) -> Html:
    """Make a table that is wider than the screen scrollable, also from the keyboard."""
    return element("div", table, class_="scroll", role="region", aria_label=caption, tabindex="0")


def label(text: str) -> Html:
    """Return a name that keeps its writing direction to itself and may break after a slash."""
    return element("bdi", Html(html(text).replace("/", "/<wbr>")))


def _cells(
    name: str, contents: Sequence[object], first_number: int, **attributes: str
) -> Iterable[Html]:
    for position, content in enumerate(contents):
        number = {"class_": "number"} if position >= first_number else {}
        yield element(name, content, **attributes, **number)


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis from ``first`` to ``last`` steps; zero is one of its ticks."""

    step: float
    first: int
    last: int

    @classmethod
    def over(cls, rows: Iterable[Row]) -> "Scale":
        """Return an axis that covers all shares and intervals."""
        values = [0.0]
        for row in rows:
            values += [x for x in (row.share, row.low, row.high) if x is not None]
        low, high = min(values), max(values)
        rough = (high - low) / TICKS or 0.25
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(s * power for s in STEPS if s * power >= rough * (1 - 1e-9))
        return cls(step, math.floor(low / step + 1e-9), max(1, math.ceil(high / step - 1e-9)))

    @property
    def ticks(self) -> list[float]:
        """The shares at which the axis has labels."""
        return [self.step * number for number in range(self.first, self.last + 1)]

    def place(self, share: float) -> str:
        """Return the position of a share on the axis."""
        return f"{100 * (share / self.step - self.first) / (self.last - self.first):.2f}%"

    def length(self, share: float) -> str:
        """Return the length of a bar of this share."""
        return f"{100 * share / self.step / (self.last - self.first):.2f}%"


def bar_table(caption: str, part: ShownTable, scale: Scale, heading: str) -> Html:
    """Return a table with one share and its bar per row, under a heading for each group.

    A narrow screen has room only for the ends of the axis: the ticks between them are ``inner``.
    """
    name = part.names[-1]
    head = element(
        "tr",
        element("th", name, scope="col"),
        element("th", _axis(scale), scope="col", class_="picture"),
        element("th", heading, scope="col", class_="number"),
    )
    body: list[Html] = []
    group: tuple[str, ...] = ()
    for row in part.rows:
        if row.labels[:-1] != group:
            group = row.labels[:-1]
            text = ", ".join(f"{n}: {c}" for n, c in zip(part.names, group, strict=False))
            body.append(element("tr", element("th", label(text), scope="rowgroup", colspan="3")))
        body.append(_bar_row(row, scale, part.digits))
    return element(
        "table",
        element("caption", caption),
        element("thead", head),
        element("tbody", *body),
        class_="bars",
    )


def _bar_row(row: Row, scale: Scale, digits: int) -> Html:
    heading = element("th", label(row.labels[-1]), scope="row")
    if row.share is None or row.low is None or row.high is None:
        return element("tr", heading, element("td", NOT_ESTIMABLE, colspan="2", class_="none"))
    number = element("td", share_cell(row, digits), class_="number")
    return element("tr", heading, element("td", _bar(row, scale, digits), class_="picture"), number)


def share_cell(row: Row, digits: int) -> Html:
    """Return the content of a cell: a share with its interval."""
    if row.share is None or row.low is None or row.high is None:
        return element("span", NOT_ESTIMABLE, class_="none")
    share = element("b", minus(percent(row.share, digits)))
    return Html(f"{share} {element('span', between(row.low, row.high, digits), class_='between')}")


def minus(text: str) -> str:
    """Replace hyphens by minus signs."""
    return text.replace("-", "−")


def _bar(row: Row, scale: Scale, digits: int) -> Html:
    share, low, high = row.share or 0.0, row.low or 0.0, row.high or 0.0
    left, right = scale.place(low), scale.place(high)
    value, ends = minus(percent(share, digits)), between(low, high, digits)
    return element(
        "svg",
        element("title", f"{row.labels[-1]}: {value}, interval {ends} %"),
        _shape("rect", "b", x=scale.place(min(share, 0)), y="20%", width=scale.length(abs(share)),
               height="60%"),
        _shape("line", "w", x1=left, x2=right, y1="50%", y2="50%"),
        _shape("line", "w", x1=left, x2=left, y1="34%", y2="66%"),
        _shape("line", "w", x1=right, x2=right, y1="34%", y2="66%"),
        class_="bar", aria_hidden="true", style=f"--steps:{scale.last - scale.first}",
    )  # fmt: skip


def _axis(scale: Scale) -> Html:
    ticks = scale.ticks
    digits = max(0, -math.floor(math.log10(100 * scale.step) + 1e-9))
    digits += not math.isclose(round(100 * scale.step, digits), 100 * scale.step)
    texts = []
    for number, tick in enumerate(ticks):
        anchor = "start" if number == 0 else "end" if tick == ticks[-1] else "middle"
        text = minus(f"{100 * tick:.{digits}f}") + (" %" if tick == ticks[-1] else "")
        inner = {"class_": "inner"} if anchor == "middle" else {}
        texts.append(
            element("text", text, x=scale.place(tick), y="75%", text_anchor=anchor, **inner)
        )
    title = element("title", "scale of the bars, in per cent")
    return Html(
        element("span", "picture", class_="unseen")
        + element("svg", title, *texts, class_="axis", aria_hidden="true")
    )


def _shape(name: str, kind: str, **places: str) -> Html:
    return element(name, class_=kind, **places)


def heat_map(caption: str, part: ShownTable) -> Html:
    """Return a table of two attributes in which a larger share has a stronger colour."""
    first, second = part.names
    columns = list(dict.fromkeys(row.labels[1] for row in part.rows))
    most = max(*(row.share or 0.0 for row in part.rows), 1e-12)
    corner = element("td", element("span", f"{first} ↓ {second} →", class_="corner"))
    head = element("tr", corner, *(element("th", label(c), scope="col") for c in columns))
    body = []
    for start in range(0, len(part.rows), len(columns)):
        rows = part.rows[start : start + len(columns)]
        tiles = [
            element("td", share_cell(row, part.digits), class_=_shade(row, most)) for row in rows
        ]
        body.append(element("tr", element("th", label(rows[0].labels[0]), scope="row"), *tiles))
    tiled = element(
        "table", element("caption", caption), element("thead", head), element("tbody", *body),
        class_="heat", style=f"--columns:{len(columns)}",
    )  # fmt: skip
    return Html(scroll(tiled, caption) + _legend(most))


def _shade(row: Row, most: float) -> str:
    place = SHADES * max(row.share or 0.0, 0.0) / most
    return f"shade-{min(SHADES - 1, int(place))}"


def _legend(most: float) -> Html:
    swatches = (element("span", class_=f"swatch shade-{n}") for n in range(SHADES))
    words = f"Colours run from 0 % (palest) to {percent(most)} (strongest)."
    return element(
        "div",
        element("span", "0", class_="end"),
        *swatches,
        element("span", percent(most), class_="end"),
        class_="legend", role="img", aria_label=words,
    )  # fmt: skip


def error_bar(privacy: float) -> Html:
    """Return a bar that shows how much of the variance is due to privacy, and to sampling."""
    parts = f"privacy noise {100 * privacy:.0f} %, sampling {100 * (1 - privacy):.0f} %"
    width = f"{100 * privacy:.2f}%"
    return element(
        "svg",
        element("title", f"Parts of the variance: {parts}"),
        element("desc", "A bar in two parts; the table below gives the numbers."),
        element("rect", class_="privacy", x="0", y="0", width=width, height="100%"),
        element("rect", class_="sampling", x=width, y="0", width=f"{100 * (1 - privacy):.2f}%",
                height="100%"),
        class_="parts", role="img",
    )  # fmt: skip


def point_list(numbers: Sequence[float | None], digits: int) -> list[str]:
    """Return the cells of a table for numbers in percentage points."""
    return [NOT_ESTIMABLE if x is None else minus(points(x, digits)) for x in numbers]
