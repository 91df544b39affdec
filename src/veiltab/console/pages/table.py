"""The table wizard: choose a table, map its values by clicking, check it, and push it."""

from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from veiltab.console.forms import Form, Typed, check_location, without_password
from veiltab.console.mapping import ChosenTable, tables_in
from veiltab.console.pages.actions import (
    UNCONFIRMED,
    progress_page,
    read_table,
    why_not_read,
)
from veiltab.console.pages.study import study_page
from veiltab.console.rendering import Failure, go, render
from veiltab.console.state import ConsoleState
from veiltab.console.tasks import READING, Task
from veiltab.console.wording import SKIP_LINES, WRITTEN
from veiltab.core.schema import Schema
from veiltab.data.recode_file import read_recode_file
from veiltab.errors import ParameterError, StateError, VeiltabError
from veiltab.files.private import write_private
from veiltab.party.checking import Preview
from veiltab.party.roles import check_curator
from veiltab.wire.contract import Contract
from veiltab.wire.states import State

router = APIRouter()

PATIENCE = 600.0
"""Seconds to try a server during a push: a restart of it must not end one."""

PUSHING, ANSWERING = "Pushing your table", "Sending new pads"

OPENING = f"{READING}for "
"""How the names of the tasks begin that open a table."""


@router.get("/studies/{study_id}/table")
def choose(request: Request, study_id: str) -> Response:
    """Show the table that was chosen, or let one be chosen."""
    state, contract, _ = _study(request, study_id)
    form, task = Form.of(request), state.tasks.get(f"{OPENING}{study_id}")
    if task is not None and not task.finished and not form.checked("other"):
        return go(request, f"/studies/{study_id}/progress/open")
    if task is not None and task.finished:
        state.tasks.forget(task.name)
        if isinstance(task.result, ChosenTable):
            state.tables[study_id] = task.result
        else:
            return _browse(request, contract, task.typed, why_not_read(task))
    chosen = state.tables.get(study_id)
    if chosen is None or form.checked("other"):
        return _browse(request, contract, form)
    return _mapping(request, contract, chosen)


@router.post("/studies/{study_id}/table")
def open_table(request: Request, study_id: str) -> Response:
    """Open the table that somebody names; it is read once, to see which values it has."""
    _, contract, me = _study(request, study_id)
    form, schema = Form.of(request), contract.schema_of(me)
    try:
        location, query = check_location(form.text("location")), form.text("query") or None
        if not location:
            raise ParameterError("no table is named", hint="choose a file, or write its path")
        written = _written(form)
    except VeiltabError as error:
        return _browse(request, contract, form, Failure.of(error))

    def work(task: Task) -> ChosenTable:
        return ChosenTable.open(location, query, schema, written, task.report)

    return read_table(request, f"{OPENING}{study_id}", work, page=f"/studies/{study_id}/table")


@router.post("/studies/{study_id}/table/{step}")
def go_on(request: Request, study_id: str, step: str) -> Response:
    """Remember what was chosen; then save the recode file, check the table, or push it."""
    state, contract, me = _study(request, study_id)
    chosen = state.tables.get(study_id)
    if chosen is None:
        return go(request, f"/studies/{study_id}/table")
    schema, form = contract.schema_of(me), Form.of(request)
    try:
        chosen.take(form, schema)
        if step == "map":
            return _mapping(request, contract, chosen)
        if step == "file":
            return _use_file(request, study_id, chosen, schema)
        if step == "save":
            path = Path(form.text("file")).expanduser()
            if path.exists() or not form.text("file"):
                raise ParameterError("the recode file must be a new one", hint="write another name")
            write_private(path, chosen.recode_file(schema).encode())
            return go(request, f"/studies/{study_id}/table", f"The recode file is in {path}.")
        _start(state, study_id, chosen, schema, step=step, form=form)
    except VeiltabError as error:
        if error.code == "console_locked":
            raise
        return _mapping(request, contract, chosen, Failure.of(error))
    return go(request, f"/studies/{study_id}/progress/{step}")


def _use_file(request: Request, study_id: str, chosen: ChosenTable, schema: Schema) -> Response:
    """Take a recode file that was written before, or go back to clicking."""
    named = Form.of(request).path("recode")
    if not named and chosen.file is None:
        raise ParameterError("no recode file is named", hint="write its path")
    path = Path(named) if named else None
    if path is not None:
        read_recode_file(path, schema)  # what is wrong with it is said at once
    chosen.file = path
    said = f"The table is mapped as {path} says." if path else "Map the table by clicking."
    return go(request, f"/studies/{study_id}/table", said)


@router.get("/studies/{study_id}/progress/{step}")
def progress(request: Request, study_id: str, step: str) -> Response:
    """Show how far it is; the page may be left and opened again."""
    state: ConsoleState = request.app.state.console
    task = state.tasks.get(_task_name(study_id, step))
    failed = task is not None and task.failure is not None
    if step != "push" or failed:  # what is found in a table is as private as the keys
        state.party.identity()  # and they are in use as long as somebody waits for it
    if step == "open" and (task is None or task.finished):
        return go(request, f"/studies/{study_id}/table")
    if task is None:
        return go(request, f"/studies/{study_id}")
    study = f"/studies/{study_id}", "Back to the study"
    return progress_page(
        request,
        task,
        back=study,
        before=study if task.what == ANSWERING else (f"{study[0]}/table", "Back to the table"),
        study_id=study_id,
        step=step,
        preview=task.result if isinstance(task.result, Preview) else None,
    )


