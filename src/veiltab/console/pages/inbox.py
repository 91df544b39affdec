"""The first page: what waits for this party, and every study that it takes part in."""

from collections.abc import Iterable
from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import Response

from veiltab.console.rendering import Failure, render
from veiltab.errors import VeiltabError
from veiltab.party.remote import Status, StudySummary
from veiltab.party.session import Session
from veiltab.party.study import waits_for
from veiltab.wire.states import IN_ORDER, State

router = APIRouter()

MOST_ASKED = 50
"""Studies whose state is looked at closely; those that are over wait for nobody."""


@dataclass(frozen=True, slots=True)
class Line:
    """A study in the list: what waits for me, and for whom else it waits."""

    summary: StudySummary
    mine: str
    others: tuple[str, ...]


@router.get("/")
def inbox(request: Request) -> Response:
    """List what is to be done first, and then everything else."""
    state = request.app.state.console
    home = state.party.home
    if home.server is None:
        return render(request, "inbox.html", lines=[], proposals=[], waiting=[], home=home)
    failure, lines, proposals = None, [], []
    try:
        with state.party.session() as session:
            proposals = session.studies(inbox=True)
            lines = list(_lines(session, session.studies()))
    except VeiltabError as error:
        if error.code == "console_locked":
            raise
        failure = Failure.of(error)
    return render(
        request,
        "inbox.html",
        lines=lines,
        proposals=proposals,
        waiting=[line for line in lines if line.mine],
        home=home,
        failure=failure,
    )


def _lines(session: Session, summaries: Iterable[StudySummary]) -> Iterable[Line]:
    newest = sorted(summaries, key=lambda summary: -summary.updated)
    for number, summary in enumerate(newest):
        if summary.state not in IN_ORDER or number >= MOST_ASKED:
            yield Line(summary, "", ())
            continue
        status = session.study(summary.study.hex()).status()
        yield Line(summary, my_step(status, session.identity.party_id), _others(status, session))


def my_step(status: Status, me: bytes) -> str:
    """Say what the study waits for from this party, if anything."""
    mine = next((curator for curator in status.curators if curator.party == me), None)
    if mine is not None and status.state == State.PROPOSED and not mine.signed:
        return "Read and sign it"
    if mine is not None and status.state == State.OPEN and not mine.uploaded:
        return "Push your table"
    if mine is None and status.state == State.RELEASED and status.granted:
        return "Explore the results"
    return ""


def _others(status: Status, session: Session) -> tuple[str, ...]:
    return tuple(name for name in waits_for(status) if name != session.identity.name)
