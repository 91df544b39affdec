"""What all kinds of tables have in common."""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

import polars as pl

from veiltab.data.table_format import (
    SEPARATORS,
    TableFormat,
    encoding_words,
    option,
    separator_option,
    separator_words,
)
from veiltab.errors import ParameterError, TableError
from veiltab.remedies import Remedy

Early = Sequence[tuple[int, Sequence[str | None]]]
"""The first rows of a file, each with the number of its line or, in a workbook, of its row."""

_SLIP = 0.8
"""How alike two names are, from 0 to 1, if one is probably the other with a slip of the keys."""


def wanted_columns(
    wanted: Sequence[str],
    there: Iterable[str],
    rows: int,
    how: TableFormat | None = None,
    early: Early = (),
) -> list[str]:
    """Return the wanted columns, each once, if the table has them all.

    ``how`` is how a file was read, which may be the reason why it has not: then the names may stand
    in one of its ``early`` rows.
    """
    if rows < 1:
        raise ParameterError(f"a batch cannot have {rows} rows", hint="use 1 or more")
    columns = list(there)
    absent = [name for name in dict.fromkeys(wanted) if name not in columns]
    if absent:
        raise _no_columns(absent, columns, how, early)
    if not wanted:
        raise TableError("no column of the table is asked for", hint="name at least one column")
    return list(dict.fromkeys(wanted))


def check_names(names: Sequence[str], more: str = "") -> None:
    """Refuse columns that could not be told apart; ``more`` is what else the hint says."""
    seen: set[str] = set()
    for place, name in enumerate(names, start=1):
        if not name:
            raise TableError(
                f"column {place} of the table has no name", hint=f"give every column a name{more}"
            )
        if name in seen:
            raise TableError(
                f"the table has two columns {name!r}",
                hint=f"give every column a name of its own{more}",
            )
        seen.add(name)


def _no_columns(
    absent: list[str], columns: list[str], how: TableFormat | None, early: Early
) -> TableError:
    """Say which columns there are, and why others may be missing."""
    message = f"the table has no {columns_named(absent)}"
    there = f"its columns are {', '.join(map(repr, columns)) or 'none'}"
    if how is None or (how.encoding is None and how.sheet is None):
        return TableError(message, hint=there + _alike(absent, columns))
    there = f"{there}; the file was read as {how}"
    lacks = f"read as it was, the table lacks {', '.join(map(repr, absent))}"
    below = _names_below(absent, early)
    if below is not None:
        line, names = below
        of = "row" if how.sheet is not None else "line"
        remedies = [option("skip_lines", line - 1)] if line > 1 else []
        remedies += [Remedy.HEADER.value] if how.header_line is None else []
        return TableError(
            f"the names of the columns are probably in {of} {line:,}, which has"
            f" {', '.join(map(repr, names))}: {lacks}",
            hint=f"{', and '.join(remedies)}; {there}",
        )
    separator = None if how.sheet is not None else _other_separator(absent, columns, how.separator)
    if separator is not None:
        return TableError(
            f"the fields are probably separated by {separator_words(separator)}, not by"
            f" {separator_words(how.separator or ',')}: {lacks}",
            hint=f"{option('separator', separator_option(separator))}; {there}",
        )
    letters = {_ascii(name) for name in columns if not name.isascii()}
    if how.encoding is not None and any(
        _ascii(name) in letters for name in absent if not name.isascii()
    ):
        return TableError(
            f"the file is probably not in {encoding_words(how.encoding)}: {lacks}, and one of its"
            " columns differs in nothing but letters that are not ASCII",
            hint=f"name its encoding: {option('encoding', 'utf-8')}; {there}",
        )
    return TableError(message, hint=there + _alike(absent, columns))


def _names_below(absent: list[str], early: Early) -> tuple[int, list[str]] | None:
    """Return where absent names stand below what was taken for the header, and which of them.

    Names stand in one row, are all different, and none is missing; values come again.
    """
    found = []
    for line, row in early:
        fields = [field.strip() for field in row if field is not None]
        names = [name for name in absent if name.strip() in fields]
        if names:
            found.append((line, names, len(set(fields)) == len(row)))
    if len(found) != 1 or not found[0][2]:
        return None
    line, names, _ = found[0]
    return line, names


def _other_separator(absent: list[str], columns: list[str], used: str | None) -> str | None:
    """Return what would make the absent names columns of their own."""
    others = [" ", ":"] if len(columns) == 1 else []
    for mark in (*SEPARATORS, *others):
        parts = {
            part.strip(" \"'") for name in columns if mark in name for part in name.split(mark)
        }
        if mark != used and any(name.strip() in parts for name in absent):
            return mark
    return None


def columns_named(names: Sequence[str]) -> str:
    """Write the names of columns behind the word for one or for several."""
    return f"column{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


def _alike(absent: list[str], columns: list[str]) -> str:
    """Name columns that differ from the absent ones by case, spaces or a slip of the keys.

    If there are none, say how a column of any other name is found.
    """
    forms = {_form(name): name for name in columns}
    close = [get_close_matches(_form(name), forms, n=1, cutoff=_SLIP) for name in absent]
    meant = [forms[form] for matches in close for form in matches]
    if meant:
        return f"; did you mean {', '.join(map(repr, meant))}?"
    return f"; for an attribute, {Remedy.DRAFT_COLUMN}"


def _form(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold().strip()


def _ascii(name: str) -> str:
    return "".join(letter for letter in unicodedata.normalize("NFC", name) if letter.isascii())


def cut(frame: pl.DataFrame, rows: int) -> Iterator[pl.DataFrame]:
    """Yield a frame in parts of at most so many rows; of no rows, nothing."""
    for start in range(0, frame.height, rows):
        yield frame.slice(start, rows)
