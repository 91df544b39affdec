"""The operator's pages: parties, invitations, studies, disk, requests and the log of a server.

They read the server's folder as the operator's commands do, whether it runs or not.  Two
things can be done here: somebody is invited, and a study is ended.
"""

import base64
import json
import re
from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import Response

from veiltab.cli.operator import size_text
from veiltab.console.forms import Form, Typed
from veiltab.console.logs import last_lines
from veiltab.console.metrics import fetch_metrics
from veiltab.console.pages.actions import UNCONFIRMED, act
from veiltab.console.rendering import Failure, render
from veiltab.console.state import OperatorState
from veiltab.core.schema import check_text
from veiltab.crypto.fingerprint import fingerprint
from veiltab.errors import NotFoundError, ParameterError, VeiltabError
from veiltab.party.connection import checked_url
from veiltab.server.db.operators import OperatorLine
from veiltab.server.housekeeping import end
from veiltab.server.invitations import DEFAULT_DAYS, invite
from veiltab.server.operator import party_use
from veiltab.server.status import server_report
from veiltab.wire.invitations import Invitation
from veiltab.wire.states import ENDED

router = APIRouter()

LONGEST_DAYS = 3_650
LONGEST_TEXT = 500


@dataclass(frozen=True, slots=True)
class Handed:
    """A new invitation as it is shown, once: its code, and its file if it says where to go."""

    name: str
    code: str
    expires: int
    file: str | None

    @property
    def link(self) -> str:
        """The file as a link, so that it is never written where others could read it."""
        content = base64.b64encode((self.file or "").encode()).decode()
        return f"data:application/json;base64,{content}"

    @property
    def file_name(self) -> str:
        """What to call the file."""
        return f"{re.sub('[^a-z0-9]+', '-', self.name.lower()).strip('-') or 'invitation'}.json"


@router.get("/")
def overview(request: Request) -> Response:
    """Show how the server is doing."""
    server = _state(request).server
    return render(
        request,
        "operator.html",
        server=server.identity,
        report=server_report(server),
        size=size_text,
    )


@router.get("/parties")
def parties(request: Request) -> Response:
    """List all registered parties, with what they use."""
    server = _state(request).server
    with server.database.reading() as records:
        lines = records.party_lines()
    used = [(line, party_use(server, line.party)) for line in lines]
    return render(request, "operator_parties.html", parties=used, size=size_text)


@router.get("/studies")
def studies(request: Request) -> Response:
    """List all studies and vaults, the newest first."""
    with _state(request).server.database.reading() as records:
        lines = records.study_lines()
    return render(request, "operator_studies.html", studies=lines[::-1], size=size_text)


@router.get("/studies/{study_id}")
def study(request: Request, study_id: str) -> Response:
    """Show what the server knows of a study or vault; its contract is the parties' own."""
    return _study_page(request, study_id, None, Typed())


@router.post("/studies/{study_id}/abort")
def abort(request: Request, study_id: str) -> Response:
    """End a study, or close a vault, in the server's name."""
    server = _state(request).server

    def work(form: Form) -> str:
        reason = _line(form, "reason", "the reason")
        line = _find(request, study_id)
        end(server, line.study, reason)
        return f"The {line.kind} is ended, for everybody in it."

    def page(failure: Failure, typed: Typed) -> Response:
        return _study_page(request, study_id, failure, typed)

    return act(request, "abort", work, back=f"/studies/{study_id}", page=page)


@router.get("/invitations")
def invitations(request: Request) -> Response:
    """List all invitations, without their codes."""
    return _invitations_page(request, None, Typed())


@router.post("/invitations")
def make_invitation(request: Request) -> Response:
    """Invite somebody; the code is on the page that answers, and on no other."""
    state, form = _state(request), Form.of(request)
    typed = Typed("invite", form)
    if not form.checked("sure"):
        return _invitations_page(request, UNCONFIRMED, typed)
    try:
        handed = state.once.run(form.text("once"), lambda: _invite(state, form))
    except VeiltabError as error:
        return _invitations_page(request, Failure.of(error), typed)
    digits = fingerprint(state.server.identity.party_id)
    return render(request, "operator_invited.html", handed=handed, digits=digits)


@router.get("/requests")
def requests(request: Request) -> Response:
    """Show what the running server counts."""
    state = _state(request)
    metrics, failure = None, None
    try:
        metrics = fetch_metrics(state.metrics_port) if state.metrics_port else None
    except VeiltabError as error:
        failure = Failure.of(error)
    port = state.metrics_port
    return render(request, "operator_requests.html", metrics=metrics, port=port, failure=failure)


@router.get("/log")
def log(request: Request) -> Response:
    """Show the last lines of the log, the newest first."""
    path = _state(request).log
    lines, failure = [], None
    try:
        lines = [] if path is None else last_lines(path)
    except VeiltabError as error:
        failure = Failure.of(error)
    return render(request, "operator_log.html", file=path, lines=lines, failure=failure)


def _state(request: Request) -> OperatorState:
    state: OperatorState = request.app.state.console
    return state


def _line(form: Form, field: str, what: str) -> str:
    """Return a text of one line that fits into messages."""
    text = form.text(field)
    check_text(text, what)
    if len(text) > LONGEST_TEXT:
        raise ParameterError(
            f"{what} has {len(text):,} characters", hint=f"use at most {LONGEST_TEXT:,}"
        )
    return text


def _find(request: Request, study_id: str) -> OperatorLine:
    with _state(request).server.database.reading() as records:
        for line in records.study_lines():
            if line.study.hex() == study_id:
                return line
    raise NotFoundError("there is no such study or vault", hint="choose one from the list")


def _study_page(request: Request, study_id: str, failure: Failure | None, typed: Typed) -> Response:
    line = _find(request, study_id)
    with _state(request).server.database.reading() as records:
        named = records.named(line.study)
    return render(
        request,
        "operator_study.html",
        200 if failure is None else 409,
        line=line,
        named=named,
        ended=line.state in ENDED,
        size=size_text,
        typed=typed,
        failure=failure,
    )


def _invitations_page(request: Request, failure: Failure | None, typed: Typed) -> Response:
    state = _state(request)
    with state.server.database.reading() as records:
        lines = records.invitations()
    return render(
        request,
        "operator_invitations.html",
        200 if failure is None else 422,
        invitations=lines[::-1],
        now=state.server.now,
        days=DEFAULT_DAYS,
        url=state.url,
        typed=typed,
        failure=failure,
    )


def _invite(state: OperatorState, form: Form) -> Handed:
    """Draw a code, after everything that could be wrong with the form."""
    name, url = _line(form, "name", "the name"), form.text("url")
    days = form.integer("days", "the number of days", DEFAULT_DAYS)
    if not 1 <= days <= LONGEST_DAYS:
        raise ParameterError(
            f"an invitation cannot be good for {days:,} days",
            hint=f"choose from 1 to {LONGEST_DAYS:,} days",
        )
    if url:
        url = checked_url(url, allow_insecure=False)
    made: list[Handed] = []

    def hand_over(code: str, expires: int) -> None:
        file = _file(state, name, url, code, expires) if url else None
        made.append(Handed(name, code, expires, file))

    invite(state.server, name, days, hand_over)
    state.url = url or state.url
    return made[0]


def _file(state: OperatorState, name: str, url: str, code: str, expires: int) -> str:
    identity = state.server.identity
    about = {"name": name, "url": url, "server": identity.name, "code": code}
    sent = Invitation(**about, fingerprint=fingerprint(identity.party_id), expires=expires)
    return json.dumps(sent.to_json(), ensure_ascii=False, indent=2) + "\n"
