"""Where a study stands, for people and for scripts, and waiting for it to get further."""

import time
from typing import TYPE_CHECKING, Any

from veiltab.cli.output import console, moment, print_facts, print_json, print_rows, tell
from veiltab.errors import StateError

if TYPE_CHECKING:
    from veiltab.client.api import Status
    from veiltab.client.session import Session

STATES = ("proposed", "open", "uploaded", "sampled", "joined", "released")
"""The states of a study, in the order in which it goes through them."""

SHORTEST_POLL, LONGEST_POLL = 0.1, 3.0


def wait_for_state(
    session: "Session", study: bytes, wanted: str, timeout: float | None
) -> "Status":
    """Ask until the study is as far as wanted; ``None`` waits for as long as it takes."""
    end = None if timeout is None else time.monotonic() + timeout
    pause, told = SHORTEST_POLL, None
    while True:
        status = session.server.status(study)
        if is_reached(status, wanted):
            return status
        if end is not None and time.monotonic() >= end:
            raise StateError(
                f"the study is {status.state} after {timeout:g} seconds, not {wanted}",
                hint=_missing(status) or "wait longer with --timeout",
            )
        if status != told:
            told = status
            missing = _missing(status)
            tell(f"the study is {status.state}{missing and f'; {missing}'}.  (Ctrl-C is safe.)")
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_POLL)


def is_reached(status: "Status", wanted: str) -> bool:
    """Tell whether the study is as far as wanted; one that was ended never gets there."""
    if status.state == wanted:
        return True
    if status.state not in STATES:
        raise StateError(
            f"the study is {status.state} and will not be {wanted}: {status.reason or 'no reason'}",
            hint="ask the curator who has ended it; propose a new study if need be",
        )
    return wanted in STATES and STATES.index(status.state) >= STATES.index(wanted)


def _missing(status: "Status") -> str:
    """Say for whom the study waits."""
    if status.state == "proposed":
        names = [each.name for each in status.curators if not each.signed]
        return f"not signed yet by: {', '.join(names)}"
    if status.state == "open":
        names = [each.name for each in status.curators if not each.uploaded]
        return f"not pushed yet by: {', '.join(names)}"
    return ""


def status_json(status: "Status") -> dict[str, Any]:
    """Return a status as JSON values, in the form in which the server sends it."""
    return status.to_json()


def print_status(status: "Status", *, as_json: bool) -> None:
    """Print a status."""
    if as_json:
        print_json(status_json(status))
        return
    screen = console()
    facts = {
        "study": status.title,
        "id": status.study.hex(),
        "state": status.state,
        "since": moment(status.updated),
        "your part": status.role,
    }
    if status.reason is not None:
        facts["reason"] = status.reason
    if status.granted:
        facts["granted"] = ", ".join(status.granted)
    print_facts(screen, facts)
    screen.print()
    rows = [
        (each.name, _mark(each.signed), _mark(each.aligned), _mark(each.uploaded))
        for each in status.curators
    ]
    print_rows(screen, ("curator", "signed", "aligned", "pushed"), rows)


def _mark(done: bool) -> str:
    return "yes" if done else "no"
