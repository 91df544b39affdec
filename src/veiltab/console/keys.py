"""The party whose console this is: its home, and its keys while they are unlocked."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import ConsoleLockedError
from veiltab.party.connection import Retry
from veiltab.party.home import Home
from veiltab.party.session import Session, connect

IDLE_SECONDS = 900.0
"""After how long without a request the keys are locked again."""

PATIENCE = 5.0
"""Seconds to try a server that does not answer, while somebody looks at an empty page."""


@dataclass(slots=True)
class ConsoleParty:
    """One home, and its identity for as long as somebody uses the console."""

    path: Path
    idle_seconds: float = IDLE_SECONDS
    clock: Callable[[], float] = time.monotonic
    when_locked: Callable[[], None] = lambda: None
    """Forgets what is as private as the keys; called whenever they are locked."""
    _has_identity: bool = False
    _identity: PrivateIdentity | None = None
    _used: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    @property
    def home(self) -> Home:
        """The home; a new object for each thread that asks."""
        return Home(self.path)

    @property
    def has_identity(self) -> bool:
        """Whether there are keys at all; before there are, a page makes them."""
        if not self._has_identity:
            with suppress(OSError):  # such as a folder that may not be looked at
                self._has_identity = self.home.exists
        return self._has_identity

    def begin(self, name: str, passphrase: str | None) -> None:
        """Make an identity, and use its keys from now on."""
        self.take(self.home.create(name, passphrase))

    def unlock(self, passphrase: str | None) -> None:
        """Open the identity; a wrong passphrase is an error."""
        self.take(self.home.open(passphrase))

    def take(self, identity: PrivateIdentity) -> None:
        """Use keys that were opened already."""
        with self._lock:
            self._identity, self._used = identity, self.clock()

    def lock(self) -> None:
        """Forget the keys, and what was read with them."""
        with self._lock:
            self._forget()

    @property
    def unlocked(self) -> bool:
        """Whether the keys are at hand; asking is no use of them."""
        with self._lock:
            self._expire()
            return self._identity is not None

    def identity(self) -> PrivateIdentity:
        """Return the keys, and start the time of idleness anew."""
        with self._lock:
            self._expire()
            if self._identity is not None:
                self._used = self.clock()
                return self._identity
        raise ConsoleLockedError("your keys are locked", hint="unlock them with your passphrase")

    @contextmanager
    def session(self, patience: float = PATIENCE) -> Iterator[Session]:
        """Speak to the server as this party."""
        with connect(self.home, self.identity(), Retry(total=patience)) as session:
            yield session

    def _expire(self) -> None:
        if self._identity is not None and self.clock() >= self._used + self.idle_seconds:
            self._forget()

    def _forget(self) -> None:
        self._identity = None
        self.when_locked()
