"""What parties can see of a study, each no more than its role allows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from threading import Lock

from veiltab.errors import DamagedError, DigestError, NotFoundError, NotGrantedError, StateError
from veiltab.files.bundles import BundledChunks, Copy
from veiltab.protocol.server.states import State
from veiltab.protocol.verify import check_researcher, sign, verify_grant
from veiltab.server.auth import Sender
from veiltab.server.context import Context
from veiltab.server.db.records import CURATOR
from veiltab.server.limits import Memory, too_large
from veiltab.server.models import AuditLog, CuratorStatus, Party, Status, StudyLine, StudyList
from veiltab.server.steps import ALIGNMENT, SECRET
from veiltab.server.study import GRANT, RELEASE, UPLOAD, Case
from veiltab.wire.audit import AuditHead
from veiltab.wire.bundles import bundled_bytes, in_pieces, write_index
from veiltab.wire.codec import load
from veiltab.wire.contract import Contract
from veiltab.wire.messages import Alignment, Release, SignedGrant

_READING = Lock()
"""Threads that hash many small chunks at the same time only get in each other's way."""


def studies(context: Context, sender: Sender) -> StudyList:
    """List the studies that name the sender."""
    with context.database.reading() as records:
        found = records.studies_of(sender.party)
    return StudyList(
        studies=[
            StudyLine(
                study=record.study.hex(),
                title=record.title,
                state=record.state,
                role=role,
                updated=record.updated,
            )
            for record, role in found
        ]
    )


def status(context: Context, sender: Sender, study: bytes) -> Status:
    """Say where a study stands, and who has done what."""
    with context.database.reading() as records:
        case = Case.of(context, records, study, sender.party)
        role = records.role(study, sender.party) or ""
        signed = case.contract
        aligned = {m.sender for m in records.messages(study, ALIGNMENT)}
        uploaded = {m.sender for m in records.messages(study, UPLOAD)}
        grants = [SignedGrant.loads(m.content) for m in records.messages(study, GRANT)]
    keys = {signature.key for signature in signed.signatures}
    contract, record = signed.body, case.record
    named = contract.researchers
    own = [g.body for g in grants if g.body.researcher == sender.party]
    granted = {name for g in own if g.expires > context.now for name in g.attributes}
    return Status(
        study=study.hex(),
        title=record.title,
        state=record.state,
        reason=record.reason,
        role=role,
        updated=record.updated,
        curators=[
            CuratorStatus(
                name=terms.identity.name,
                party=terms.party_id.hex(),
                signed=terms.identity.signing_key in keys,
                aligned=terms.party_id in aligned,
                uploaded=terms.party_id in uploaded,
            )
            for terms in contract.curators
        ],
        researchers=None
        if named is None
        else [Party(name=each.name, party=each.party_id.hex()) for each in named],
        granted=[name for name in contract.schema.names if name in granted],
    )


def contract(context: Context, sender: Sender, study: bytes) -> bytes:
    """Return the contract with the signatures so far."""
    with context.database.reading() as records:
        return Case.of(context, records, study, sender.party).record.contract


def secret(context: Context, sender: Sender, study: bytes) -> bytes:
    """Return the secret that another curator has sealed to the sender."""
    with context.database.reading() as records:
        Case.of_curator(context, records, study, sender.party)
        found = [m for m in records.messages(study, SECRET) if m.reference == sender.party]
    if not found:
        raise NotFoundError(
            "nobody has sealed the study's secret to you yet",
            hint="ask the proposer to run `veiltab study propose` again",
        )
    return found[0].content


def alignments(context: Context, sender: Sender, study: bytes) -> list[object]:
    """Return the alignments of all curators, to curators alone."""
    with context.database.reading() as records:
        Case.of_curator(context, records, study, sender.party)
        found = records.messages(study, ALIGNMENT)
    return [Alignment.loads(m.content).to_json() for m in found]


def chunks(context: Context, sender: Sender, study: bytes) -> list[str]:
    """Return what the sender itself has sent, so that it can go on from there."""
    with context.database.reading() as records:
        Case.of_curator(context, records, study, sender.party)
    return [digest.hex() for digest in context.folders.received(study, sender.party).digests()]


