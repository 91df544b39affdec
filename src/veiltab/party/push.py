"""Pushing a table: take it in, compare respondents, sample, encrypt, send; go on where it stopped.

Nothing leaves before the table was read to its end without an error.  What was prepared is kept
before any of it is sent, and sent again byte for byte until the server has it all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import polars as pl

from veiltab.core.plan import Plan
from veiltab.data.recode import Recode
from veiltab.data.tables import Table, feed
from veiltab.errors import DigestError, StateError
from veiltab.files.chunks import FolderChunks
from veiltab.files.private import locked
from veiltab.files.spool import FolderSpool
from veiltab.party.remote import Status
from veiltab.party.session import Session
from veiltab.party.study_folder import StudyFolder
from veiltab.protocol.curator.agreement import receive_secret
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.curator.upload import (
    CuratorContext,
    Prepared,
    align,
    check_alignment,
    prepare_sample,
    prepare_table,
)
from veiltab.protocol.verify import plan_for, verify_agreement
from veiltab.wire.contract import Contract
from veiltab.wire.messages import Alignment, Upload
from veiltab.wire.packing import TOKEN_BYTES, chunk_slices, packed_length
from veiltab.wire.signed import Signed

LOCK_WAIT = 1.0
"""Seconds that a push waits for another one of the same study."""


class Watcher:
    """What wants to know how a push is going; this one does not."""

    def reading(self, rows: int, total: int | None) -> None:
        """Hear how many rows of the table are read."""

    def waiting(self, names: Sequence[str]) -> None:
        """Hear for which curators the push waits; raise, or sleep a while, and return."""
        raise StateError(
            f"waiting for {', '.join(map(repr, names))} to push too",
            hint="run the same command again when they have; nothing is lost",
        )

    def encrypting(self) -> None:
        """Hear that the sample is being encrypted."""

    def sending(self, chunks: int, total: int) -> None:
        """Hear how many chunks the server has."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a curator's rows come from, and what they mean."""

    table: Table
    ids: tuple[str, ...]
    recode: Recode = field(default_factory=Recode)


@dataclass(frozen=True, slots=True)
class _Watched:
    """A table that tells a watcher how far it is read."""

    table: Table
    watcher: Watcher

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """The columns of the table."""
        return self.table.columns

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """Yield the table's batches, and tell after each."""
        total, done = self.row_count(), 0
        for frame in self.table.batches(columns, rows):
            yield frame
            done += frame.height
            self.watcher.reading(done, total)

    def row_count(self) -> int | None:
        """Return how many rows there are, if that is known."""
        return self.table.row_count()


@dataclass(frozen=True, slots=True)
class Preview:
    """What a push would send, and what it costs, before anything leaves."""

    plan: Plan
    rows: int
    chunks: int
    bytes: int


def preview(session: Session, study: bytes, source: Source, watcher: Watcher) -> Preview:
    """Read the whole table, and say what would be sent; nothing is sent or kept."""
    signed = session.contract(study)
    contract = signed.body
    place = session.home.study(study)
    with _alone(place), _taken_in(session, contract, place, source, watcher) as intake:
        plan = plan_for(contract, intake.population)
        whole = contract.sampling.by == "server"
        rows = intake.population if whole else plan.sample_size
    sizes = [a.size for a in contract.schema_of(session.identity.party_id).attributes]
    slices = list(chunk_slices(rows))
    columns = sum(packed_length(size, s.stop - s.start) for size in sizes for s in slices)
    tokens = TOKEN_BYTES * rows if whole else 0
    return Preview(plan, rows, len(slices) * (len(sizes) + whole), columns + tokens)


def push(session: Session, study: bytes, source: Callable[[], Source], watcher: Watcher) -> Status:
    """Push a table to a study, or go on with a push that was interrupted.

    ``source`` is asked for only if the table still has to be read.
    """
    signed = session.contract(study)
    contract = _opened(session, signed)
    place = session.home.study(study)
    schema = contract.schema_of(session.identity.party_id)
    with _alone(place):
        private, outgoing = FolderChunks(place.private), FolderChunks(place.outgoing)
        prepared = place.prepared(schema, private)
        if prepared is None:
            _check_open(session, study)
            desk = CuratorContext(session.identity, session.entropy, outgoing, private)
            prepared = _prepare(session, signed, desk, source(), watcher)
            place.save_prepared(prepared)
        status = _send(session, study, prepared, outgoing, watcher)
        if status.state == "released":
            outgoing.clear()
    return status


def _alone(place: StudyFolder) -> AbstractContextManager[None]:
    """Keep a second push of the same study away; other studies may go on."""
    return locked(place.path / "lock", LOCK_WAIT)


