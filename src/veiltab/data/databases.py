"""Tables in databases: PostgreSQL by Arrow (ADBC), SQLite by Python itself, others by polars."""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import adbc_driver_manager
import polars as pl
from adbc_driver_postgresql import dbapi as postgresql  # type: ignore[import-untyped]

from veiltab.data.batches import check_names, cut, wanted_columns
from veiltab.data.table_format import TableFormat
from veiltab.errors import TableError

_TABLE_NAME = re.compile(r"[^\s\"'();]+")
_ADDRESS = re.compile(r"[^\s@]*(@[^\s@]*)?")
_REASON = re.compile(r"(?:ERROR|FATAL):\s+(.+)")
_SECRET_OPTIONS = {"password", "sslpassword"}
_SHORTEST_SECRET = 3
"""A password of one or two letters would be found in many words."""

_ENGINES: tuple[Literal["adbc", "connectorx"], ...] = ("adbc", "connectorx")

_HINT = "check the address, your rights and the query; a password is best kept in ~/.pgpass"


class PostgresTable:
    """The answer to a query, or a whole table, of a PostgreSQL database.

    Rows come through a cursor of the server, so that memory holds one batch.
    """

    format = TableFormat("PostgreSQL")

    def __init__(self, address: str, query: str) -> None:
        """Connect once, to learn the columns."""
        self._address, self._query = _checked(address), _as_query(query)
        with self._cursor() as cursor:
            frame = _fetch(cursor, f"{self._select('*')} LIMIT 0")
        check_names(frame.columns)
        self._columns = dict(frame.schema)

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """The columns' names and types."""
        return self._columns

    def row_count(self) -> None:
        """Return ``None``: the database would have to go through all rows."""

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """Yield these columns, in the order in which the database gives the rows."""
        wanted = wanted_columns(columns, self._columns, rows)
        names = ", ".join(map(_quoted, wanted))
        with self._cursor() as cursor:
            cursor.execute(f"DECLARE veiltab NO SCROLL CURSOR FOR {self._select(names)}")
            while (frame := _fetch(cursor, f"FETCH FORWARD {rows} FROM veiltab")).height:
                yield from cut(frame, rows)

    def _select(self, names: str) -> str:
        return f"SELECT {names} FROM ({self._query}\n) AS t"  # noqa: S608 - the user's own query

    @contextmanager
    def _cursor(self) -> Iterator[postgresql.Cursor]:
        """Open a transaction that cannot write."""
        try:
            with postgresql.connect(self._address) as connection, connection.cursor() as cursor:
                # FETCH answers with rows; the driver's default, COPY, takes nothing but a SELECT.
                cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
                cursor.execute("SET TRANSACTION READ ONLY")
                yield cursor
        except adbc_driver_manager.Error as error:
            raise TableError(
                f"the database does not answer: {_without_secrets(str(error), self._address)}",
                hint=_HINT,
            ) from None


class SqliteTable:
    """The answer to a query, or a whole table, of an SQLite file."""

    format = TableFormat("SQLite")

    def __init__(self, address: str, query: str) -> None:
        """Open the file once, to learn the columns; only values have types in SQLite."""
        if not address.lower().startswith("sqlite:///") or len(address) == len("sqlite:///"):
            raise TableError("the address names no file", hint="write sqlite:///path/to/file.db")
        self._path, self._query = address[len("sqlite:///") :], _as_query(query)
        with self._rows(f"SELECT * FROM ({self._query}\n) LIMIT 0") as cursor:  # noqa: S608
            names = [column[0] for column in cursor.description]
        check_names(names)
        self._columns = dict.fromkeys(names, pl.Unknown())

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """The columns' names."""
        return self._columns

    def row_count(self) -> None:
        """Return ``None``: the database would have to go through all rows."""

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """Yield these columns, in the order in which the database gives the rows."""
        wanted = wanted_columns(columns, self._columns, rows)
        names = ", ".join(map(_quoted, wanted))
        with self._rows(f"SELECT {names} FROM ({self._query}\n)") as cursor:  # noqa: S608
            while fetched := cursor.fetchmany(rows):
                values = zip(wanted, zip(*fetched, strict=True), strict=True)
                yield pl.DataFrame(dict(values), strict=False)

    @contextmanager
    def _rows(self, statement: str) -> Iterator[sqlite3.Cursor]:
        try:
            address = f"file:{quote(self._path)}?mode=ro"
            with closing(sqlite3.connect(address, uri=True)) as connection:
                yield connection.execute(statement)
        except sqlite3.Error as error:
            raise TableError(
                f"the database {self._path!r} does not answer: {error}",
                hint="check the path, your rights and the query",
            ) from None


