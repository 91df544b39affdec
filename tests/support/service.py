"""A real service for tests: uvicorn in a thread on a free port, and parties with homes."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from veiltab.core.entropy import Entropy
from veiltab.crypto.entropy import CipherEntropy, SystemEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.party.context import PartyContext
from veiltab.party.home import Home
from veiltab.party.remote import RemoteServer, Retry
from veiltab.protocol.curator.agreement import public_identity
from veiltab.server.app import create_app
from veiltab.server.auth import invite
from veiltab.server.context import ServiceContext
from veiltab.server.db.database import Database
from veiltab.server.directory import DataDirectory
from veiltab.server.limits import Settings
from veiltab.server.run import Address, _listen

QUICK = Settings(rate=1e6, burst=10**6, stranger_rate=1e6, stranger_burst=10**6, poll_seconds=0.1)
"""Limits that no test reaches by accident."""

SWITCH_SECONDS = 1e-4


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
    found = Database(database or folders.database_url)
    found.migrate()
    return ServiceContext(
        identity=public_identity(server),
        key=server.signing,
        database=found,
        folders=folders,
        entropy=entropy or SystemEntropy(),
        clock=time.time,
        settings=settings,
    )


@dataclass(eq=False)
class Running:
    """A service that answers on ``url``."""

    context: ServiceContext
    url: str
    sessions: list[PartyContext] = field(default_factory=list)

    def join(self, name: str, path: Path, entropy: Entropy | None = None) -> PartyContext:
        """Make a home for a new party, and register it with an invitation."""
        source = entropy or SystemEntropy()
        home = Home(path)
        identity = home.create(name, None, source)
        pinned = RemoteServer.discover(self.url)
        home.pin_server(self.url, pinned)
        server = RemoteServer(
            self.url, pinned, identity, retry=Retry(total=20.0, base=0.02, cap=0.3)
        )
        server.register(invite(self.context, name))
        session = PartyContext(home, identity, server, source)
        self.sessions.append(session)
        return session


@contextmanager
def running(context: ServiceContext, app: FastAPI | None = None) -> Iterator[Running]:
    """Serve a context, or an app that was made of it, in a thread until the block ends."""
    listening = _listen(Address(port=0))
    port = listening.getsockname()[1]
    config = uvicorn.Config(app or create_app(context), log_config=None, access_log=False)
    server = uvicorn.Server(config)
    # Client and server wait for each other in one process: they had better take turns quickly.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    found = Running(context, f"http://127.0.0.1:{port}")
    try:
        yield found
    finally:
        for session in found.sessions:
            session.server.close()
        server.should_exit = True
        thread.join(20)
        sys.setswitchinterval(interval)
        listening.close()
        context.database.close()


def wait_for(session: PartyContext, study: bytes, state: str, seconds: float = 20.0) -> None:
    """Wait until a study is in a state; fail if it is not in time."""
    end = time.monotonic() + seconds
    while session.server.status(study).state != state:
        if time.monotonic() > end:
            raise AssertionError(f"the study is {session.server.status(study)}, not {state}")
        time.sleep(0.02)
