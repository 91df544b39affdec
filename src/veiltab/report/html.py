"""Elements of a page: plain tables, names and footnotes; all text is escaped."""

import re
from collections.abc import Iterable, Sequence
from html import escape

from veiltab.report.formatting import between, percent, points
from veiltab.report.view import Row

NOT_ESTIMABLE = "not estimable"

LONGEST_WORD = 24
"""Letters of a word that is never broken; a longer one has no room on a narrow screen."""

BREAK = "\0"
"""Stands for a place where a name may be broken; no name has this character."""

LONG_WORD = re.compile(rf"[^\s/\0-]{{{LONGEST_WORD + 1},}}")


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
    """Return a name that keeps its writing direction to itself, and where it may be broken.

    It may be broken after a slash, and within a word only if that is longer than any line.
    """
    breakable = LONG_WORD.sub(lambda word: _chopped(word[0]), text.replace("/", f"/{BREAK}"))
    return element("bdi", Html(html(breakable).replace(BREAK, "<wbr>")))


def _chopped(word: str) -> str:
    starts = range(0, len(word), LONGEST_WORD)
    return BREAK.join(word[start : start + LONGEST_WORD] for start in starts)


def unseen(text: str) -> Html:
    """Return words for those who listen to the page instead of looking at it."""
    return element("span", text, class_="unseen")


def _cells(
    name: str, contents: Sequence[object], first_number: int, **attributes: str
) -> Iterable[Html]:
    for position, content in enumerate(contents):
        number = {"class_": "number"} if position >= first_number else {}
        yield element(name, content, **attributes, **number)


class Notes:
    """The footnotes of a table; rows with the same words share a mark."""

    def __init__(self) -> None:
        """Begin without any."""
        self._numbers: dict[str, int] = {}

    def mark(self, words: str | None) -> Html:
        """Return the mark of these words; nothing if there are none."""
        if not words:
            return Html("")
        number = self._numbers.setdefault(words, len(self._numbers) + 1)
        return element("sup", unseen(" note "), str(number), class_="mark")

    def listed(self) -> Html:
        """Return the words of all marks in their order."""
        if not self._numbers:
            return Html("")
        return element("ol", *(element("li", sentence(text)) for text in self._numbers),
                       class_="notes")  # fmt: skip


def share_cell(row: Row, digits: int, mark: str = "") -> Html:
    """Return the content of a cell: a share with its interval, and the mark of a footnote."""
    if not row.estimable:
        return Html(f"{element('span', NOT_ESTIMABLE, class_='none')}{mark}")
    share = "" if row.share is None else element("b", minus(percent(row.share, digits)))
    ends = element("span", minus(between(row.low, row.high, digits)), class_="between")
    return Html(f"{share}{mark} {ends}" if share else f"{ends}{mark}")


def minus(text: str) -> str:
    """Replace hyphens by minus signs."""
    return text.replace("-", "−")


def sentence(text: str) -> str:
    """Return words with a capital letter at their start and a full stop at their end."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def point_list(numbers: Sequence[float | None], digits: int) -> list[str]:
    """Return the cells of a table for numbers in percentage points."""
    return [NOT_ESTIMABLE if x is None else minus(points(x, digits)) for x in numbers]


def error_bar(privacy: float) -> Html:
    """Return a bar that shows how much of the variance is due to privacy, and to sampling."""
    parts = f"privacy noise {100 * privacy:.0f}%, sampling {100 * (1 - privacy):.0f}%"
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
