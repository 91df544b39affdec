"""One signed request after the other, to a server that may be away, slow, or hostile.

A restart of the server must not end anybody's work, so what may pass is tried again.
"""

import ipaddress
import re
import secrets
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Self, TypeVar

import httpx

from veiltab.errors import ConnectionFailedError, MalformedError, ParameterError
from veiltab.party.answers import read_problem, unexpected, with_skew
from veiltab.wire.codec import MAX_MESSAGE_BYTES

T = TypeVar("T")
Jitter = Callable[[], float]
OnWait = Callable[[str, float], None]

MAX_RETRY_AFTER = 60.0
"""The server may ask for patience, but not for more than this at a time, in seconds."""

_MAX_DOUBLINGS = 60


class ClosedAtEnd:
    """Something that a ``with`` statement closes at its end."""

    def __enter__(self) -> Self:
        """Return the thing itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it, whatever has happened."""
        self.close()

    def close(self) -> None:
        """Let go of connections and threads."""
        raise NotImplementedError


class TryAgainError(Exception):
    """A try failed in a way that may pass; ``after`` is the wait that the server asked for."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        """Keep the reason in a few words, as people see it while they wait."""
        super().__init__(reason)
        self.reason = reason
        self.after = after


def _say_nothing(_reason: str, _seconds: float) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often and how long to try: exponential backoff with full jitter.

    Waits are drawn between nothing and ``base`` times a power of two, at most ``cap``: clients
    that lost the server together do not come back together.  After ``total`` seconds or
    ``attempts`` tries it ends.  ``on_wait`` is told before every wait, from any thread.
    """

    total: float = 300.0
    attempts: int = 1_000
    base: float = 0.5
    cap: float = 15.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    jitter: Jitter = field(default_factory=lambda: secrets.SystemRandom().random)
    on_wait: OnWait = _say_nothing

    def __post_init__(self) -> None:
        """Refuse a policy that would never try, or wait for a negative time."""
        if self.attempts < 1 or min(self.total, self.base, self.cap) < 0:
            raise ParameterError(
                "a retry policy needs at least one attempt, and no negative time",
                hint="use attempts=1 to try once",
            )

    def run(self, attempt: Callable[[], T]) -> T:
        """Call ``attempt`` until it raises no :class:`TryAgainError`, or patience ends."""
        start = self.clock()
        for number in range(self.attempts):
            try:
                return attempt()
            except TryAgainError as error:
                failure = error
            left = self.total - (self.clock() - start)
            if left <= 0 or number == self.attempts - 1:
                break
            wait = min(self._wait(number, failure.after), left)
            self.on_wait(failure.reason, wait)
            self.sleep(wait)
        raise ConnectionFailedError(
            f"the server did not answer ({failure.reason}); tried {number + 1:,} times",
            hint="check the network, the server's URL and whether it runs; then run this again:"
            " nothing that was sent is lost, and nothing is sent twice",
        ) from failure

    def _wait(self, number: int, after: float | None) -> float:
        """Return the seconds before the next try; ``after`` is spread out too."""
        longest = min(self.cap, self.base * 2.0 ** min(number, _MAX_DOUBLINGS))
        asked = 0.0 if after is None else min(max(after, 0.0), MAX_RETRY_AFTER)
        return asked + self.jitter() * (longest if after is None else self.base)


MAX_CONNECTIONS = 8
_MAX_REFUSAL_BYTES = 2**16

JSON = "application/json"
CHUNK = "application/octet-stream"

_OK = range(200, 300)
_RETRIED = frozenset({408, 429, 502, 503, 504})
_INTERNAL = 500
_SECONDS = re.compile("[0-9]{1,6}")
_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 60.0
# Shorter than servers keep idle connections, so that few requests meet one that is just closing.
_IDLE_SECONDS = 3.0

Headers = dict[str, str]


@dataclass(frozen=True, slots=True)
class Call:
    """A request before it is signed; ``limit`` bounds the answer.

    A long body comes in pieces: ``more`` follows ``body``.
    """

    method: str
    path: str
    body: bytes = b""
    content_type: str = JSON
    limit: int = MAX_MESSAGE_BYTES
    more: Sequence[bytes] = ()

    @property
    def length(self) -> int:
        """How many bytes the whole body has."""
        return len(self.body) + sum(map(len, self.more))

    def content(self) -> bytes | Iterator[bytes]:
        """Return the whole body, for one try."""
        return iter((self.body, *self.more)) if self.more else self.body


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How to reach a server: what a command's options and a test can set."""

    ca_file: Path | None = None
    proxy: str | None = None
    allow_insecure: bool = False
    transport: httpx.BaseTransport | None = None


