"""The service as an ASGI application, and serving it: a socket, TLS, and an orderly end.

Every request is counted, logged and answered.
"""

import asyncio
import errno
import logging
import resource
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import uvicorn
from fastapi import Depends, FastAPI, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config

from veiltab.errors import ParameterError, RateLimitError
from veiltab.server.context import ServiceContext
from veiltab.server.http.auth import TURN, Gate
from veiltab.server.http.connections import Crowd
from veiltab.server.http.key_routes import key_routes
from veiltab.server.http.problems import install_problems, unexpected
from veiltab.server.http.routes import block_routes, operator_routes, party_routes, study_routes
from veiltab.server.limits import KIB, SOFTWARE_VERSION, Buckets
from veiltab.server.monitoring import CONTENT_TYPE, Metrics
from veiltab.server.vaults.routes import repad_routes, vault_routes
from veiltab.server.witnesses import witness_routes
from veiltab.server.worker import Worker

_log = logging.getLogger("veiltab.access")
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_REFUSED, _NO_METHOD, _FAILED = 400, 405, 500
_UNTOLD = frozenset({401, 404, 405, 429})

CHUNK_ROUTES = frozenset(
    {
        "/v1/studies/{study}/chunks",
        "/v1/studies/{study}/release/chunks",
        "/v1/studies/{study}/repad-request/chunks",
        "/v1/vaults/{vault}/chunks",
    }
)
"""Routes that are counted only if they fail: how often they are asked tells how long tables are."""


REFUSALS_RATE, REFUSALS_BURST = 1.0, 100
"""Refusals that are logged in a second, and at once; the metrics count all of them."""

BACKLOG = 128
"""Connections that wait for the service to look; so many more files may be open for a moment."""

SWITCH_SECONDS = 2e-4
"""How long a busy thread keeps the others waiting: a request is handed over several times."""

OTHER_FILES = 512
"""Files that the service opens beside its connections, at most."""

UNSENT_BYTES = 128 * KIB
"""How much of an answer the system holds for a reader, beyond what is on its way."""


class Observer:
    """Counts and logs every request by its route, never by what is in it."""

    def __init__(self, app: ASGIApp, context: ServiceContext, gate: Gate) -> None:
        """Wrap an application."""
        self._app, self._context, self._gate = app, context, gate
        self._refusals = Buckets(REFUSALS_RATE, REFUSALS_BURST, time.monotonic)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and record its outcome."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if "route" not in scope or status == _NO_METHOD:
                    await self._gate.lost(scope)
                scope.get(TURN, _nothing)()
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Cache-Control"] = "no-store"
            await send(message)

        try:
            await self._app(scope, receive, send_on)
        except Exception as error:
            if status:  # too late for another answer: the connection must break
                raise
            await unexpected(error)(scope, receive, send_on)
        finally:
            self._record(scope, status or _FAILED, time.perf_counter() - started)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "(none)")
        # A stranger can invent methods, and the metrics would keep each of them for ever.
        method = scope["method"] if scope["method"] in _METHODS else "(other)"
        if route not in CHUNK_ROUTES or status >= _REFUSED:
            self._context.metrics.requests.labels(method, route, status).inc()
            self._context.metrics.seconds.labels(method, route).observe(seconds)
        if status in _UNTOLD and not self._is_told():
            return
        _log.info(
            "request",
            extra={
                "method": method,
                "route": route,
                "status": status,
                "milliseconds": round(1000 * seconds, 1),
            },
        )

    def _is_told(self) -> bool:
        """Tell whether one more refusal is logged: a stranger could fill the disk with them."""
        try:
            self._refusals.take("")
        except RateLimitError:
            return False
        return True


def _nothing() -> None:
    """End no turn."""


DESCRIPTION = """\
Stores ciphertext, joins it, perturbs it once, and hands it to researchers whom curators authorise.
Every request but those under *operator* is signed (RFC 9421); messages are canonical JSON, as
docs/spec/protocol-v1.md says.
"""


