"""A look at the beginning of a text file: what separates its fields, and where the names are."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from veiltab.data.batches import Early, check_names
from veiltab.data.numbers import NumberMarks, find_marks
from veiltab.data.profile import NO_NUMBER
from veiltab.data.records import Marks
from veiltab.data.table_format import (
    SEPARATORS,
    FormatOptions,
    option,
    separator_option,
    separator_words,
)
from veiltab.data.text_stream import marked
from veiltab.errors import TableError
from veiltab.remedies import Remedy

SAMPLE_RECORDS = 1000
"""Records that are looked at; they must fit into the part of the file that is."""

MOST_TITLES = 20
"""Lines above the header that are still taken for titles."""

_FEWEST_BELOW = 2
"""With fewer rows below it, a first row is not taken for the names of the columns."""

_SAID_FIRST = re.compile(rb"\"?sep=([,;\t|:~^ ])\"?\r?\n", re.IGNORECASE)
_NUMBER = r"^\s*[+-]?[0-9][0-9.,]*\s*$"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the rows of a text file begin, what they are called, and how they are written."""

    marks: Marks
    numbers: NumberMarks
    names: tuple[str, ...]
    header_line: int | None
    first_line: int
    """The line of the first row."""
    start: int
    """Where the first row begins, in bytes of UTF-8."""
    early: Early
    notes: tuple[str, ...]


def look_at(head: bytes, options: FormatOptions, *, whole: bool) -> Layout:
    """Find out how a file is written, from its beginning; what the user says is not doubted."""
    if not head.strip():
        raise TableError("the file is empty", hint="the first line has the names of the columns")
    _check_line_ends(head)
    skipped, separator = _said(head, options)
    start = _after_lines(head, skipped)
    sample = head[start:] if not whole or head.endswith(b"\n") else head[start:] + b"\n"
    quote = b'"' if options.quote is None else options.quote.encode()
    if separator is None:
        separator = find_separator(sample, quote, skipped)
    marks = Marks(separator.encode(), quote)
    first = _first_record(sample, marks, skipped, whole=whole)
    fields, notes = marks.split(first), list[str]()
    header = first if options.header is not False else b""
    names = column_names(fields, skipped, notes) if header else numbered_columns(len(fields))
    frame = _parse(sample[len(header) : marks.last_end(sample)], marks, names)
    first_line = skipped + 1 + header.count(b"\n")
    if options.header is None:
        check_header(names, frame, notes, first_line)
    numbers = find_marks(frame, options.marks, commas_separate=separator == ",")
    return Layout(
        marks,
        numbers.marks,
        tuple(names),
        skipped + 1 if header else None,
        first_line,
        min(start + len(header), len(head)),
        early_rows(frame, first_line),
        (*notes, *numbers.notes),
    )


def early_rows(rows: pl.DataFrame, line: int) -> Early:
    """Return the first rows, from this line on: the names could stand in one of them."""
    found = []
    for row in rows.head(MOST_TITLES).iter_rows():
        found.append((line, row))
        line += 1 + sum(field.count("\n") for field in row if field is not None)
    return tuple(found)


def _said(head: bytes, options: FormatOptions) -> tuple[int, str | None]:
    """Return how many lines to skip, and the separator, as the user or the first line says."""
    if options.skip_lines is not None:
        return options.skip_lines, options.separator
    said = _SAID_FIRST.match(head)
    return (0, options.separator) if said is None else (1, options.separator or said[1].decode())


def _first_record(sample: bytes, marks: Marks, skipped: int, *, whole: bool) -> bytes:
    first = sample[: marks.first_end(sample)]
    if not whole and len(first) == len(sample):
        raise TableError(
            f"line {skipped + 1:,} does not end within the first {len(sample):,} bytes",
            hint="check the quotes in it, and whether this is a table at all",
        )
    if not first.strip():
        raise TableError(
            f"line {skipped + 1:,} is empty, where the names of the columns should be",
            hint=f"if they stand further down: {option('skip_lines', skipped + 1)}",
        )
    return first


