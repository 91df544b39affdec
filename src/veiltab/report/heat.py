"""Heat maps of two attributes: shares in numbers, and departures from independence in colours."""

import math
from collections.abc import Sequence

from veiltab.report.formatting import between, points
from veiltab.report.html import NOT_ESTIMABLE, Html, Notes, element, label, minus, scroll, unseen
from veiltab.report.view import Row, ShownTable

LIMITS = (2, 5, 10, 20)
"""Residuals, in standard errors, at which the colour changes."""

MORE, FEWER = "▲", "▼"
LEGEND = (
    "Colour: how many standard errors the share lies above (▲) or below (▼) what it would be if the"
    " two attributes were independent."
)

ROOMY = 6
"""With more columns, cells are small, and headings stand upright if they are long."""

LONG_HEADING = 12
SHORT = 4
"""A map with more rows may go on, on the next page of paper."""

NAME = 60
"""How many letters of a name fit beside a cell."""


def shade(residual: float) -> int:
    """Return the colour of a residual: 0 near independence, up to ±4 far from it."""
    strength = sum(abs(residual) >= limit for limit in LIMITS)
    return strength if residual > 0 else -strength


def residual_text(residual: float) -> str:
    """Return a residual in standard errors, if it is large enough to have a colour."""
    if not shade(residual):
        return ""
    digits = 0 if abs(residual) >= LIMITS[-2] else 1
    return f"{MORE if residual > 0 else FEWER} {abs(residual):.{digits}f}"


def shade_words(strength: int) -> str:
    """Return the residuals that have a colour."""
    if strength == 0:
        return f"under {LIMITS[0]}"
    arrow, place = MORE if strength > 0 else FEWER, abs(strength)
    if place == len(LIMITS):
        return f"{arrow} {LIMITS[-1]} or more"
    return f"{arrow} {LIMITS[place - 1]}–{LIMITS[place]}"


def heat_map(caption: str, part: ShownTable, residuals: Sequence[float]) -> Html:
    """Return a table of two attributes, a colour per cell, and what the colours mean."""
    first, second = part.names
    columns = list(dict.fromkeys(row.labels[1] for row in part.rows))
    corner = element("td", element("bdi", f"{first} ↓"), " ", element("bdi", f"{second} →"),
                     class_="corner")  # fmt: skip
    head = element("tr", corner, *(element("th", label(c), scope="col") for c in columns))
    body, notes = [], Notes()
    for start in range(0, len(part.rows), len(columns)):
        where = slice(start, start + len(columns))
        cells = zip(part.rows[where], residuals[where], strict=True)
        tiles = [_tile(row, residual, part.digits, notes) for row, residual in cells]
        name = label(part.rows[start].labels[0])
        body.append(element("tr", element("th", name, scope="row"), *tiles))
    tiled = element(
        "table", element("caption", element("span", caption)),
        element("thead", head), element("tbody", *body),
        class_=" ".join(_kinds(columns)), style=f"--columns:{len(columns)}",
    )  # fmt: skip
    return Html(scroll(tiled, caption) + notes.listed() + legend())


def heat_card(tiled: Html, part: ShownTable) -> Html:
    """Return a heat map in a box; a short one stays on one page of paper."""
    names = {row.labels[0] for row in part.rows}
    lines = sum(max(1, math.ceil(len(name) / NAME)) for name in names)
    return element("div", tiled, class_="card short" if lines <= SHORT else "card")


def _kinds(columns: Sequence[str]) -> list[str]:
    """Return the classes of the table, which depend on the room that its columns have."""
    if len(columns) <= ROOMY:
        return ["heat"]
    upright = max(map(len, columns)) > LONG_HEADING
    return ["heat", "tight", "upright"] if upright else ["heat", "tight"]


def _tile(row: Row, residual: float, digits: int, notes: Notes) -> Html:
    mark = notes.mark(row.note)
    if not row.estimable:
        none = element("span", NOT_ESTIMABLE, class_="none")
        return element("td", none, mark, data_column=row.labels[1])
    share = "" if row.share is None else minus(points(row.share, digits))
    ends = Html(minus(between(row.low, row.high, digits)).replace("–", "–<wbr>"))
    content = [element("b", share), mark, *_apart(residual)]
    between_ends = element("span", ends, class_="between")
    # Where the screen is narrow, rows are lists of cells, each with the name of its column.
    about = {"class_": _class(shade(residual)), "data_column": row.labels[1]}
    return element("td", *content, " ", between_ends, **about)


def _apart(residual: float) -> list[object]:
    """Return a residual for those who look and for those who listen; nothing if it is small."""
    text = residual_text(residual)
    if not text:
        return []
    side = "more" if residual > 0 else "less"
    said = unseen(f" standard errors {side} than under independence")
    return [" ", element("span", text, said, class_="apart")]


def _class(strength: int) -> str:
    if strength == 0:
        return "shade zero"
    return f"shade {'more' if strength > 0 else 'less'}-{abs(strength)}"


def legend() -> Html:
    """Say which colours stand for which residuals."""
    strengths = range(-len(LIMITS), len(LIMITS) + 1)
    chips = (element("li", shade_words(s), class_=_class(s)) for s in strengths)
    return element(
        "div",
        element("p", LEGEND),
        element("ul", *chips, class_="chips"),
        class_="legend",
    )
