"""Aligning: what this home says that it holds, and whether all curators say the same.

Whoever finds out that its table was wrong pushes the right one: that begins the next *attempt*, in
which every curator aligns again, until somebody has uploaded.  Two rules keep a server from
showing different alignments to different curators, so that each uploads another table:

* in one attempt a home signs one alignment, and only alignments of one attempt are compared;
* a home that has prepared an upload never again signs for other respondents or decoys.

Whoever uploads has seen everybody sign for its own table in one attempt.  So nobody else can see
everybody sign for another one.
"""

from dataclasses import dataclass, replace

from veiltab.errors import AlignmentError, MismatchError, StateError
from veiltab.party.context import PartyContext
from veiltab.party.progress import OnProgress, Patience, Progress
from veiltab.party.remote import Status
from veiltab.party.study_folder import StudyFolder
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.curator.upload import (
    Held,
    align,
    check_alignment,
    check_same,
    verify_alignments,
)
from veiltab.protocol.verify import renew, sign
from veiltab.remedies import Remedy
from veiltab.wire.contract import Contract
from veiltab.wire.messages import MAX_ATTEMPTS, Alignment
from veiltab.wire.signed import Signed
from veiltab.wire.states import State

TRIES = 5
"""How often an alignment is sent while others begin further attempts."""


@dataclass(frozen=True, slots=True)
class AlignedCurator:
    """What a curator has said that it holds.

    ``attempt`` is null before it has said anything, and ``respondents`` also where the server
    matches: there, nobody is told how many.
    """

    name: str
    party: bytes
    attempt: int | None
    respondents: int | None


@dataclass(frozen=True, slots=True)
class AlignmentStatus:
    """Whether the curators hold the same respondents and decoys, as far as they have said.

    ``aligned`` is ``None`` while some have said nothing in the newest attempt, and nobody differs.
    ``difference`` says who holds what, if that is not the same.
    """

    aligned: bool | None
    difference: str | None
    waiting_for: tuple[str, ...]
    curators: tuple[AlignedCurator, ...]

    @property
    def attempt(self) -> int:
        """The newest attempt."""
        return max([1, *(curator.attempt or 1 for curator in self.curators)])


def compare(contract: Contract, alignments: list[Signed[Alignment]]) -> AlignmentStatus:
    """Compare what the curators have signed, in the newest attempt."""
    held = verify_alignments(contract, alignments)
    current = _in_newest_attempt(held)
    difference = _difference(current)
    senders = {body.curator for _, body in current}
    missing = tuple(t.identity.name for t in contract.curators if t.party_id not in senders)
    bodies = {body.curator: body for _, body in held}
    return AlignmentStatus(
        aligned=False if difference is not None else None if missing else True,
        difference=difference,
        waiting_for=missing,
        curators=tuple(
            _about(terms.identity.name, terms.party_id, bodies.get(terms.party_id))
            for terms in contract.curators
        ),
    )


def _about(name: str, party: bytes, body: Alignment | None) -> AlignedCurator:
    if body is None:
        return AlignedCurator(name, party, None, None)
    return AlignedCurator(name, party, body.attempt, body.population)


def _in_newest_attempt(held: Held) -> Held:
    newest = max((body.attempt for _, body in held), default=1)
    return [(name, body) for name, body in held if body.attempt == newest]


def _difference(current: Held) -> str | None:
    try:
        if current:
            check_same(current)
    except AlignmentError as error:
        return error.message
    return None


def state_holding(
    context: PartyContext, contract: Contract, folder: StudyFolder, intake: Intake
) -> bool:
    """Sign what this curator holds, and keep it; tell whether that begins another attempt.

    What the server has by this curator counts too: a home that was restored from an old copy has
    forgotten in which attempts it has signed.
    """
    study, me = contract.study_id, context.identity.party_id
    alignments = context.server.alignments(study)
    newest = compare(contract, alignments).attempt
    holding = align(contract, context.identity, intake).body
    saved = folder.alignment()
    signed = [s for s in alignments if s.body.curator == me] + ([saved] if saved else [])
    own = max(signed, key=lambda s: s.body.attempt, default=None)
    same = own is not None and replace(own.body, attempt=1) == holding
    if any(curator.uploaded for curator in context.server.status(study).curators):
        _check_aligned_before(own, holding, same=same)
    attempt = newest
    if own is not None and own.body.attempt >= newest:
        attempt = own.body.attempt + (not same)
    _save(context, folder, holding, attempt)
    others = (s.body.attempt for s in alignments if s.body.curator != me)
    return attempt > max(others, default=1)


