"""Workbooks, .xlsx and .ods: one sheet, its cells as texts, through polars' own readers."""

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from subprocess import DEVNULL

import polars as pl

from veiltab.data.batches import check_names, cut, wanted_columns
from veiltab.data.looking import MOST_TITLES, check_header, column_names, numbered_columns
from veiltab.data.numbers import POINTS
from veiltab.data.table_format import FormatOptions, TableFormat, option
from veiltab.data.workbook_reader import BEGUN, MOST_MEMORY, UNREADABLE
from veiltab.errors import TableError

_ARCHIVE, _OLD = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_LOST_DIGITS = r"^[0-9]{16,}$"
_ZEROS_IN_FRONT = re.compile(rb'formatCode="0{2,}"')
# Up to the next "<" only: else a file could make the search take for ever.
_ERROR_CELL = re.compile(rb'<c [^<>]*\bt="e"')
_SCAN_BYTES = 1 << 22

READER = "veiltab.data.workbook_reader"


class WorkbookTable:
    """A sheet of a workbook.  It is read whole: a sheet has about a million rows at most."""

    def __init__(self, path: Path, options: FormatOptions | None = None) -> None:
        """Read the sheet; if several have cells, the user says which."""
        options = options or FormatOptions()
        self._path = path
        sheet, cells = self._choose(options.sheet)
        skipped = options.skip_lines or 0
        if cells.height <= skipped:
            raise TableError(f"the sheet {sheet!r} is empty", hint="name another sheet")
        notes: list[str] = []
        if options.header is False:
            names, rows = numbered_columns(cells.width), cells.slice(skipped)
            check_names(names)
        else:
            fields = ["" if field is None else field for field in cells.row(skipped)]
            names, rows = column_names(fields, skipped, notes), cells.slice(skipped + 1)
        self._first_row = skipped + 1 + (options.header is not False)
        self._frame = rows.rename(dict(zip(cells.columns, names, strict=True)))
        if options.header is None:
            check_header(names, self._frame, notes, self._first_row)
        self.format = TableFormat(
            kind="XLSX" if path.suffix.lower() == ".xlsx" else "ODS",
            marks=options.marks or POINTS,
            header_line=None if options.header is False else skipped + 1,
            sheet=sheet,
            notes=(*notes, *self._lost()),
        )

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """The columns' names; they are all texts."""
        return dict(self._frame.schema)

    def row_count(self) -> int:
        """Return how many rows there are."""
        return self._frame.height

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """Yield these columns; an empty cell is missing."""
        early = [
            (self._first_row + place, row)
            for place, row in enumerate(self._frame.head(MOST_TITLES).iter_rows())
        ]
        wanted = wanted_columns(columns, self._frame.columns, rows, self.format, early)
        yield from cut(self._frame.select(wanted), rows)

    def _choose(self, sheet: str | None) -> tuple[str, pl.DataFrame]:
        """Return the sheet of this name, or the only one that has cells."""
        sheets = self._read()
        if sheet is not None:
            if sheet not in sheets:
                raise TableError(
                    f"the workbook has no sheet {sheet!r}",
                    hint=f"its sheets are {', '.join(map(repr, sheets))}",
                )
            return sheet, sheets[sheet]
        filled = {name: cells for name, cells in sheets.items() if cells.height}
        if not filled:
            raise TableError(f"the workbook {self._path.name!r} is empty", hint="check the file")
        if len(filled) > 1:
            raise TableError(
                f"the workbook has several sheets: {', '.join(map(repr, filled))}",
                hint=f"name one: {option('sheet', next(iter(filled)))}",
            )
        return next(iter(filled.items()))

    def _read(self) -> dict[str, pl.DataFrame]:
        """Read all sheets as texts, in another process."""
        self._check_kind()
        if find_spec("fastexcel") is None:
            raise TableError(
                f"what reads {self._path.suffix.lower()} files is not installed",
                hint="install it with: pip install 'veiltab[spreadsheets]'",
            )
        # -P: nothing is imported from the folder that somebody happens to be in.
        command = [sys.executable or "", "-P", "-m", READER, str(self._path.absolute())]
        # A thread for each of many cores would take most of the memory that there may be.
        environment = os.environ | {"POLARS_MAX_THREADS": "1"}
        try:
            done = subprocess.run(  # noqa: S603 - ours
                command, env=environment, stdin=DEVNULL, capture_output=True, check=False
            )
        except OSError as error:
            raise self._no_reader(str(error)) from error
        if not done.stdout:
            raise self._no_reader(done.stderr.decode("utf-8", "replace"))
        if done.returncode == UNREADABLE:
            raise self._unreadable()
        if done.returncode:
            raise TableError(
                f"{str(self._path)!r} cannot be opened: reading it needs more than"
                f" {MOST_MEMORY >> 30} GiB of memory, or it is damaged",
                hint="save the sheet with the table alone, or save it as CSV",
            )
        answer = BytesIO(done.stdout.removeprefix(BEGUN))
        sheets = json.loads(answer.readline())
        return {name: pl.read_ipc_stream(answer.read(length)) for name, length in sheets}

    def _check_kind(self) -> None:
        try:
            with self._path.open("rb") as file:
                head = file.read(_SCAN_BYTES)
        except OSError as error:
            raise TableError(
                f"{str(self._path)!r} cannot be read: {error.strerror}", hint="check your rights"
            ) from error
        if head.startswith(_OLD):
            if _ENCRYPTED in head:
                raise self._protected()
            raise TableError(
                f"{self._path.name!r} is a workbook of an old kind, .xls", hint="save it as .xlsx"
            )
        if not head.startswith(_ARCHIVE):
            kind = "empty" if not head else "not a workbook"
            raise TableError(
                f"{self._path.name!r} is {kind}",
                hint="give the file the ending of what it is, such as .csv",
            )
        if self._member("META-INF/manifest.xml", re.compile(rb"encryption-data")):
            raise self._protected()

    def _protected(self) -> TableError:
        return TableError(
            f"{self._path.name!r} is protected by a password", hint="save it without one"
        )

    def _no_reader(self, said: str) -> TableError:
        why = (said.strip().splitlines() or ["it said nothing"])[-1]
        return TableError(
            f"{str(self._path)!r} cannot be opened: the process that reads workbooks did not start"
            f" ({why})",
            hint=f"check that {sys.executable or 'Python'} finds veiltab; or save the table as CSV",
        )

    def _unreadable(self) -> TableError:
        return TableError(
            f"{str(self._path)!r} is not a complete workbook",
            hint="save or copy it again; or save the table as CSV",
        )

    def _lost(self) -> Iterator[str]:
        """Say what a workbook does not hold, although people see it."""
        if self._member("xl/styles.xml", _ZEROS_IN_FRONT):
            yield (
                "the workbook shows some numbers with zeros in front, which its cells do not hold:"
                " they are read without (007 as 7)"
            )
        if self._member("xl/worksheets/", _ERROR_CELL):
            yield "some cells of the workbook hold errors such as #N/A; they are read as missing"
        for name in self._frame.columns:
            if self._frame[name].str.contains(_LOST_DIGITS).any():
                yield (
                    f"the column {name!r} has 16 digits or more: if its cells are numbers, the"
                    " workbook has rounded them"
                )

    def _member(self, prefix: str, pattern: re.Pattern[bytes]) -> bool:
        """Tell whether a part of the archive matches; read it a piece at a time."""
        try:
            with zipfile.ZipFile(self._path) as archive:
                for name in archive.namelist():
                    if not name.startswith(prefix):
                        continue
                    with archive.open(name) as part:
                        before = b""
                        while piece := part.read(_SCAN_BYTES):
                            if pattern.search(before + piece):
                                return True
                            before = piece[-1024:]
        except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError):
            raise self._unreadable() from None
        return False
