"""How much the service accepts, and how fast, from each sender."""

import asyncio
import ipaddress
import math
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from threading import Condition, Lock
from weakref import WeakValueDictionary

from veiltab.errors import RateLimitError, TooLargeError, UnavailableError
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
    rate: float = 200.0
    burst: int = 800
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
    party_disk_bytes: int | None = None
    """Without a number, an eighth of the disk, and at most 64 GiB."""
    free_bytes_reserve: int = GIB
    proposal_days: int = 30
    archive_days: int = 365
    ballast_bytes: int = 16 * MIB
    """A file that is deleted when the disk is full, so that an abort can be written."""

    # Connections, before anybody has proved who it is.  Rates are in bytes a second.
    connections: int = 500
    connections_per_address: int = 32
    connection_rate: float = 50.0
    connection_burst: int = 200
    header_bytes: int = 16 * KIB
    header_lines: int = 64
    handshake_seconds: float = 10.0
    first_byte_seconds: float = 10.0
    header_seconds: float = 10.0
    keep_alive_seconds: float = 30.0
    grace_seconds: float = 10.0
    least_rate: float = 4.0 * KIB
    refusal_wait_seconds: float = 1.0

    # Requests of parties.
    requests: int = 256
    party_requests: int = 16
    party_turns: int = 1
    body_memory_bytes: int = 128 * MIB
    crowded_rate: float = 256.0 * KIB


MAX_SENDERS = 10_000
"""Buckets that are kept; the sender that has been quiet longest is forgotten first."""


class Buckets:
    """A token bucket for each sender, filled at a steady rate; safe for use by several threads."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float]) -> None:
        """Allow ``burst`` requests at once, and ``rate`` a second in the long run."""
        self._rate, self._burst, self._clock = rate, float(burst), clock
        self._lock = Lock()
        self._levels: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, sender: Hashable, tokens: int = 1) -> None:
        """Take tokens from the sender's bucket, or raise :class:`RateLimitError`."""
        now = self._clock()
        with self._lock:
            level, then = self._levels.pop(sender, (self._burst, now))
            level = min(self._burst, level + max(0.0, now - then) * self._rate)
            allowed = level >= min(tokens, self._burst)
            self._levels[sender] = (level - tokens if allowed else level, now)
            if len(self._levels) > MAX_SENDERS:
                self._levels.popitem(last=False)
        if not allowed:
            seconds = math.ceil((tokens - level) / self._rate)
            raise RateLimitError(
                "you are asking too often", hint=f"ask again in {seconds} s, and less often"
            )


