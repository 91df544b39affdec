"""Pushing a table: read it, compare respondents, sample, encrypt, send; resume where it stopped.

Nothing is sent before the whole table has been read without an error.  The prepared upload is saved
before any of it is sent, and sent again byte for byte until the server has all of it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from veiltab.core.plan import Plan
from veiltab.data.recode import Recode
from veiltab.data.tables import Table, feed
from veiltab.errors import DigestError, ParameterError, StateError
from veiltab.files.chunks import FolderChunks
from veiltab.files.private import locked
from veiltab.files.spool import FolderSpool
from veiltab.party.context import PartyContext
from veiltab.party.evidence import check_uploaded
from veiltab.party.progress import OnProgress, Patience, Progress
from veiltab.party.remote import Status
from veiltab.party.secrets import combined_secret
from veiltab.party.study_folder import StudyFolder
from veiltab.protocol.curator.agreement import new_contribution
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.curator.upload import (
    CuratorContext,
    Prepared,
    align,
    check_alignment,
    needs_alignment,
    prepare_sample,
    prepare_table,
)
from veiltab.protocol.verify import plan_for, planned_sample_size, renew, verify_agreement
from veiltab.wire.contract import Contract, Vault
from veiltab.wire.messages import Alignment, Repad, Upload
from veiltab.wire.packing import TOKEN_BYTES, chunk_slices, packed_length
from veiltab.wire.signed import Signed
from veiltab.wire.states import State

LOCK_WAIT = 1.0
"""Seconds that a push waits for another one of the same study."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a curator's rows come from, and what they mean."""

    table: Table
    ids: tuple[str, ...]
    recode: Recode = field(default_factory=Recode)


@dataclass(frozen=True, slots=True)
class ReportingTable:
    """A table that reports how far it has been read."""

    table: Table
    progress: OnProgress

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """The columns of the table."""
        return self.table.columns

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """Yield the table's batches, with a report after each."""
        total, done = self.row_count(), 0
        for frame in self.table.batches(columns, rows):
            yield frame
            done += frame.height
            self.progress(Progress("reading rows", done, total))

    def row_count(self) -> int | None:
        """Return how many rows there are, if that is known."""
        return self.table.row_count()


@dataclass(frozen=True, slots=True)
class Preview:
    """What a push would send and what it costs, before anything leaves.

    With decoys, ``rows``, ``chunks`` and ``bytes`` are what is to be expected: the real numbers
    would tell how many respondents take part.
    """

    title: str
    plan: Plan
    respondents: int
    rows: int
    chunks: int
    bytes: int


def check(
    context: PartyContext, signed: Signed[Contract], source: Source, progress: OnProgress
) -> Preview:
    """Read the whole table, and return what would be sent; nothing is sent or saved."""
    contract, me = signed.body, context.identity.party_id
    _check_fresh(contract)
    folder = context.home.study(contract.study_id)
    # Any secret will do to look at a table, also before every curator has contributed to it.
    secret = new_contribution(context.entropy)
    with _only_push(folder), _read_table(context, contract, secret, source, progress) as intake:
        respondents = intake.population
    plan = plan_for(contract, respondents)
    rows = _expected_rows(contract, plan, me, respondents)
    sizes = [attribute.size for attribute in contract.schema_of(me).attributes]
    slices = list(chunk_slices(rows))
    columns = sum(packed_length(size, s.stop - s.start) for size in sizes for s in slices)
    tokens = TOKEN_BYTES * rows if contract.matched else 0
    chunks = len(slices) * (len(sizes) + contract.matched)
    return Preview(contract.title, plan, respondents, rows, chunks, columns + tokens)


def _check_population(contract: Contract, respondents: int) -> None:
    """Refuse another number of respondents than was agreed on, before anything is sent."""
    if contract.matched:
        return
    if contract.decoys is not None:
        plan_for(contract, respondents)
    else:
        planned_sample_size(contract, respondents)  # plans no noise, which can take long


def _expected_rows(contract: Contract, plan: Plan, me: bytes, respondents: int) -> int:
    """Return how many rows a curator uploads: exactly by rank, else as many as are expected."""
    law, coin = plan.mechanism.decoys, plan.mechanism.coin
    if law is None or coin is None:
        return respondents if contract.matched else plan.ranked.sample_size
    patterns = 1
    for terms in contract.curators:  # in matched linkage, the others may be absent
        absent = contract.matched and terms.party_id != me
        patterns *= terms.schema.domain_size + absent
    return round(respondents * coin.probability + patterns * law.mean)


