"""The server's database: transactions on SQLite or PostgreSQL, and errors that say what to do.

It is brought to the schema of this version when the server starts.  What a database refuses becomes
an error of veiltab, with no SQL, no values and no passwords in it.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    create_engine,
    event,
    exc,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError

from veiltab.errors import (
    OutOfSpaceError,
    ParameterError,
    StateError,
    UnavailableError,
    VeiltabError,
)
from veiltab.files.disk import disk_errors
from veiltab.server.db.records import Records
from veiltab.server.db.tables import SCHEMA, STUDIES

_ADVISORY_LOCK = int.from_bytes(b"veiltab")

TIMEOUT_SECONDS = 30.0
"""How long a request waits for a connection, a lock or a statement."""

WRITING = "veiltab_writing"
"""The execution option of connections that may write."""

SCRUB_SECONDS = 0.25
_RETRY_SECONDS = 0.01
CONNECT_SECONDS = 10
IDLE_FACTOR = 10

_POSTGRESQL = {"postgres", "postgresql", "postgresql+psycopg"}
_SQLITE = {"sqlite", "sqlite+pysqlite"}
_HINT = "give sqlite:///path/to/veiltab.db or postgresql://user@host/database"


def read_address(text: str) -> URL:
    """Read the address of a database; the error never repeats it, as it may hold a password."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # the second for a port that is no number
        raise ParameterError("the address of the database cannot be read", hint=_HINT) from None
    if url.drivername in _POSTGRESQL:
        return url.set(drivername="postgresql+psycopg")
    if url.drivername not in _SQLITE:
        raise ParameterError("the database is neither SQLite nor PostgreSQL", hint=_HINT)
    if url.database in {None, "", ":memory:"} or url.query or url.host:
        raise ParameterError(
            "the address of an SQLite database must be the path of a file, without options",
            hint=_HINT,
        )
    return url.set(drivername="sqlite")


def make_engine(url: URL, timeout: float) -> Engine:
    """Return an engine that waits at most ``timeout`` seconds for a lock or a statement."""
    if url.drivername == "sqlite":
        return _sqlite(url, timeout)
    return _postgresql(url, timeout)


def create_file(url: URL) -> bool:
    """Create the file of an SQLite database with mode 0600; ``False`` if there is one already."""
    if url.drivername != "sqlite":
        return False
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    # An existing file must not even be opened: closing it would drop this process's locks on it.
    with disk_errors("making the database"), suppress(FileExistsError):
        os.close(os.open(_path(url), flags, 0o600))
        return True
    return False


def _remove_file(url: URL) -> None:
    """Remove an SQLite database that was just created, with its log."""
    for end in ("", "-wal", "-shm"):
        Path(f"{_path(url)}{end}").unlink(missing_ok=True)


def _path(url: URL) -> Path:
    return Path(str(url.database)).absolute()


