"""The first page: what waits for this party, and every study that it takes part in."""

from collections.abc import Iterable
from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import Response

from veiltab.console.rendering import Failure, render
from veiltab.errors import VeiltabError
from veiltab.party.answers import CuratorStatus
from veiltab.party.home import Home
from veiltab.party.remote import Status, StudySummary
from veiltab.party.session import Session
from veiltab.party.study import waits_for
from veiltab.wire.states import IN_ORDER, State

router = APIRouter()

EXPLORE = "Explore the results"

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
        yield Line(summary, my_step(status, session.home), others(status, session.home))


def my_step(status: Status, home: Home) -> str:
    """Say what the study waits for from this party, if anything."""
    mine = _own(status, home)
    step = "" if mine is None else _curators_step(status, mine, home)
    if not step and status.state == State.RELEASED and status.granted:
        return EXPLORE
    return step


def _curators_step(status: Status, mine: CuratorStatus, home: Home) -> str:
    match status.state:
        case State.PROPOSED if not mine.signed:
            return "Read and sign it"
        case State.OPEN if not mine.uploaded and not _reads_vault(status, home):
            return "Push your table"
        case State.SAMPLED if not mine.uploaded:
            return "Send new pads for your stored table"
        case State.RELEASED if status.researchers != () and not home.study(status.study).grants():
            return "Let a researcher read"
    return ""


def others(status: Status, home: Home) -> tuple[str, ...]:
    """Name the other curators for whom the study waits."""
    if status.state == State.OPEN and _reads_vault(status, home):
        return ()  # the server draws the rows
    if status.state == State.RELEASED and _own(status, home) is None and not status.granted:
        return tuple(curator.name for curator in status.curators)
    return tuple(name for name in waits_for(status) if name != home.public.name)


def _own(status: Status, home: Home) -> CuratorStatus | None:
    """Return how far this party has got, if it is a curator of the study."""
    me = home.public.party_id
    return next((curator for curator in status.curators if curator.party == me), None)


def _reads_vault(status: Status, home: Home) -> bool:
    """Tell whether a study is about stored tables, as far as this home has seen its terms."""
    contract = home.study(status.study).contract()
    return contract is not None and contract.body.stored is not None
