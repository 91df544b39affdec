"""Transactions on both databases: all or nothing, one after the other, and no secrets shown."""

import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.server.db.study_records import NOISE_KEY, STUDY, add_study, study_record
from veiltab.errors import (
    InvitationError,
    ParameterError,
    StateError,
    UnavailableError,
    VeiltabError,
)
from veiltab.server.db.database import Database
from veiltab.server.db.records import MessageRecord

PARTY, NONCE = b"p" * 32, b"n" * 16
PASSWORD = "hunter2secret"  # noqa: S105 - a test's own


def at_once(count: int, work: Callable[[int], object]) -> list[object]:
    """Do the same in several threads that start together; return results and refusals."""
    start = threading.Barrier(count)

    def run(number: int) -> object:
        start.wait()
        try:
            return work(number)
        except VeiltabError as error:
            return type(error)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(run, range(count)))


def test_an_error_undoes_everything(database: Database) -> None:
    """Whatever was written before it in the same transaction."""

    def fail() -> None:
        with database.transaction() as records:
            records.add_study(study_record())
            records.append_audit(STUDY, b"entry", b"h" * 32)
            records.use_nonce(PARTY, NONCE, 1)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with database.transaction() as records:
        assert records.study(STUDY) is None
        assert records.audit(STUDY) == []
        assert records.use_nonce(PARTY, NONCE, 1)


def test_a_refusal_undoes_everything(database: Database) -> None:
    """Also one by the database itself; the next transaction works."""
    add_study(database)

    def fail() -> None:
        with database.transaction() as records:
            records.use_nonce(PARTY, NONCE, 1)
            records.add_member(STUDY, PARTY, "no role")

    with pytest.raises(StateError):
        fail()
    with database.transaction() as records:
        assert records.use_nonce(PARTY, NONCE, 1)


def test_reading_cannot_write(database: Database) -> None:
    """A mistake in the code is found at once, on both databases."""
    with (
        pytest.raises(Exception, match=r"(?i)read-?only|only be read"),
        database.reading() as records,
    ):
        records.use_nonce(PARTY, NONCE, 1)
    with database.transaction() as records:
        assert records.use_nonce(PARTY, NONCE, 1)


def test_reading_sees_one_moment(database: Database) -> None:
    """What others write meanwhile neither shows nor waits."""
    add_study(database)
    with database.reading() as records:
        assert records.study(STUDY) == study_record()
        with database.transaction() as others:
            others.change_study(STUDY, state="aborted")
        assert records.study(STUDY) == study_record()
    with database.reading() as records:
        assert records.study(STUDY) == study_record(state="aborted")


def test_of_many_uses_of_a_nonce_one_wins(database: Database) -> None:
    """Requests that arrive at once are told apart."""

    def use(_: int) -> bool:
        with database.transaction() as records:
            return records.use_nonce(PARTY, NONCE, 1)

    assert sorted(map(str, at_once(6, use))) == ["False"] * 5 + ["True"]


def test_of_many_parties_one_gets_the_invitation(database: Database) -> None:
    """The others are refused."""
    with database.transaction() as records:
        records.add_invitation(b"c" * 32, "one place", 1, 100)

    def use(number: int) -> int:
        with database.transaction() as records:
            records.use_invitation(b"c" * 32, bytes([number]) * 32, 50)
        return number

    results = at_once(6, use)
    [winner] = [result for result in results if isinstance(result, int)]
    assert results.count(InvitationError) == 5
    with database.reading() as records:
        assert records.invitations()[0].party == bytes([winner]) * 32


def test_of_many_equal_studies_one_is_added(database: Database) -> None:
    """The others are told that it is there."""

    def add(number: int) -> None:
        with database.transaction() as records:
            records.add_study(study_record(created=number))

    results = at_once(6, add)
    assert results.count(None) == 1
    assert results.count(StateError) == 5


def test_of_many_different_messages_one_takes_the_place(database: Database) -> None:
    """The others are refused, and the place has the content of the one that was not."""
    add_study(database)

    def send(number: int) -> int:
        digest = bytes([number]) * 32
        with database.transaction() as records:
            records.add_message(MessageRecord(STUDY, "upload", PARTY, b"", digest, digest, 1))
        return number

    results = at_once(6, send)
    [winner] = [result for result in results if isinstance(result, int)]
    with database.reading() as records:
        [message] = records.messages(STUDY, "upload")
    assert message.content == bytes([winner]) * 32


def test_requests_on_one_study_follow_each_other(database: Database, address: str) -> None:
    """Each reads what the one before has written: no change and no audit entry is lost.

    Half of them come by another way to the same database, as from another process.
    """
    add_study(database)
    other = Database(address)

    def count(number: int) -> None:
        for _ in range(5):
            with (database, other)[number % 2].transaction() as records:
                record = records.study(STUDY)
                assert record is not None
                records.change_study(STUDY, updated=record.updated + 1)
                records.append_audit(STUDY, b"%d" % record.updated, b"h" * 32)

    assert at_once(6, count) == [None] * 6
    other.close()
    first = study_record().updated
    with database.reading() as records:
        record = records.study(STUDY)
        assert record is not None
        assert record.updated == first + 30
        assert records.audit(STUDY) == [b"%d" % (first + number) for number in range(30)]