def create_app(context: ServiceContext) -> FastAPI:
    """Return the application; its worker runs from start-up to shutdown."""
    worker, gate = Worker(context), Gate(context)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        worker.start()
        yield
        await run_in_threadpool(worker.stop, context.settings.shutdown_seconds)

    app = FastAPI(
        title="veiltab",
        version=SOFTWARE_VERSION,
        description=DESCRIPTION,
        lifespan=lifespan,
        openapi_url=None,  # it has no limit
        docs_url=None,  # both pages would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # a redirect would repeat the request's URL, with any host in it
    )
    app.state.worker = worker
    install_problems(app)
    for router in (
        operator_routes(context, worker, gate),
        party_routes(context, gate),
        key_routes(context, gate),
        block_routes(context, gate),
        study_routes(context, gate, worker),
        vault_routes(context, gate),
        repad_routes(context, gate, worker),
        witness_routes(context, gate),
    ):
        # To include a router would build each of its routes twice, and find them more slowly.
        app.router.routes.extend(router.routes)
    app.add_api_route(
        "/openapi.json",
        _description(app),
        include_in_schema=False,
        dependencies=[Depends(gate.stranger)],
    )
    app.add_middleware(Observer, context=context, gate=gate)
    return app


def metrics_app(metrics: Metrics) -> ASGIApp:
    """Return the application of the operator's own port."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        answer = Response("there is only GET /metrics here\n", 404)
        if scope["path"] == "/metrics" and scope["method"] in {"GET", "HEAD"}:
            answer = Response(metrics.expose(), media_type=CONTENT_TYPE)
        await answer(scope, receive, send)

    return app


def _description(app: FastAPI) -> Callable[[], Awaitable[Response]]:
    """Return the route that describes all others, with an answer that is made once."""
    made: list[Response] = []

    async def openapi() -> Response:
        if not made:
            made.append(JSONResponse(app.openapi()))
        return made[0]

    return openapi


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen; with a certificate and its key, over TLS.  Port 0 takes any free one.

    With ``behind_proxy``, the service believes what a proxy on this machine says about a client's
    address.  Without a proxy, clients could invent addresses, and have a rate limit for each.
    The metrics are on a port of this machine alone; 0 is none.
    """

    host: str = "127.0.0.1"
    port: int = 8750
    certificate: Path | None = None
    certificate_key: Path | None = None
    behind_proxy: bool = False
    metrics_port: int = 0

    def __post_init__(self) -> None:
        """Refuse half of a certificate."""
        if (self.certificate is None) != (self.certificate_key is None):
            raise ParameterError(
                "TLS needs a certificate and its key", hint="give both --tls-cert and --tls-key"
            )

    @property
    def scheme(self) -> str:
        """How the service is reached."""
        return "http" if self.certificate is None else "https"


class WebServer(uvicorn.Server):
    """Serves an application, and its metrics to this machine; ``ready`` is called when it can."""

    def __init__(
        self, config: Config, metrics: Config, ready: Callable[[], None] = lambda: None
    ) -> None:
        """Take the configurations of both; nothing is opened yet."""
        super().__init__(config)
        self._metrics, self._ready = metrics, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on the first socket, and answer for the metrics on a second one."""
        first, *others = sockets or []
        await super().startup([first])
        for listening in others:
            self.servers.append(await self._listen_for_metrics(listening))
        if self.started:
            self._ready()

    async def _listen_for_metrics(self, listening: socket.socket) -> asyncio.Server:
        config = self._metrics

        def protocol() -> asyncio.Protocol:
            made: Callable[..., asyncio.Protocol] = config.http_protocol_class
            return made(config=config, server_state=self.server_state, app_state={})

        return await asyncio.get_running_loop().create_server(protocol, sock=listening)


@contextmanager
def listening(address: Address) -> Iterator[list[socket.socket]]:
    """Open the sockets of the service and of its metrics, before anything else is started."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(_listen(address))]
        if address.metrics_port:
            sockets.append(stack.enter_context(_listen_for_metrics(address.metrics_port)))
        yield sockets


