"""Connections: how many there are, how long and how slow they may be.

Most of what is here applies to strangers: a request is read up to the end of its headers before
anybody has proved who it is.  So headers have a ceiling and a deadline, bodies and the readers of
answers a least rate, and connections that nobody has proved anything on make room for new ones.
"""

import asyncio
import ssl
import time
from collections import Counter
from contextlib import suppress
from http import HTTPStatus
from typing import Any, ClassVar

import httptools
from starlette.types import Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from veiltab.errors import RateLimitError
from veiltab.server.http.auth import PROVED
from veiltab.server.limits import KIB, Buckets, Patience, Settings, network
from veiltab.server.monitoring import Metrics

_PIECE = 64 * KIB
_LONGEST_TICK = 1.0
_ANSWER = (
    "HTTP/1.1 {status} {phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
    "cache-control: no-store\r\nx-content-type-options: nosniff\r\n"
    "content-length: {length}\r\nconnection: close\r\n\r\n{phrase}"
)


class Crowd:
    """All connections of a service; for one event loop."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        *,
        by_address: bool = True,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Start with none.  Behind a proxy all come from its address, which then says nothing."""
        self.settings, self.tls = settings, tls
        self._metrics, self._by_address = metrics, by_address
        self._members: set[GuardedProtocol] = set()
        self._counts: Counter[str] = Counter()
        self._arrivals = Buckets(
            settings.connection_rate, settings.connection_burst, time.monotonic
        )
        # A quarter, so that no deadline is missed by much.
        self._tick = min(
            _LONGEST_TICK,
            min(settings.first_byte_seconds, settings.header_seconds, settings.keep_alive_seconds)
            / 4,
            settings.grace_seconds / 4,
        )
        self._looked = 0.0
        self._is_looking = False

    def protocol(self) -> type[asyncio.Protocol]:
        """Return the protocol of a connection in this crowd."""
        return type("_Protocol", (GuardedProtocol,), {"crowd": self})

    def admit(self, newcomer: "GuardedProtocol") -> bool:
        """Make room for a new connection if there is none; tell whether it may stay."""
        if self._by_address:
            try:
                self._arrivals.take(newcomer.network)
            except RateLimitError:
                return self._refuse()
            if self._counts[newcomer.network] >= self.settings.connections_per_address:
                neighbours = [each for each in self._members if each.network == newcomer.network]
                if not self._dismiss_one(neighbours):
                    return self._refuse()
        if len(self._members) >= self.settings.connections and not self._dismiss_one(
            list(self._members)
        ):
            return self._refuse()
        self._members.add(newcomer)
        self._counts[newcomer.network] += 1
        self._metrics.connections.set(len(self._members))
        self._look_later()
        return True

    def leave(self, member: "GuardedProtocol") -> None:
        """Forget a connection that has ended."""
        if member not in self._members:
            return
        self._members.remove(member)
        self._counts[member.network] -= 1
        if not self._counts[member.network]:
            del self._counts[member.network]
        self._metrics.connections.set(len(self._members))

    def count(self, reason: str) -> None:
        """Count a connection that was ended by the service."""
        self._metrics.ended.labels(reason).inc()

    def _refuse(self) -> bool:
        self.count("too_many")
        return False

    def _dismiss_one(self, members: "list[GuardedProtocol]") -> bool:
        """End the connection that has been idle longest, first of the address with the most."""
        idle = [member for member in members if not member.is_needed]
        if not idle:
            return False
        chosen = min(idle, key=lambda member: (-self._counts[member.network], member.idle_since))
        self.count("too_many")
        self.leave(chosen)
        chosen.abort()
        return True

    def _look_later(self) -> None:
        if self._is_looking:
            return
        loop = asyncio.get_running_loop()
        self._is_looking, self._looked = True, loop.time()
        loop.call_later(self._tick, self._look)

    def _look(self) -> None:
        """Let every connection see how much time has passed."""
        now = asyncio.get_running_loop().time()
        # If the service itself has slept, nobody else was slow.
        elapsed, self._looked = min(now - self._looked, 2 * self._tick), now
        for member in list(self._members):
            member.check_time(now, elapsed)
        self._is_looking = False
        if self._members:
            self._look_later()


class _RefusedError(Exception):
    """What has come is not taken; raised inside the parser's callbacks, which stops it."""

    def __init__(self, status: HTTPStatus | None) -> None:
        """Keep the status to answer with; none ends the connection without an answer."""
        super().__init__(status)
        self.status = status