def push(
    context: PartyContext,
    signed: Signed[Contract],
    source: Callable[[], Source] | None,
    progress: OnProgress,
    patience: Patience | None,
) -> Status:
    """Push a table to a study, or go on with a push that was interrupted.

    To go on, the table need not be named again; if it is, it must be the same as before.  Without
    ``patience`` it does not wait for other curators: if they have to push first, it returns the
    status so far.
    """
    contract = _check_signed(context, signed)
    _check_fresh(contract)
    context.check_parties(contract)
    context.home.ledgers.check_charged(contract)
    folder = context.home.study(contract.study_id)
    schema = contract.schema_of(context.identity.party_id)
    with _only_push(folder):
        private, outgoing = FolderChunks(folder.private), FolderChunks(folder.outgoing)
        prepared = folder.prepared(schema, private)
        if prepared is None:
            _check_open(context, contract.study_id)
            curator = CuratorContext(context.identity, context.entropy, outgoing, private)
            prepared = _prepare(
                context, signed, curator, _named(source), progress=progress, patience=patience
            )
            if prepared is None:
                return context.server.status(contract.study_id)
            folder.save_prepared(prepared)
        elif source is not None:
            _check_same_table(context, contract, source(), progress)
        status = _send(context, prepared, outgoing, progress)
        check_uploaded(context, contract, prepared.message)
        if status.state == State.RELEASED:
            outgoing.clear()
    return status


def _named(source: Callable[[], Source] | None) -> Source:
    if source is None:
        raise ParameterError(
            "no table is named, and none was prepared for this study before",
            hint="name the table to push",
        )
    return source()


def _check_same_table(
    context: PartyContext, contract: Contract, source: Source, progress: OnProgress
) -> None:
    """Refuse another table than the one that was prepared: it would not be what is sent."""
    secret = combined_secret(context, contract)
    with _read_table(context, contract, secret, source, progress) as intake:
        context.home.study(contract.study_id).pin_table(intake.table_digest)


def _only_push(folder: StudyFolder) -> AbstractContextManager[None]:
    """Keep a second push of the same study away; other studies may go on."""
    return locked(folder.path / "lock", LOCK_WAIT)


def _check_fresh(contract: Contract) -> None:
    """Refuse a study to which nothing is pushed, because it reads stored tables."""
    if contract.stored is not None:
        raise StateError(
            "the study reads stored tables: nothing is pushed to it",
            hint="answer it, once its rows are drawn: veiltab vault answer"
            f" {contract.study_id.hex()[:16]}",
        )


def _check_open(context: PartyContext, study: bytes) -> None:
    """Refuse before a long table is read, or others are waited for, if the study is not open."""
    status = context.server.status(study)
    if status.state != State.OPEN:
        raise _not_open(status)


def _not_open(status: Status) -> StateError:
    reason = f": {status.reason}" if status.reason else ""
    return StateError(
        f"the study is {status.state}{reason}",
        hint="tables are pushed while a study is open; look at its status",
    )


def _check_signed(context: PartyContext, signed: Signed[Contract]) -> Contract:
    """Return the contract if every curator has signed it, and this party is one of them."""
    signers = {signature.root for signature in signed.signatures}
    identities = [terms.identity for terms in signed.body.curators]
    missing = [identity.name for identity in identities if identity.signing_key not in signers]
    if missing:
        raise StateError(
            f"not every curator has signed; missing: {', '.join(map(repr, missing))}",
            hint="sign with `veiltab study sign`, and wait for the others",
        )
    contract = verify_agreement(signed)
    contract.curator(context.identity.party_id)
    return contract


def _prepare(
    context: PartyContext,
    signed: Signed[Contract],
    curator: CuratorContext,
    source: Source,
    *,
    progress: OnProgress,
    patience: Patience | None,
) -> Prepared[Upload] | None:
    """Read, compare, sample and encrypt; ``None`` if other curators must push first."""
    contract = signed.body
    folder = context.home.study(contract.study_id)
    curator.outgoing.clear()  # of a preparation that was interrupted; its pads are lost with it
    curator.private.clear()
    secret = combined_secret(context, contract)
    with _read_table(context, contract, secret, source, progress) as intake:
        _check_population(contract, intake.population)
        folder.pin_table(intake.table_digest)  # before anything leaves
        alignments: list[Signed[Alignment]] = []
        if needs_alignment(contract):
            message = align(contract, context.identity, intake)
            context.server.send_alignment(contract.study_id, message)
            compared = _compare(context, contract, progress, patience)
            if compared is None:
                return None
            alignments = compared
        progress(Progress("encrypting"))
        if not contract.matched:
            return prepare_sample(curator, signed, intake, alignments)
        spool = FolderSpool(folder.path / "scratch-2")
        return prepare_table(curator, signed, intake, spool, alignments)