class Connection:
    """Requests to one base URL, each tried until it has an answer; usable by many threads."""

    def __init__(self, url: str, reach: Reach, retry: Retry, clock: Callable[[], float]) -> None:
        """Refuse an unsafe URL; nothing is sent yet."""
        self.url = checked_url(url, allow_insecure=reach.allow_insecure)
        self._retry, self._clock = retry, clock
        self._closed = Event()
        self._client = httpx.Client(
            verify=_trusted(reach.ca_file, self.url),
            proxy=None if reach.proxy is None else _checked_proxy(reach.proxy),
            transport=reach.transport,
            # The environment could name a proxy, or a file with passwords to send along.
            trust_env=False,
            # Who asks is known by the signature; a server has nothing to remember on this side.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            follow_redirects=False,
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            limits=httpx.Limits(
                max_connections=MAX_CONNECTIONS,
                max_keepalive_connections=MAX_CONNECTIONS,
                keepalive_expiry=_IDLE_SECONDS,
            ),
        )

    def close(self) -> None:
        """Close every connection; threads that still try stop trying."""
        self._closed.set()
        self._client.close()

    def send(self, call: Call, sign: Callable[[Call], Headers]) -> bytes:
        """Return the body of the answer; every try is signed anew, so none looks like a replay."""
        return self._retry.run(lambda: self._try(call, sign(call)))

    def _try(self, call: Call, headers: Headers) -> bytes:
        if self._closed.is_set():
            raise ConnectionFailedError(
                "the connection to the server was closed", hint="open it again, and try again"
            )
        with _passing_failures():
            request = self._client.build_request(
                call.method,
                self.url + call.path,
                content=call.content(),
                headers=_plain_headers(call) | headers,
            )
            answer = self._client.send(request, stream=True)
            try:
                # A refusal is short; only what was asked for may be long.
                limit = call.limit if answer.status_code in _OK else _MAX_REFUSAL_BYTES
                body = _read(answer, limit)
            finally:
                answer.close()
        return self._judge(answer, body, limit)

    def _judge(self, answer: httpx.Response, body: bytes, limit: int) -> bytes:
        status = answer.status_code
        if status in _OK and len(body) <= limit:
            return body
        if status in _OK:
            raise MalformedError(
                f"the server's answer has more than {limit:,} bytes",
                hint="check the URL, and ask the server's operator",
            )
        problem = read_problem(answer.headers.get("content-type", ""), body)
        if status in _RETRIED or (status == _INTERNAL and problem is None):
            reason = f"it answers {status}" if problem is None else problem.message
            raise TryAgainError(reason, _retry_after(answer.headers.get("retry-after", "")))
        if problem is None:
            raise unexpected(status)
        raise with_skew(problem, answer.headers.get("date"), self._clock())


def checked_url(url: str, *, allow_insecure: bool) -> str:
    """Return a base URL without its last slash; refuse secrets in it, and plain http elsewhere."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise _bad_url("cannot be read") from error
    if parsed.userinfo:  # not shown: it may be a password
        raise _bad_url("has a user name or a password in it")
    if parsed.scheme not in {"https", "http"} or not parsed.host:
        raise _bad_url("does not begin with https:// and a host")
    if parsed.path not in {"", "/"} or parsed.query or parsed.fragment:
        raise _bad_url("has a path, a query or a fragment after the host")
    if parsed.scheme == "http" and not (allow_insecure or _is_loopback(parsed.host)):
        raise _bad_url("is not encrypted (http), and not on this computer")
    return str(parsed).rstrip("/?#")


def _bad_url(problem: str) -> ParameterError:
    return ParameterError(
        f"the server's URL {problem}",
        hint="write it as https://stats.example.org, and no more: you are known by your key alone",
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _checked_proxy(proxy: str) -> httpx.Proxy:
    try:
        parsed = httpx.URL(proxy)
    except httpx.InvalidURL as error:
        raise _bad_proxy("cannot be read") from error
    if parsed.userinfo:
        raise _bad_proxy("has a user name or a password in it")
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise _bad_proxy("does not begin with http:// or https:// and a host")
    return httpx.Proxy(parsed)


def _bad_proxy(problem: str) -> ParameterError:
    return ParameterError(
        f"the proxy's URL {problem}", hint="write it as http://proxy.example.org:3128"
    )


def _trusted(ca_file: Path | None, url: str) -> ssl.SSLContext | bool:
    """Return whose certificates are believed: the usual ones, or those of one file alone.

    Plain http asks for no certificate, and would otherwise wait for the usual ones to be read.
    """
    if ca_file is None:
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.startswith("http:") else True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ParameterError(
            f"the file of trusted certificates cannot be used: {ca_file}",
            hint="give a readable file of certificates in PEM form",
        ) from error


def _plain_headers(call: Call) -> Headers:
    """Return the headers that nobody signs; compressed answers are not wanted."""
    headers = {
        "User-Agent": "veiltab",
        "Accept": "*/*",
        "Accept-Encoding": "identity",
    }
    if not call.body:
        return headers
    return headers | {"Content-Type": call.content_type, "Content-Length": str(call.length)}


@contextmanager
def _passing_failures() -> Iterator[None]:
    """Tell failures that may pass from those that will not."""
    try:
        yield
    except httpx.TransportError as error:
        if _is_certificate(error):
            raise ConnectionFailedError(
                "the server's certificate is not one that this computer trusts",
                hint="check the URL; if the server has its own authority, name its CA file",
            ) from error
        if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
            raise ConnectionFailedError(
                "the request cannot be sent to this URL", hint="check the server's URL"
            ) from error
        raise TryAgainError(_in_words(error)) from error


def _is_certificate(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _in_words(error: httpx.TransportError) -> str:
    match error:
        case httpx.ConnectTimeout() | httpx.ConnectError():
            return "it cannot be reached"
        case httpx.TimeoutException():
            return "it takes too long"
        case httpx.ProxyError():
            return "the proxy does not let the request through"
    return "the connection broke"


def _read(answer: httpx.Response, limit: int) -> bytes:
    """Read a body as it comes in, up to one byte more than it may have."""
    # Compressed answers were not asked for; a small one could grow without bounds if unpacked.
    answer.headers.pop("content-encoding", None)
    parts, left = [], limit + 1
    for part in answer.iter_bytes():
        parts.append(part[:left])
        left -= len(parts[-1])
        if not left:
            break
    return b"".join(parts)


def _retry_after(text: str) -> float | None:
    """Read seconds; the other form, a date, would only be as good as two clocks."""
    return float(text) if _SECONDS.fullmatch(text) else None