class OtherTable:
    """The answer to a query of any other database that polars reads by its address.

    The user installs the driver: one of ADBC's, or connectorx.  Memory holds the whole answer.
    """

    format = TableFormat("database")

    def __init__(self, address: str, query: str) -> None:
        """Read the whole answer."""
        self._frame = _read_whole(_as_query(query), address)
        check_names(self._frame.columns)

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """The columns' names and types."""
        return dict(self._frame.schema)

    def row_count(self) -> int:
        """Return how many rows there are."""
        return self._frame.height

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """Yield these columns, in the order in which the database gave the rows."""
        yield from cut(self._frame.select(wanted_columns(columns, self.columns, rows)), rows)


def _read_whole(query: str, address: str) -> pl.DataFrame:
    """Ask through the first installed driver; its errors could show the whole address."""
    for engine in _ENGINES:
        try:
            return pl.read_database_uri(query, address, engine=engine)
        except ImportError:
            continue
        except Exception as error:  # noqa: BLE001 - each driver has errors of its own
            raise TableError(
                f"the database does not answer: {_without_secrets(str(error), address)}",
                hint=_HINT,
            ) from None
    scheme = address.partition("://")[0]
    raise TableError(
        f"there is no driver for {scheme}:// here",
        hint=f"install adbc-driver-{scheme} or connectorx beside veiltab, or export a file",
    )


def _as_query(query: str) -> str:
    """Turn the name of a table, with its schema's or without, into a query for all of it."""
    query = query.strip(" \t\r\n;")
    if not _TABLE_NAME.fullmatch(query):
        return query
    return f"SELECT * FROM {'.'.join(map(_quoted, query.split('.')))}"  # noqa: S608 - quoted


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _fetch(cursor: postgresql.Cursor, statement: str) -> pl.DataFrame:
    cursor.execute(statement)
    try:
        frame = pl.DataFrame(cursor.fetch_arrow())
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise TableError(
            "the answer has two columns of one name, or values of an unknown type",
            hint="write a query that names its columns, and casts odd types to text",
        ) from None
    return frame.with_columns(_plain(column) for column in frame.iter_columns())


def _plain(column: pl.Series) -> pl.Series:
    """Turn decimals, which come as texts such as ``1.50``, into texts such as ``1.5``."""
    dtype: Any = column.dtype
    if not isinstance(dtype, pl.BaseExtension):
        return column
    stored = column.ext.storage()
    if '"numeric"' not in (dtype.ext_metadata() or ""):
        return stored
    return stored.str.replace(r"(\.\d*?)0+$", "$1").str.replace(r"\.$", "")


def _checked(address: str) -> str:
    """Refuse an address that two readers could take apart differently.

    Otherwise a part of a password could be shown as a part of the host's name.
    """
    try:
        parts = urlsplit(address)
        fine = _ADDRESS.fullmatch(parts.netloc) and not parts.fragment and "@" not in parts.path
        _ = parts.port
    except ValueError:
        fine = None
    if not fine:
        raise TableError(
            "the address of the database is not well-formed",
            hint="write postgresql://user@host:port/database, with %40 for @, %2F for / and so on"
            " in a name or password",
        )
    return address


def _without_secrets(text: str, address: str) -> str:
    """Return the message of the server or the driver in one line, without any password."""
    parts = urlsplit(address)
    secrets = [parts.password or ""]
    secrets += [value for name, value in parse_qsl(parts.query) if name in _SECRET_OPTIONS]
    said = _REASON.search(text)
    line = said[1] if said else text.strip().partition("\n")[0]
    for secret in secrets:
        for form in (secret, unquote(secret)):
            if form and (form in line) and len(form) < _SHORTEST_SECRET:
                return "the reason is not shown, as it might show the password"
            line = line.replace(form, "***") if form else line
    return line
