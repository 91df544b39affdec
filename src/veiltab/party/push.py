"""Pushing a table: read it, compare respondents, sample, encrypt, send; resume where it stopped.

Nothing is sent before the whole table has been read without an error.  The prepared upload is saved
before any of it is sent, and sent again byte for byte until the server has all of it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

from veiltab.errors import AlignmentError, DigestError, ParameterError, StateError
from veiltab.files.chunks import FolderChunks
from veiltab.files.private import locked
from veiltab.files.spool import FolderSpool
from veiltab.party.alignments import TRIES, agree, check_not_ended, check_open, state_holding
from veiltab.party.checking import Source, check_fresh, read_table
from veiltab.party.context import PartyContext
from veiltab.party.evidence import check_uploaded
from veiltab.party.progress import OnProgress, Patience, Progress
from veiltab.party.remote import Status
from veiltab.party.secrets import combined_secret
from veiltab.party.sending import LOCK_WAIT, ChunkSending, chunk_digests
from veiltab.party.study_folder import StudyFolder
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.curator.upload import (
    CuratorContext,
    Prepared,
    needs_alignment,
    prepare_sample,
    prepare_table,
)
from veiltab.protocol.verify import renew, verify_agreement
from veiltab.remedies import Remedy
from veiltab.wire.contract import Contract
from veiltab.wire.messages import Alignment, Upload
from veiltab.wire.signed import Signed
from veiltab.wire.states import State


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
    check_fresh(contract)
    context.check_parties(contract)
    folder = context.home.study(contract.study_id)
    schema = contract.schema_of(context.identity.party_id)
    with _only_push(folder):
        context.home.ledgers.check_charged(contract)  # no refund of it can be under way now
        private, outgoing = FolderChunks(folder.private), FolderChunks(folder.outgoing)
        prepared = folder.prepared(schema, private)
        if prepared is None:
            check_open(context, contract.study_id)
            curator = CuratorContext(context.identity, context.entropy, outgoing, private)
            prepared = _prepare(
                context, signed, curator, _named(source), progress=progress, patience=patience
            )
            if prepared is None:
                return context.server.status(contract.study_id)
            folder.save_prepared(prepared)
        elif source is not None:
            _check_same_table(context, contract, source(), progress)
        sent = _send_aligned(
            context, contract, prepared, outgoing, progress=progress, patience=patience
        )
        if sent is None:
            return context.server.status(contract.study_id)
        status = sent
        check_uploaded(context, contract, prepared.message)
        if status.state == State.RELEASED:
            outgoing.clear()
    return status


def _named(source: Callable[[], Source] | None) -> Source:
    if source is None:
        raise ParameterError(
            "no table is named, and none was prepared for this study before",
            hint=Remedy.TABLE,
        )
    return source()


def _check_same_table(
    context: PartyContext, contract: Contract, source: Source, progress: OnProgress
) -> None:
    """Refuse another table than the one that was prepared: it would not be what is sent."""
    secret = combined_secret(context, contract)
    with _read_table(context, contract, secret, source, progress) as intake:
        context.home.study(contract.study_id).check_table(intake.table_digest)


def _only_push(folder: StudyFolder) -> AbstractContextManager[None]:
    """Keep a second push of the same study away; other studies may go on."""
    return locked(folder.path / "lock", LOCK_WAIT)


def _check_signed(context: PartyContext, signed: Signed[Contract]) -> Contract:
    """Return the contract if every curator has signed it, and this party is one of them."""
    signers = {signature.root for signature in signed.signatures}
    missing = [t for t in signed.body.curators if t.identity.signing_key not in signers]
    if missing:
        check_not_ended(context.server.status(signed.body.study_id))
        mine = context.identity.party_id in [terms.party_id for terms in missing]
        raise StateError(
            "not every curator has signed; missing:"
            f" {', '.join(repr(terms.identity.name) for terms in missing)}",
            hint=f"{Remedy.SIGN}, and wait for the others"
            if mine
            else "you have signed; push once the others have, too",
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
        if context.server.sent_chunks(contract.study_id):  # by another copy of this home
            folder.check_table(intake.table_digest)
        alignments: list[Signed[Alignment]] = []
        if needs_alignment(contract):
            begun = state_holding(context, contract, folder, intake)
            compared = agree(context, contract, folder, progress, patience, begun=begun)
            if compared is None:
                return None
            alignments = compared
        folder.pin_table(intake.table_digest)  # before anything leaves
        progress(Progress("encrypting"))
        if not contract.matched:
            return prepare_sample(curator, signed, intake, alignments)
        spool = FolderSpool(folder.path / "scratch-2")
        return prepare_table(curator, signed, intake, spool, alignments)


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


def _send_aligned(
    context: PartyContext,
    contract: Contract,
    prepared: Prepared[Upload],
    outgoing: FolderChunks,
    *,
    progress: OnProgress,
    patience: Patience | None,
) -> Status | None:
    """Send what was prepared, once the curators are aligned; ``None`` if others must push first.

    A curator may have replaced its alignment since: the server then refuses the upload, and this
    one's table, of which something may have left, is aligned again as it is.
    """
    folder = context.home.study(contract.study_id)
    for _ in range(TRIES):
        try:
            return _send(context, prepared, outgoing, progress)
        except AlignmentError:
            if folder.alignment() is None:
                raise
            if agree(context, contract, folder, progress, patience) is None:
                return None
    return _send(context, prepared, outgoing, progress)


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
        check_open(context, study)
    if status.state not in (State.OPEN, State.UPLOADED):
        return status
    digests = chunk_digests(body)
    received = context.server.sent_chunks(study, outgoing.size(digests))
    sending = ChunkSending(digests, received, outgoing, progress)
    context.server.send_chunks(study, sending.missing(), sending.count)
    try:
        return context.server.upload(study, renew(prepared.message, context.identity.signing))
    except DigestError:
        sending.look_for_damage()
        raise
