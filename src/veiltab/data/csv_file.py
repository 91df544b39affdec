"""CSV files (RFC 4180): read block by block, whatever their length, and every row checked."""

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from veiltab.data.batches import check_names, cut, wanted_columns
from veiltab.errors import TableError

BLOCK_BYTES = 1 << 22
"""Bytes that are read at a time; polars' own reader holds about a hundred times as many."""

MAX_RECORD_BYTES = 1 << 24
"""The longest row; one that seems to be longer has a quote that is never closed."""

_BOM = b"\xef\xbb\xbf"
_QUOTE, _COMMA, _END, _RETURN = b'",\n\r'
_ENCODING_HINT = "save the file as UTF-8"


class CsvTable:
    """A CSV file with a header, in UTF-8, with commas; compressed if its name ends with ``.gz``."""

    def __init__(self, path: Path) -> None:
        """Read the header."""
        self._path = path
        with _Reader(self._path) as file:
            head = file.read(BLOCK_BYTES).removeprefix(_BOM)
        names = _header(head[: _first_end(head)])
        check_names(names)
        _check_commas(names)
        self._columns = dict.fromkeys(names, pl.String())

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """The columns' names; they are all texts."""
        return self._columns

    def row_count(self) -> None:
        """Return ``None``: counting the rows takes as long as reading them."""

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """Yield these columns; an empty field is missing, also in quotes."""
        wanted = wanted_columns(columns, self._columns, rows)
        first = 1
        for block in self._blocks():
            count = self._check_fields(block, first)
            frame = self._parse(block, wanted, first, count)
            yield from cut(frame, rows)
            first += count

    def _blocks(self) -> Iterator[bytes]:
        """Yield the file without its header, cut between rows, each with its end of line.

        Empty lines at the end of the file are no rows; where they stand between rows, the next
        block begins with them, and is refused.
        """
        blank = b"" if len(self._columns) == 1 else b"\r\n"  # of one column, they are missing
        with _Reader(self._path) as file:
            head = file.read(BLOCK_BYTES).removeprefix(_BOM)
            rest = head[_first_end(head) :]
            while True:
                stop = _last_end(rest)
                stop = _next_end(rest, len(rest[:stop].rstrip(blank))) if blank else stop
                if stop:
                    yield rest[:stop]
                    rest = rest[stop:]
                if len(rest) > MAX_RECORD_BYTES:
                    raise _never_closed()
                block = file.read(BLOCK_BYTES)
                if not block:
                    break
                rest += block
        if rest.count(b'"') % 2:
            raise _never_closed()
        if rest.rstrip(blank):
            yield rest.rstrip(blank) + b"\n" if blank else rest.removesuffix(b"\n") + b"\n"

    def _check_fields(self, block: bytes, first: int) -> int:
        """Return how many rows a block has; refuse one with too many or too few fields."""
        data = np.frombuffer(block, dtype=np.uint8)
        places = np.flatnonzero(_outside_quotes(data))
        ends = np.flatnonzero(data[places] == _END)
        stray = _stray_quote(data)
        if stray is not None:
            row = first + int(np.searchsorted(places[ends], stray))
            raise TableError(
                f"row {row:,} has a quote in the middle of a field",
                hint="a field with a quote in it stands in quotes, and the quote in it is doubled",
            )
        widths = np.diff(ends, prepend=-1)
        bad = np.flatnonzero(widths != len(self._columns))
        if bad.size:
            row = int(bad[0])
            raise TableError(
                f"row {first + row:,} has {widths[row]:,} fields, and the header has"
                f" {len(self._columns):,}",
                hint="fix the table; fields are separated by commas, and one that has a comma or"
                " a line break in it stands in quotes (row 1 is the first data row)",
            )
        return ends.size

    def _parse(self, block: bytes, wanted: list[str], first: int, count: int) -> pl.DataFrame:
        scan = pl.scan_csv(block, has_header=False, schema=self._columns, null_values="")
        try:
            frame = scan.select(wanted).collect()
        except pl.exceptions.PolarsError:
            raise _unreadable(block, first) from None
        if frame.height != count:
            raise _unreadable(block, first)
        return frame


