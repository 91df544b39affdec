"""A server that everything happens to: kills, a full disk, a lost database, a slow network.

``python -m tests.support.faults DATA PORT CONTROL DATABASE`` serves like ``veiltab serve``, on a
simulated clock, with faults that the test switches on and off through a small file that both map
into memory.  An empty ``DATABASE`` stands for SQLite in the data directory.
"""

import errno
import mmap
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from veiltab.hosting import start_server
from veiltab.server.db.database import Database, unavailable
from veiltab.server.http.app import Address, listening, serve
from veiltab.server.limits import Settings

SPEED = 60.0
"""Simulated seconds in a second; the test also skips whole hours."""

_FORM = struct.Struct("=ddBB")
_PIECE = 65_536


class Control:
    """The simulated clock and the switches of the faults, shared by the test and the server."""

    def __init__(self, path: Path) -> None:
        """Map the file, which the test makes."""
        if not path.exists():
            path.write_bytes(_FORM.pack(time.time(), 0.0, 0, 0))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _FORM.size)

    def clock(self) -> float:
        """Return the simulated seconds since 1970."""
        start, skipped, _, _ = self._read()
        return start + skipped + SPEED * (time.time() - start)

    def skip(self, seconds: float) -> None:
        """Let time pass at once."""
        start, skipped, disk, database = self._read()
        self._write(start, skipped + seconds, disk, database)

    @property
    def disk_is_full(self) -> bool:
        """Whether nothing more can be written to files."""
        return bool(self._read()[2])

    @property
    def database_is_lost(self) -> bool:
        """Whether the database does not answer."""
        return bool(self._read()[3])

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Fill the disk until the block ends."""
        start, skipped, _, database = self._read()
        self._write(start, skipped, 1, database)
        try:
            yield
        finally:
            start, skipped, _, database = self._read()
            self._write(start, skipped, 0, database)

    @contextmanager
    def lost_database(self) -> Iterator[None]:
        """Take the database away until the block ends."""
        start, skipped, disk, _ = self._read()
        self._write(start, skipped, disk, 1)
        try:
            yield
        finally:
            start, skipped, disk, _ = self._read()
            self._write(start, skipped, disk, 0)

    def _read(self) -> tuple[float, float, int, int]:
        start, skipped, disk, database = _FORM.unpack(self._map[:])
        return start, skipped, disk, database

    def _write(self, *values: float) -> None:
        self._map[:] = _FORM.pack(*values)


class FaultyServer:
    """The process of the server; it can be killed and started again on the same port."""

    def __init__(self, folder: Path, database: str = "") -> None:
        """Choose where its data are; nothing runs yet."""
        self.data, self.log = folder / "data", folder / "server.log"
        self.control = Control(folder / "control")
        self.port = free_port()
        self._control_path, self._database = folder / "control", database
        self._process: subprocess.Popen[str] | None = None
        self.kills = 0

    def start(self) -> None:
        """Start, and wait until it answers."""
        module = [sys.executable, "-m", "tests.support.faults"]
        options = [str(self.data), str(self.port), str(self._control_path), self._database]
        with self.log.open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(  # noqa: S603 - it is our own module
                module + options, stdout=subprocess.PIPE, stderr=log, encoding="utf-8"
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), self.log.read_text("utf-8")

    def kill(self) -> None:
        """End it without a warning."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self.kills += 1


class SlowNetwork:
    """What is between parties and server: it passes bytes on, late if it is told to, or not at all.

    ``delay`` is in seconds for each piece; ``loss`` is how often a piece ends its connection.
    """

    def __init__(self, port: int, seed: int) -> None:
        """Listen on a port of its own for a server on another one."""
        self._server_port = port
        self._draw = random.Random(seed)  # noqa: S311 - chooses which connections break
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.delay, self.loss, self.broken = 0.0, 0.0, 0
        threading.Thread(target=self._accept, daemon=True).start()

    @contextmanager
    def slow(self, delay: float, loss: float) -> Iterator[None]:
        """Be slow and unreliable until the block ends."""
        self.delay, self.loss = delay, loss
        try:
            yield
        finally:
            self.delay, self.loss = 0.0, 0.0

    def close(self) -> None:
        """Listen no more."""
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:  # closed
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port), 5)
            except OSError:  # it is being started again
                client.close()
                continue
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(_PIECE):
                if self.delay:
                    time.sleep(self.delay)
                if self.loss and self._draw.random() < self.loss:
                    self.broken += 1
                    break
                target.sendall(piece)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def _install(control: Control) -> None:
    """Let the faults of this process depend on the switches."""
    fsync, statvfs = os.fsync, os.statvfs
    transaction, reading = Database.transaction, Database.reading

    def full_fsync(descriptor: int) -> None:
        if control.disk_is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    def full_statvfs(path: Any) -> os.statvfs_result:  # noqa: ANN401 - as the real one
        found = list(statvfs(path))
        if control.disk_is_full:
            found[3] = found[4] = 0  # no free block, for root or for anybody
        return os.statvfs_result(found)

    def lost(real: Any) -> Any:  # noqa: ANN401 - a method
        @contextmanager
        def begin(self: Database) -> Iterator[Any]:
            if control.database_is_lost:
                raise unavailable("the test has taken it away")
            with real(self) as records:
                yield records

        return begin

    mock.patch.object(os, "fsync", full_fsync).start()
    mock.patch.object(os, "statvfs", full_statvfs).start()
    mock.patch.object(Database, "transaction", lost(transaction)).start()
    mock.patch.object(Database, "reading", lost(reading)).start()


def main(data: str, port: str, control_path: str, database: str) -> None:
    """Serve until killed."""
    control = Control(Path(control_path))
    limits = Settings(
        rate=1e6, burst=10**6, stranger_rate=1e6, stranger_burst=10**6, poll_seconds=0.1
    )
    context, _ = start_server(Path(data), database or None, None, limits)
    _install(control)

    def ready(url: str) -> None:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()

    where = Address(port=int(port))
    with listening(where) as sockets:
        serve(replace(context, clock=control.clock), where, sockets, ready)


if __name__ == "__main__":
    main(*sys.argv[1:])
