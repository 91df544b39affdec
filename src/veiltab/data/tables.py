"""Tables wherever they are: files, databases, data frames; read a batch at a time."""

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Protocol, runtime_checkable

import polars as pl

from veiltab.data.csv_file import CsvTable
from veiltab.data.databases import OtherTable, PostgresTable, SqliteTable
from veiltab.data.encoding import Encoder
from veiltab.data.frames import FrameTable, ParquetTable, as_frame
from veiltab.data.ids import id_messages, row_messages
from veiltab.data.recode import Rule
from veiltab.errors import LinkageError, TableError
from veiltab.protocol.curator.table import Intake
from veiltab.wire.contract import Linkage

FORMS = ".csv, .csv.gz or .parquet, postgresql://…, sqlite:///… or another database's address"


@runtime_checkable
class Table(Protocol):
    """A table that may be too long for memory."""

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """The columns' names and types in order; in SQLite, types are unknown."""

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """Yield these columns from the first row to the last, at most ``rows`` at a time."""

    def row_count(self) -> int | None:
        """Return how many rows there are, if that is known without reading all of them."""


def open_table(source: object, query: str | None = None) -> Table:
    """Open a table: a file, a database with a query or the name of a table, or a data frame.

    ``source`` is a path, an address such as ``postgresql://…``, a polars frame, a pandas frame, or
    a table that is open already.  An empty field of a CSV file is a missing value; all others are
    texts, exactly as written.
    """
    if isinstance(source, str) and "://" in source:
        return _open_database(source, query)
    if query is not None:
        raise TableError(
            "only a database takes a query", hint="leave the query out, or name a database"
        )
    if isinstance(source, str | PathLike):
        return _open_file(Path(source))
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


def _open_file(path: Path) -> Table:
    name = path.name.lower()
    if not name.endswith((".csv", ".csv.gz", ".parquet")):
        raise TableError(f"the form of {path.name!r} is not known", hint=f"use {FORMS}")
    if path.is_dir():
        raise TableError(f"{str(path)!r} is a folder", hint="name one file")
    if not path.exists():
        raise TableError(f"there is no file {str(path)!r}", hint="check the path")
    return ParquetTable(path) if name.endswith(".parquet") else CsvTable(path)


def _needed(query: str | None) -> str:
    if query is None or not query.strip(" \t\r\n;"):
        raise TableError(
            "a database has many tables", hint="give the name of a table, or an SQL query"
        )
    return query


BATCH_ROWS = 1 << 18
"""Rows that are read at a time, unless somebody asks for others."""


def feed(
    intake: Intake,
    table: Table,
    linkage: Linkage,
    ids: Sequence[str] = (),
    *,
    rules: Mapping[str, Rule] | None = None,
    columns: Mapping[str, str] | None = None,
    batch_rows: int = BATCH_ROWS,
) -> None:
    """Take in a whole table, and close the intake.

    ``ids`` are the columns that tell respondents apart, as many as the agreement says; ``rules``
    and ``columns`` are those of :class:`~veiltab.data.encoding.Encoder`.  If values have no
    category the table is read to its end, so that one error shows all of them.
    """
    if len(ids) != (linkage.columns or 0):
        raise LinkageError(
            f"the contract's ids have {linkage.columns or 0} columns, and you named {len(ids)}",
            hint="name one column for each part of an id; none where rows match by their order",
        )
    encoder = Encoder(intake.schema, rules, columns)
    first = 1
    for frame in table.batches([*ids, *encoder.columns], batch_rows):
        if linkage.by == "rows":
            messages = row_messages(frame.height, first_row=first)
        else:
            messages = id_messages(frame, ids, linkage.normalisation, first_row=first)
        codes = encoder.encode(frame)
        if codes is not None:
            intake.add(messages, codes)
        first += frame.height
    encoder.finish()
    intake.close()