def find_separator(sample: bytes, quote: bytes, skipped: int = 0) -> str:
    """Return what gives every record the same number of fields; refuse to guess in doubt."""
    sample = sample.rstrip(b"\r\n") + b"\n"  # empty lines at the end are no records
    widths = {mark: _widths(sample, mark, quote) for mark in SEPARATORS}
    if not any(width.size and width.max() > 1 for width in widths.values()):
        return _in_first_line(sample)
    if _commas_are_decimal(sample, widths[","]):
        del widths[","]
        if not any(width.max() > 1 for width in widths.values()):
            return ";"  # one column of numbers with decimal commas
    even = {mark: int(width[0]) for mark, width in widths.items() if _is_even(width)}
    if len(even) == 1:
        return next(iter(even))
    if len(even) > 1:
        if "," in even and _between_digits(sample):
            del even[","]
        if len(even) == 1:
            return next(iter(even))
        raise _ambiguous(even)
    _check_titles(widths, skipped)
    named = [mark for mark, width in widths.items() if width[0] > 1]
    if len(named) > 1:
        named = [mark for mark in named if np.mean(widths[mark] == widths[mark][0]) > 0.5]  # noqa: PLR2004
    if len(named) == 1:
        return named[0]  # the rows that do not fit are told one by one
    raise _no_separator(widths)


def _widths(sample: bytes, separator: str, quote: bytes) -> NDArray[np.intp]:
    return Marks(separator.encode(), quote).records(sample)[1][:SAMPLE_RECORDS]


def _is_even(widths: NDArray[np.intp]) -> bool:
    """Tell whether all records have the same number of fields, and more than one."""
    return bool(widths.size and widths[0] > 1 and (widths == widths[0]).all())


def _in_first_line(sample: bytes) -> str:
    """Return the most frequent separator of the first line: it has the last word if nothing has."""
    line = sample[: sample.find(b"\n")] if b"\n" in sample else sample
    return max(SEPARATORS, key=lambda mark: line.count(mark.encode()))


def _commas_are_decimal(sample: bytes, widths: NDArray[np.intp]) -> bool:
    """Tell whether commas stand in numbers alone, and not in the first record."""
    return bool(widths.size and widths[0] == 1 and widths.max() > 1) and _between_digits(sample)


def _between_digits(sample: bytes) -> bool:
    data = np.frombuffer(sample, dtype=np.uint8)
    commas = np.flatnonzero(data == ord(","))
    if not commas.size or commas[0] == 0 or commas[-1] == data.size - 1:
        return False
    around = np.stack([data[commas - 1], data[commas + 1]])
    return bool(((around >= ord("0")) & (around <= ord("9"))).all())


def _check_titles(widths: dict[str, NDArray[np.intp]], skipped: int) -> None:
    """Refuse lines above the header that have fewer fields than all others."""
    for mark, width in widths.items():
        changes = np.flatnonzero(np.diff(width))
        if not changes.size or changes[-1] + 1 > MOST_TITLES:
            continue
        titles = int(changes[-1]) + 1
        below = width[titles:]
        if below.size > 1 and below[0] > 1 and (width[:titles] == 1).all():
            above = "line has" if titles == 1 else f"{titles:,} lines have"
            raise TableError(
                f"the first {above} one field, and those below have {below[0]:,}, separated by"
                f" {separator_words(mark)}",
                hint="if the names of the columns stand below a title:"
                f" {option('skip_lines', skipped + titles)}",
            )


def _ambiguous(even: dict[str, int]) -> TableError:
    said = " or ".join(
        f"{separator_words(mark)} ({width:,} fields)" for mark, width in even.items()
    )
    return TableError(
        f"the fields could be separated by {said}",
        hint=f"name the separator: {option('separator', separator_option(next(iter(even))))}",
    )


def _no_separator(widths: dict[str, NDArray[np.intp]]) -> TableError:
    tried = []
    for mark, width in widths.items():
        low, high = int(width.min()), int(width.max())
        said = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        tried.append(f"{separator_words(mark)} give {said} field{'s' * (high != 1)}")
    return TableError(
        "nothing separates all lines into the same number of fields:"
        f" in the first {next(iter(widths.values())).size:,}, {', '.join(tried)}",
        hint=f"name what separates fields: {option('separator', separator_option(';'))}",
    )


