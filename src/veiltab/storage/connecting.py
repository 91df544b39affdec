"""How the server connects to SQLite and to PostgreSQL, and the settings that safety needs."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from veiltab.errors import ParameterError
from veiltab.storage.disk import disk_errors

WRITING = "veiltab_writing"
"""The execution option of connections that may write."""

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


def create_file(url: URL) -> None:
    """Create the file of an SQLite database with mode 0600, unless it is there."""
    if url.drivername != "sqlite":
        return
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    # An existing file must not even be opened: closing it would drop this process's locks on it.
    with disk_errors("making the database"), suppress(FileExistsError):
        os.close(os.open(_path(url), flags, 0o600))


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
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _record: object) -> None:  # noqa: ANN401 - any driver's
    """Make what is committed survive a power cut, and what is deleted not linger in the file."""
    connection.isolation_level = None  # transactions are begun below, not guessed by the driver
    for setting in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        "secure_delete = ON",
    ):
        connection.execute(f"PRAGMA {setting}").close()


def _begin_sqlite(connection: Connection) -> None:
    """Begin: a writer takes its lock at once, as an upgrade later on could only fail."""
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
