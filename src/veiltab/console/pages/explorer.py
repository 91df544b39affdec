"""The explorer: a researcher's tables, charts and tests, each with a link of its own."""

from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from veiltab.console.choice import LEVELS, ORDERS, SHOWN, Choice, reference
from veiltab.console.downloads import download
from veiltab.console.estimates import Opened, open_study
from veiltab.console.explored import show
from veiltab.console.forms import Form
from veiltab.console.rendering import Failure, go, render, short_name
from veiltab.console.state import ConsoleState
from veiltab.console.tasks import Task
from veiltab.console.views import SavedView, SavedViews
from veiltab.errors import VeiltabError
from veiltab.inference.conditions import describe
from veiltab.wire.states import State

router = APIRouter()

PATIENCE = 60.0
"""Seconds to try a server that does not answer, behind a page that says so."""


@router.get("/explore")
def choose(request: Request) -> Response:
    """List what can be explored: the studies with grants, saved views and saved files."""
    return _choose(request)


@router.post("/explore")
def open_file(request: Request) -> Response:
    """Open a saved estimate."""
    state = _unlocked(request)
    path = Form.of(request).text("path")
    try:
        key = state.estimates.open_file(Path(path))
    except VeiltabError as error:
        return _choose(request, Failure.of(error), path)
    return go(request, f"/explore/{key}")


@router.post("/explore/views/delete")
def delete_view(request: Request) -> Response:
    """Forget a saved view."""
    state, name = _unlocked(request), Form.of(request).exact("name")
    SavedViews(state.party.home).delete(name)
    return go(request, "/explore", f"The view “{name[:100]}” is deleted.")


@router.get("/explore/{key}")
def explore(request: Request, key: str) -> Response:
    """Show a table; a study is first fetched and decrypted, which may take a while."""
    opened = _opened(request, key)
    return opened if isinstance(opened, Response) else _page(request, key, opened)


@router.post("/explore/{key}/views")
def save_view(request: Request, key: str) -> Response:
    """Save what somebody looks at under a name."""
    state, form = _unlocked(request), Form.of(request)
    opened = _opened(request, key)
    if isinstance(opened, Response):
        return opened
    name = form.text("view")
    try:
        choice = Choice.of(form, opened.estimate.schema)
        path = state.estimates.path(key)
        view = SavedView(
            name=name,
            title=opened.estimate.provenance.title or "An estimated table",
            key=key,
            file=None if path is None else str(path),
            query=choice.query(),
            at=0,
        )
        SavedViews(state.party.home).save(view)
    except VeiltabError as error:
        return _page(request, key, opened, Failure.of(error))
    return go(request, f"/explore/{key}?{choice.query()}", f"The view “{name}” is saved.")


@router.get("/explore/{key}/grants")
def ask_for_grants(request: Request, key: str) -> Response:
    """Ask for the grant files that curators have handed over directly."""
    _unlocked(request)
    return _grants_page(
        request, key, None, "\n".join(request.app.state.console.estimates.grants(key))
    )


@router.post("/explore/{key}/grants")
def use_grants(request: Request, key: str) -> Response:
    """Open a study with grant files: they stay where they are, and only their paths are typed."""
    state, form = _unlocked(request), Form.of(request)
    lines = [line.strip() for line in form.exact("files").splitlines()]
    files = [str(Path(line).expanduser().absolute()) for line in lines if line]
    try:
        state.estimates.use_grants(key, files)
    except VeiltabError as error:
        return _grants_page(request, key, Failure.of(error), form.exact("files"))
    return go(request, f"/explore/{key}")


@router.get("/explore/{key}/download/{kind}")
def take(request: Request, key: str, kind: str) -> Response:
    """Hand over a view as a file."""
    opened = _opened(request, key)
    if isinstance(opened, Response):
        return opened
    choice = Choice.of(Form.of(request), opened.estimate.schema)
    file = download(opened, choice, kind)
    headers = {"content-disposition": f'attachment; filename="{file.name}"'}
    return Response(file.data, media_type=file.media, headers=headers)


def _unlocked(request: Request) -> ConsoleState:
    """Return the state, if the keys are unlocked: nothing of an estimate is shown otherwise."""
    state: ConsoleState = request.app.state.console
    state.party.identity()
    return state