@router.post("/studies/{study_id}/progress/{step}/stop")
def stop(request: Request, study_id: str, step: str) -> Response:
    """Stop at the next report; a push that was stopped can be resumed."""
    task = request.app.state.console.tasks.get(_task_name(study_id, step))
    if task is not None:
        task.stop()
    return go(request, f"/studies/{study_id}/progress/{step}")


def _task_name(study_id: str, step: str) -> str:
    return f"{OPENING}{study_id}" if step == "open" else f"{step} {study_id}"


@router.post("/studies/{study_id}/resume")
def resume(request: Request, study_id: str) -> Response:
    """Go on with a push that was stopped: send what was prepared, or read the table once more.

    A study on stored tables gets new pads for the rows that were drawn; it is asked for once.
    """
    state, contract, me = _study(request, study_id)
    chosen = state.tables.get(study_id)
    if contract.stored is not None:
        return _answer(request, study_id)
    if not state.party.home.study(contract.study_id).has_prepared:
        if chosen is None:
            return go(request, f"/studies/{study_id}/table", "Choose the table again.")
        _push(state, study_id, chosen, contract.schema_of(me))
        return go(request, f"/studies/{study_id}/progress/push")

    def work(task: Task) -> object:
        with state.party.session(PATIENCE) as session:
            return session.study(study_id).push(progress=task.report)

    state.tasks.start(f"push {study_id}", PUSHING, work)
    return go(request, f"/studies/{study_id}/progress/push")


def _answer(request: Request, study_id: str) -> Response:
    """Send new pads, if somebody has said so by the box, or has stopped this and goes on."""
    state: ConsoleState = request.app.state.console
    name = f"push {study_id}"
    if state.tasks.get(name) is None and not Form.of(request).checked("sure"):
        return study_page(request, study_id, UNCONFIRMED, Typed())
    state.party.identity()

    def work(task: Task) -> object:
        with state.party.session(PATIENCE) as session:
            return session.study(study_id).answer(progress=task.report)

    state.tasks.start(name, ANSWERING, work)
    return go(request, f"/studies/{study_id}/progress/push")


def _start(
    state: ConsoleState,
    study_id: str,
    chosen: ChosenTable,
    schema: Schema,
    *,
    step: str,
    form: Form,
) -> None:
    if step not in {"check", "push"}:
        raise ParameterError(f"there is no step {step!r}", hint="choose a button of the page")
    if step == "push" and not form.checked("sure"):
        raise StateError(
            "nothing was sent: the box was not ticked",
            hint="tick it to say that this is the right table",
        )
    if step == "push":
        _push(state, study_id, chosen, schema)
        return
    recode = chosen.recode(schema)
    ids = chosen.ids if recode.ids is None else ()
    offenders = form.path("offenders") or None
    state.party.identity()

    def work(task: Task) -> object:
        with state.party.session(PATIENCE) as session:
            return session.study(study_id).check(
                chosen.open_again, ids, recode=recode, offenders=offenders, progress=task.report
            )

    state.tasks.start(f"check {study_id}", "Checking your table", work)


def _push(state: ConsoleState, study_id: str, chosen: ChosenTable, schema: Schema) -> None:
    recode = chosen.recode(schema)
    ids = chosen.ids if recode.ids is None else ()
    state.party.identity()

    def work(task: Task) -> object:
        with state.party.session(PATIENCE) as session:
            return session.study(study_id).push(
                chosen.open_again, ids, recode=recode, progress=task.report
            )

    state.tasks.start(f"push {study_id}", PUSHING, work)


def _study(request: Request, study_id: str) -> tuple[ConsoleState, Contract, bytes]:
    state: ConsoleState = request.app.state.console
    with state.party.session() as session:
        contract = session.study(study_id).terms
        check_curator(contract, session.identity, "push a table to it")
        return state, contract, session.identity.party_id


def _browse(
    request: Request, contract: Contract, form: Form, failure: Failure | None = None
) -> Response:
    """Let a table be chosen; ``form`` has the folder that is looked at, and what was typed."""
    folder = form.text("folder")
    here = Path(folder).expanduser() if folder else Path.cwd()
    try:
        entries = list(tables_in(here))
    except VeiltabError as error:
        failure, entries = failure or Failure.of(error), []
    return render(
        request,
        "table_choose.html",
        200 if failure is None else 422,
        contract=contract,
        here=here.absolute(),
        entries=entries,
        written=WRITTEN,
        skip_lines=SKIP_LINES,
        typed=form.as_dict() | {"location": without_password(form.text("location"))},
        failure=failure,
    )


def _written(form: Form) -> dict[str, object]:
    """Return what a form says about how a file is written; an empty field says nothing."""
    written: dict[str, object] = {name: form.text(name) for name in WRITTEN if form.text(name)}
    if form.choice("header", ("", "yes", "no"), ""):
        written["header"] = form.text("header") == "yes"
    if form.text("skip_lines"):
        written["skip_lines"] = form.integer("skip_lines", "the number of lines above the header")
    return written


def _mapping(
    request: Request, contract: Contract, chosen: ChosenTable, failure: Failure | None = None
) -> Response:
    state: ConsoleState = request.app.state.console
    schema = contract.schema_of(state.party.home.public.party_id)
    return render(
        request,
        "table_map.html",
        200 if failure is None else 422,
        contract=contract,
        chosen=chosen,
        choices=[]
        if chosen.file is not None
        else [chosen.attribute(attribute) for attribute in schema.attributes],
        opened=_is_open(state, contract),
        typed=Form.of(request).as_dict() if request.method == "POST" else {},
        failure=failure,
    )


def _is_open(state: ConsoleState, contract: Contract) -> bool:
    """Tell whether the study takes tables: before all have signed, they can be checked."""
    with state.party.session() as session:
        return session.study(contract.study_id.hex()).status().state == State.OPEN