def _check_line_ends(head: bytes) -> None:
    if b"\n" not in head and head.rstrip(b"\r").count(b"\r"):
        raise TableError(
            "the lines of the file end with carriage returns alone",
            hint="save it with the line endings of Windows or Unix",
        )


def _after_lines(head: bytes, lines: int) -> int:
    start = 0
    for _ in range(lines):
        start = head.find(b"\n", start) + 1
        if not start:
            raise TableError(
                f"there is nothing below the first {lines:,} lines",
                hint="skip fewer lines",
            )
    return start


def numbered_columns(count: int) -> list[str]:
    """Name columns that have no names."""
    return [f"column_{place}" for place in range(1, count + 1)]


def column_names(fields: Sequence[str], skipped: int, notes: list[str]) -> list[str]:
    """Return the names of the columns; of many, a few may have none, as at the ends of lines."""
    names = list(fields)
    unnamed = [place for place, name in enumerate(fields) if not name.strip()]
    more = f"; if the names stand further down: {option('skip_lines', skipped + 1)}"
    more += f"; if there are none: {Remedy.NO_HEADER}"
    if 0 < 2 * len(unnamed) < len(fields):
        numbered = numbered_columns(len(fields))
        for place in unnamed:
            names[place] = numbered[place]
        called = ", ".join(repr(numbered[place]) for place in unnamed)
        notes.append(f"columns without a name are called {called}")
    check_names(names, more)
    return names


def _parse(rows: bytes, marks: Marks, names: Sequence[str]) -> pl.DataFrame:
    """Return the rows as texts, or none of them if some cannot be read: others will say why."""
    schema = dict.fromkeys(names, pl.String())
    ends, widths = marks.records(rows)
    stop = ends[:SAMPLE_RECORDS][-1] + 1 if ends.size else 0
    if not stop or (widths[:SAMPLE_RECORDS] != len(names)).any():
        return pl.DataFrame(schema=schema)
    try:
        return pl.read_csv(
            marked(rows[:stop]),
            has_header=False,
            schema=schema,
            separator=marks.separator.decode(),
            quote_char=marks.quote.decode() or None,
            null_values="",
        )
    except pl.exceptions.PolarsError:
        return pl.DataFrame(schema=schema)


def check_header(names: Sequence[str], rows: pl.DataFrame, notes: list[str], line: int) -> None:
    """Refuse names that look like a row of numbers; note those that come again as values.

    Also note a first row, in this line, that looks like the names instead.
    """
    numeric = [re.match(_NUMBER, name) is not None for name in names]
    below = [_all_numbers(rows[name]) for name in names]
    alike = any(name and column for name, column in zip(numeric, below, strict=True))
    unlike = any(column and not name for name, column in zip(numeric, below, strict=True))
    if all(numeric) or (alike and not unlike):
        shown = ", ".join(map(repr, names[:5])) + (", …" if len(names) > 5 else "")  # noqa: PLR2004
        raise TableError(
            f"the names of the columns look like a row of data: {shown}",
            hint=f"if they are data: {Remedy.NO_HEADER}; if they are names: {Remedy.HEADER}",
        )
    again = [name for name in names if (rows[name] == name).any()]
    if again:
        notes.append(
            f"the name of the column {again[0]!r} is also one of its values: is there a header at"
            " all, and only one?"
        )

    if _looks_like_names(rows):
        shown = ", ".join(repr(name) for name in rows.row(0)[:2])
        notes.append(
            f"the first row looks like the names of the columns ({shown}, …), which would stand"
            f" below a title: if so, {option('skip_lines', line - 1)}"
        )


def _looks_like_names(rows: pl.DataFrame) -> bool:
    """Tell whether the first row alone has different words, one of them above numbers alone."""
    if rows.height <= _FEWEST_BELOW:
        return False
    first, below = rows.row(0), rows.slice(1)
    words = {word.strip().casefold() for word in first if word is not None}
    if len(words) < len(first) or any(re.match(_NUMBER, word) for word in words):
        return False
    above = [column for column in below if _all_numbers(column)]
    return any(rows[c.name][0].strip().casefold() not in NO_NUMBER for c in above)


def _all_numbers(column: pl.Series) -> bool:
    values = column.drop_nulls()
    return bool(len(values) and values.str.contains(_NUMBER).all())
