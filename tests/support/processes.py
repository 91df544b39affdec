"""The service and the commands as processes of their own, with the most memory that each took."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.support.commands import Outcome
from veiltab.crypto.entropy import SystemEntropy
from veiltab.hosting import open_server, server_identity
from veiltab.party.context import PartyContext
from veiltab.party.home import Home
from veiltab.party.remote import RemoteServer, Retry
from veiltab.server.auth import invite
from veiltab.server.context import ServiceContext
from veiltab.server.directory import DataDirectory

MIB = 2**20
NO_LIMITS = ("--rate", 1e6, "--burst", 10**6, "--stranger-rate", 1e6, "--stranger-burst", 10**6)
"""Options of a server whose limits no test reaches by accident."""

_LOOK_SECONDS = 0.02
_STOP_SECONDS = 60


def peak_memory(process: int) -> int:
    """Return the most bytes of memory that a running process ever had, or 0 if it has ended.

    What a child's end reports (``ru_maxrss``) would not do: it counts the memory of whoever
    started it.
    """
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return 1024 * int(found[1]) if found else 0


@dataclass(frozen=True)
class Measured:
    """How a command ended, how long it took, and the most memory that it had."""

    outcome: Outcome
    seconds: float
    peak: int


def run_measured(*arguments: object, timeout: float = 60.0) -> Measured:
    """Run ``veiltab`` as a process of its own, and watch its memory until it ends."""
    started = time.perf_counter()
    with subprocess.Popen(  # noqa: S603 - it is our own command
        _command(arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    ) as process:
        peaks = [0]

        def watch() -> None:
            while found := peak_memory(process.pid):
                peaks[0] = max(peaks[0], found)
                time.sleep(_LOOK_SECONDS)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
        watcher.join()
    seconds = time.perf_counter() - started
    return Measured(Outcome(process.returncode, out, err), seconds, peaks[0])


@dataclass(frozen=True, eq=False)
class ServerProcess:
    """A server of its own process that answers on ``url``; its log goes to a file."""

    process: subprocess.Popen[str]
    url: str
    log: Path
    context: ServiceContext
    """The same server's records, opened in this process as the operator's commands do."""
    sessions: list[PartyContext] = field(default_factory=list)

    def join(self, name: str, path: Path) -> PartyContext:
        """Make a home for a new party, and register it with an invitation."""
        home = Home(path)
        identity = home.create(name, None, SystemEntropy())
        pinned = self.context.identity
        home.pin_server(self.url, pinned)
        server = RemoteServer(self.url, pinned, identity, retry=Retry(total=120.0))
        server.register(invite(self.context, name))
        self.sessions.append(PartyContext(home, identity, server))
        return self.sessions[-1]

    @property
    def peak(self) -> int:
        """The most memory that it has had so far, in bytes."""
        return peak_memory(self.process.pid)

    def metric(self, name: str) -> float:
        """Return the sum of a metric over all its labels."""
        text = httpx.get(f"{self.url}/metrics", trust_env=False).text
        lines = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, lines))

    def problems(self) -> list[str]:
        """Return the lines of the log that tell of something unexpected."""
        lines = self.log.read_text("utf-8").splitlines()
        return [line for line in lines if json.loads(line)["level"] not in ("info", "debug")]


@contextmanager
def serving(folder: Path, *options: object) -> Iterator[ServerProcess]:
    """Run ``veiltab serve`` on a free port with data in a folder, until the block ends."""
    data, log = folder / "data", folder / "server.log"
    command = _command(("serve", "--data", data, "--port", 0, "--json", *options))
    with (
        log.open("w", encoding="utf-8") as file,
        subprocess.Popen(  # noqa: S603 - it is our own command
            command, stdout=subprocess.PIPE, stderr=file, encoding="utf-8"
        ) as process,
    ):
        try:
            yield from _use(process, data, log)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
    assert process.returncode == 0, log.read_text("utf-8")


def _use(process: subprocess.Popen[str], data: Path, log: Path) -> Iterator[ServerProcess]:
    """Wait until a server answers, hand it over, and close what was opened to use it."""
    assert process.stdout is not None
    announced = process.stdout.readline()
    assert announced, log.read_text("utf-8")
    folders = DataDirectory(data)
    context = open_server(folders, None, server_identity(folders, None)[0])
    server = ServerProcess(process, json.loads(announced)["url"], log, context)
    with context.database:
        try:
            yield server
        finally:
            for session in server.sessions:
                session.server.close()


def _command(arguments: tuple[object, ...]) -> list[str]:
    return [sys.executable, "-m", "veiltab", *map(str, arguments)]
