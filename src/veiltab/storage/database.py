"""The server's database: transactions on SQLite or PostgreSQL, and errors that say what to do."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Self

from sqlalchemy import select, text

from veiltab.storage.connecting import WRITING, create_file, make_engine, read_address
from veiltab.storage.failures import database_errors, unavailable
from veiltab.storage.migration import upgrade
from veiltab.storage.records import Records
from veiltab.storage.tables import STUDIES

TIMEOUT_SECONDS = 30.0
"""How long a request waits for a connection, a lock or a statement."""


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
        self._queue = threading.Lock() if self._engine.dialect.name == "sqlite" else None
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
        create_file(self._url)
        with database_errors(), self._writer.begin() as connection:
            upgrade(connection)

    @contextmanager
    def transaction(self) -> Iterator[Records]:
        """Read and write: all of it happens at the end of the block, or after an error nothing."""
        with self._turn(), database_errors(), self._writer.begin() as connection:
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

    def scrub(self) -> None:
        """Let go of what was erased: to be called after a study's noise key and uploads were.

        SQLite's log of recent changes is emptied, the last place where an erased value is; if
        somebody reads it for too long, that is an error, and it must be done again.
        PostgreSQL drops the old versions of the rows; its own log keeps them for as long as it is
        set up to, out of a client's reach.
        """
        with database_errors():
            if self._engine.dialect.name == "postgresql":
                outside = self._engine.execution_options(isolation_level="AUTOCOMMIT")
                with outside.connect() as connection:
                    connection.execute(text("VACUUM studies, messages"))
            else:
                self._empty_log()

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Let this process's threads write to SQLite in turn.

        SQLite itself lets a writer that finds the database locked sleep and look again, so that
        under load some would wait for a hundred others.
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

    def _empty_log(self) -> None:
        """Move SQLite's log of recent changes into the file, outside of any transaction."""
        with closing(self._engine.raw_connection()) as connection:
            cursor = connection.cursor()
            try:
                # SQLite says in the answer, and not by an error, that it has to wait too long.
                (busy, *_) = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.Error as error:  # SQLAlchemy does not see those of a raw connection
                raise unavailable(str(error)) from None
            finally:
                cursor.close()
        if busy:
            raise unavailable("what was erased is still being read")
