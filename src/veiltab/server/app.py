"""The service as an ASGI application; every request is counted, logged and answered."""

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from veiltab.server.auth import Gate
from veiltab.server.context import ServiceContext
from veiltab.server.limits import SOFTWARE_VERSION
from veiltab.server.problems import install_problems, unexpected
from veiltab.server.routes import operator_routes, party_routes, study_routes
from veiltab.server.worker import Worker

_log = logging.getLogger("veiltab.access")
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_FAILED = 500


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
    install_problems(app)
    app.include_router(operator_routes(context, worker, gate))
    app.include_router(party_routes(context, gate))
    app.include_router(study_routes(context, gate, worker))
    app.add_middleware(Observer, context=context)
    return app