def serve(
    context: ServiceContext,
    address: Address,
    sockets: list[socket.socket],
    ready: Callable[[str], None],
) -> None:
    """Serve until the process is told to stop; ``ready`` is called with the URL once it can.

    SIGTERM and SIGINT let running requests finish.  The data directory is locked meanwhile.
    """
    _allow_files(context.settings.connections + BACKLOG + OTHER_FILES)
    sys.setswitchinterval(SWITCH_SECONDS)
    with context.folders.lock():
        host, port = sockets[0].getsockname()[:2]
        url = f"{address.scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        web_server(context, address, ready=lambda: ready(url)).run(sockets)


def _allow_files(most: int) -> None:
    """Let the process open so many files, if the system does."""
    allowed, ceiling = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed < most:
        most = most if ceiling == resource.RLIM_INFINITY else min(most, ceiling)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, ceiling))


def web_server(
    context: ServiceContext,
    address: Address,
    app: FastAPI | None = None,
    ready: Callable[[], None] = lambda: None,
) -> WebServer:
    """Do everything that can fail before the service starts.

    The application is that of the context unless another one is given.
    """
    crowd = Crowd(
        context.settings,
        context.metrics,
        by_address=not address.behind_proxy,
        tls=_certified(address),
    )
    local = Crowd(context.settings, Metrics())  # counts apart: it is the operator's
    metrics = _configure(metrics_app(context.metrics), context, local, lifespan="off")
    service = _configure(
        app or create_app(context), context, crowd, proxy_headers=address.behind_proxy
    )
    return WebServer(service, metrics, ready)


def _configure(
    app: ASGIApp,
    context: ServiceContext,
    crowd: Crowd,
    *,
    proxy_headers: bool = False,
    lifespan: Literal["on", "off"] = "on",
) -> Config:
    config = Config(
        app,
        http=crowd.protocol(),
        loop="asyncio",
        ws="none",  # a web socket would leave the guarded protocol
        lifespan=lifespan,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=proxy_headers,
        backlog=BACKLOG,
        timeout_graceful_shutdown=context.settings.shutdown_seconds,
    )
    config.load()
    return config


def _certified(address: Address) -> ssl.SSLContext | None:
    if address.certificate is None:
        return None
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        tls.load_cert_chain(address.certificate, address.certificate_key, password="")
    except OSError as error:  # errors of TLS are among these
        raise ParameterError(
            f"the certificate or its key cannot be used: {error.strerror or error}",
            hint="give --tls-cert a chain and --tls-key its key, readable and in PEM form",
        ) from error
    return tls


def _listen(address: Address) -> socket.socket:
    """Open the socket first, so that a port that is taken is found before anything starts."""
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server(
            (address.host, address.port), family=family, backlog=BACKLOG, reuse_port=False
        )
        # Connections inherit it.  Without, each answer's body waits for the client to acknowledge
        # its headers, which many do 40 ms later.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # what is unsent would wait in the system, unseen
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    except (OSError, UnicodeError) as error:  # the second of a name that cannot be one
        where = f"{address.host} port {address.port}"
        hint = "choose another --port or --host; 127.0.0.1 is this machine alone"
        raise _cannot_listen(where, error, hint) from error
    return listening


def _listen_for_metrics(port: int) -> socket.socket:
    """Open the operator's port, which only this machine can reach."""
    try:
        return socket.create_server(("127.0.0.1", port), reuse_port=False)
    except OSError as error:
        where = f"127.0.0.1 port {port} for metrics"
        raise _cannot_listen(where, error, "choose another --metrics-port; 0 is none") from error


def _cannot_listen(where: str, error: OSError | UnicodeError, hint: str) -> ParameterError:
    """Say in plain words why a port cannot be had."""
    reason = str(error)
    match error:
        case socket.gaierror() | UnicodeError():
            reason = "there is no computer of this name or address"
        case OSError(errno=errno.EADDRINUSE):
            reason = "another program uses this port, perhaps a server that runs already"
        case OSError(errno=errno.EACCES):
            reason = "ports below 1024 are for the system's administrator"
            hint = "choose a --port from 1024 on, and let a proxy or a service of systemd listen"
        case OSError(errno=errno.EADDRNOTAVAIL):
            reason = "this is not an address of this computer"
        case OSError() if error.strerror:
            reason = error.strerror
    return ParameterError(f"cannot listen on {where}: {reason}", hint=hint)
