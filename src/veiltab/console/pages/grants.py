"""Who can read what: the list of grants, giving them, and taking them back."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from veiltab.console.forms import Form
from veiltab.console.pages.study import do
from veiltab.console.rendering import render
from veiltab.errors import InputError
from veiltab.party.curator import find_researcher
from veiltab.party.grants import CANNOT_UNDO, notices
from veiltab.party.home import Home
from veiltab.party.known.names import readable
from veiltab.party.session import Session
from veiltab.party.study import DAYS
from veiltab.wire.contract import Contract, PublicIdentity

router = APIRouter()


@router.get("/grants")
def grants(request: Request) -> Response:
    """List who can read what until when, in all studies."""
    with request.app.state.console.party.session() as session:
        given, me = session.grants(), session.identity.party_id
    return render(request, "grants.html", grants=given, notices=notices(given, me), me=me)


@router.post("/studies/{study_id}/grant")
def grant(request: Request, study_id: str) -> Response:
    """Let a researcher read some attributes."""

    def carry_out(form: Form, session: Session) -> str:
        days = form.integer("days", "the number of days", DAYS)
        attributes = form.all("attribute")
        if not attributes:
            raise InputError("no attribute is ticked", hint="tick those that may be read")
        study = session.study(study_id)
        to = _researcher(session.home, study.terms, form.path("researcher"))
        given = study.grant(to, attributes, days=days, file=form.path("file") or None)
        handed = f" Hand them the file {given.file} directly." if given.file else ""
        return (
            f"{readable(to.name)} can read {', '.join(given.attributes)} for {days} days.{handed}"
        )

    return do(request, study_id, "grant", carry_out)


@router.post("/studies/{study_id}/revoke")
def revoke(request: Request, study_id: str) -> Response:
    """Take back everything that this curator has granted to a researcher."""

    def carry_out(form: Form, session: Session) -> str:
        ended = session.study(study_id).revoke(form.text("researcher"))
        names = dict.fromkeys(name for one in ended for name in one.attributes)
        whom = readable(ended[0].researcher)
        return f"{whom} can read {', '.join(names)} no more. {CANNOT_UNDO}."

    return do(request, study_id, "revoke", carry_out)


def _researcher(home: Home, contract: Contract, text: str) -> PublicIdentity:
    """Find who is meant: a name in the contract, a file, or somebody whom this home knows."""
    try:
        return find_researcher(contract, text)
    except InputError:
        if contract.researchers is not None:
            raise
    return home.known.find(text).identity
