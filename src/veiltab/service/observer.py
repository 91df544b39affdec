"""What happens around every request: it is counted, logged, and never left without an answer."""

import logging
import time

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from veiltab.service.context import Context
from veiltab.service.problems import unexpected

_log = logging.getLogger("veiltab.access")
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_FAILED = 500


class Observer:
    """Counts and logs every request by its route, never by what is in it."""

    def __init__(self, app: ASGIApp, context: Context) -> None:
        """Stand around an application."""
        self._app, self._context = app, context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and note what became of it."""
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
            self._note(scope, status or _FAILED, time.perf_counter() - started)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "(none)")
        # A stranger can make up methods, and each would be kept for ever.
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