def _check_aligned_before(own: Signed[Alignment] | None, holding: Alignment, *, same: bool) -> None:
    """After the first upload, refuse another table before anything is signed for it.

    There is no way back to an alignment of an earlier attempt: the server may say what it likes
    about uploads, and show the later one to somebody else.
    """
    if same:
        return
    before = None if own is None else own.body.population
    counts = f": it has {holding.population:,} respondents, and that one {before:,}"
    raise AlignmentError(
        "not aligned: a curator has uploaded already, and this is not the table that you have"
        f" aligned{'' if before is None else counts}",
        hint="push the table that was aligned; if that one was wrong, abort the study and propose a"
        " new one",
    )


def agree(
    context: PartyContext,
    contract: Contract,
    folder: StudyFolder,
    progress: OnProgress,
    patience: Patience | None,
    *,
    begun: bool = False,
) -> list[Signed[Alignment]] | None:
    """Wait until every curator holds what this home holds, and return the alignments.

    A curator who has corrected its table is followed into the next attempt.  If the curators
    differ, whoever came last, or has ``begun`` the attempt, is told so at once; whoever waits goes
    on waiting for the others to correct their table.  ``None`` if nobody is to be waited for.
    """
    study, waited = contract.study_id, False
    while True:
        alignments = _send_own(context, contract, folder)
        status = compare(contract, alignments)
        if status.aligned:
            check_alignment(contract, alignments)
            return alignments
        check_open(context, study)  # nobody will come to a study that has ended
        if status.difference and (patience is None or patience.over or begun or not waited):
            check_same(_in_newest_attempt(verify_alignments(contract, alignments)))
        if patience is None:
            return None
        if patience.over:
            raise StateError(
                f"still waiting for {', '.join(map(repr, status.waiting_for))} to push, after"
                f" {patience.timeout:g} seconds",
                hint="run the same command again when they have; nothing is lost",
            )
        progress(
            Progress(
                "waiting",
                waiting_for=status.waiting_for,
                state=State.OPEN,
                difference=status.difference,
            )
        )
        patience.wait()
        waited = True


def _send_own(
    context: PartyContext, contract: Contract, folder: StudyFolder
) -> list[Signed[Alignment]]:
    """Return all alignments, once this home's is among them in the newest attempt."""
    study, me = contract.study_id, context.identity.party_id
    for _ in range(TRIES):
        alignments = context.server.alignments(study)
        own = folder.alignment()
        if own is None:
            raise StateError("this home has not said yet what it holds", hint=Remedy.TABLE)
        newest = compare(contract, alignments).attempt
        if newest > own.body.attempt:
            own = _save(context, folder, own.body, newest)
        if own.digest in {s.digest for s in alignments if s.body.curator == me}:
            return alignments
        context.server.send_alignment(study, renew(own, context.identity.signing))
    raise MismatchError(
        "the server does not show the alignment that was sent to it",
        hint="push again; if it stays so, ask the server's operator",
    )


def _save(
    context: PartyContext, folder: StudyFolder, holding: Alignment, attempt: int
) -> Signed[Alignment]:
    """Sign an alignment in an attempt, and keep it before it is sent."""
    if attempt > MAX_ATTEMPTS:
        raise StateError(
            f"the curators have aligned {MAX_ATTEMPTS} times",
            hint="abort the study, compare the tables, and propose a new one",
        )
    signed = sign(replace(holding, attempt=attempt), context.identity.signing)
    folder.save_alignment(signed)
    return signed


def check_open(context: PartyContext, study: bytes) -> None:
    """Refuse before a long table is read, or others are waited for, if the study is not open."""
    status = context.server.status(study)
    if status.state != State.OPEN:
        raise _not_open(status)


def check_not_ended(status: Status) -> None:
    """Refuse a study that has ended; for its signatures nobody need wait any more."""
    if status.state == State.ABORTED:
        raise _not_open(status)


def _not_open(status: Status) -> StateError:
    reason = f": {status.reason}" if status.reason else ""
    return StateError(
        f"the study is {status.state}{reason}",
        hint="tables are pushed while a study is open; look at its status",
    )