def _compare(
    context: PartyContext, contract: Contract, progress: OnProgress, patience: Patience | None
) -> list[Signed[Alignment]] | None:
    """Wait until every curator has sent its digests of respondents or decoys, and compare them."""
    while True:
        alignments = context.server.alignments(contract.study_id)
        senders = {alignment.body.curator for alignment in alignments}
        absent = tuple(t.identity.name for t in contract.curators if t.party_id not in senders)
        if not absent:
            check_alignment(contract, alignments)
            return alignments
        _check_open(context, contract.study_id)  # nobody will come to a study that has ended
        if patience is None:
            return None
        if patience.over:
            raise StateError(
                f"still waiting for {', '.join(map(repr, absent))} to push, after"
                f" {patience.timeout:g} seconds",
                hint="run the same command again when they have; nothing is lost",
            )
        progress(Progress("waiting", waiting_for=absent, state=State.OPEN))
        patience.wait()


def _read_table(
    context: PartyContext,
    contract: Contract,
    secret: bytes,
    source: Source,
    progress: OnProgress,
) -> Intake:
    scratch = context.home.study(contract.study_id).path / "scratch"
    me = context.identity.party_id
    return read_table(contract, me, secret, source, scratch=scratch, progress=progress)


def read_table(
    agreement: Contract | Vault,
    me: bytes,
    secret: bytes,
    source: Source,
    *,
    scratch: Path,
    progress: OnProgress,
) -> Intake:
    """Read the whole table into an intake, in bounded memory."""
    intake = Intake(agreement, secret, agreement.schema_of(me), FolderSpool(scratch), curator=me)
    table, recode = ReportingTable(source.table, progress), source.recode
    try:
        feed(
            intake,
            table,
            agreement.linkage,
            source.ids,
            rules=recode.rules,
            columns=recode.columns,
        )
    except BaseException:
        intake.__exit__(None, None, None)
        raise
    return intake


def _send(
    context: PartyContext,
    prepared: Prepared[Upload],
    outgoing: FolderChunks,
    progress: OnProgress,
) -> Status:
    """Send what the server does not have yet, and then the message that refers to all of it."""
    body = prepared.message.body
    study = body.scope
    status = context.server.status(study)
    if status.state == State.ABORTED:
        raise _not_open(status)
    if status.state not in (State.OPEN, State.UPLOADED):
        return status
    received = context.server.sent_chunks(study)
    digests = chunk_digests(body)
    sending = ChunkSending(digests, received, outgoing, progress)
    context.server.send_chunks(study, sending.missing(), sending.count)
    try:
        return context.server.upload(study, renew(prepared.message, context.identity.signing))
    except DigestError:
        sending.look_for_damage()
        raise


def chunk_digests(body: Upload | Repad) -> list[bytes]:
    """Return the digests of all chunks that a message refers to, each once."""
    tokens = body.tokens if isinstance(body, Upload) else None
    columns = [column.chunks for column in body.columns] + [tokens or ()]
    return list(dict.fromkeys(digest for chunks in columns for digest in chunks))


@dataclass(slots=True)
class ChunkSending:
    """The chunks that a server does not have yet, and how far it is with them."""

    digests: Sequence[bytes]
    received: Collection[bytes]
    outgoing: FolderChunks
    progress: OnProgress
    _sent: int = 0

    def missing(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield what is to be sent.

        The server reads every chunk before it takes the message, so that they need no check here.
        """
        missing = [digest for digest in self.digests if digest not in self.received]
        self.count(len(self.digests) - len(missing))
        return ((digest, self.outgoing.read(digest)) for digest in missing)

    def count(self, more: int) -> None:
        """Report how much the server has, in percent: with decoys, nobody is told how many rows."""
        self._sent += more
        done = 100 * self._sent // len(self.digests) if self.digests else 100
        self.progress(Progress("sending", done, 100))

    def look_for_damage(self) -> None:
        """Read every chunk again: if our own disk has damaged one, this says so."""
        for digest in self.digests:
            self.outgoing.get(digest)