class GuardedProtocol(HttpToolsProtocol):
    """One connection, over TLS if its crowd has a certificate.

    A request is idle, reads a head, reads a body, and is answered; each has its limit of time.
    Requests come one after the other: a second one waits for the answer to the first, and if both
    were sent together, that answer ends the connection.
    """

    crowd: ClassVar[Crowd]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Start without a connection."""
        super().__init__(config, server_state, app_state, _loop)
        self._application, self.app = self.app, self._run
        self._limits = self.crowd.settings
        self._raw: asyncio.Transport | None = None
        self._is_open = self._has_asked = False
        self._early = b""
        self.network = ""
        self.idle_since = self._since = self.loop.time()
        self._is_proved = self._is_deaf = False
        self._in_head, self._head_bytes, self._lines = True, 0, 0
        self._body_bytes, self._body_counted = 0, 0
        self._written, self._taken_counted = 0, 0
        self._body = Patience(self._limits.grace_seconds, self._limits.least_rate)
        self._answer = Patience(self._limits.grace_seconds, self._limits.least_rate)

    # Beginning and end

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place among the connections; begin with TLS if there is a certificate."""
        self._raw = transport
        peer = transport.get_extra_info("peername")
        self.network = network(peer[0]) if isinstance(peer, tuple) else ""
        if not self.crowd.admit(self):
            transport.abort()
        elif self.crowd.tls is None:
            self._begin(transport)
        else:
            self._handshake = self.loop.create_task(self._encrypt(transport, self.crowd.tls))

    async def _encrypt(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        """Do the handshake here, so that connections count, and can be ended, before it."""
        encrypted = None
        with suppress(OSError):  # errors of TLS and of time are among these
            encrypted = await self.loop.start_tls(
                transport,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=self._limits.handshake_seconds,
                ssl_shutdown_timeout=self._limits.grace_seconds,
            )
        if encrypted is None or transport.is_closing():
            self.crowd.leave(self)
            transport.abort()
            return
        self._begin(encrypted)
        early, self._early = self._early, b""
        self.data_received(early)

    def _begin(self, transport: asyncio.Transport) -> None:
        self._is_open, self._since = True, self.loop.time()
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self.crowd.leave(self)
        if self._is_open:
            super().connection_lost(exc)

    def abort(self) -> None:
        """End the connection at once, whatever is under way."""
        if self._raw is not None:
            self._raw.abort()

    @property
    def is_needed(self) -> bool:
        """Whether a request of somebody known is being answered."""
        return self._is_proved and self._is_working

    @property
    def _is_working(self) -> bool:
        return self._has_asked and not self.cycle.response_complete

    @property
    def _unsent(self) -> int:
        """How many bytes wait for the reader."""
        if self._raw is None or not self._is_open:
            return 0
        size = self._raw.get_write_buffer_size()
        if self.transport is not self._raw:
            size += self.transport.get_write_buffer_size()
        return size

    def prove(self) -> None:
        """Note that the request in progress is by somebody known."""
        self._is_proved = True

    # Reading

    def data_received(self, data: bytes) -> None:
        """Read a part of a request, in steps that keep to the ceiling of its head."""
        if not self._is_open:  # the handshake has ended just now
            self._early += data
            return
        if self._is_working and self._in_head and not self._head_bytes:
            # A client may have read the whole of an answer before its end is noted here.
            self._early += data
            self.flow.pause_reading()
            return
        position = 0
        try:
            while position < len(data) and not self._is_deaf and not self.transport.is_closing():
                position += self._feed(data, position)
        except httptools.HttpParserUpgrade:
            self._refuse(HTTPStatus.BAD_REQUEST)
        except httptools.HttpParserError as error:
            cause = error.__context__
            refused = cause if isinstance(cause, _RefusedError) else None
            self._refuse(HTTPStatus.BAD_REQUEST if refused is None else refused.status)

    def _feed(self, data: bytes, position: int) -> int:
        most = self._limits.header_bytes
        if self._in_head:
            if not self._head_bytes:
                self._since = self.loop.time()
            most -= self._head_bytes
        part = data[position : position + most]
        if self._in_head:
            self._head_bytes += len(part)
        self.parser.feed_data(part)
        if self._in_head and self._head_bytes >= self._limits.header_bytes:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        return len(part)

    def on_message_begin(self) -> None:
        """Begin a request, unless the one before is not answered yet."""
        if self._is_working:
            self._is_deaf, self.cycle.keep_alive = True, False
            raise _RefusedError(None)
        self._is_proved = False
        super().on_message_begin()
        self.scope["extensions"] = {PROVED: {"prove": self.prove}}

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count the lines of a head; lines after the body are not wanted."""
        self._lines += 1
        if not self._in_head:
            raise _RefusedError(HTTPStatus.BAD_REQUEST)
        if self._lines > self._limits.header_lines:
            raise _RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start to answer; there is no other protocol to go on with."""
        if self.parser.should_upgrade():
            raise _RefusedError(HTTPStatus.BAD_REQUEST)
        self._in_head = False
        self._body_bytes = self._body_counted = 0
        self._body.renew()
        super().on_headers_complete()
        self._has_asked = True

    def on_body(self, body: bytes) -> None:
        """Count what has come; after the answer it is thrown away, up to the longest body."""
        self._body_bytes += len(body)
        if not self._is_working and self._body_bytes > self._limits.message_bytes:
            raise _RefusedError(None)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Be ready for the next head."""
        super().on_message_complete()
        self._in_head, self._head_bytes, self._lines = True, 0, 0
        self._since = self.loop.time()

    def _refuse(self, status: HTTPStatus | None) -> None:
        """Answer outside of the application, if there is no other answer yet, and end."""
        if self._is_deaf:
            return  # the first request is answered, and that ends the connection
        self.crowd.count("too_slow" if status == HTTPStatus.REQUEST_TIMEOUT else "unusable")
        unanswered = self._in_head or self._is_working
        if self._is_working:
            unanswered = not self.cycle.response_started
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if unanswered and status is not None:
            length = len(status.phrase)
            answer = _ANSWER.format(status=status.value, phrase=status.phrase, length=length)
            self.transport.write(answer.encode("ascii"))
        self.transport.close()

    # Answering

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application; its answer is handed over in pieces, each when there is room.

        So a request is in progress until its reader has taken nearly all of the answer.
        """

        async def hand_over(message: Message) -> None:
            if message["type"] != "http.response.body":
                if self.cycle.waiting_for_100_continue:
                    # Whether the body still comes is for the client to decide, and not to be known.
                    self.cycle.keep_alive = False
                await send(message)
                return
            body, more = memoryview(message.get("body", b"")), message.get("more_body", False)
            for start in range(0, len(body) or 1, _PIECE):
                piece = body[start : start + _PIECE]
                is_last = start + _PIECE >= len(body)
                await send({**message, "body": piece, "more_body": more or not is_last})
                self._written += len(piece)

        try:
            await self._application(scope, receive, hand_over)
        finally:
            self.idle_since = self.loop.time()

    def on_response_complete(self) -> None:
        """Wait for the next request; :meth:`check_time` sees how long."""
        super().on_response_complete()
        self._unset_keepalive_if_required()
        self._since = self.loop.time()
        early, self._early = self._early, b""
        if early:
            self.loop.call_soon(self.data_received, early)

    # Time

    def check_time(self, now: float, elapsed: float) -> None:
        """End the connection if it has taken too long; called again and again."""
        if not self._is_open:
            return  # the handshake has a limit of its own
        if not self._reader_lasts(elapsed):
            self.crowd.count("too_slow")
            self.abort()
        elif self.transport.is_closing():
            return
        elif self._in_head and not self._is_working and not self._head_bytes:
            limits = self._limits
            most = limits.keep_alive_seconds if self._has_asked else limits.first_byte_seconds
            if now - self._since > most:
                self.transport.close()
        elif self._is_late(now, elapsed):
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)

    def _reader_lasts(self, elapsed: float) -> bool:
        """Tell whether the reader of the answer takes it fast enough."""
        unsent = self._unsent
        taken = self._written - unsent
        moved, self._taken_counted = max(0, taken - self._taken_counted), taken
        if not unsent:
            self._answer.renew()
            return True
        return self._answer.lasts(elapsed, moved)

    def _is_late(self, now: float, elapsed: float) -> bool:
        """Tell whether a head or a body is too slow."""
        if self._in_head:
            return not self._is_working and now - self._since > self._limits.header_seconds
        if not self._is_working:  # the answer did not wait for the body
            return now - self._since > self._limits.grace_seconds
        if self.flow.read_paused or self.cycle.waiting_for_100_continue:
            return False  # the service does not want more yet
        moved, self._body_counted = self._body_bytes - self._body_counted, self._body_bytes
        return not self._body.lasts(elapsed, moved)