def _sqlite(url: URL, timeout: float) -> Engine:
    # mode=rw: a file that is gone is an error, and not a reason to start with an empty one.
    file = URL.create(
        "sqlite",
        database=f"file:{quote(str(_path(url)))}",
        query={"mode": "rw", "uri": "true"},
    )
    engine = create_engine(
        file, connect_args={"timeout": timeout}, pool_timeout=timeout, hide_parameters=True
    )

    def set_up(connection: Any, _record: object) -> None:  # noqa: ANN401 - any driver's
        """Let commits survive a power cut, and overwrite what is deleted."""
        connection.isolation_level = None  # transactions are begun below, not guessed by the driver
        _write_ahead(connection, timeout)
        for setting in ("synchronous = FULL", "foreign_keys = ON", "secure_delete = ON"):
            connection.execute(f"PRAGMA {setting}").close()

    event.listen(engine, "connect", set_up)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _write_ahead(connection: sqlite3.Connection, timeout: float) -> None:
    """Use a write-ahead log.

    A new database gets one by a change of its file, and if another server makes the same change
    then, SQLite gives up at once: it waits only for locks of transactions.
    """
    end = time.monotonic() + timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > end:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    """Begin a transaction; a writer takes its lock at once, because a later upgrade could fail."""
    writing = connection.get_execution_options().get(WRITING, False)
    connection.exec_driver_sql(f"PRAGMA query_only = {'OFF' if writing else 'ON'}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _postgresql(url: URL, timeout: float) -> Engine:
    settings = {
        "connect_timeout": CONNECT_SECONDS,
        # A host that vanishes says nothing; without these a request would wait for hours.
        "keepalives_idle": CONNECT_SECONDS,
        "keepalives_interval": CONNECT_SECONDS // 2,
        "keepalives_count": 3,
        "tcp_user_timeout": _milliseconds(timeout),
    }
    limits = {
        "statement_timeout": timeout,
        "lock_timeout": timeout,
        # Ends a transaction whose server hangs, so that its locks do not stay for ever.
        "idle_in_transaction_session_timeout": IDLE_FACTOR * timeout,
    }
    engine = create_engine(
        url,
        connect_args={name: value for name, value in settings.items() if name not in url.query},
        pool_pre_ping=True,
        pool_timeout=timeout,
        hide_parameters=True,
    )

    def set_up(connection: Any, _record: object) -> None:  # noqa: ANN401 - any driver's
        for name, seconds in limits.items():
            connection.execute(f"SET {name} = {_milliseconds(seconds)}")
        connection.commit()

    event.listen(engine, "connect", set_up)
    return engine


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


@contextmanager
def database_errors(make_room: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Turn a database that does not answer into :class:`UnavailableError`.

    If its disk is full, ``make_room`` is called; where it can, the same request may succeed.  The
    driver's own message is dropped: PostgreSQL quotes rows, and rows hold secrets.
    """
    try:
        yield
    except exc.TimeoutError:
        raise unavailable("every connection to it is in use") from None
    except exc.DBAPIError as error:
        if _is_full(error):
            raise _full(made_room=make_room()) from None
        problem = _translate(error)
        if problem is None:
            raise
        raise problem from None


def _is_full(error: exc.DBAPIError) -> bool:
    """Tell whether the disk of the database is full."""
    original = error.orig
    if isinstance(original, sqlite3.Error):
        return getattr(original, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return type(original).__name__ == "DiskFull"


def _full(*, made_room: bool) -> VeiltabError:
    if made_room:
        return UnavailableError(
            "the server's disk was full", hint="try again: there is a little room for that"
        )
    return OutOfSpaceError(
        "the server's disk is full", hint="tell the operator; abort studies that nobody needs"
    )


def unavailable(reason: str) -> UnavailableError:
    """Build the error for a database that cannot be used now."""
    return UnavailableError(
        f"the database does not answer: {reason}",
        hint="try again later; the operator should look at the database and its disk",
    )


@contextmanager
def _at_start(url: URL) -> Iterator[None]:
    """Tell the operator, who has just named the database, what to look at."""
    try:
        with database_errors():
            yield
    except UnavailableError as error:
        hint = "check its file: is it there, may you read and write it, is it a copy in use?"
        if url.drivername != "sqlite":
            hint = "check host, port, user, password and name in its address, and that it runs"
        raise UnavailableError(error.message, hint=hint) from None


def _translate(error: exc.DBAPIError) -> VeiltabError | None:
    if isinstance(error, exc.IntegrityError):
        return StateError(
            "the database refuses a record that contradicts what is there",
            hint="look at the study's status: each step is possible in one state, and happens once",
        )
    gone = isinstance(error, exc.OperationalError | exc.InterfaceError)
    # SQLite reports a file that is no database, or a damaged one, by the root of its errors.
    damaged = type(error) is exc.DatabaseError
    if gone or damaged or _reason(error) == "UndefinedTable" or error.connection_invalidated:
        return unavailable(_reason(error))
    return None


def _reason(error: exc.DBAPIError) -> str:
    """Return SQLite's message, or the name of PostgreSQL's condition."""
    original = error.orig
    if original is None:
        return type(error).__name__
    said = str(original).lower()
    plain = next((words for sign, words in _IN_WORDS if sign in said), None)
    if type(original).__module__ == "sqlite3":
        return plain or str(original)
    # What PostgreSQL says when it is connected may quote rows; then it has a condition's name.
    connecting = getattr(original, "sqlstate", None) is None
    return plain if connecting and plain is not None else type(original).__name__


_IN_WORDS = (
    ("unable to open database file", "its file is not there, or may not be opened"),
    ("attempt to write a readonly", "its file or its disk may only be read"),
    ("database is locked", "another program holds it locked"),
    ("file is not a database", "its file is not an SQLite database"),
    ("password", "it refuses the user or the password"),
    ("connection refused", "nothing listens at its host and port"),
    ("timeout", "its host does not answer"),
    ("translate host name", "there is no computer with the name of its host"),
    ("name or service not known", "there is no computer with the name of its host"),
    ("failed to resolve host", "there is no computer with the name of its host"),
    ("no such file or directory", "nothing listens at its socket"),
    ("role", "it knows no such user"),
    ("does not exist", "it knows no database of this name"),
)
"""What a driver's message holds, and what it means."""


def upgrade(connection: Connection) -> None:
    """Upgrade to the newest schema inside the transaction that has begun: wholly or not at all.

    If several servers start at once, one upgrades and the others wait: SQLite has one writer at a
    time, and on PostgreSQL they queue for a lock.
    """
    if connection.dialect.name == "postgresql":
        # A table of many rows may take longer to change than any request may take.
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
    if not _is_current(connection):
        from veiltab.server.db.migrating import migrate  # noqa: PLC0415 - slow to load

        migrate(connection)


def _is_current(connection: Connection) -> bool:
    """Tell whether the database has the schema of this version, as Alembic has noted there."""
    if not inspect(connection).has_table("alembic_version"):
        return False
    return list(connection.scalars(text("SELECT version_num FROM alembic_version"))) == [SCHEMA]


class Database:
    """A database at an address such as ``sqlite:///path`` or ``postgresql://user@host/name``.

    It may be used by many threads.  When the database does not answer, calls raise
    :class:`~veiltab.errors.UnavailableError`; they work again as soon as it does.
    """

    def __init__(self, url: str, *, timeout: float = TIMEOUT_SECONDS) -> None:
        """Note the address; nothing connects before the first call."""
        self._url = read_address(url)
        self._engine = make_engine(self._url, timeout)
        self._timeout = timeout
        self._unscrubbed = False
        self.make_room: Callable[[], bool] = lambda: False
        """Called when the disk is full; tells whether there is room now."""
        self._queue = threading.Lock() if self._engine.dialect.name == "sqlite" else None
        self._emptying = threading.Lock()
        self._writer = self._engine.execution_options(**{WRITING: True})
        self._reader = self._engine
        if self._engine.dialect.name == "postgresql":
            self._reader = self._engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )

    def __repr__(self) -> str:
        """Show the kind of database only: an address may hold a password in several places."""
        return f"<{type(self).__name__} {self._engine.dialect.name}>"

    def __enter__(self) -> Self:
        """Close the database at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close every connection."""
        self.close()

    def migrate(self) -> None:
        """Create the tables, or bring those of an older version up to date."""
        made = create_file(self._url)
        try:
            with _at_start(self._url), self._writer.begin() as connection:
                upgrade(connection)
        except BaseException:
            self._engine.dispose()
            if made:
                _remove_file(self._url)
            raise

    def check_current(self) -> None:
        """Refuse a database of another version: only a server that starts changes it."""
        with _at_start(self._url), self._reader.begin() as connection:
            if _is_current(connection):
                return
            from veiltab.server.db.migrating import refuse_newer  # noqa: PLC0415 - slow to load

            refuse_newer(connection)
        raise StateError(
            "the database is empty, or of an older version of veiltab",
            hint="start the server once, which brings it up to date: veiltab serve",
        )

    @contextmanager
    def transaction(self) -> Iterator[Records]:
        """Read and write: all of it happens at the end of the block, or after an error nothing."""
        with (
            self._turn(),
            database_errors(self.make_room),
            self._writer.begin() as connection,
        ):
            yield Records(connection, writing=True)

    @contextmanager
    def reading(self) -> Iterator[Records]:
        """Read only, and everything as it was at one time."""
        with database_errors(), self._reader.begin() as connection:
            yield Records(connection, writing=False)

    def ping(self) -> None:
        """Read from a table, or raise :class:`~veiltab.errors.UnavailableError`."""
        with database_errors(), self._reader.begin() as connection:
            connection.execute(select(STUDIES.c.study).limit(1))

    def scrub_soon(self) -> None:
        """Remove the last copies of erased values, now or when :meth:`scrub_again` is called.

        SQLite takes no writes while it waits for readers, so it waits for a moment only.
        """
        self._unscrubbed = True
        if self._engine.dialect.name == "sqlite":
            self.scrub_again()

    def scrub_again(self) -> None:
        """Try what :meth:`scrub_soon` could not do."""
        if self._unscrubbed:
            self._unscrubbed = False
            try:
                self.scrub(SCRUB_SECONDS)
            except UnavailableError:
                self._unscrubbed = True

    def scrub(self, seconds: float | None = None) -> None:
        """Remove the last copies of erased values, such as a study's noise key and uploads.

        SQLite's write-ahead log is emptied.  If a reader holds it for too long, that is an error,
        and the caller must try again.  PostgreSQL drops old versions of rows; its own log keeps
        them for as long as it is configured to, out of a client's reach.
        """
        with database_errors():
            if self._engine.dialect.name == "postgresql":
                outside = self._engine.execution_options(isolation_level="AUTOCOMMIT")
                with outside.connect() as connection:
                    connection.execute(text("VACUUM studies, messages"))
            else:
                self._empty_log(self._timeout if seconds is None else seconds)

    def close(self) -> None:
        """Close every connection, after a last try to remove what was erased."""
        self.scrub_again()
        self._engine.dispose()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Let this process's threads write to SQLite one after the other.

        In SQLite itself, a writer that finds the database locked sleeps and tries again, so under
        load one writer can be overtaken by a hundred others.
        """
        if self._queue is None:
            yield
            return
        if not self._queue.acquire(timeout=self._timeout):
            raise unavailable("too many requests wait to write")
        try:
            yield
        finally:
            self._queue.release()

    def _empty_log(self, seconds: float) -> None:
        """Move SQLite's write-ahead log into the file, outside of any transaction.

        SQLite does not wait for another thread that does the same, but gives up at once.
        """
        with self._emptying, closing(self._engine.raw_connection()) as connection:
            cursor = connection.cursor()
            try:
                cursor.execute(f"PRAGMA busy_timeout = {_milliseconds(seconds)}")
                # SQLite reports in its answer, not by an error, that it had to wait too long.
                (busy, *_) = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.Error as error:  # SQLAlchemy does not translate these
                raise unavailable(str(error)) from None
            finally:
                cursor.execute(f"PRAGMA busy_timeout = {_milliseconds(self._timeout)}")
                cursor.close()
        if busy:
            raise unavailable("what was erased is still being read")
