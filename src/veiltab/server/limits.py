"""How much the service accepts, and how fast, from each sender."""

import asyncio
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from threading import Lock
from weakref import WeakValueDictionary

from veiltab.errors import RateLimitError, TooLargeError
from veiltab.wire.bundles import BUNDLE_BYTES, CHUNK_BYTES

SOFTWARE_VERSION = version("veiltab")
KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The limits of a service; the defaults suit a few hundred parties on one small machine.

    ``rate`` is in requests a second for each party, and ``burst`` is how many may come at once.
    Strangers, who have not proved who they are, are counted by network address.

    The last ones are quotas of one party: proposals that not everybody has signed, and proposals
    in a day; grants of one curator in a study, and to one researcher of it; bytes of messages, and
    of messages and chunks together.  Below ``free_bytes_reserve`` on the disk, or a twentieth of
    a small disk, nothing new is taken.  After ``proposal_days`` unsigned proposals expire, and
    ``archive_days`` after the last change of a finished study its contents are deleted.
    """

    message_bytes: int = 16 * MIB
    bundle_bytes: int = BUNDLE_BYTES
    chunk_bytes: int = CHUNK_BYTES
    small_bytes: int = 64 * KIB
    rate: float = 500.0
    burst: int = 2000
    stranger_rate: float = 20.0
    stranger_burst: int = 100
    shutdown_seconds: int = 20
    poll_seconds: float = 2.0
    """How often the worker looks for work that nobody woke it for, such as after a crash."""
    contract_bytes: int = 2 * MIB
    grant_bytes: int = 256 * KIB
    open_proposals: int = 64
    daily_proposals: int = 200
    study_grants: int = 1000
    researcher_grants: int = 64
    party_message_bytes: int = 256 * MIB
    party_disk_bytes: int = 64 * GIB
    free_bytes_reserve: int = GIB
    proposal_days: int = 30
    archive_days: int = 365


MAX_SENDERS = 10_000
"""Buckets that are kept; the sender that has been quiet longest is forgotten first."""


class Buckets:
    """A token bucket for each sender, filled at a steady rate; safe for use by several threads."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float]) -> None:
        """Allow ``burst`` requests at once, and ``rate`` a second in the long run."""
        self._rate, self._burst, self._clock = rate, float(burst), clock
        self._lock = Lock()
        self._levels: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, sender: Hashable) -> None:
        """Take a token from the sender's bucket, or raise :class:`RateLimitError`."""
        now = self._clock()
        with self._lock:
            level, then = self._levels.pop(sender, (self._burst, now))
            level = min(self._burst, level + max(0.0, now - then) * self._rate)
            allowed = level >= 1
            self._levels[sender] = (level - 1 if allowed else level, now)
            if len(self._levels) > MAX_SENDERS:
                self._levels.popitem(last=False)
        if not allowed:
            seconds = math.ceil((1 - level) / self._rate)
            raise RateLimitError(
                "you are asking too often", hint=f"ask again in {seconds} s, and less often"
            )


class Places:
    """Places in memory for large bodies, of which one sender can have half.

    A slow sender keeps its places for long, but cannot keep all of them.
    """

    def __init__(self, places: int) -> None:
        """Start with every place free."""
        self._most_of_one = max(1, places // 2)
        self._all = asyncio.Semaphore(places)
        self._by_sender: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def take(self, sender: Hashable) -> AsyncIterator[None]:
        """Wait for a place, and keep it for as long as the block runs."""
        of_sender = self._by_sender.setdefault(sender, asyncio.Semaphore(self._most_of_one))
        async with of_sender, self._all:
            yield


class Memory:
    """Memory that all answers share; safe for use by several threads."""

    def __init__(self, size: int) -> None:
        """Start with all of it free."""
        self._free = size
        self._lock = Lock()

    def take(self, size: int) -> bool:
        """Take ``size`` bytes and return ``True``, or ``False`` if fewer are free."""
        with self._lock:
            if size > self._free:
                return False
            self._free -= size
            return True

    def give_back(self, size: int) -> None:
        """Return bytes that were taken."""
        with self._lock:
            self._free += size


def too_large(what: str, most: int) -> TooLargeError:
    """Return the error for something with more than ``most`` bytes."""
    return TooLargeError(
        f"{what} has more than {most:,} bytes",
        hint="split the table into chunks; ask the operator if a study really needs more",
    )
