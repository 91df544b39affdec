"""The service as an ASGI application."""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from veiltab.service.authentication import Gate
from veiltab.service.context import Context
from veiltab.service.problems import install_problems, unexpected
from veiltab.service.routes import operator_routes, party_routes, study_routes
from veiltab.service.settings import SOFTWARE_VERSION
from veiltab.service.worker import Worker

_log = logging.getLogger("veiltab.access")
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})

DESCRIPTION = """\
Stores ciphertext, joins it, perturbs it once, and hands it to researchers whom curators authorise.
Every request but those under *operator* is signed (RFC 9421); messages are canonical JSON, as
docs/spec/protocol-v1.md says.
"""


def create_app(context: Context) -> FastAPI:
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
        redirect_slashes=False,  # a redirection would repeat the request's URL, and name any host
    )
    install_problems(app)
    app.include_router(operator_routes(context, worker, gate))
    app.include_router(party_routes(context, gate))
    app.include_router(study_routes(context, gate, worker))
    _observe(app, context)
    return app


def _observe(app: FastAPI, context: Context) -> None:
    """Count and log every request by its route, never by what is in it."""

    @app.middleware("http")
    async def observe(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        started = time.perf_counter()
        try:
            response = await call_next(request)
        except Exception as error:  # noqa: BLE001 - it is answered, logged and counted here
            response = unexpected(error)
        seconds = time.perf_counter() - started
        route = getattr(request.scope.get("route"), "path", "(none)")
        # A stranger can make up methods, and each would be kept for ever.
        method = request.method if request.method in _METHODS else "(other)"
        context.metrics.requests.labels(method, route, response.status_code).inc()
        context.metrics.seconds.labels(method, route).observe(seconds)
        _log.info(
            "request",
            extra={
                "method": method,
                "route": route,
                "status": response.status_code,
                "milliseconds": round(1000 * seconds, 1),
            },
        )
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"
        return response
