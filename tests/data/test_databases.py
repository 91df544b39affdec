"""Tables in databases: SQLite files, and a real PostgreSQL server."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import polars as pl
import psycopg
import pytest

from tests.support.storage import LocalPostgreSQL
from veiltab.data.databases import OtherTable
from veiltab.data.tables import Table, open_table
from veiltab.errors import TableError

PASSWORD = "hunter2-p%40ss"  # noqa: S105 - a password that no server has
SHOWN = ("hunter2", "p%40ss", "p@ss")


def read(table: Table, *columns: str, rows: int = 100) -> pl.DataFrame:
    """Read some columns whole."""
    return pl.concat(table.batches(columns or list(table.columns), rows))


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    """Return the address of an SQLite file with a table."""
    path = tmp_path / "data base?.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute('CREATE TABLE people (id TEXT, age INTEGER, "an ""odd"" one" REAL, x)')
        rows = [(f"{i:03}", i, i / 2, None if i % 3 else i) for i in range(250)]
        connection.executemany("INSERT INTO people VALUES (?, ?, ?, ?)", rows)
        connection.commit()
    return f"sqlite:///{path}"


@pytest.fixture
def server(postgresql: LocalPostgreSQL) -> Iterator[str]:
    """Return the address of a PostgreSQL database with a table."""
    with postgresql.new_database() as address:
        with psycopg.connect(address) as connection:
            connection.execute("CREATE SCHEMA clinic")
            connection.execute(
                "CREATE TABLE clinic.people AS SELECT lpad(i::text, 3, '0') AS id, i AS age,"
                " (i / 2.0)::numeric(8, 2) AS weight, i % 2 = 0 AS smoker,"
                " DATE '2020-01-01' + i AS seen, NULLIF(i % 3, 0) AS x, i * 1.5::float AS f,"
                ' 1 AS "an ""odd"" one" FROM generate_series(0, 249) AS i ORDER BY i'
            )
        yield address


def test_a_table_and_a_query_of_sqlite(sqlite: str) -> None:
    """In batches, with names of any kind; missing values are missing."""
    table = open_table(sqlite, "people")
    assert list(table.columns) == ["id", "age", 'an "odd" one', "x"]
    assert table.row_count() is None
    found = read(table, "age", "id", rows=33)
    assert found.columns == ["age", "id"]
    assert found["id"].to_list() == [f"{i:03}" for i in range(250)]
    assert found["age"].to_list() == list(range(250))
    assert [f.height for f in table.batches(["id"], 100)] == [100, 100, 50]
    odd = read(table, 'an "odd" one', "x", rows=250)
    assert odd['an "odd" one'].to_list() == [i / 2 for i in range(250)]
    assert odd["x"].null_count() == 166
    query = "SELECT id AS who FROM people WHERE age < 10 ORDER BY age DESC -- the young"
    assert read(open_table(sqlite, query))["who"].to_list() == [f"{i:03}" for i in range(9, -1, -1)]


def test_values_of_several_types_in_a_column_of_sqlite(tmp_path: Path) -> None:
    """Which SQLite allows: they become texts."""
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (v)")
        connection.executemany("INSERT INTO t VALUES (?)", [(1,), ("x",), (None,)])
        connection.commit()
    assert read(open_table(f"sqlite:///{path}", "t"))["v"].to_list() == ["1", "x", None]


@pytest.mark.parametrize(
    ("query", "reason"),
    [("nothing", "no such table"), ("SELEKT 1", "syntax error"), ("SELECT 1 AS ''", "no name")],
)
def test_wrong_queries_of_sqlite(sqlite: str, query: str, reason: str) -> None:
    """The database's own words."""
    with pytest.raises(TableError, match=reason):
        open_table(sqlite, query)


def test_files_that_are_no_sqlite(tmp_path: Path) -> None:
    """A missing file is not created; and another kind of file."""
    path = tmp_path / "t.db"
    with pytest.raises(TableError, match="unable to open"):
        open_table(f"sqlite:///{path}", "t")
    assert not path.exists()
    path.write_bytes(b"something else altogether" * 100)
    with pytest.raises(TableError, match="not a database"):
        open_table(f"sqlite:///{path}", "t")


def test_nothing_is_written_to_sqlite(sqlite: str) -> None:
    """Whatever the query is."""
    for query in ("DELETE FROM people", "people; DROP TABLE people"):
        with pytest.raises(TableError):
            open_table(sqlite, query)
    assert read(open_table(sqlite, "people")).height == 250


def test_a_table_of_postgresql(server: str) -> None:
    """With the database's types, through a cursor, in batches of any size."""
    table = open_table(server, "clinic.people")
    assert table.columns["id"] == pl.String
    assert table.columns["age"] == pl.Int32
    assert table.columns["smoker"] == pl.Boolean
    assert table.columns["seen"] == pl.Date
    assert table.row_count() is None
    for rows in (1, 99, 250, 251):
        frames = list(table.batches(["age", "id"], rows))
        assert all(frame.height <= rows for frame in frames)
        found = pl.concat(frames)
        assert found["id"].to_list() == [f"{i:03}" for i in range(250)]
    assert read(table, "x")["x"].null_count() == 84
    assert read(table, 'an "odd" one').height == 250


