"""The console as a web application, and how it is served to this computer alone."""

import logging
import socket
from collections.abc import Callable
from http import HTTPStatus
from importlib.resources import files
from threading import Lock, Thread
from urllib.parse import quote

import uvicorn
from fastapi import APIRouter, FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from veiltab.console.guard import Door, Guard
from veiltab.console.keys import ConsoleParty
from veiltab.console.pages import account, inbox
from veiltab.console.rendering import Failure, render
from veiltab.console.state import ConsoleState, OperatorState
from veiltab.console.users import may_ask
from veiltab.core.entropy import Entropy
from veiltab.errors import (
    ConsoleLockedError,
    DamagedFileError,
    HomeError,
    KeyFileError,
    OutputError,
    ParameterError,
    VeiltabError,
)

_log = logging.getLogger("veiltab.console")

STATIC = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
"""The kinds of files that belong to the pages."""

ADDRESS = "127.0.0.1"

BEGIN = "/begin"
"""The page of a home that has no keys yet."""


def create_console(state: ConsoleState | OperatorState) -> FastAPI:
    """Return the application with all pages; who may see them is for the guard to say."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.state.console = state
    app.add_api_route("/static/{name}", _static, methods=["GET"])
    _add(app, _first_pages(state))
    if isinstance(state, ConsoleState):
        app.add_middleware(_WithOtherPages, others=OtherPages(app))
        app.add_middleware(_WithIdentity, party=state.party)
    app.add_exception_handler(ConsoleLockedError, _locked)
    app.add_exception_handler(VeiltabError, _failed)
    app.add_exception_handler(HTTPException, _not_found)
    app.add_exception_handler(Exception, _unexpected)
    return app


def _add(app: FastAPI, routers: list[APIRouter]) -> None:
    for router in routers:
        app.router.routes.extend(router.routes)  # included, each app would build them anew


def _first_pages(state: ConsoleState | OperatorState) -> list[APIRouter]:
    if isinstance(state, OperatorState):
        from veiltab.console.pages import operator  # noqa: PLC0415 - it loads a server's database

        return [operator.router]
    return [account.router, inbox.router]


class OtherPages:
    """All pages but a party's first, loaded once: tables and estimates take longer than the rest.

    A console loads them when it has begun to answer, or for whoever asks for one before that.
    """

    def __init__(self, app: FastAPI) -> None:
        """Take the application that is to have the pages."""
        self._app, self._lock, self._loaded = app, Lock(), False
        app.state.other_pages = self

    def wanted(self, scope: Scope) -> bool:
        """Tell whether a request may be for one of them: it is for no page that is there."""
        if self._loaded or scope["type"] != "http":
            return False
        return all(one.matches(scope)[0] is Match.NONE for one in self._app.router.routes)

    def load(self) -> None:
        """Add the pages to the application, unless they are there."""
        with self._lock:
            if self._loaded:
                return
            from veiltab.console.pages import (  # noqa: PLC0415 - see above
                explorer,
                grants,
                identity,
                ledger,
                planner,
                propose,
                study,
                table,
            )

            pages = (identity, propose, study, table, grants, ledger, planner, explorer)
            _add(self._app, [page.router for page in pages])
            self._loaded = True


class _WithOtherPages:
    """Has the other pages loaded before one of them is looked for."""

    def __init__(self, app: ASGIApp, others: OtherPages) -> None:
        self._app, self._others = app, others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._others.wanted(scope):
            await run_in_threadpool(self._others.load)
        await self._app(scope, receive, send)


class _WithIdentity:
    """Leads to the page that makes keys, as long as the home has none."""

    def __init__(self, app: ASGIApp, party: ConsoleParty) -> None:
        self._app, self._party = app, party

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        elsewhere = scope["type"] == "http" and not scope["path"].startswith((BEGIN, "/static/"))
        begins = elsewhere and not self._party.has_identity
        await (RedirectResponse(BEGIN, 303) if begins else self._app)(scope, receive, send)


def _static(name: str) -> Response:
    if name == "report.css":  # tables and maps look as they do in reports
        return Response((files("veiltab.report") / "page.css").read_bytes(), media_type="text/css")
    path = files("veiltab.console") / "static" / name
    kind = STATIC.get(name.rpartition(".")[2])
    if kind is None or "/" in name or not path.is_file():
        raise HTTPException(404)
    return Response(path.read_bytes(), media_type=kind)


def _locked(request: Request, error: Exception) -> Response:
    del error
    get = request.method == "GET"
    path = request.url.path
    back = path.partition("/download/")[0] if get else _page_of(path)
    if get and request.url.query:
        back += f"?{request.url.query}"
    target = f"/unlock?next={quote(back, safe='/')}"
    if "hx-request" in request.headers:
        return Response(headers={"HX-Redirect": target})
    return RedirectResponse(target, status_code=303)


def _page_of(form: str) -> str:
    """Return the page that a form is on: its path without the action at its end."""
    return form.rpartition("/")[0] or form


def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, VeiltabError)  # noqa: S101 - the handler is for these
    template = "failure_part.html" if "hx-request" in request.headers else "failure.html"
    # htmx shows nothing of an answer that is an error, so fragments come with 200.
    status = 200 if "hx-request" in request.headers else _status(error)
    return render(request, template, status, failure=Failure.of(error))


def _status(error: VeiltabError) -> int:
    """Return what a browser is told of an error.

    Errors of this computer's own files have no status for the network, and would all be 500.  Most
    are somebody's mistake, or to be mended before it goes on: a study that no home has, a folder
    that others can enter, a full disk.  500 stays for what no page has caused: a damaged file, and
    what nobody expected.
    """
    to_be_mended = isinstance(error, HomeError | KeyFileError | OutputError)
    if to_be_mended and not isinstance(error, DamagedFileError):
        return HTTPStatus.CONFLICT
    return error.http_status


def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - the handler is for these
    if "veiltab.session" not in request.scope:
        return Response(status_code=error.status_code)
    failure = Failure("there is no such page", "choose one from the menu", "not_found")
    return render(request, "failure.html", error.status_code, failure=failure)


def _unexpected(request: Request, error: Exception) -> Response:
    _log.exception("a page failed", exc_info=error)
    failure = Failure(
        "this page has failed, and should not have",
        "nothing was changed by it that the study's page does not show; the terminal has more",
        "error",
    )
    return render(request, "failure.html", 500, failure=failure)


class ConsoleServer:
    """A console that listens on this computer; :meth:`run` serves until it is told to stop."""

    def __init__(
        self, state: ConsoleState | OperatorState, entropy: Entropy, port: int = 0
    ) -> None:
        """Take a port, any free one by default."""
        self.door = Door(entropy)
        self._socket = _listen(port)
        self.port: int = self._socket.getsockname()[1]
        self._console = create_console(state)
        app = Guard(self._console, door=self.door, port=lambda: self.port, may_ask=_may_ask)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,  # its lines would hold one-time links
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2,
        )
        self._server = _Server(config)
        if isinstance(state, ConsoleState):
            party = state.party
            self._server.look_at_keys = lambda: party.unlocked

    def link(self) -> str:
        """Return a new link that opens the console, once."""
        return f"http://{ADDRESS}:{self.port}/enter?token={self.door.new_token()}"

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until the process or :meth:`stop` ends it; ``ready`` is called once it can."""

        def begin() -> None:
            ready()
            if others := getattr(self._console.state, "other_pages", None):
                Thread(target=others.load, daemon=True).start()

        self._server.ready = begin
        self._server.run([self._socket])

    def stop(self) -> None:
        """End it after the answers under way."""
        self._server.should_exit = True


def _may_ask(scope: Scope) -> bool:
    return may_ask(scope["client"], scope["server"])


TICKS = 20
"""The server looks every so many tenths of a second whether the keys' time is over."""


class _Server(uvicorn.Server):
    """Says when it can be asked, and locks the keys in time though nobody asks."""

    ready: Callable[[], None] = staticmethod(lambda: None)
    look_at_keys: Callable[[], object] = staticmethod(lambda: None)

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS == 0:
            self.look_at_keys()
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.ready()


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((ADDRESS, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise ParameterError(
            f"the console cannot listen on port {port}: {getattr(error, 'strerror', error)}",
            hint="leave --port out, and any free one is taken",
        ) from error
    return listening
