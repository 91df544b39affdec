"""Proposing a study: its form or its file, then its terms and what it costs, then the proposal."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from veiltab.console.forms import Form, Typed, check_location, without_password
from veiltab.console.pages.actions import Done, act, progress_page, read_table, why_not_read
from veiltab.console.pages.identity import met, shown_again
from veiltab.console.pages.study import terms_values
from veiltab.console.proposing import (
    NORMALISATIONS,
    Fields,
    Mistake,
    choosable,
    drafted,
    read_draft,
)
from veiltab.console.rendering import Failure, go, render
from veiltab.console.state import ConsoleState
from veiltab.console.tasks import READING, Task
from veiltab.console.wording import ANYWAY
from veiltab.errors import StateError, UselessPlanError, VeiltabError
from veiltab.party.draft import Draft
from veiltab.party.known.names import readable
from veiltab.party.proposal import StudyDraft
from veiltab.party.session import Session

router = APIRouter()

DRAFTING = f"{READING}for a proposal"


@router.get("/propose")
def start(request: Request) -> Response:
    """Show the form: as it was left, and with the numbers of a plan if one is to be used."""
    state, query = _unlocked(request), Form.of(request)
    fields = Fields() if state.proposal is None else Fields.of(state.proposal)
    if query.pairs:
        fields = fields.with_plan(query)
    return _form_page(request, fields)


@router.post("/propose/anew")
def begin_anew(request: Request) -> Response:
    """Empty the form."""
    _unlocked(request).proposal = None
    return go(request, "/propose")


@router.post("/propose/edit")
def edit(request: Request) -> Response:
    """Add a row to the form, or take one away."""
    _, fields = _typed(request)
    command = Form.of(request).text("do")
    edited = fields.edited(command)
    request.app.state.console.proposal = Form(edited.pairs())
    return _form_page(request, edited, focus=_added(command, edited))


@router.post("/propose/party")
def add_party(request: Request) -> Response:
    """Remember a party by its file, so that it can be chosen."""
    _, fields = _typed(request)
    text, said = Form.of(request).text("identity"), ""
    try:
        identity = met(request.app.state.console.party.home, text)
        said = f"{readable(identity.name)} can be chosen now. Compare the fingerprint by telephone."
    except VeiltabError as error:
        return _form_page(request, fields, Failure.of(error), identity=text)
    return _form_page(request, fields, said=said)


@router.post("/propose/draft")
def draft_attributes(request: Request) -> Response:
    """Draft one's own attributes from a table; nothing of it is sent."""
    state, fields = _typed(request)
    form = Form.of(request)
    location, query = form.path("location"), form.text("query")
    if not location:
        failure = Failure("no table is named", "write the path of a file", "input_error")
        return _form_page(request, fields, failure, query=query)
    try:
        check_location(location)
    except VeiltabError as error:
        shown = without_password(location)
        return _form_page(request, fields, Failure.of(error), location=shown, query=query)

    def work(task: Task) -> Draft:
        return read_draft(state.party.home, location, query or None, task.report)

    return read_table(request, DRAFTING, work, page="/propose/draft")


@router.get("/propose/draft")
def show_draft(request: Request) -> Response:
    """Show how far the table is read; then put the draft into the form."""
    state = _unlocked(request)
    task = state.tasks.get(DRAFTING)
    if task is not None and not task.finished:
        return progress_page(request, task, back=("/propose", "Back to the proposal"))
    if task is None or "hx-request" in request.headers:  # it takes the whole page
        return go(request, "/propose" if task is None else request.url.path)
    state.tasks.forget(DRAFTING)
    fields, failure, said = Fields.of(state.proposal or task.typed), why_not_read(task), ""
    if isinstance(task.result, Draft):
        try:
            fields, said = drafted(fields, task.result)
            state.proposal = Form(fields.pairs())
        except VeiltabError as error:
            failure = Failure.of(error)
    location, query = task.typed.path("location"), task.typed.text("query")
    return _form_page(request, fields, failure, said=said, location=location, query=query)


@router.post("/propose/draft/stop")
def stop_draft(request: Request) -> Response:
    """Stop reading at the next report."""
    task = request.app.state.console.tasks.get(DRAFTING)
    if task is not None:
        task.stop()
    return go(request, "/propose/draft")


@router.post("/propose/file")
def take_file(request: Request) -> Response:
    """Hand over what is typed as a study file, complete or not."""
    state, fields = _typed(request)
    try:
        text = fields.study_file(state.party.home)
    except VeiltabError as error:
        return _form_page(request, fields, Failure.of(error))
    headers = {"content-disposition": 'attachment; filename="study.toml"'}
    return Response(text, media_type="application/toml; charset=utf-8", headers=headers)


