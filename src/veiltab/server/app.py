"""The service as an ASGI application, and serving it: a socket, TLS, and an orderly end.

Every request is counted, logged and answered.
"""

import logging
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config

from veiltab.errors import ParameterError
from veiltab.server.auth import Gate
from veiltab.server.context import ServiceContext
from veiltab.server.limits import SOFTWARE_VERSION
from veiltab.server.problems import install_problems, unexpected
from veiltab.server.routes import operator_routes, party_routes, study_routes
from veiltab.server.vault_routes import repad_routes, vault_routes
from veiltab.server.witnesses import witness_routes
from veiltab.server.worker import Worker

_log = logging.getLogger("veiltab.access")
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_REFUSED, _FAILED = 400, 500

CHUNK_ROUTES = frozenset(
    {
        "/v1/studies/{study}/chunks",
        "/v1/studies/{study}/release/chunks",
        "/v1/studies/{study}/repad-request/chunks",
        "/v1/vaults/{vault}/chunks",
    }
)
"""Routes that are counted only if they fail: how often they are asked tells how long tables are."""


BACKLOG = 512
MOST_CONNECTIONS = 500
"""At once; further clients are told to come back later."""


class Observer:
    """Counts and logs every request by its route, never by what is in it."""

    def __init__(self, app: ASGIApp, context: ServiceContext) -> None:
        """Wrap an application."""
        self._app, self._context = app, context

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
        _log.info(
            "request",
            extra={
                "method": method,
                "route": route,
                "status": status,
                "milliseconds": round(1000 * seconds, 1),
            },
        )


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
        docs_url=None,  # both pages would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # a redirect would repeat the request's URL, with any host in it
    )
    app.state.worker = worker
    install_problems(app)
    app.include_router(operator_routes(context, worker, gate))
    app.include_router(party_routes(context, gate))
    app.include_router(study_routes(context, gate, worker))
    app.include_router(vault_routes(context, gate))
    app.include_router(repad_routes(context, gate, worker))
    app.include_router(witness_routes(context, gate))
    app.add_middleware(Observer, context=context)
    return app


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen; with a certificate and its key, over TLS.  Port 0 takes any free one.

    With ``behind_proxy``, the service believes what a proxy on this machine says about a client's
    address.  Without a proxy, clients could invent addresses, and have a rate limit for each.
    """

    host: str = "127.0.0.1"
    port: int = 8750
    certificate: Path | None = None
    certificate_key: Path | None = None
    behind_proxy: bool = False

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


class _Server(uvicorn.Server):
    """Calls ``ready`` after start-up, with its socket open."""

    def __init__(self, config: Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def serve(context: ServiceContext, address: Address, ready: Callable[[str], None]) -> None:
    """Serve until the process is told to stop; ``ready`` is called with the URL once it can.

    SIGTERM and SIGINT let running requests finish.  The data directory is locked meanwhile.
    """
    with _listen(address) as listening, context.folders.lock():
        host, port = listening.getsockname()[:2]
        url = f"{address.scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        server = _Server(_configure(context, address), lambda: ready(url))
        server.run(sockets=[listening])


def _configure(context: ServiceContext, address: Address) -> Config:
    """Do everything that can fail before the service starts."""
    config = Config(
        create_app(context),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=address.behind_proxy,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=context.settings.shutdown_seconds,
        timeout_keep_alive=75,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.certificate_key,
    )
    try:
        config.load()
    except OSError as error:  # errors of TLS are among these
        raise ParameterError(
            f"the certificate or its key cannot be used: {error.strerror or error}",
            hint="give --tls-cert a chain and --tls-key its key, readable and in PEM form",
        ) from error
    return config


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
    except OSError as error:
        raise ParameterError(
            f"cannot listen on {address.host} port {address.port}: {error.strerror or error}",
            hint="choose another --port or --host; 127.0.0.1 is this machine alone",
        ) from error
    return listening
