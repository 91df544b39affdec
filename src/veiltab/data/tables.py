"""Tables wherever they are: files, databases, data frames; read a batch at a time."""

import stat
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Protocol, runtime_checkable

import polars as pl

from veiltab.data.csv_file import CsvTable
from veiltab.data.databases import OtherTable, PostgresTable, SqliteTable
from veiltab.data.frames import FrameTable, ParquetFolder, ParquetTable, as_frame
from veiltab.data.table_format import FormatOptions, TableFormat
from veiltab.data.workbooks import WorkbookTable
from veiltab.errors import ParameterError, TableError

TEXTS = (".csv", ".tsv", ".tab", ".txt")
PACKED = (".gz", ".zst")
WORKBOOKS = (".xlsx", ".ods")
WORKBOOK_OPTIONS = ("header", "skip_lines", "sheet", "decimal", "thousands")
TEXT_OPTIONS = ("separator", "encoding", "decimal", "thousands", "quote", "header", "skip_lines")
FORMS = (
    ".csv, .tsv or .txt, also with .gz or .zst, .parquet or a folder of such files, .xlsx, .ods,"
    " postgresql://…, sqlite:///… or another database's address"
)


@runtime_checkable
class Table(Protocol):
    """A table that may be too long for memory."""

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """The columns' names and types in order; in SQLite, types are unknown."""

    @property
    def format(self) -> TableFormat:
        """How the table is read."""

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """Yield these columns from the first row to the last, at most ``rows`` at a time."""

    def row_count(self) -> int | None:
        """Return how many rows there are, if that is known without reading all of them."""


def open_table(
    source: object,
    query: str | None = None,
    *,
    separator: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    quote: str | None = None,
    header: bool | None = None,
    skip_lines: int | None = None,
    sheet: str | None = None,
) -> Table:
    """Open a table: a file, a database with a query or the name of a table, or a data frame.

    ``source`` is a path, an address such as ``postgresql://…``, a polars frame, a pandas frame, or
    a table that is open already.  How a file is written is found by looking at its beginning, and
    ``table.format`` says what was found; the other arguments say it instead.  An empty field is a
    missing value; all others of a text file or a workbook are texts, exactly as written.
    """
    options = FormatOptions(
        separator=separator,
        encoding=encoding,
        decimal=decimal,
        thousands=thousands,
        quote=quote,
        header=header,
        skip_lines=skip_lines,
        sheet=sheet,
    )
    if isinstance(source, str) and "://" in source:
        _check_unused(options, "a database")
        return _open_database(source, query)
    if query is not None:
        raise TableError(
            "only a database takes a query", hint="leave the query out, or name a database"
        )
    if isinstance(source, str | PathLike):
        return _open_file(Path(source), options)
    _check_unused(options, "a table in memory")
    frame = as_frame(source)
    if frame is not None:
        return FrameTable(frame)
    if isinstance(source, Table):
        return source
    raise TableError(
        f"cannot read a table from an object of type {type(source).__name__}",
        hint=f"use a data frame of polars or pandas, or the path or address of a table: {FORMS}",
    )


def _open_database(address: str, query: str | None) -> Table:
    scheme = address.partition("://")[0].lower()
    if scheme in {"postgresql", "postgres"}:
        return PostgresTable(address, _needed(query))
    if scheme == "sqlite":
        return SqliteTable(address, _needed(query))
    if scheme in {"file", "http", "https", "s3"}:
        raise TableError(f"tables are not read from {scheme}://", hint=f"use {FORMS}")
    return OtherTable(address, _needed(query))


def _open_file(path: Path, options: FormatOptions) -> Table:
    kind = _kind(path)
    if kind == stat.S_IFDIR and path.name:
        _check_unused(options, "a folder of Parquet files")
        return ParquetFolder(path)
    name = path.name.lower()
    inner = name.removesuffix(".gz").removesuffix(".zst") if name.endswith(PACKED) else name
    known = name.endswith((".parquet", *WORKBOOKS)) or inner.endswith(TEXTS)
    if not known:
        raise TableError(f"the form of {path.name!r} is not known", hint=f"use {FORMS}")
    if kind is None:
        raise TableError(f"there is no file {str(path)!r}", hint="check the path")
    if kind != stat.S_IFREG:
        raise TableError(
            f"{str(path)!r} is a device or a pipe, not a file",
            hint="save the table as a file: it is read more than once",
        )
    if name.endswith(".parquet"):
        _check_unused(options, "a Parquet file")
        return ParquetTable(path)
    if name.endswith(WORKBOOKS):
        _check_unused(options, "a workbook", allowed=WORKBOOK_OPTIONS)
        return WorkbookTable(path, options)
    _check_unused(options, "a text file", allowed=TEXT_OPTIONS)
    return CsvTable(path, options)


def _kind(path: Path) -> int | None:
    """Return whether there is a file, a folder or something else; ``None`` if there is nothing."""
    try:
        return stat.S_IFMT(path.stat().st_mode)
    except (OSError, ValueError):  # no name of a file can have 10,000 characters, or a NUL
        return None


def _check_unused(options: FormatOptions, what: str, allowed: Sequence[str] = ()) -> None:
    """Refuse to be told something that would change nothing."""
    useless = [name for name in options.given() if name not in allowed]
    if useless:
        raise ParameterError(
            f"{what} has no {useless[0].replace('_', ' ')} to name", hint="leave it out"
        )


def _needed(query: str | None) -> str:
    if query is None or not query.strip(" \t\r\n;"):
        raise TableError(
            "a database has many tables", hint="give the name of a table, or an SQL query"
        )
    return query


BATCH_ROWS = 1 << 18
"""Rows that are read at a time, unless somebody asks for others."""
