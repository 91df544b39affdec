"""Who may use the console: its own browser tab, and nobody else.

The console listens on the loopback address, where every program and every web page on this
computer can try to reach it.  So each request is checked before any page sees it:

* it comes from a program of the user who started the console, where the system can tell;
* its ``Host`` is the console's own address: names that an attacker's DNS points here are refused;
* the browser says that it comes from one of our own pages, or from the address bar;
* it carries the cookie that the one-time link was exchanged for;
* if it may change anything, it is a small form with the secret of this session in it.

Every answer forbids scripts, frames, plug-ins and connections that are not the console's own.
"""

import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from threading import Lock
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from veiltab.core.entropy import Entropy, random_bytes

TOKEN_BYTES = 32
LINK_SECONDS = 600.0
"""How long a one-time link can be opened."""

SESSION_SECONDS = 12 * 3600.0
"""How long a browser stays let in; then it takes a new link."""

LARGEST_FORM = 1 << 20
"""Bytes of a form: a mapping of a few thousand values fits."""

MOST_FIELDS = 20_000

ENTER = "/enter"
OPEN_PATHS = ("/static/",)
"""What anybody on this computer may read: the style and the scripts, which hold no data."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    # Widths of bars; no text that somebody else has chosen becomes such an attribute.
    " style-src-attr 'unsafe-inline';"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    # Not "no-referrer": with it, browsers send forms of our own pages with the origin "null".
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

CLOSED = """<!doctype html><html lang="en-GB"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>veiltab console</title><link rel="stylesheet" href="/static/console.css">
<link rel="icon" href="/static/icon.svg"></head>
<body class="closed"><main><h1>{title}</h1><p>{text}</p></main></body></html>"""


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A browser that was let in: the secret of its cookie, and the one of its forms."""

    cookie: str
    form_token: str
    since: float


@dataclass(slots=True)
class Door:
    """One-time links, and the browsers that have used one."""

    entropy: Entropy
    clock: Callable[[], float] = time.monotonic
    _links: dict[str, float] = field(default_factory=dict)
    _sessions: dict[str, BrowserSession] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def new_token(self) -> str:
        """Draw the secret of a new one-time link; the links before it stop working."""
        token = random_bytes(TOKEN_BYTES, self.entropy).hex()
        with self._lock:
            self._links = {token: self.clock() + LINK_SECONDS}
        return token

    def enter(self, token: str) -> BrowserSession | None:
        """Let a browser in whose link is good; the link is good once."""
        with self._lock:
            for link, until in list(self._links.items()):
                if hmac.compare_digest(link.encode(), token.encode()):
                    del self._links[link]
                    return self._let_in() if self.clock() < until else None
        return None

    def session(self, cookie: str) -> BrowserSession | None:
        """Return the browser with this cookie, if it was let in and its time is not over."""
        with self._lock:
            for known in list(self._sessions.values()):
                if self.clock() >= known.since + SESSION_SECONDS:
                    del self._sessions[known.cookie]
                elif hmac.compare_digest(known.cookie.encode(), cookie.encode()):
                    return known
        return None

    def leave(self, session: BrowserSession) -> None:
        """Let a browser in no longer."""
        with self._lock:
            self._sessions.pop(session.cookie, None)

    def _let_in(self) -> BrowserSession:
        cookie, form = (random_bytes(TOKEN_BYTES, self.entropy).hex() for _ in range(2))
        session = BrowserSession(cookie, form, self.clock())
        self._sessions[cookie] = session
        return session