def _check_open(session: Session, study: bytes) -> None:
    """Say before a long table is read, or others are waited for, that nobody would take it."""
    status = session.server.status(study)
    if status.state != "open":
        raise _ended(status)


def _ended(status: Status) -> StateError:
    reason = f": {status.reason}" if status.reason else ""
    return StateError(
        f"the study is {status.state}{reason}",
        hint="tables are pushed while a study is open; look at its status",
    )


def _opened(session: Session, signed: Signed[Contract]) -> Contract:
    missing = {terms.identity.signing_key for terms in signed.body.curators}
    missing -= {signature.key for signature in signed.signatures}
    names = [t.identity.name for t in signed.body.curators if t.identity.signing_key in missing]
    if names:
        raise StateError(
            f"not every curator has signed: {', '.join(map(repr, names))} has not",
            hint="sign with: veiltab study sign; and wait for the others",
        )
    contract = verify_agreement(signed)
    contract.curator(session.identity.party_id)
    return contract


def _prepare(
    session: Session,
    signed: Signed[Contract],
    desk: CuratorContext,
    source: Source,
    watcher: Watcher,
) -> Prepared[Upload]:
    contract = signed.body
    place = session.home.study(contract.study_id)
    desk.outgoing.clear()  # of a preparation that was interrupted; its pads are lost with it
    desk.private.clear()
    with _taken_in(session, contract, place, source, watcher) as intake:
        if contract.sampling.by == "server":
            watcher.encrypting()
            return prepare_table(desk, signed, intake, FolderSpool(place.path / "scratch-2"))
        session.server.send_alignment(contract.study_id, align(contract, session.identity, intake))
        alignments = list(_alignments(session, contract, watcher))
        watcher.encrypting()
        return prepare_sample(desk, signed, intake, alignments)


def _alignments(
    session: Session, contract: Contract, watcher: Watcher
) -> Iterator[Signed[Alignment]]:
    """Wait until every curator has said which respondents it holds, and compare."""
    while True:
        found = session.server.alignments(contract.study_id)
        there = {each.body.curator for each in found}
        absent = [t.identity.name for t in contract.curators if t.party_id not in there]
        if not absent:
            check_alignment(contract, found)
            yield from found
            return
        _check_open(session, contract.study_id)  # nobody comes any more to one that was ended
        watcher.waiting(absent)


def _taken_in(
    session: Session, contract: Contract, place: StudyFolder, source: Source, watcher: Watcher
) -> Intake:
    """Read the whole table into an intake, in bounded memory."""
    schema = contract.schema_of(session.identity.party_id)
    secret = _secret(session, contract, place)
    intake = Intake(contract, secret, schema, FolderSpool(place.path / "scratch"))
    table, recode = _Watched(source.table, watcher), source.recode
    try:
        feed(
            intake,
            table,
            contract.linkage,
            source.ids,
            rules=recode.rules,
            columns=recode.columns,
        )
    except BaseException:
        intake.__exit__(None, None, None)
        raise
    return intake


def _secret(session: Session, contract: Contract, place: StudyFolder) -> bytes:
    """Return the study's secret: from the home, or as it was sealed to this curator."""
    known = place.secret()
    if known is not None:
        return known
    message = session.server.secret(contract.study_id)
    if message is None:
        raise StateError(
            "nobody has sealed the study's secret to you yet",
            hint="ask the proposer to run `veiltab study propose` again with the same file",
        )
    secret = receive_secret(contract, session.identity, message)
    place.save_secret(secret)
    return secret


def _send(
    session: Session,
    study: bytes,
    prepared: Prepared[Upload],
    outgoing: FolderChunks,
    watcher: Watcher,
) -> Status:
    """Send what the server does not have yet, and then the message that refers to all of it."""
    status = session.server.status(study)
    if status.state == "aborted":
        raise _ended(status)
    if status.state not in ("open", "uploaded"):
        return status
    body = prepared.message.body
    columns = [column.chunks for column in body.columns] + [body.tokens or ()]
    wanted = list(dict.fromkeys(digest for chunks in columns for digest in chunks))
    there = session.server.sent_chunks(study)
    missing = [digest for digest in wanted if digest not in there]
    sent = len(wanted) - len(missing)
    watcher.sending(sent, len(wanted))

    def count(more: int) -> None:
        nonlocal sent
        sent += more
        watcher.sending(sent, len(wanted))

    # The server reads every chunk before it takes the upload, so that they need no check here.
    session.server.send_chunks(study, ((d, outgoing.read(d)) for d in missing), count)
    try:
        return session.server.upload(study, prepared.message)
    except DigestError:
        for digest in wanted:
            outgoing.get(digest)  # if it was our disk that has damaged a chunk, this says so
        raise