def release(context: Context, sender: Sender, study: bytes) -> bytes:
    """Return the release to curators, and to researchers who hold a grant."""
    with context.database.reading() as records:
        case = Case.of(context, records, study, sender.party)
        found = records.message(study, RELEASE, context.identity.party_id)
        if found is None:
            raise StateError(
                f"the study is {case.state}, not {State.RELEASED}",
                hint="look at the study's status; each step has its time",
            )
        if records.role(study, sender.party) != CURATOR:
            _check_granted(case, sender, context.now)
    return found.content


@dataclass(frozen=True, slots=True)
class Served:
    """A bundle of released chunks: how long it is, and its pieces as they are read."""

    length: int
    pieces: Iterator[bytes]


def release_chunks(
    context: Context, sender: Sender, study: bytes, digests: Sequence[bytes]
) -> Served:
    """Return perturbed chunks that grants of the sender cover, all of them, and nothing else.

    Each is checked here, before the answer begins, so that a damage can be told.
    """
    with context.database.reading() as records:
        Case.of(context, records, study, sender.party).resume().check_granted(
            sender.party, digests, context.now
        )
    store = context.folders.released(study)
    with _damage_told(), _READING:
        found = _find(store, digests, context.settings.bundle_bytes)
        chunks = store.read(found)
    index = write_index((digest, len(chunk)) for digest, chunk in zip(digests, chunks, strict=True))
    size = sum(map(len, chunks))
    context.metrics.served.inc(size)
    parts: Iterator[bytes | memoryview] = chain(
        [index], _in_turn(context.answers, store, found, chunks)
    )
    return Served(len(index) + size, in_pieces(parts))


def _find(store: BundledChunks, digests: Sequence[bytes], most: int) -> list[Copy]:
    """Return where chunks are, if an answer has room for them."""
    found = store.find(digests)
    if bundled_bytes(place.length for _, place in found) > most:
        raise too_large("the answer", most)
    return found


@contextmanager
def _damage_told() -> Iterator[None]:
    """Tell a researcher, who cannot send the chunk again, who can help."""
    try:
        yield
    except DigestError as error:
        raise DamagedError(
            "the server's disk has damaged this part of the release",
            hint="ask the operator to restore it from a copy; it never changes, so any copy does",
        ) from error


def _in_turn(
    memory: Memory, store: BundledChunks, found: Sequence[Copy], chunks: list[memoryview]
) -> Iterator[memoryview]:
    """Yield chunks as they are sent.

    If there are too many slow readers, this one's chunks are not kept, and read and checked once
    more, one at a time.
    """
    size = sum(map(len, chunks))
    if not memory.take(size):
        chunks.clear()
        for copy in found:
            yield from store.read([copy])
        return
    try:
        yield from chunks
    finally:  # also if nobody wants the rest any more
        memory.give_back(size)


def grants(context: Context, sender: Sender, study: bytes) -> list[object]:
    """Return the grants that the sender has given, or was given."""
    with context.database.reading() as records:
        Case.of(context, records, study, sender.party)
        found = [SignedGrant.loads(m.content) for m in records.messages(study, GRANT)]
    party = sender.party
    return [g.to_json() for g in found if party in (g.body.curator, g.body.researcher)]


def audit(context: Context, sender: Sender, study: bytes) -> AuditLog:
    """Return the study's audit log with the server's signature on its end."""
    with context.database.reading() as records:
        Case.of(context, records, study, sender.party)
        entries, head = records.audit(study), records.audit_head(study)
    length, last = head or (0, study)
    signed = sign(AuditHead(at=context.now, hash=last, length=length, study=study), context.key)
    return AuditLog(entries=[load(entry) for entry in entries], head=signed.to_json())


def _check_granted(case: Case, sender: Sender, now: int) -> None:
    """Refuse a researcher without a grant that is good now."""
    released, agreed = case.release(), case.contract.body
    check_researcher(agreed, sender.party)
    for message in case.records.messages(case.study, GRANT):
        grant = SignedGrant.loads(message.content)
        if (
            grant.body.researcher == sender.party
            and released is not None
            and _good(agreed, released.body, grant, now)
        ):
            return
    raise NotGrantedError(
        "no grant of yours is good now", hint="ask the curators for a grant, or for a new one"
    )


def _good(agreed: Contract, released: Release, grant: SignedGrant, now: int) -> bool:
    if grant.body.expires <= now:
        return False
    verify_grant(agreed, released, grant, now)
    return True