def test_committed_records_are_there_for_the_next_process(address: str) -> None:
    """A server that starts again finds what the last one knew."""
    with Database(address) as database:
        database.migrate()
        add_study(database)
    with Database(address) as database:
        database.migrate()
        with database.reading() as records:
            assert records.study(STUDY) == study_record()


def test_an_erased_noise_key_is_in_no_file(tmp_path: Path) -> None:
    """After it was erased and scrubbed, SQLite's files do not hold its bytes any more."""

    def found() -> bool:
        return any(NOISE_KEY in path.read_bytes() for path in tmp_path.iterdir())

    with Database(f"sqlite:///{tmp_path}/veiltab.db") as database:
        database.migrate()
        add_study(database)
        assert found()
        with database.transaction() as records:
            records.change_study(STUDY, noise_key=None)
        database.scrub()
        assert not found()
        add_study(database, b"t" * 32)  # and the connection that scrubbed still works


def test_scrubbing_says_so_if_it_cannot(tmp_path: Path) -> None:
    """Somebody who reads an old state keeps the log as it is; then it must be done again."""
    with Database(f"sqlite:///{tmp_path}/veiltab.db", timeout=0.1) as database:
        database.migrate()
        add_study(database)
        with database.reading() as records:
            assert records.study(STUDY) is not None
            with database.transaction() as writing:
                writing.change_study(STUDY, noise_key=None)
            with pytest.raises(UnavailableError, match="still being read"):
                database.scrub()
        database.scrub()
        assert not any(NOISE_KEY in path.read_bytes() for path in tmp_path.iterdir())


def test_readers_cannot_hold_up_an_abort(tmp_path: Path) -> None:
    """While SQLite waits for them it takes no writes: so it waits for a moment, and tries later."""
    with Database(f"sqlite:///{tmp_path}/veiltab.db", timeout=60.0) as database:
        database.migrate()
        add_study(database)
        started = time.monotonic()
        with database.reading() as records:
            assert records.study(STUDY) is not None
            with database.transaction() as writing:
                writing.change_study(STUDY, noise_key=None)
            database.scrub_soon()
            add_study(database, b"t" * 32)
        assert time.monotonic() - started < 30
        database.scrub_again()
        assert sum(path.read_bytes().count(NOISE_KEY) for path in tmp_path.iterdir()) == 1


@pytest.mark.parametrize("address", ["postgresql"], indirect=True)
def test_scrubbing_goes_through_all_that_is_erased(database: Database) -> None:
    """The old versions of the rows with noise keys, and of those with upload messages."""
    statement = "SELECT relname FROM pg_class WHERE reltuples >= 0 AND relname IN {}"
    wanted = "('messages', 'studies')"
    database.scrub()
    with database.reading() as records:
        done = records._connection.execute(text(statement.format(wanted))).scalars()
        assert set(done) == {"messages", "studies"}


def test_scrubbing_disturbs_nothing(database: Database) -> None:
    """On both databases, at any time."""
    add_study(database)
    database.scrub()

    def fail() -> None:
        with database.transaction() as records:
            records.change_study(STUDY, state="aborted")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with database.reading() as records:
        assert records.study(STUDY) == study_record()


def test_no_secret_is_in_an_error(database: Database) -> None:
    """Databases quote rows and parameters; nobody must find a noise key in a log."""
    add_study(database)
    statement = text("UPDATE studies SET title = NULL, noise_key = :key")
    with pytest.raises(StateError) as caught, database.transaction() as records:
        records._connection.execute(statement, {"key": NOISE_KEY})
    shown = "".join(traceback.format_exception(caught.value))
    assert NOISE_KEY.hex()[:16] not in shown
    assert repr(NOISE_KEY)[2:20] not in shown


@pytest.mark.parametrize(
    "url",
    [
        "",
        f"no address {PASSWORD}",
        f"mysql://user:{PASSWORD}@host/name",
        f"postgresql+asyncpg://user:{PASSWORD}@host/name",
        "sqlite://",
        "sqlite:///:memory:",
        f"sqlite:///veiltab.db?key={PASSWORD}",
        f"postgresql://user:{PASSWORD}@host:port/name",
    ],
)
def test_an_unusable_address_is_refused(url: str) -> None:
    """Without repeating it: it may hold a password."""
    with pytest.raises(ParameterError) as caught:
        Database(url)
    assert PASSWORD not in "".join(traceback.format_exception(caught.value))
    assert "sqlite:///" in caught.value.hint


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_passwords_are_not_shown(scheme: str) -> None:
    """Neither from the usual place in an address nor from its options."""
    database = Database(f"{scheme}://user:{PASSWORD}@host/name?password={PASSWORD}")
    assert repr(database) == "<Database postgresql>"
    assert PASSWORD not in str(database)


def test_sqlite_has_the_settings_that_safety_needs(tmp_path: Path) -> None:
    """On every connection: written ahead, fully synchronous, with foreign keys and erasure."""
    wanted = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "secure_delete": 1}
    with Database(f"sqlite:///{tmp_path}/veiltab.db", timeout=7) as database:
        database.migrate()
        with database.transaction() as records:
            for setting, value in {**wanted, "busy_timeout": 7_000}.items():
                found = records._connection.exec_driver_sql(f"PRAGMA {setting}").scalar_one()
                assert found == value, setting