def _check_commas(names: Sequence[str]) -> None:
    """Refuse a file whose fields are separated by something else, as some spreadsheets do."""
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        raise TableError(
            f"the header is a single column, {names[0]!r}: its fields are not separated by commas",
            hint="save the table as CSV with commas, or as Parquet",
        )


class _Reader:
    """A file whose errors are those of tables."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            compressed = path.suffix.lower() == ".gz"
            self._file = gzip.open(path) if compressed else path.open("rb")  # noqa: SIM115
        except OSError as error:
            raise self._error(error) from error

    def __enter__(self) -> "_Reader":  # noqa: PYI034 - nobody derives from it
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """Read ``size`` bytes, or up to the end."""
        try:
            return self._file.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise self._error(error) from error

    def _error(self, error: Exception) -> TableError:
        reason = error.strerror if isinstance(error, OSError) else None
        return TableError(
            f"{str(self._path)!r} cannot be read: {reason or error}",
            hint="check that the file is whole, and that you may read it",
        )


def _header(record: bytes) -> list[str]:
    """Split the header into names."""
    try:
        text = record.decode()
    except UnicodeDecodeError:
        raise TableError("the header is not UTF-8", hint=_ENCODING_HINT) from None
    if "\0" in text:
        raise TableError("the header has zero bytes, as UTF-16 does", hint=_ENCODING_HINT)
    if not text.strip():
        raise TableError("the file is empty", hint="the first line has the names of the columns")
    try:
        (names,) = csv.reader([text.rstrip("\r\n")], strict=True)
    except (csv.Error, ValueError):
        raise TableError("the header is not well quoted", hint="fix its quotes") from None
    return names


def _first_end(data: bytes) -> int:
    """Return where the first row ends: after a line break outside quotes, or with the data."""
    stop = data.find(b"\n") + 1
    while stop and data.count(b'"', 0, stop) % 2:
        stop = data.find(b"\n", stop) + 1
    return stop or len(data)


def _last_end(data: bytes) -> int:
    """Return where the last whole row of data that begins with a row ends, or 0."""
    stop = data.rfind(b"\n") + 1
    open_quotes = data.count(b'"', 0, stop) % 2
    while stop and open_quotes:
        before = data.rfind(b"\n", 0, stop - 1) + 1
        open_quotes ^= data.count(b'"', before, stop) % 2
        stop = before
    return stop


def _next_end(data: bytes, start: int) -> int:
    """Return the end of the line whose last character is before ``start``; 0 if there is none."""
    return data.find(b"\n", start) + 1 if start else 0


def _outside_quotes(data: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Mark the commas and line breaks that separate fields and rows."""
    marks: NDArray[np.bool_] = (data == _COMMA) | (data == _END)
    quotes = data == _QUOTE
    if quotes.any():
        marks &= ~np.logical_xor.accumulate(quotes)
    return marks


def _stray_quote(data: NDArray[np.uint8]) -> int | None:
    """Return the place of a quote that neither begins nor ends a field, and is not doubled.

    Readers of CSV do not agree on what such a row says.  The data begin with a row and end with a
    line break.
    """
    quotes = np.flatnonzero(data == _QUOTE)
    opening, closing = quotes[::2], quotes[1::2]
    wrong = np.concatenate(
        [
            opening[~np.isin(data[opening - 1], (_QUOTE, _COMMA, _END))],
            closing[~np.isin(data[closing + 1], (_QUOTE, _COMMA, _END, _RETURN))],
        ]
    )
    return int(wrong.min()) if wrong.size else None


def _unreadable(block: bytes, first: int) -> TableError:
    """Say why polars cannot read rows that have the right number of fields."""
    try:
        block.decode()
    except UnicodeDecodeError as error:
        row = first + block.count(b"\n", 0, error.start)
        return TableError(f"near row {row:,} the file is not UTF-8", hint=_ENCODING_HINT)
    return TableError(f"the rows from {first:,} on cannot be read", hint="save the file again")


def _never_closed() -> TableError:
    return TableError(
        "a quote in the file is never closed",
        hint='fix the table; within quotes, a quote is written twice: ""',
    )
