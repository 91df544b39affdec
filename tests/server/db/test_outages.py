"""Databases that do not answer, and that come back."""

import sqlite3
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.server.db.study_records import STUDY, add_study, study_record
from tests.support.storage import LocalPostgreSQL
from veiltab.errors import UnavailableError
from veiltab.server.db.database import Database
from veiltab.server.db.records import Records

PASSWORD = "hunter2secret"  # noqa: S105 - a test's own


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the path of an SQLite database with its tables and one study."""
    path = tmp_path / "veiltab.db"
    with Database(f"sqlite:///{path}") as database:
        database.migrate()
        add_study(database)
    return path


@pytest.fixture
def impatient(file: Path) -> Iterator[Database]:
    """Open that database with little patience."""
    with Database(f"sqlite:///{file}", timeout=0.1) as database:
        yield database


def assert_down(database: Database) -> None:
    """Fail unless every use of a database says that it does not answer."""
    with pytest.raises(UnavailableError) as caught:
        database.ping()
    assert "operator" in caught.value.hint
    with pytest.raises(UnavailableError), database.reading() as records:
        records.study(STUDY)
    with pytest.raises(UnavailableError):
        add_study(database, b"new" + bytes(29))


def assert_up(database: Database) -> None:
    """Fail unless a database answers and has kept its study."""
    database.ping()
    with database.transaction() as records:
        assert records.study(STUDY) == study_record()
        assert records.study(b"new" + bytes(29)) is None


def abort(database: Database, meanwhile: Callable[[Records], None]) -> None:
    """Abort the study in a transaction during which something else happens."""
    with database.transaction() as records:
        records.change_study(STUDY, state="aborted")
        meanwhile(records)


def stop_and_read(postgresql: LocalPostgreSQL, records: Records) -> None:
    """Stop the server under a transaction that goes on."""
    postgresql.stop()
    records.study(STUDY)


def break_connection(database: Database, records: Records) -> None:
    """End the connection of a transaction from another one."""
    pid = records._connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    with database.transaction() as others:
        others._connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})


def test_postgresql_goes_away_and_comes_back(postgresql: LocalPostgreSQL) -> None:
    """Also in the middle of a transaction; the connections from before are not used again."""
    with postgresql.new_database() as url, Database(url) as database:
        database.migrate()
        add_study(database)
        try:
            with pytest.raises(UnavailableError):
                abort(database, lambda records: stop_and_read(postgresql, records))
            assert_down(database)
        finally:
            postgresql.start()
        assert_up(database)


def test_a_restart_between_two_requests_is_not_noticed(postgresql: LocalPostgreSQL) -> None:
    """Connections that broke while nobody used them are replaced before they are used."""
    with postgresql.new_database() as url, Database(url) as database:
        database.migrate()
        add_study(database)
        postgresql.stop()
        postgresql.start()
        assert_up(database)


def test_a_lost_connection_at_the_commit_is_reported(postgresql: LocalPostgreSQL) -> None:
    """Nobody is told that something is kept which is not."""
    with postgresql.new_database() as url, Database(url) as database:
        database.migrate()
        add_study(database)
        with pytest.raises(UnavailableError):
            abort(database, lambda records: break_connection(database, records))
        assert_up(database)


def test_postgresql_does_not_make_a_request_wait_for_ever(postgresql: LocalPostgreSQL) -> None:
    """A statement, or a lock on a study, that takes too long is given up."""
    with postgresql.new_database() as url, Database(url, timeout=0.2) as database:
        database.migrate()
        add_study(database)
        with pytest.raises(UnavailableError), database.reading() as records:
            records._connection.execute(text("SELECT pg_sleep(30)"))
        with database.transaction() as records:
            records.study(STUDY)
            with pytest.raises(UnavailableError), database.transaction() as others:
                others.study(STUDY)
        assert_up(database)


def test_a_server_that_cannot_be_reached_is_unavailable(tmp_path: Path) -> None:
    """The password is not in the error, nor in what stands behind it."""
    with Database(f"postgresql://user:{PASSWORD}@/name?host={tmp_path}") as database:
        with pytest.raises(UnavailableError) as caught:
            database.migrate()
        assert_down(database)
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))


def test_a_locked_sqlite_is_unavailable_until_it_is_free(file: Path, impatient: Database) -> None:
    """Another process that holds the lock is waited for a little; reading goes on meanwhile."""
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    with pytest.raises(UnavailableError, match="locked"):
        add_study(impatient, b"new" + bytes(29))
    assert 0.1 <= time.monotonic() - started < 5
    with impatient.reading() as records:
        assert records.study(STUDY) == study_record()
    other.execute("ROLLBACK")
    other.close()
    assert_up(impatient)


def test_a_writer_in_the_same_process_is_waited_for_a_little(impatient: Database) -> None:
    """Threads queue, but not for ever."""
    with impatient.transaction() as records:
        with pytest.raises(UnavailableError, match="wait to write"):
            add_study(impatient, b"new" + bytes(29))
        assert records.study(STUDY) == study_record()
    assert_up(impatient)


def test_too_many_readers_are_unavailable(impatient: Database) -> None:
    """The number of connections has an end; after that a request is told to come again."""

    def read(depth: int) -> None:
        with impatient.reading():
            if depth:
                read(depth - 1)

    with pytest.raises(UnavailableError, match="in use"):
        read(40)
    assert_up(impatient)


def test_an_sqlite_file_that_is_gone_is_not_made_anew(file: Path, impatient: Database) -> None:
    """An empty database in the place of the real one would forget every study."""
    away = file.with_suffix(".away")
    file.rename(away)
    assert_down(impatient)
    assert not file.exists()
    away.rename(file)
    assert_up(impatient)


def test_a_file_that_is_no_database_is_unavailable(file: Path, impatient: Database) -> None:
    """Nothing is written to it."""
    file.write_bytes(b"not a database at all" * 500)
    assert_down(impatient)
    with pytest.raises(UnavailableError):
        impatient.migrate()
    assert file.read_bytes() == b"not a database at all" * 500


def test_a_database_without_its_folder_is_unavailable(tmp_path: Path) -> None:
    """Nor is the folder made: somebody forgot to mount it, or mistyped."""
    with Database(f"sqlite:///{tmp_path}/missing/veiltab.db") as database:
        with pytest.raises(UnavailableError):
            database.migrate()
        assert_down(database)
    assert not (tmp_path / "missing").exists()


def test_a_database_without_tables_is_unavailable(address: str) -> None:
    """Until it is migrated."""
    with Database(address, timeout=5) as database:
        assert_down(database)
        database.migrate()
        database.ping()