def test_decimals_of_postgresql(server: str) -> None:
    """As one would write them: no zeros at the end, so that 1.00 is the category 1."""
    query = "SELECT weight FROM clinic.people WHERE age IN (0, 1, 2, 20, 25)"
    found = read(open_table(server, query))["weight"]
    assert found.dtype == pl.String
    assert found.to_list() == ["0", "0.5", "1", "10", "12.5"]


def test_a_query_of_postgresql(server: str) -> None:
    """Sorted and filtered; a semicolon and a comment at its end do no harm; or no rows at all."""
    query = "SELECT id AS who FROM clinic.people WHERE age < 3 ORDER BY age DESC -- few\n;"
    assert read(open_table(server, query))["who"].to_list() == ["002", "001", "000"]
    empty = open_table(server, "SELECT * FROM clinic.people WHERE false")
    assert list(empty.batches(["id"], 10)) == []


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("nothing", "does not exist"),
        ("SELEKT 1", "syntax error"),
        ("SELECT 1 AS a, 2 AS a", "two columns of one name"),
        ("DELETE FROM clinic.people RETURNING id", "syntax error"),
        ("SELECT nextval('clinic.s')", "read-only"),
    ],
)
def test_wrong_queries_of_postgresql(server: str, query: str, reason: str) -> None:
    """The database's own words; and nothing is ever written."""
    with psycopg.connect(server) as connection:
        connection.execute("CREATE SEQUENCE clinic.s")
    with pytest.raises(TableError, match=reason):
        read(open_table(server, query))


def test_an_error_in_the_middle_of_the_rows(server: str) -> None:
    """Some rows were read already."""
    batches = open_table(server, "SELECT 1 / (100 - age) AS r FROM clinic.people").batches(["r"], 9)
    with pytest.raises(TableError, match="division by zero"):
        list(batches)


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://someone:{PASSWORD}@/nothing?host=/nowhere",
        f"postgresql://someone:{PASSWORD}@localhost:1/db",
        f"postgresql://someone@localhost:1/db?password={PASSWORD}",
        f"postgresql://someone:{PASSWORD}@localhost:99999999/db",
        f"postgresql://someone:{PASSWORD}@localhost:port/db",
        f"postgresql://someone:{PASSWORD}@localhost/db?{PASSWORD}=1",
        "postgresql://someone:hunter2@p@ss@localhost/db",
        "postgresql://someone:hunter2/p@ss@localhost/db",
        "postgresql://someone:hunter2#p@ss@localhost/db",
        "postgresql://someone:hunter2?p@ss@localhost/db",
        "postgresql://some one:hunter2 p@ss@localhost/db",
        "postgresql://[someone:hunter2@localhost/db",
        "postgres://someone:hunter2:p@ss:99@localhost:1/db",
    ],
)
def test_a_password_is_never_shown(address: str) -> None:
    """Not even part of one that was not escaped, and not by way of the chain of causes."""
    with pytest.raises(TableError) as caught:
        open_table(address, "people")
    shown = f"{caught.value.message} {caught.value.hint} {caught.value.__cause__}"
    assert not any(part in shown for part in SHOWN)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_short_password_is_not_shown_either() -> None:
    """Were it replaced, what is left of the message would tell where it stood."""
    with pytest.raises(TableError, match="reason is not shown"):
        open_table("postgresql://someone:o@localhost:1/db", "people")


def test_any_other_database_is_read_by_polars(server: str) -> None:
    """Shown with the one ADBC driver that is here: the same rows as by our own reader."""
    table = OtherTable(server, "clinic.people")
    assert table.row_count() == 250
    assert list(table.columns) == list(open_table(server, "clinic.people").columns)
    assert [f.height for f in table.batches(["id"], 100)] == [100, 100, 50]
    ours = read(open_table(server, "clinic.people"), "smoker", "id", "age")
    assert read(table, "smoker", "id", "age").equals(ours)
    with pytest.raises(TableError, match="nobody"):
        OtherTable(server, "SELECT * FROM nobody")


def test_a_database_without_a_driver_here() -> None:
    """Says what to install, and not the password."""
    address = f"mysql://me:{PASSWORD}@localhost/clinic"
    with pytest.raises(TableError, match="no driver for mysql://") as caught:
        open_table(address, "people")
    assert "adbc-driver-mysql or connectorx" in caught.value.hint
    assert not any(part in f"{caught.value}{caught.value.hint}" for part in SHOWN)
    with pytest.raises(TableError, match="many tables"):
        open_table(address)