class Guard:
    """The middleware that makes every check before a page is asked."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        door: Door,
        port: Callable[[], int],
        may_ask: Callable[[Scope], bool],
    ) -> None:
        """Stand before ``app``; ``port`` tells where the console listens, once it does.

        ``may_ask`` tells whether a request comes from this user's programs.
        """
        self._app, self._door, self._port, self._may_ask = app, door, port, may_ask

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on what may pass."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # the console has no web sockets
            await _refuse(404, "Not found", "There is no such page.")(scope, receive, send)
            return
        send = _with_headers(send)
        answer = self._check(scope)
        if answer is None and scope["method"] == "POST":
            answer, receive = await self._check_form(scope, receive)
        await (answer or self._app)(scope, receive, send)

    def _check(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._may_ask(scope):
            return _refuse(
                403,
                "Not yours",
                "This console belongs to another user of this computer. Start one of your own; for"
                " a folder of another user, with <code>sudo -u</code>.",
            )
        if headers.getlist("host") != [f"127.0.0.1:{self._port()}"]:
            return _refuse(421, "Not here", "This console answers to its own address alone.")
        if scope["method"] not in {"GET", "HEAD", "POST"}:
            return _refuse(405, "Not so", "Pages are read and forms are sent; nothing else.")
        if not _from_own_page(headers, scope["method"], self._origin):
            return _refuse(403, "Not from there", "Another site or program has asked for this.")
        if scope["path"].startswith(OPEN_PATHS) and scope["method"] != "POST":
            return None
        return self._enter(scope) if scope["path"] == ENTER else self._check_cookie(scope, headers)

    def _check_cookie(self, scope: Scope, headers: Headers) -> Response | None:
        session = self._door.session(_cookie(headers, self.cookie_name))
        if session is None:
            closed = _refuse(
                401,
                "This page is closed",
                "Open the console with the link that <code>veiltab console</code> prints. A link"
                " works once: press Enter where the console runs, and it prints a new one.",
            )
            if "hx-request" in headers:  # only a part of the page is asked for: the whole says it
                closed.headers["hx-refresh"] = "true"
            return closed
        scope["veiltab.session"] = session
        return None

    @property
    def cookie_name(self) -> str:
        """The name of the cookie; browsers do not keep those of different ports apart."""
        return f"veiltab-console-{self._port()}"

    @property
    def _origin(self) -> str:
        return f"http://127.0.0.1:{self._port()}"

    def _enter(self, scope: Scope) -> Response:
        # Whatever else asks for it, such as a program that previews links, does not use it up.
        opens = scope["method"] == "GET"
        session = self._door.enter(_token(scope["query_string"])) if opens else None
        if session is None:
            return _refuse(
                401,
                "This link was used",
                "A link works once, and for ten minutes. Press Enter where the console runs, and"
                " it prints a new one.",
            )
        # Not a redirect: after one that began elsewhere, browsers hold a strict cookie back.
        page = CLOSED.format(title="Welcome", text='<a href="/">Go to the console</a>')
        # The next page is not told the link that led to it.
        refresh = (
            '<meta name="referrer" content="no-referrer">'
            '<meta http-equiv="refresh" content="0;url=/"></head>'
        )
        answer = HTMLResponse(page.replace("</head>", refresh))
        answer.set_cookie(self.cookie_name, session.cookie, httponly=True, samesite="strict")
        return answer

    async def _check_form(self, scope: Scope, receive: Receive) -> tuple[Response | None, Receive]:
        """Read a form whole, compare its secret, and leave its fields where pages find them."""
        headers = Headers(scope=scope)
        if headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
            return _refuse(415, "Not a form", "The console takes its own forms alone."), receive
        body = await _read(receive)
        if body is None:
            return _refuse(413, "Too long", "This form is larger than any of ours."), receive
        try:
            pairs = parse_qsl(
                body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"
            )
        except ValueError:
            return _refuse(400, "Unreadable", "This form cannot be read."), receive
        given = next((value for name, value in pairs if name == "form_token"), "")
        session: BrowserSession = scope["veiltab.session"]
        if not hmac.compare_digest(given.encode(), session.form_token.encode()):
            return _refuse(
                403, "Out of date", "This form is too old: load the page again."
            ), receive
        scope["veiltab.form"] = [pair for pair in pairs if pair[0] != "form_token"]
        return None, receive


def _from_own_page(headers: Headers, method: str, origin: str) -> bool:
    """Tell whether a browser says that our own page, or a person, asks for this."""
    site, sender = headers.get("sec-fetch-site"), headers.get("origin")
    if sender is not None and sender != origin:
        return False
    if method == "POST":
        return sender == origin and site in {None, "same-origin"}
    if site in {None, "none", "same-origin"}:
        return True
    # A link on another page may lead here; it may load nothing into that page.
    return (
        headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    )


def _token(query: bytes) -> str:
    """Return the secret of a one-time link; a query that is none of ours has none."""
    name, _, token = query.decode("latin-1").partition("=")
    return token if name == "token" else ""


def _cookie(headers: Headers, name: str) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if morsel is None else morsel.value


async def _read(receive: Receive) -> bytes | None:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > LARGEST_FORM:
            return None
        if not message.get("more_body"):
            return bytes(body)


def _with_headers(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return wrapped


def _refuse(status: int, title: str, text: str) -> Response:
    return HTMLResponse(CLOSED.format(title=title, text=text), status_code=status)
