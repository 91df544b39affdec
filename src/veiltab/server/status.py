"""How a server is doing, for its operator: what there is, what waits for whom, and how full it is.

It only reads, and so harms neither a server that runs nor the folder of one that does not.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from veiltab.server.context import ServiceContext
from veiltab.server.db.operators import OperatorLine
from veiltab.server.db.records import CURATOR, STUDY, Records
from veiltab.server.operator import Disk, disk_of
from veiltab.server.worker import COMPLETE
from veiltab.wire.messages import Repad, Upload
from veiltab.wire.states import ENDED, State, VaultState


@dataclass(frozen=True, slots=True)
class Wait:
    """A study or vault that is not finished: what is to be done next, and by whom.

    ``by`` are names of parties; empty if the server itself has to do it.
    """

    line: OperatorLine
    step: str
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServerReport:
    """What ``veiltab server status`` tells.

    ``studies`` and ``vaults`` are counted by state, ``queue`` are the studies that wait to be drawn
    or released, and ``waits`` everything that is not finished, the oldest first.
    """

    running: bool
    studies: dict[str, int]
    vaults: dict[str, int]
    parties: int
    banned: int
    open_invitations: int
    disk: Disk
    queue: tuple[bytes, ...]
    waits: tuple[Wait, ...]


def server_report(context: ServiceContext) -> ServerReport:
    """Look at everything at one time."""
    with context.database.reading() as records:
        lines, parties = records.study_lines(), records.party_lines()
        invited = [line.state(context.now) for line in records.invitations()]
        queue = (*records.studies_to_draw(), *records.studies_in(COMPLETE))
        waits = tuple(
            _wait(records, line, queue)
            for line in lines
            if line.state not in (*ENDED, VaultState.STORED)
        )
    return ServerReport(
        running=context.folders.is_served(),
        studies=_by_state((line.state for line in lines if line.kind == STUDY), State),
        vaults=_by_state((line.state for line in lines if line.kind != STUDY), VaultState),
        parties=len(parties),
        banned=sum(party.banned is not None for party in parties),
        open_invitations=invited.count("open"),
        disk=disk_of(context),
        queue=queue,
        waits=waits,
    )


def _by_state(states: Iterable[str], order: Iterable[str]) -> dict[str, int]:
    """Count states, in their order."""
    counts = Counter(states)
    return {str(state): counts[state] for state in order if counts[state]}


def _wait(records: Records, line: OperatorLine, queue: tuple[bytes, ...]) -> Wait:
    """Return what a study or vault waits for."""
    if line.study in queue:
        drawn = line.state == State.OPEN
        return Wait(line, "drawing" if drawn else "release", ())
    curators = [member for member in records.named(line.study) if member.role == CURATOR]
    if line.state == State.PROPOSED:
        return Wait(line, "signature", tuple(c.name for c in curators if not c.signed))
    kind = Repad.kind if line.state == State.SAMPLED else Upload.kind
    sent = records.digests(line.study, kind)
    step = "new pads" if kind == Repad.kind else "upload"
    return Wait(line, step, tuple(c.name for c in curators if c.party not in sent))
