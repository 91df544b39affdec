"""Servers for tests: in a thread of this process, in a process of its own, and one to be killed."""

import datetime as dt
import ipaddress
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fastapi import FastAPI

from tests.support.memory import peak_memory
from veiltab.core.entropy import Entropy
from veiltab.crypto.entropy import CipherEntropy, SystemEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.hosting import open_server, server_identity
from veiltab.party.context import PartyContext
from veiltab.party.home import Home
from veiltab.party.remote import RemoteServer, Retry
from veiltab.protocol.curator.agreement import public_identity
from veiltab.server.context import ServiceContext
from veiltab.server.db.database import Database
from veiltab.server.directory import DataDirectory
from veiltab.server.http.app import Address, _listen, web_server
from veiltab.server.invitations import invite
from veiltab.server.limits import Settings

QUICK = Settings(
    rate=1e6,
    burst=10**6,
    stranger_rate=1e6,
    stranger_burst=10**6,
    refusal_wait_seconds=0.01,
    connections_per_address=10**6,
    connection_rate=1e6,
    connection_burst=10**6,
    party_requests=10**6,
    party_turns=10**6,
    poll_seconds=0.25,
)
"""Limits that no test reaches by accident."""

NO_LIMITS = (
    *("--rate", 1e6, "--burst", 10**6, "--stranger-rate", 1e6, "--stranger-burst", 10**6),
    *("--connections-per-address", 10**6),
)
"""The same as options of ``veiltab serve``."""

SWITCH_SECONDS = 1e-4
_STOP_SECONDS = 60


def make_context(
    path: Path,
    *,
    identity: PrivateIdentity | None = None,
    database: str | None = None,
    entropy: Entropy | None = None,
    settings: Settings = QUICK,
) -> ServiceContext:
    """Return a server on a data directory, with a database of its own unless one is named."""
    folders = DataDirectory(path)
    server = identity or PrivateIdentity.create("server", CipherEntropy.from_seed(1, "server"))
    records = Database(database or folders.database_url)
    records.migrate()
    return ServiceContext(
        identity=public_identity(server),
        key=server.signing,
        database=records,
        folders=folders,
        entropy=entropy or SystemEntropy(),
        clock=time.time,
        settings=settings,
    )


def register(
    url: str,
    name: str,
    path: Path,
    invitation: str,
    *,
    retry: Retry,
    entropy: Entropy,
    clock: Callable[[], float] = time.time,
) -> PartyContext:
    """Make a home for a new party, and register it with an invitation."""
    home = Home(path)
    identity = home.create(name, None, entropy)
    pinned = RemoteServer.discover(url)
    home.pin_server(url, pinned)
    server = RemoteServer(url, pinned, identity, retry=retry, clock=clock)
    server.register(invitation)
    return PartyContext(home, identity, server, entropy, clock)


@dataclass(eq=False, kw_only=True)
class Server:
    """A server that answers on ``url``, and the sessions of the parties who have joined it."""

    url: str
    context: ServiceContext
    """Its records, in this process: for a server of its own process, as the operator's commands
    open them."""
    retry: Retry
    metrics_url: str = ""
    sessions: list[PartyContext] = field(default_factory=list)

    def join(self, name: str, path: Path, entropy: Entropy | None = None) -> PartyContext:
        """Make a home for a new party, and register it."""
        code, source = invite(self.context, name), entropy or SystemEntropy()
        session = register(self.url, name, path, code, retry=self.retry, entropy=source)
        self.sessions.append(session)
        return session

    def metrics(self) -> str:
        """Read the metrics, as the operator's tools do."""
        answer = httpx.get(self.metrics_url, trust_env=False)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        return answer.text

    def close_sessions(self) -> None:
        """Close the connections of all parties."""
        for session in self.sessions:
            session.server.close()


@contextmanager
def running(
    context: ServiceContext, app: FastAPI | None = None, address: Address | None = None
) -> Iterator[Server]:
    """Serve a context, or an app that was made of it, in a thread until the block ends."""
    where = address or Address(port=0)
    sockets = [_listen(where), socket.create_server(("127.0.0.1", 0))]
    port, metrics_port = (listening.getsockname()[1] for listening in sockets)
    server = web_server(context, where, app)
    # Client and server wait for each other in one process: they had better take turns quickly.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    thread = threading.Thread(target=server.run, kwargs={"sockets": sockets}, daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    retry = Retry(total=20.0, base=0.02, cap=0.3)
    answering = Server(
        url=f"{where.scheme}://127.0.0.1:{port}",
        context=context,
        retry=retry,
        metrics_url=f"http://127.0.0.1:{metrics_port}/metrics",
    )
    try:
        yield answering
    finally:
        answering.close_sessions()
        server.should_exit = True
        thread.join(20)
        sys.setswitchinterval(interval)
        for listening in sockets:
            listening.close()
        context.database.close()


def wait_for(session: PartyContext, study: bytes, state: str, seconds: float = 20.0) -> None:
    """Wait until a study is in a state; fail if it is not in time."""
    end = time.monotonic() + seconds
    while session.server.status(study).state != state:
        if time.monotonic() > end:
            raise AssertionError(f"the study is {session.server.status(study)}, not {state}")
        time.sleep(0.02)


