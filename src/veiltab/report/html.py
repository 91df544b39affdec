"""Small parts of a page: everything that comes in as text goes out escaped."""

from collections.abc import Iterable, Sequence
from html import escape


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def html(text: object) -> str:
    """Return text as HTML; what is HTML already stays as it is."""
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
    """Return a table whose first column names its rows, and whose last ones are numbers.

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
    # In a span, so that a style can keep it in view while the table is moved.
    named = element("caption", element("span", caption))
    whole = element("table", named, element("thead", head), element("tbody", *body))
    # Whoever uses the keyboard must be able to move a table that is wider than the screen.
    return element("div", whole, class_="scroll", role="region", aria_label=caption, tabindex="0")


def _cells(
    name: str, contents: Sequence[object], first_number: int, **attributes: str
) -> Iterable[Html]:
    for position, content in enumerate(contents):
        number = {"class_": "number"} if position >= first_number else {}
        yield element(name, content, **attributes, **number)