def _opened(request: Request, key: str) -> Opened | Response:
    """Return an estimate that is open; or open it, and return a page to wait on."""
    state = _unlocked(request)
    opened = state.estimates.get(key)
    if opened is not None:
        return opened
    if not key.startswith("file-"):
        return _fetch(request, key)
    path = state.estimates.path(key) or _saved_path(state, key)
    if path is None:  # it was opened by a console that has ended
        return go(request, "/explore", "Open that file again: this console does not know it yet.")
    try:
        state.estimates.open_file(path)
    except VeiltabError as error:
        return _choose(request, Failure.of(error), str(path))
    return state.estimates.get(key) or go(request, "/explore")


def _saved_path(state: ConsoleState, key: str) -> Path | None:
    """Return the file of a key that a saved view has."""
    views = SavedViews(state.party.home).all()
    return next((Path(view.file) for view in views if view.key == key and view.file), None)


def _page(request: Request, key: str, opened: Opened, failure: Failure | None = None) -> Response:
    form, names = Form.of(request), opened.estimate.schema.names
    typed = {"rows": reference(names[0]), "columns": reference("".join(names[1:2]))}
    typed |= form.as_dict()
    shown = choice = None
    try:
        choice = Choice.of(form, opened.estimate.schema)
        typed |= dict(choice.fields())
        shown = show(opened, choice)
    except VeiltabError as error:
        failure = failure or Failure.of(error)
    fragment = "hx-request" in request.headers and request.method == "GET"
    return render(
        request,
        "explorer_view.html" if fragment else "explorer.html",
        200 if failure is None or fragment else 422,
        key=key,
        opened=opened,
        estimate=opened.estimate,
        attributes=[(reference(name), name) for name in names],
        choice=choice,
        typed=typed,
        shown=shown,
        modes=SHOWN,
        orders=ORDERS,
        levels=LEVELS,
        example=_example(opened),
        failure=failure,
        idle=int(request.app.state.console.party.idle_seconds) + 1,
        here=f"/explore/{key}" + (f"?{choice.query()}" if choice else ""),
    )


def _example(opened: Opened) -> str:
    """Return a condition that somebody could type."""
    first = opened.estimate.schema.attributes[0]
    return short_name(describe([first.name], first.categories[:1]))


def _fetch(request: Request, key: str) -> Response:
    """Start to fetch a study, or show how far that is."""
    state: ConsoleState = request.app.state.console
    name = f"estimate {key}"
    task = state.tasks.get(name)
    if task is not None and task.failure is not None:
        state.tasks.forget(name)
        files = "\n".join(state.estimates.grants(key))
        return _grants_page(request, key, Failure.of(task.failure), files)
    if task is None or task.finished:
        since, given = state.estimates.since, state.estimates.grants(key)

        def work(_: Task) -> None:
            with state.party.session(PATIENCE) as session:
                state.estimates.keep(key, open_study(session, key, given), since)

        task = state.tasks.start(name, "Fetching and decrypting", work)
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    if "hx-request" in request.headers:  # the keys were locked meanwhile
        return go(request, here)
    return render(request, "explorer_wait.html", here=here, task=task)


def _grants_page(request: Request, key: str, failure: Failure | None, files: str) -> Response:
    """Show why a study could not be opened, or what it lacks, and take the files of grants."""
    home = request.app.state.console.party.home
    try:
        title = home.study(bytes.fromhex(key)).title()
    except ValueError:  # no study
        title = None
    return render(
        request,
        "explorer_grants.html",
        200 if failure is None else 422,
        key=key,
        title=title or "A study",
        files=files,
        failure=failure,
    )


def _choose(request: Request, failure: Failure | None = None, path: str = "") -> Response:
    state = _unlocked(request)
    home, studies = state.party.home, []
    views: list[SavedView] = []
    try:
        views = SavedViews(home).all()
        if home.server is not None:
            with state.party.session() as session:
                listed = [*session.studies(), *session.studies(inbox=True)]
            studies = [study for study in listed if study.state == State.RELEASED]
    except VeiltabError as error:
        if error.code == "console_locked":
            raise
        failure = failure or Failure.of(error)
    return render(
        request,
        "explorer_choose.html",
        200 if failure is None else 422,
        studies=studies,
        views=views,
        file=path,
        failure=failure,
    )