@dataclass(eq=False, kw_only=True)
class ServerProcess(Server):
    """``veiltab serve`` in a process of its own; its log goes to a file."""

    process: subprocess.Popen[str]
    log: Path
    ended: bool = False
    """Whether a test has ended it in its own way."""

    def wait(self, seconds: float = 20.0) -> int:
        """Wait for the end that a test has brought about, and return the exit code."""
        self.ended = True
        return self.process.wait(seconds)

    @property
    def peak(self) -> int:
        """The most memory that it has had so far, in bytes."""
        return peak_memory(self.process.pid)

    def metric(self, name: str) -> float:
        """Return the sum of a metric over all its labels."""
        lines = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", self.metrics(), re.MULTILINE)
        return sum(map(float, lines))

    def problems(self) -> list[str]:
        """Return the lines of the log that tell of something unexpected."""
        lines = self.log.read_text("utf-8").splitlines()
        return [line for line in lines if json.loads(line)["level"] not in ("info", "debug")]


@contextmanager
def serving(folder: Path, *options: object, database: str | None = None) -> Iterator[ServerProcess]:
    """Run ``veiltab serve`` on a free port with data in a folder, until the block ends.

    It must then end well, unless the test has waited for its end.
    """
    data, log = folder / "data", folder / "server.log"
    metrics = ("--metrics-port", _free_port())
    command = ("--data", data, "--port", 0, *metrics, *options)
    process = _start(log, *command, database=database)
    try:
        about = _announced(process, log)
        folders = DataDirectory(data)
        context = open_server(folders, database, server_identity(folders, None))
        retry = Retry(total=120.0)
        server = ServerProcess(
            url=about["url"],
            context=context,
            retry=retry,
            metrics_url=about["metrics"],
            process=process,
            log=log,
        )
        with context.database:
            yield server
            server.close_sessions()
        if not server.ended:
            process.send_signal(signal.SIGTERM)
            assert process.wait(_STOP_SECONDS) == 0, log.read_text("utf-8")
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _start(log: Path, *options: object, database: str | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "veiltab", "serve", "--json", *map(str, options)]
    with log.open("a", encoding="utf-8") as file:
        return subprocess.Popen(  # noqa: S603 - it is our own command
            command,
            stdout=subprocess.PIPE,
            stderr=file,
            encoding="utf-8",
            env=_environment(database),
        )


def _environment(database: str | None) -> dict[str, str]:
    """Return the environment of a command; an address may hold a password, and is not an option."""
    return {**os.environ, "VEILTAB_DATABASE": database} if database else dict(os.environ)


def _announced(process: subprocess.Popen[str], log: Path) -> dict[str, str]:
    """Wait until a server answers, and return what it says of itself."""
    assert process.stdout is not None
    announced = process.stdout.readline()
    assert announced, log.read_text("utf-8")
    about: dict[str, str] = json.loads(announced)
    return about


PHASES = ("upload", "release", "download")
LONGEST = {"upload": 0.6, "release": 0.1, "download": 0.3}
"""Seconds within which a phase is hit, from when the server is ready in it."""


class KilledServer:
    """A server process that is killed with SIGKILL and started again, all the time.

    ``phase`` is what its clients are doing, as they say.
    """

    def __init__(self, data: Path, seed: int) -> None:
        """Choose a port that stays the same over all restarts."""
        self.data, self.port = data, _free_port()
        self.phase = "upload"
        self.kills: Counter[str] = Counter()
        self._draw = random.Random(seed)  # noqa: S311 - chooses when to kill
        self._process: subprocess.Popen[str] | None = None
        self._stop = threading.Event()

    @property
    def url(self) -> str:
        """Where the server is, when it is."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        log = self.data.parent / "server.log"
        options = ("--rate", "1e6", "--burst", 10**6, "--metrics-port", 0)
        self._process = _start(log, "--data", self.data, "--port", self.port, *options)
        _announced(self._process, log)

    def kill(self) -> None:
        """End the server without a warning."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def run(self, kills: int) -> None:
        """Kill and restart until it was done so often.

        Each time it waits for the phase with the fewest kills, which may not come, or be over
        before it is hit.
        """
        while not self._stop.is_set() and sum(self.kills.values()) < kills:
            wanted = min(PHASES, key=lambda phase: self.kills[phase])
            end = time.monotonic() + 3.0
            while self.phase != wanted and time.monotonic() < end and not self._stop.is_set():
                time.sleep(0.005)
            time.sleep(self._draw.uniform(0, LONGEST[wanted]))
            self.kills[self.phase] += 1
            self.kill()
            self.start()

    @contextmanager
    def killed(self, kills: int) -> Iterator[None]:
        """Kill the server in the background for as long as the block runs."""
        thread = threading.Thread(target=self.run, args=(kills,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(60)


def _free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def invitation(data: Path, name: str, database: str = "") -> str:
    """Let the operator invite somebody; the database is SQLite's unless one is named."""
    command = [sys.executable, "-m", "veiltab", "server", "invite", "--data", str(data), name]
    done = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=True, env=_environment(database)
    )
    return done.stdout.strip()


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a self-signed certificate of 127.0.0.1 that no system trusts, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "veiltab test")])
    now = dt.datetime.now(dt.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    )
    (folder / "key.pem").chmod(0o600)
    return folder / "cert.pem", folder / "key.pem"


def soon(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Wait until something holds; tell whether it has come to hold in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
