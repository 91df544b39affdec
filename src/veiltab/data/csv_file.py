"""CSV and its relatives: read block by block, whatever their length, and every row checked."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from veiltab.data.batches import cut, wanted_columns
from veiltab.data.looking import look_at
from veiltab.data.table_format import FormatOptions, TableFormat, option, separator_words
from veiltab.data.text_stream import TextFile, marked
from veiltab.errors import TableError

HEAD_BYTES = 1 << 20
"""Bytes that are looked at, to find out how a file is written."""

BLOCK_BYTES = 1 << 22
"""Bytes that are read at a time; polars' own reader holds about a hundred times as many."""

MAX_RECORD_BYTES = 1 << 24
"""The longest row; one that seems to be longer has a quote that is never closed."""


class CsvTable:
    """A text file of records: separator, encoding and header as they are found, or as given."""

    def __init__(self, path: Path, options: FormatOptions | None = None) -> None:
        """Look at the beginning of the file."""
        options = options or FormatOptions()
        self._file = TextFile(path, options.encoding, HEAD_BYTES)
        self._layout = look_at(self._file.head, options, whole=self._file.head_is_all)
        self._columns = dict.fromkeys(self._layout.names, pl.String())
        marks = self._layout.marks
        note = () if self._file.note is None else (self._file.note,)
        self.format = TableFormat(
            kind="TSV" if marks.separator == b"\t" else "CSV",
            compression=self._file.compression,
            separator=marks.separator.decode(),
            encoding=self._file.encoding,
            quote=marks.quote.decode() or None,
            one_column=len(self._columns) == 1,
            header_line=self._layout.header_line,
            marks=self._layout.numbers,
            notes=(*note, *self._layout.notes),
        )

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """The columns' names; they are all texts."""
        return self._columns

    def row_count(self) -> None:
        """Return ``None``: counting the rows takes as long as reading them."""

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """Yield these columns; an empty field is missing, also in quotes."""
        early = self._layout.early
        wanted = wanted_columns(columns, self._columns, rows, self.format, early)
        first, line = 1, self._layout.first_line
        for block in self._blocks():
            count = self._check_fields(block, first, line)
            frame = self._parse(block, wanted, first, count)
            yield from cut(frame, rows)
            first += count
            line += block.count(b"\n")

    def _blocks(self) -> Iterator[bytes]:
        """Yield the file without its header, cut between rows, each with its end of line.

        Empty lines at the end of the file are no rows; where they stand between rows, the next
        block begins with them, and is refused.
        """
        blank = b"" if len(self._columns) == 1 else b"\r\n"  # of one column, they are missing
        marks, above, rest = self._layout.marks, self._layout.start, b""
        for block in self._file.blocks(BLOCK_BYTES):
            rest += block[above:]
            above = max(above - len(block), 0)
            stop = marks.last_end(rest)
            stop = _next_end(rest, len(rest[:stop].rstrip(blank))) if blank else stop
            if stop:
                yield rest[:stop]
                rest = rest[stop:]
            if len(rest) > MAX_RECORD_BYTES:
                raise self._never_closed() if marks.is_open(rest) else self._too_long()
        if marks.is_open(rest):
            raise self._never_closed()
        if rest.rstrip(blank):
            yield rest.rstrip(blank) + b"\n" if blank else rest.removesuffix(b"\n") + b"\n"

    def _check_fields(self, block: bytes, first: int, line: int) -> int:
        """Return how many rows a block has; refuse one with too many or too few fields."""
        marks, expected = self._layout.marks, len(self._columns)
        ends, widths = marks.records(block)
        bad = (widths != expected).nonzero()[0]
        stray = marks.stray_quote(block)
        if stray is not None and not (bad.size and ends[bad[0]] < stray):
            row = int(ends.searchsorted(stray))
            place = line + block.count(b"\n", 0, stray)
            raise TableError(
                f"row {first + row:,} (line {place:,}) has a quote in the middle of a field",
                hint="a field with a quote in it stands in quotes, and the quote in it is doubled;"
                f" if quotes mean nothing in this file: {option('quote', 'none')}; it was read as"
                f" {self.format}",
            )
        if bad.size:
            row = int(bad[0])
            place = line + block.count(b"\n", 0, int(ends[row - 1]) + 1 if row else 0)
            number = int(widths[row])
            than = "the header" if self.format.header_line else "the first row"
            raise TableError(
                f"row {first + row:,} (line {place:,}) has {number:,} field{'s' * (number != 1)},"
                f" and {than} has {expected:,}",
                hint=f"fix the table; it was read as {self.format}. Fields are separated by"
                f" {separator_words(self.format.separator or ',')}, and one that has such a mark or"
                " a line break in it stands in quotes (row 1 is the first data row)",
            )
        return int(ends.size)

    def _parse(self, block: bytes, wanted: list[str], first: int, count: int) -> pl.DataFrame:
        marks = self._layout.marks
        scan = pl.scan_csv(
            marked(block),
            has_header=False,
            schema=self._columns,
            null_values="",
            separator=marks.separator.decode(),
            quote_char=marks.quote.decode() or None,
        )
        try:
            frame = scan.select(wanted).collect()
        except pl.exceptions.PolarsError:
            frame = None
        if frame is None or frame.height != count:
            raise TableError(
                f"the rows from {first:,} on cannot be read", hint="save the file again"
            )
        return frame

    def _too_long(self) -> TableError:
        return TableError(
            f"a row of the file has more than {MAX_RECORD_BYTES:,} bytes, or as many empty lines"
            " stand between two rows",
            hint="check that this is the whole table, and that its lines end",
        )

    def _never_closed(self) -> TableError:
        return TableError(
            "a quote in the file is never closed",
            hint='fix the table; within quotes, a quote is written twice: "". If quotes mean'
            f" nothing in this file: {option('quote', 'none')}",
        )


def _next_end(data: bytes, start: int) -> int:
    """Return the end of the line whose last character is before ``start``; 0 if there is none."""
    return data.find(b"\n", start) + 1 if start else 0
