"""HTTP by hand: servers that follow a script, and requests byte by byte."""

import json
import select
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import urlsplit

from tests.support.requests import Request


@dataclass(frozen=True)
class Seen:
    """A request as it came in; the names of headers are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    port: int
    """The sender's port: the same for requests on one connection."""


@dataclass(frozen=True)
class Reply:
    """What to answer; ``promised`` is the Content-Length, if it should be wrong."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    promised: int | None = None


class Drop:
    """Close the connection without a word."""


Script = Callable[[Seen], Reply | Drop]


class ScriptedServer:
    """Answers by a script, and remembers what it was asked."""

    def __init__(self, script: Script, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        """Listen on a port of this computer, by default a free one, encrypted or not."""
        self.seen: list[Seen] = []
        self._script, self._lock = script, Lock()
        self._http = _Listener(("127.0.0.1", port), self._handler())
        self.port: int = self._http.server_address[1]
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self._thread = Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and end open connections."""
        self._http.shutdown()
        self._http.end_all()
        self._http.server_close()
        self._thread.join()

    def _answer(self, seen: Seen) -> Reply | Drop:
        with self._lock:
            self.seen.append(seen)
        return self._script(seen)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30
            disable_nagle_algorithm = True

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(length)
                port = self.client_address[1]
                reply = outer._answer(Seen(self.command, self.path, headers, body, port))
                if isinstance(reply, Drop):
                    self.close_connection = True
                    return
                self.send_response_only(reply.status)
                promised = len(reply.body) if reply.promised is None else reply.promised
                for name, value in ({"Content-Length": str(promised)} | reply.headers).items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    self.wfile.write(reply.body)
                except OSError:  # the client had enough
                    self.close_connection = True
                if promised != len(reply.body):
                    self.close_connection = True

            do_GET = do_POST = do_PUT = _serve  # noqa: N815 - the names are the base class's

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Keep quiet."""

        return Handler


class _Listener(ThreadingHTTPServer):
    """Ends its connections when a test ends: threads must not outlive it."""

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(address, handler)

    def process_request(self, request: object, client_address: object) -> None:
        assert isinstance(request, socket.socket)
        self._open.add(request)
        super().process_request(request, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep quiet: clients that hang up are part of the tests."""

    def end_all(self) -> None:
        """Shut every connection down; those that are closed already do not mind."""
        for each in self._open:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


@contextmanager
def scripted_server(
    *replies: Reply | Drop | Script, port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[ScriptedServer]:
    """Run a server that gives these answers one after the other, the last one for ever."""
    remaining = list(replies)
    lock = Lock()

    def script(seen: Seen) -> Reply | Drop:
        with lock:
            step = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        return step(seen) if callable(step) else step

    server = ScriptedServer(script, port, tls)
    try:
        yield server
    finally:
        server.close()


class FakeTime:
    """A clock that moves only when somebody sleeps."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        """Start at a time; remember every sleep."""
        self.now = now
        self.slept: list[float] = []

    def clock(self) -> float:
        """Return the time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass at once."""
        self.slept.append(seconds)
        self.now += seconds


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> Any:  # noqa: ANN401 - JSON
        """The stable code of a problem document."""
        return json.loads(self.body)["code"]


class Wire:
    """One connection to a service."""

    def __init__(self, opened: socket.socket) -> None:
        """Take a socket that is connected."""
        self._socket = opened

    def begin(self, request: Request, **headers: str) -> None:
        """Send the head of a request, and nothing of its body."""
        target = request.path + (f"?{request.query}" if request.query else "")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{request.method} {target} HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in (*request.headers, *named.items())]
        self.send("\r\n".join([*lines, "", ""]).encode("ascii"))

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def send_part(self, data: bytes) -> None:
        """Send a part of a body whose length nobody has announced."""
        self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def answer(self) -> Answer:
        """Wait for an answer; the test fails if it takes long."""
        found = HTTPResponse(self._socket)
        found.begin()
        body = found.read()
        return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, body)

    def rest(self) -> bytes:
        """Return everything until the service ends the connection; the test fails if it does not.

        An end without ceremony is an end as well.
        """
        received = bytearray()
        try:
            while part := self._socket.recv(2**16):
                received += part
        except ConnectionError:
            pass
        return bytes(received)

    def is_quiet(self, seconds: float) -> bool:
        """Wait for a while; tell whether neither bytes nor an end have come."""
        return not select.select([self._socket], [], [], seconds)[0]

    def is_open(self) -> bool:
        """Tell whether the service has not ended the connection so far."""
        self._socket.settimeout(0)
        try:
            return self._socket.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        finally:
            self._socket.settimeout(10.0)


@contextmanager
def wire(
    url: str, seconds: float = 10.0, source: str = "127.0.0.1", buffer: int | None = None
) -> Iterator[Wire]:
    """Connect to a service until the block ends; from another address of this computer, if named.

    ``buffer`` is how much the system receives for whoever does not read.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    with socket.socket() as opened:
        if buffer is not None:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        opened.settimeout(seconds)
        opened.bind((source, 0))
        opened.connect((parts.hostname, parts.port or 80))
        yield Wire(opened)
