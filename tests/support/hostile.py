"""Hostile clients: strangers on raw sockets, and one invited party that signs what it likes.

    with Siege([IdleSockets(url), SlowHeaders(url)]) as siege:
        ...                             # each attack goes on in a thread of its own
    siege.outcomes                      # what the server answered to each

Each attack does one thing, a step at a time, and never minds being refused: what came of a step is
counted in ``outcomes``.  :mod:`tests.support.siege` runs them in processes of their own.
"""

import itertools
import os
import random
import selectors
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from types import TracebackType
from typing import ClassVar, Self
from urllib.parse import urlsplit

from tests.support.requests import Request, Signer, stranger
from veiltab.wire.codec import dump

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 20.0
_LOOK_BYTES = 65_536
_LINES = b"a: 1\r\n" * 10_000
"""Short lines: each costs the reader of a header far more memory than it has bytes."""

_sources = itertools.cycle(f"127.0.{high}.{low}" for low in range(1, 255) for high in (8, 9))
"""Strangers come from many addresses; all of these are this computer."""


class Attack(ABC):
    """One way to harm a server, repeated; ``rest`` is the pause between two steps, in seconds."""

    rest: ClassVar[float] = 0.0

    def __init__(self, url: str) -> None:
        """Choose the server."""
        parts = urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 80)
        self.url = url
        self.outcomes: Counter[str] = Counter()

    @property
    def name(self) -> str:
        """What the attack is called in reports."""
        return type(self).__name__

    @abstractmethod
    def attempt(self) -> str:
        """Do it once; return what came of it in a word."""

    def step(self) -> None:
        """Do it once, and count what came of it."""
        try:
            outcome = self.attempt()
        except (OSError, HTTPException) as error:
            outcome = type(error).__name__
        self.outcomes[outcome] += 1

    def run(self, stop: threading.Event) -> None:
        """Go on until told to stop."""
        while not stop.is_set():
            self.step()
            stop.wait(self.rest)
        self.close()

    def close(self) -> None:  # noqa: B027 - most attacks hold nothing
        """Let go of whatever the attack holds."""

    def connect(self) -> socket.socket:
        """Open a connection to the server, each from another address."""
        source = (next(_sources), 0)
        opened = socket.create_connection(self._address, CONNECT_SECONDS, source)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened


class Siege:
    """Several attacks at the same time, each in a thread, until the block ends."""

    def __init__(self, attacks: Sequence[Attack]) -> None:
        """Name the attacks; nothing runs yet."""
        self.attacks = attacks
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        """Start every attack."""
        for attack in self.attacks:
            thread = threading.Thread(target=attack.run, args=(self._stop,), daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every attack."""
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * ANSWER_SECONDS)

    @property
    def outcomes(self) -> dict[str, dict[str, int]]:
        """What came of the steps of each attack."""
        counted: dict[str, Counter[str]] = {}
        for attack in self.attacks:
            counted.setdefault(attack.name, Counter()).update(attack.outcomes)
        return {name: dict(outcomes) for name, outcomes in counted.items()}


def _is_closed(opened: socket.socket) -> bool:
    """Tell whether the other side has ended a connection; an answer it sent is thrown away."""
    opened.settimeout(0)
    try:
        while True:
            if not opened.recv(_LOOK_BYTES):
                return True
    except BlockingIOError:
        return False
    except OSError:
        return True


class HeldConnections(Attack):
    """Connections that are kept open for as long as the server lets them; lost ones are replaced.

    ``most_held`` is the largest number that was open at one time.
    """

    rest = 0.2

    def __init__(self, url: str, count: int) -> None:
        """Choose how many connections to hold."""
        super().__init__(url)
        self._count = count
        self._held: list[socket.socket] = []
        self.most_held = 0

    def attempt(self) -> str:
        """Replace connections that were closed, and use each of the others a little."""
        lost = [opened for opened in self._held if self.is_lost(opened)]
        for opened in lost:
            self._held.remove(opened)
            opened.close()
        while len(self._held) < self._count:
            opened = self.connect()
            self._held.append(opened)  # first, so that it is closed whatever happens
            self.begin(opened)
        for opened in self._held:
            with suppress(OSError):
                self.use(opened)
        self.most_held = max(self.most_held, len(self._held))
        return "replaced" if lost else "held"

    def is_lost(self, opened: socket.socket) -> bool:
        """Tell whether the server has ended a connection."""
        return _is_closed(opened)

    def begin(self, opened: socket.socket) -> None:
        """Send what the attack begins with."""

    def use(self, opened: socket.socket) -> None:
        """Do a little more on a connection that is open."""

    def close(self) -> None:
        """Close all of them."""
        for opened in self._held:
            opened.close()
        self._held.clear()


class IdleSockets(HeldConnections):
    """A stranger opens connections and says nothing."""

    def __init__(self, url: str, count: int = 520) -> None:
        """Hold more connections than the server has places."""
        super().__init__(url, count)


class SlowHeaders(HeldConnections):
    """A stranger sends a header line so slowly that it never ends."""

    def __init__(self, url: str, count: int = 100) -> None:
        """Hold this many requests that have begun."""
        super().__init__(url, count)

    def begin(self, opened: socket.socket) -> None:
        """Begin a request."""
        opened.sendall(b"GET /v1/server HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")

    def use(self, opened: socket.socket) -> None:
        """Send one more byte of the header."""
        opened.send(b"x")


class LongHeaders(Attack):
    """A stranger sends header lines without end; ``most_sent`` is how many bytes were taken."""

    def __init__(self, url: str, most_bytes: int = 100 * 2**20) -> None:
        """Choose when to give up."""
        super().__init__(url)
        self._most_bytes = most_bytes
        self.most_sent = 0

    def attempt(self) -> str:
        """Send headers until the server has had enough."""
        sent = 0
        with self.connect() as opened:
            opened.sendall(b"GET /v1/server HTTP/1.1\r\nHost: localhost\r\n")
            try:
                while sent < self._most_bytes and not _is_closed(opened):
                    opened.settimeout(CONNECT_SECONDS)
                    opened.sendall(_LINES)
                    sent += len(_LINES)
            except OSError:
                return "cut off"
            finally:
                self.most_sent = max(self.most_sent, sent)
        return "taken" if sent >= self._most_bytes else "cut off"


class Requests(Attack):
    """One request after the other on a connection that is kept open, as fast as answers come."""

    def __init__(self, url: str) -> None:
        """Start without a connection."""
        super().__init__(url)
        self._opened: socket.socket | None = None

    @abstractmethod
    def request(self) -> Request:
        """Return the next request."""

    def attempt(self) -> str:
        """Send the next request; return the status of the answer."""
        return str(self.send(self.request()))

    def send(self, request: Request) -> int:
        """Send a request and read its answer; a connection that fails is not used again."""
        if self._opened is None:
            self._opened = self.connect()
        opened = self._opened
        opened.settimeout(ANSWER_SECONDS)
        try:
            opened.sendall(head(request) + request.body)
            answer = HTTPResponse(opened)
            answer.begin()
            answer.read()
        except (OSError, HTTPException):
            self.close()
            raise
        if answer.will_close:
            self.close()
        return answer.status

    def close(self) -> None:
        """Close the connection."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def head(request: Request, **headers: str) -> bytes:
    """Return the head of a request with its length."""
    target = request.path + (f"?{request.query}" if request.query else "")
    lines = [f"{request.method} {target} HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in request.headers]
    named = {"Content-Length": str(len(request.body))}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines += [f"{name}: {value}" for name, value in named.items()]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


class StrangerFlood(Requests):
    """A stranger asks whatever is open to it, and what is not, without a pause."""

    def __init__(self, url: str, server: bytes, victim: bytes) -> None:
        """Know the server's and a registered party's id."""
        super().__init__(url)
        self._forger = Signer(stranger(server).identity, server, party=victim)
        self._requests = self._turns(stranger(server))

    def _turns(self, nobody: Signer) -> Iterator[Request]:
        registration = dump({"identity": "x" * 900, "invitation": "0" * 40})
        while True:
            yield Request("GET", "/openapi.json")
            yield Request("GET", "/v1/server")
            yield Request("GET", "/nothing/" + "x" * 200)
            yield Request("GET", "/v1/studies")
            yield nobody.sign(Request("GET", "/v1/studies"))
            yield self._forger.sign(Request("GET", "/v1/studies"))
            yield nobody.sign(Request("POST", "/v1/parties", registration))
            yield Request("BREW", "/readyz")

    def request(self) -> Request:
        """Return one request after the other."""
        return next(self._requests)


class Garbage(Attack):
    """A stranger sends what is no HTTP, or HTTP of the kind that confuses readers."""

    _BEGINNINGS = (
        b"",
        b"GET / HTTP/1.1\r\n",
        b"GET /v1/server HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        b"POST /v1/parties HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n",
        b"POST /v1/parties HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;"
        + b"e" * 9_000,
        (
            b"GET /v1/server HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        ),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET " + b"/x" * 20_000 + b" HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    )

    def __init__(self, url: str, seed: int = 0) -> None:
        """Choose the sequence of what is sent."""
        super().__init__(url)
        self._draw = random.Random(seed)  # noqa: S311 - chooses among kinds of nonsense

    def attempt(self) -> str:
        """Send one thing, and see whether it is answered."""
        data = self._draw.choice(self._BEGINNINGS) + self._draw.randbytes(200)
        with self.connect() as opened:
            opened.sendall(data)
            opened.shutdown(socket.SHUT_WR)
            opened.settimeout(ANSWER_SECONDS)
            answer = opened.recv(_LOOK_BYTES)
        return answer[9:12].decode("latin-1") if answer.startswith(b"HTTP/") else "closed"


class SlowBodies(HeldConnections):
    """A registered party sends large bodies so slowly that they never end."""

    rest = 0.5

    def __init__(self, url: str, signer: Signer, path: str, count: int = 8) -> None:
        """Choose the route, which takes large bodies, and how many to send at once."""
        super().__init__(url, count)
        self._signer, self._path = signer, path

    def begin(self, opened: socket.socket) -> None:
        """Begin a good request."""
        request = self._signer.sign(Request("POST", self._path, os.urandom(1_000)))
        opened.sendall(head(request, Content_Length=str(10**6)))

    def use(self, opened: socket.socket) -> None:
        """Send one more byte of the body."""
        opened.send(b"x")


class UnreadAnswers(HeldConnections):
    """A registered party asks for long answers and does not read them."""

    def __init__(self, url: str, signer: Signer, path: str, count: int = 30) -> None:
        """Choose what to ask for, and on how many connections."""
        super().__init__(url, count)
        self._signer, self._path = signer, path

    def connect(self) -> socket.socket:
        """Open a connection that can take next to nothing."""
        opened = socket.socket()
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        opened.bind((next(_sources), 0))
        opened.settimeout(CONNECT_SECONDS)
        try:
            opened.connect(self._address)
        except OSError:
            opened.close()
            raise
        return opened

    def begin(self, opened: socket.socket) -> None:
        """Ask."""
        opened.sendall(head(self._signer.sign(Request("GET", self._path))))

    def is_lost(self, opened: socket.socket) -> bool:
        """Tell whether a connection was ended, and look at no answer."""
        return _is_cut(opened)


def _is_cut(opened: socket.socket) -> bool:
    """Tell whether a connection was ended, without taking anything from it."""
    with selectors.DefaultSelector() as selector:
        selector.register(opened, selectors.EVENT_READ)
        if not selector.select(0):
            return False
    try:
        return not opened.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def together(attacks: Sequence[Attack], seconds: float) -> dict[str, dict[str, int]]:
    """Run attacks at the same time for a while, and return what came of them."""
    with Siege(attacks) as siege:
        time.sleep(seconds)
    return siege.outcomes