@router.post("/propose/change")
def change(request: Request) -> Response:
    """Go back from the terms to the form."""
    _, fields = _typed(request)
    return _form_page(request, fields)


@router.post("/propose/terms")
def terms(request: Request) -> Response:
    """Show what would be signed, what it promises and what it costs; nothing is sent."""
    return _terms_page(request, None)


@router.post("/propose/send")
def send(request: Request) -> Response:
    """Propose and sign what was shown, and charge it to a data set."""
    state, _ = _typed(request)

    def work(form: Form) -> Done:
        with state.party.session() as session:
            fields = Fields.of(form)
            draft = fields.draft(session.home)
            if form.text("terms") != _digest(session, draft):
                raise StateError(
                    "the terms are not those that you have read, and nothing was sent",
                    hint="read them again: something that they name has changed meanwhile",
                )
            _compare(session, draft, form)
            study = session.propose(draft, form.text("dataset") or None)
            state.proposal = None
            names = [terms.identity.name for terms in draft.curators]
            others = [readable(name) for name in names if name != session.identity.name]
            waits = f" It waits for the signature of {', '.join(others)}." if others else ""
            return Done(
                f"You have proposed and signed “{readable(draft.title)}”.{waits}",
                f"/studies/{study.id}",
            )

    def page(failure: Failure, typed: Typed) -> Response:
        del typed
        return _terms_page(request, failure)

    return act(request, "propose", work, back="/", page=page)


def _unlocked(request: Request) -> ConsoleState:
    state: ConsoleState = request.app.state.console
    state.party.identity()
    return state


def _typed(request: Request) -> tuple[ConsoleState, Fields]:
    """Return what was sent, and keep it: the form has it again when the keys are unlocked."""
    state: ConsoleState = request.app.state.console
    form = Form.of(request)
    fields = Fields.of(form)
    if not (request.url.path.endswith("/send") and state.once.is_done(form.text("once"))):
        state.proposal = Form(fields.pairs())
    return _unlocked(request), fields


def _digest(session: Session, draft: StudyDraft) -> str:
    """Return what stands for the terms of a draft, whatever its id is going to be."""
    return draft.provisional(session.server).study_id.hex()


def _compare(session: Session, draft: StudyDraft, form: Form) -> None:
    """Remember whose fingerprint was compared: the digits stand beside each name."""
    for identity in draft.identities():
        digits = form.text(f"digits:{identity.party_id.hex()}")
        if digits:
            session.home.known.verify(identity, digits)


def _terms_page(request: Request, failure: Failure | None) -> Response:
    state, fields = _typed(request)
    home = state.party.home
    try:
        fields = fields.opened()
        with state.party.session() as session:
            draft = fields.draft(home)
            home.known.check(draft.identities())  # before anybody reads the terms of an impostor
            contract = session.intended(draft).body
            digest = _digest(session, draft)
    except VeiltabError as error:
        if error.code == "console_locked":
            raise
        useless = isinstance(error, UselessPlanError)
        return _form_page(request, fields, Mistake.of(error, fields, home), useless=useless)
    return render(
        request,
        "propose_terms.html",
        200 if failure is None else 409,
        fields=fields,
        typed=Typed("propose", Form.of(request)),
        terms=digest,
        failure=failure,
        **terms_values(contract, home, draft.expected_population),
    )


def _added(command: str, fields: Fields) -> str:
    """Return the field of a row that was added, which takes the cursor."""
    what, _, place = command.partition(":")
    if what == "add-attribute" and place.isdecimal() and int(place) < len(fields.curators):
        return f"c{place}:a{len(fields.curators[int(place)].attributes) - 1}:name"
    if what == "add-curator":
        return f"c{len(fields.curators) - 1}:party"
    return f"researcher-{len(fields.researchers) - 1}" if what == "add-researcher" else ""


def _form_page(
    request: Request,
    fields: Fields,
    failure: Failure | Mistake | None = None,
    *,
    said: str = "",
    focus: str = "",
    useless: bool = False,
    **others: str,
) -> Response:
    home = request.app.state.console.party.home
    if isinstance(failure, Mistake):
        fields = fields.filled()  # rows are counted without empty ones
    return render(
        request,
        "propose.html",
        200 if failure is None else 422,
        home=home,
        fields=fields,
        texts=fields.texts,
        known=choosable(home),
        normalisations=NORMALISATIONS,
        failure=failure,
        wrong=failure.field if isinstance(failure, Mistake) else "",
        said=said,
        focus=focus,
        useless=useless or fields.anyway,
        anyway=ANYWAY,
        identity=shown_again(others.get("identity", "")),
        location=others.get("location", ""),
        query=others.get("query", ""),
    )