def network(host: str) -> str:
    """Return what is counted as one network address: of IPv6, the 64 bits of a customer's network.

    Whatever is no address, such as a text that a proxy was given, is one address together.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{int(address) >> 64:x}::/64"


class Patience:
    """How long a slow peer is waited for: a grace period, renewed by bytes at the least rate.

    So a peer may pause for the grace period, at any time, and must keep up the rate on average.
    """

    def __init__(self, grace: float, rate: float) -> None:
        """Start with the whole grace period, in seconds; the rate is in bytes a second."""
        self._grace, self._rate, self._left = grace, rate, grace

    def renew(self) -> None:
        """Grant the whole grace period again."""
        self._left = self._grace

    def lasts(self, seconds: float, size: int) -> bool:
        """Count time that has passed and bytes that have come; tell whether to wait on."""
        self._left = min(self._grace, self._left - seconds + size / self._rate)
        return self._left > 0


class InFlight:
    """Requests that are being answered, of all senders and of each; for one event loop."""

    def __init__(self, most: int, most_of_one: int) -> None:
        """Start with none."""
        self._most, self._most_of_one = most, most_of_one
        self._counts: Counter[Hashable] = Counter()

    @contextmanager
    def take(self, sender: Hashable) -> Iterator[None]:
        """Count a request for as long as the block runs, or refuse it at once."""
        if self._counts[sender] >= self._most_of_one:
            raise RateLimitError(
                f"you have {self._most_of_one} requests in progress, and may not have more",
                hint="wait for the answers to some of them",
            )
        if self._counts.total() >= self._most:
            raise UnavailableError("the server is busy", hint="try again in a moment")
        self._counts[sender] += 1
        try:
            yield
        finally:
            self._counts[sender] -= 1
            if not self._counts[sender]:
                del self._counts[sender]


class Turns:
    """Lets a few requests of each sender be worked on at once; its others wait in their order."""

    def __init__(self, most_of_one: int) -> None:
        """Start with none; for one event loop."""
        self._most_of_one = most_of_one
        self._by_sender: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()

    async def begin(self, sender: Hashable) -> Callable[[], None]:
        """Wait for a turn, and return what ends it; ended twice, it has ended."""
        turns = self._by_sender.setdefault(sender, asyncio.Semaphore(self._most_of_one))
        await turns.acquire()
        held = [turns]

        def end() -> None:
            if held:
                held.pop().release()

        return end


@dataclass(slots=True, eq=False)
class Place:
    """Memory for one body."""

    sender: Hashable
    size: int
    given: asyncio.Future[float]
    """The time at which it was given."""
    received: int = 0
    _arriving: asyncio.Timeout | None = field(default=None, repr=False)

    @asynccontextmanager
    async def arriving(self) -> AsyncIterator[None]:
        """Let the place be lost while the body arrives in the block."""
        try:
            async with asyncio.timeout(None) as self._arriving:
                yield
        except TimeoutError as error:
            raise UnavailableError(
                "the body arrives slowly, and others wait for its place",
                hint="send it again in a moment",
            ) from error
        finally:
            self._arriving = None

    def is_slow(self, now: float, grace: float, rate: float) -> bool:
        """Tell whether the body has had its time, and arrives below a rate."""
        if self._arriving is None:
            return False
        seconds = now - self.given.result()
        return seconds >= grace and self.received < rate * seconds

    def lose(self) -> None:
        """End the block in which the body arrives."""
        if self._arriving is not None:
            self._arriving.reschedule(0.0)
            self._arriving = None


class Places:
    """Memory for large bodies, which senders share; one of them can have half.

    What gets free goes to whoever has least.  While somebody waits, bodies that arrive slowly lose
    their places: so nobody can hold all of them for long.
    """

    def __init__(self, size: int, grace: float, rate: float) -> None:
        """Start with all of it free; bodies below ``rate`` lose their places after ``grace``."""
        self._free, self._most_of_one = size, size // 2
        self._grace, self._rate = grace, rate
        self._held: Counter[Hashable] = Counter()
        self._waiting: list[Place] = []
        self._given: set[Place] = set()

    @asynccontextmanager
    async def take(self, sender: Hashable, size: int) -> AsyncIterator[Place]:
        """Wait for a place, and keep it for as long as the block runs."""
        place = Place(sender, size, asyncio.get_running_loop().create_future())
        self._waiting.append(place)
        self._hand_out()
        try:
            while not place.given.done():
                await asyncio.wait([place.given], timeout=self._grace)
                self._take_from_slow()
            yield place
        finally:
            self._give_back(place)
            self._hand_out()

    def _give_back(self, place: Place) -> None:
        if place not in self._given:
            self._waiting.remove(place)
            return
        self._given.remove(place)
        self._free += place.size
        self._held[place.sender] -= place.size
        if not self._held[place.sender]:
            del self._held[place.sender]

    def _fair(self) -> list[Place]:
        """Return who waits for others and not for itself, those with least first."""
        fair = [
            place
            for place in self._waiting
            if place.sender not in self._held
            or self._held[place.sender] + place.size <= self._most_of_one
        ]
        return sorted(fair, key=lambda place: self._held[place.sender])

    def _hand_out(self) -> None:
        now = asyncio.get_running_loop().time()
        while fair := self._fair():
            place = fair[0]
            if place.size > self._free and self._given:
                return
            self._waiting.remove(place)
            self._given.add(place)
            self._free -= place.size
            self._held[place.sender] += place.size
            place.given.set_result(now)

    def _take_from_slow(self) -> None:
        """End the slow body of whoever has most, if somebody else waits."""
        now = asyncio.get_running_loop().time()
        slow = [place for place in self._given if place.is_slow(now, self._grace, self._rate)]
        if slow and self._fair():
            max(slow, key=lambda place: self._held[place.sender]).lose()


class Lane:
    """Work that is done by one thread at a time, in turn by party; safe for several threads.

    Somebody with much to do waits for everybody else after each piece of it.
    """

    def __init__(self, *, most_waiting: int = 4, seconds: float = 60.0) -> None:
        """Let a few threads wait for each party, and none for longer than some seconds."""
        self._most_waiting, self._seconds = most_waiting, seconds
        self._changed = Condition()
        self._waiting: OrderedDict[Hashable, deque[object]] = OrderedDict()
        self._busy = False

    @contextmanager
    def turn(self, party: Hashable) -> Iterator[None]:
        """Wait for a party's turn, and keep it for as long as the block runs."""
        self._wait(party)
        try:
            yield
        finally:
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _wait(self, party: Hashable) -> None:
        ticket = object()
        with self._changed:
            if len(self._waiting.get(party, ())) >= self._most_waiting:
                raise RateLimitError(
                    "the server works on several of your large messages already",
                    hint="wait for the answers to some of them",
                )
            self._waiting.setdefault(party, deque()).append(ticket)
            on_turn = self._changed.wait_for(lambda: self._is_next(ticket), self._seconds)
            self._waiting[party].remove(ticket)
            if self._waiting[party]:
                self._waiting.move_to_end(party)
            else:
                del self._waiting[party]
            if not on_turn:
                raise UnavailableError("the server is busy", hint="try again in a moment")
            self._busy = True

    def _is_next(self, ticket: object) -> bool:
        return not self._busy and next(iter(self._waiting.values()))[0] is ticket


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
