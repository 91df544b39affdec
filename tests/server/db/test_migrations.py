"""The schema's history leads to the tables in the code, from any start, once."""

import multiprocessing
import sqlite3
import stat
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from tests.server.db.study_records import STUDY, add_study, study_record
from veiltab.errors import StateError, VeiltabError
from veiltab.server.db import database, migrating
from veiltab.server.db.database import Database
from veiltab.server.db.tables import METADATA, SCHEMA


def test_migrations_lead_to_the_tables_in_the_code(database: Database) -> None:
    """Nobody changes one and forgets the other."""
    with database.reading() as records:
        context = MigrationContext.configure(records._connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []


def test_constraints_and_their_names_are_alike(database: Database) -> None:
    """The comparison above leaves out primary keys and checks."""
    with database.reading() as records:
        inspector = inspect(records._connection)
        for table in METADATA.sorted_tables:
            key = inspector.get_pk_constraint(table.name)
            assert key["constrained_columns"] == [column.name for column in table.primary_key]
            assert key["name"] == table.primary_key.name
            foreign = {constraint["name"] for constraint in inspector.get_foreign_keys(table.name)}
            assert foreign == {constraint.name for constraint in table.foreign_key_constraints}
        checks = {check["name"] for check in inspector.get_check_constraints("members")}
        assert checks == {"ck_members_place", "ck_members_role"}


def test_there_is_one_newest_schema() -> None:
    """Two branches of history could not be followed both."""
    assert ScriptDirectory(str(migrating.FOLDER)).get_heads() == [SCHEMA]


def test_migrating_again_keeps_the_data(database: Database) -> None:
    """A server migrates every time it starts."""
    add_study(database)
    database.migrate()
    with database.reading() as records:
        assert records.study(STUDY) == study_record()


@pytest.mark.slow
def test_servers_may_start_at_the_same_time(address: str) -> None:
    """One migrates, the others wait and find it done.

    SQLite gives up at once if two change a new file's journal, but only by chance: so several
    times, and below with a file that is surely in use.
    """
    again = range(5) if address.startswith("sqlite") else ()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(4, mp_context=spawn) as processes:
        for place in (address, *(f"{address}.{number}" for number in again)):
            assert list(processes.map(migrate_once, [place] * 4)) == ["done"] * 4


class InUse:
    """A connection of SQLite to a file whose journal others change for a while."""

    def __init__(self, code: int, times: int) -> None:
        """Refuse so many statements with this error."""
        self.left, self.code = times, code

    def close(self) -> None:
        """End a statement."""

    def execute(self, statement: str) -> "InUse":
        """Refuse as SQLite does, or do nothing."""
        assert statement == "PRAGMA journal_mode = WAL"
        if not self.left:
            return self
        self.left -= 1
        error = sqlite3.OperationalError("refused")
        error.sqlite_errorcode = self.code
        raise error


@pytest.mark.parametrize("code", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_RECOVERY])
def test_a_new_file_in_use_is_waited_for(code: int) -> None:
    """However often SQLite gives up at once, and not for ever."""
    connection = InUse(code, times=3)
    database._write_ahead(connection, timeout=60.0)  # type: ignore[arg-type]
    assert connection.left == 0
    with pytest.raises(sqlite3.OperationalError):
        database._write_ahead(InUse(code, times=10**9), timeout=0.02)  # type: ignore[arg-type]


def test_another_failure_is_not_waited_for() -> None:
    """A file that cannot be written will not get better."""
    connection = InUse(sqlite3.SQLITE_READONLY, times=5)
    with pytest.raises(sqlite3.OperationalError):
        database._write_ahead(connection, timeout=60.0)  # type: ignore[arg-type]
    assert connection.left == 4


def test_a_newer_database_is_refused(database: Database) -> None:
    """By a message that says so, and untouched."""
    add_study(database)
    with database.transaction() as records:
        records._connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StateError, match=r"newer veiltab \(schema 9999\)") as caught:
        database.migrate()
    assert "install" in caught.value.hint
    with database.reading() as records:
        assert records.study(STUDY) == study_record()


def test_a_migration_that_fails_leaves_nothing(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither tables nor a version, so that it can be tried again."""
    upgrade = command.upgrade

    def upgrade_and_fail(config: Config, revision: str) -> None:
        upgrade(config, revision)
        raise RuntimeError

    with Database(address) as database:
        with monkeypatch.context() as patch:
            patch.setattr(command, "upgrade", upgrade_and_fail)
            with pytest.raises(RuntimeError):
                database.migrate()
        if address.startswith("sqlite"):
            assert not Path(address.removeprefix("sqlite:///")).exists()
        else:
            with database.reading() as records:
                assert inspect(records._connection).get_table_names() == []
        database.migrate()
        database.ping()


def test_a_path_with_a_percent_sign_is_no_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package may be installed anywhere."""
    elsewhere = tmp_path / "100%(here)s"
    elsewhere.symlink_to(migrating.FOLDER)
    monkeypatch.setattr(migrating, "FOLDER", elsewhere)
    with Database(f"sqlite:///{tmp_path}/veiltab.db") as migrated:
        migrated.migrate()
        migrated.ping()


def test_the_files_of_sqlite_are_private(tmp_path: Path) -> None:
    """The database, its log and its index: they hold what only the server should see."""
    with Database(f"sqlite:///{tmp_path}/veiltab.db") as database:
        database.migrate()
        add_study(database)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 3
    assert set(modes.values()) == {0o600}


def migrate_once(address: str) -> str:
    """Migrate as a server of its own does, and say how it went."""
    try:
        with Database(address) as database:
            database.migrate()
            database.ping()
    except VeiltabError as error:
        return error.message  # an error cannot be sent to another process
    return "done"
