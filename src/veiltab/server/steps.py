"""The steps that parties take in a study: each is one transaction, with its entry in the log."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeVar

from veiltab.core.entropy import random_bytes
from veiltab.crypto.entropy import KEY_BYTES
from veiltab.errors import (
    AlignmentError,
    DigestError,
    MalformedError,
    MismatchError,
    SignatureError,
    StateError,
)
from veiltab.files.bundles import BundledChunks, missing
from veiltab.protocol.server.accept import check_upload
from veiltab.protocol.server.transitions import expect
from veiltab.protocol.verify import AgreementType, verify, verify_some
from veiltab.server.context import ServiceContext
from veiltab.server.db.records import CURATOR, Records
from veiltab.server.directory import bundle_size
from veiltab.server.http.auth import Sender
from veiltab.server.limits import too_large
from veiltab.server.parsed import PARSED
from veiltab.server.party_steps import check_new_signatures
from veiltab.server.proposals import add_agreement, note_signatures
from veiltab.server.quotas import (
    MAX_BUNDLED,
    check_chunk_count,
    check_space,
    check_usage,
    parse_in_turn,
    upload_bytes,
)
from veiltab.server.stored_study import StoredStudy
from veiltab.server.vaults.stored_vault import check_study_on_vault
from veiltab.wire.bundles import COUNT_BYTES, check_bundle, index_bytes
from veiltab.wire.contract import Agreement, Contract, CuratorTerms
from veiltab.wire.messages import (
    SEALED_SECRET_BYTES,
    Alignment,
    ColumnChunks,
    Grant,
    GrantRevocation,
    Publication,
    Repad,
    Secret,
    Upload,
)
from veiltab.wire.signed import Signed
from veiltab.wire.states import ENDED, AuditEvent, State

Sent = TypeVar("Sent", Alignment, Secret, Upload, Repad, Grant, GrantRevocation, Publication)


def propose(context: ServiceContext, sender: Sender) -> tuple[bytes, bool]:
    """Take a new contract from one of its curators; return the study, and whether it is new."""
    signed = parse_in_turn(context, sender, Contract.loads, context.settings.contract_bytes)
    contract = signed.body
    _check_proposal(context, sender, signed)
    with context.database.transaction() as records:
        if records.study(contract.study_id) is not None:
            _add_signatures(StoredStudy.find(context, records, contract.study_id), sender, signed)
            return contract.study_id, False
        check_study_on_vault(context, records, sender.party, contract)
        vault = None if contract.stored is None else contract.stored.vault
        add_agreement(context, records, contract, sender.party, vault=vault)
        stored = StoredStudy.find(context, records, contract.study_id)
        stored.log(AuditEvent.PROPOSED, sender.party, signed.digest)
        _add_signatures(stored, sender, signed)
    return contract.study_id, True


def sign(context: ServiceContext, sender: Sender, study: bytes) -> None:
    """Take a curator's signature; the study opens when every curator has signed."""
    signed = parse_in_turn(context, sender, Contract.loads, context.settings.contract_bytes)
    with context.database.transaction() as records:
        stored = StoredStudy.of_curator(context, records, study, sender.party)
        _add_signatures(stored, sender, signed)


def abort(context: ServiceContext, sender: Sender, study: bytes, reason: str) -> None:
    """End a study before its release, and forget what was uploaded for it."""
    with context.database.transaction() as records:
        stored = StoredStudy.of_curator(context, records, study, sender.party)
        if stored.state is State.RELEASED:
            raise StateError(
                "the study is released, and cannot be aborted any more",
                hint="what is released stays; give no more grants, and revoke those that you gave",
            )
        if stored.state is not State.ABORTED:
            stored.save_aborted(f"{records.member_name(study, sender.party)}: {reason}")
            stored.log(AuditEvent.ABORTED, sender.party)
    context.folders.forget_study(study)
    context.database.scrub_soon()


def send_secret(context: ServiceContext, sender: Sender, study: bytes) -> bool:
    """Take a contribution to the secret, sealed by one curator to another.

    The server cannot open it.
    """
    check_space(context)
    signed = Secret.loads(sender.body)
    body = signed.body
    check_sender(signed, sender, body.sender, body.scope, study)
    with context.database.transaction() as records:
        stored = StoredStudy.of_curator(context, records, study, sender.party)
        check_receiver(records, sender, body)
        return _keep(stored, signed, sender, AuditEvent.SECRET, body.receiver)


def check_receiver(records: Records, sender: Sender, secret: Secret) -> None:
    """Refuse a secret that is not sealed to another curator, or is no sealed secret."""
    if records.role(secret.scope, secret.receiver) != CURATOR:
        raise MismatchError(
            "the secret is sealed to somebody who is no curator here",
            hint="seal it to the other curators of the contract",
        )
    check_sealed(secret.sealed, SEALED_SECRET_BYTES)
    if secret.receiver == sender.party:
        raise MismatchError(
            "the secret is sealed to its own sender", hint="seal it to the other curators"
        )


def check_sealed(sealed: bytes, expected: int) -> None:
    """Refuse a sealed part of another length than what must be in it has."""
    if len(sealed) != expected:
        raise MismatchError(
            f"the sealed part has {len(sealed):,} bytes, and not {expected:,}",
            hint="seal with the same version of veiltab, and nothing but what belongs in it",
        )


def send_alignment(context: ServiceContext, sender: Sender, study: bytes) -> bool:
    """Take a curator's count of respondents and keyed digest, for the other curators.

    Until the first upload of the study, by anybody, a curator may begin another attempt: then it
    has corrected its table, or follows a curator who has.
    """
    check_space(context)
    signed = Alignment.loads(sender.body)
    check_sender(signed, sender, signed.body.curator, signed.body.study, study)
    with context.database.transaction() as records:
        stored = StoredStudy.of_curator(context, records, study, sender.party)
        earlier = records.message(study, Alignment.kind, sender.party)
        if earlier is not None and earlier.digest != signed.digest:
            _check_next_attempt(stored, earlier.content, signed.body)
            records.forget_message(study, Alignment.kind, sender.party)
        return _keep(stored, signed, sender, AuditEvent.ALIGNED)


def _check_next_attempt(stored: StoredStudy, content: bytes, later: Alignment) -> None:
    """Refuse to replace an alignment by one of the same attempt, or after an upload.

    Whoever has uploaded relied on it.  The number of attempts is limited, and so is the log.
    """
    expect(stored.state, State.PROPOSED, State.OPEN)
    if stored.records.digests(stored.study, Upload.kind):
        raise StateError(
            "a table was uploaded to this study, and alignments cannot be replaced any more",
            hint="push the table that was aligned, or abort the study and propose a new one",
        )
    earlier = Alignment.loads(content).body
    if later.attempt <= earlier.attempt:
        raise StateError(
            f"another alignment was sent in attempt {earlier.attempt}, and this one is of attempt"
            f" {later.attempt}",
            hint="push again: the next attempt replaces it, in which everybody aligns again",
        )


def put_chunks(context: ServiceContext, sender: Sender, study: bytes) -> bool:
    """Take a bundle of chunks; the same again changes nothing, or mends what the disk damaged.

    The bytes are kept as they were signed.  Whether each chunk has its digest is checked when it is
    read.
    """
    check_space(context)
    digests = bundle_digests(context, sender)
    with context.database.reading() as records:
        stored = StoredStudy.of_curator(context, records, study, sender.party)
        complete = _check_chunks(stored, sender, digests)
    new = keep_bundle(context, sender, study, digests, complete=complete)
    with context.database.reading() as records:
        after = StoredStudy.of_curator(context, records, study, sender.party).state
    if after in (State.RELEASED, State.ABORTED):  # the study has ended meanwhile
        context.folders.forget_received(study)
        expect(after, State.OPEN, State.UPLOADED, State.SAMPLED)
    return new


def bundle_digests(context: ServiceContext, sender: Sender) -> list[bytes]:
    """Return the digests of the chunks that were sent; refuse chunks too long or too many."""
    beginning = b"".join(piece[:COUNT_BYTES] for piece in sender.pieces[:COUNT_BYTES])
    if index_bytes(beginning) > index_bytes(MAX_BUNDLED.to_bytes(COUNT_BYTES)):
        raise MalformedError(
            f"the bundle has more than {MAX_BUNDLED:,} chunks", hint="send them in several bundles"
        )
    places = check_bundle(sender.pieces)
    if max(place.length for place in places) > context.settings.chunk_bytes:
        raise too_large("a chunk", context.settings.chunk_bytes)
    return [place.digest for place in places]


def keep_bundle(
    context: ServiceContext, sender: Sender, scope: bytes, digests: list[bytes], *, complete: bool
) -> bool:
    """Keep a bundle of a study or vault; ``complete`` says whether the upload was taken already.

    Its bytes are counted before they are written: what a crash leaves uncounted would be free.
    """
    store = context.folders.received(scope, sender.party)
    if complete and all(map(store.has_whole, digests)):
        return False  # there is nothing to mend, and a second copy would only take space
    if store.has_bundle(sender.digest, sender.pieces):
        return store.put_bundle(sender.digest, sender.pieces)  # waits for the disk
    size = bundle_size(sum(map(len, sender.pieces)))
    with context.database.transaction() as records:
        if _has_ended(records, scope):
            raise StateError(
                "this has ended in the meantime, and takes no chunks any more",
                hint="look at its status",
            )
        records.add_held(scope, sender.party, size, len(digests))
        check_chunk_count(records, scope, sender.party)
        check_usage(context, records, sender.party)
    new = False
    try:
        new = store.put_bundle(sender.digest, sender.pieces)
    finally:
        if not new:
            with context.database.transaction() as records:
                if not _has_ended(records, scope):  # else nothing of it is counted any more
                    records.add_held(scope, sender.party, -size, -len(digests))
    return new


def _has_ended(records: Records, scope: bytes) -> bool:
    """Tell whether a study or vault has ended; it stays locked until the transaction ends."""
    record = records.study(scope)
    return record is None or record.state in ENDED


def upload(context: ServiceContext, sender: Sender, study: bytes) -> None:
    """Check a curator's upload, and take it; the last one starts the release."""
    most = upload_bytes(context, study, sender.party)
    signed = parse_in_turn(context, sender, Upload.loads, most)
    check_sender(signed, sender, signed.body.curator, signed.body.scope, study)
    with context.database.reading() as records:
        stored = StoredStudy.of_curator(context, records, study, sender.party)
        earlier = records.message(study, Upload.kind, sender.party)
        if earlier is not None and earlier.digest == signed.digest:
            return
        contract = stored.contract.body
        stored.resume().has_upload(signed)  # refuses one that cannot be taken now
        _check_aligned(stored)
    with context.lane.turn(sender.party):
        check_received(contract, signed, context.folders.received(study, sender.party))
    with context.database.transaction() as records:
        stored = StoredStudy.of_curator(context, records, study, sender.party)
        server_study = stored.resume()
        server_study.take_upload(signed)
        _check_aligned(stored)
        if not stored.keep(Upload.kind, sender.party, signed.digest, sender.body):
            return
        # The key decides the sample and its noise: a release that is repeated after a crash comes
        # out the same.
        complete = server_study.state is State.UPLOADED
        key = draw_key(context, study) if complete else None
        stored.save(server_study, noise_key=key)
        stored.log(AuditEvent.UPLOADED, sender.party, signed.digest)
        if complete:
            stored.log(AuditEvent.COMPLETE, context.identity.party_id)


def _check_aligned(stored: StoredStudy) -> None:
    """Refuse an upload while the curators' alignments differ, or some are of another attempt.

    An upload that was prepared for an earlier attempt is refused as well, unless all curators have
    come back to what they held then.  So nothing is taken that could not be joined, and the wrong
    table can still be corrected.
    """
    messages = stored.records.messages(stored.study, Alignment.kind)
    bodies = [PARSED.load(Alignment.loads, message.content).body for message in messages]
    if len({(body.attempt, body.population, body.digest, body.decoys) for body in bodies}) > 1:
        raise AlignmentError(
            "not aligned: a curator has replaced its alignment, and it differs from the others'",
            hint="push again: it waits until all curators have aligned anew",
        )


def check_received(agreement: Agreement, signed: Signed[Upload], store: BundledChunks) -> None:
    """Read every chunk, outside of any transaction because it can take long.

    That all of them are there is found out first, without reading them.  Damaged chunks are
    deleted, so that their curator sees that they are missing.
    """
    check_present(store, [*signed.body.columns], signed.body.tokens or ())
    try:
        check_upload(agreement, signed, store)
    except DigestError:
        store.drop_damaged()
        raise


def check_present(
    store: BundledChunks, columns: Sequence[ColumnChunks], tokens: Sequence[bytes]
) -> None:
    """Refuse a message that names a chunk that was not sent."""
    for digest in chain(tokens, *(column.chunks for column in columns)):
        if not store.has(digest):
            raise missing(digest)


def draw_key(context: ServiceContext, study: bytes) -> bytes:
    """Draw the key of the sample and the noise; refuse if chunks were released with another one."""
    if len(context.folders.released(study)):
        raise StateError(
            "there are released chunks of this study, and its records know nothing of them",
            hint="the database was restored from an old copy: restore a newer one, or abort",
        )
    return random_bytes(KEY_BYTES, context.entropy)


def _check_proposal(context: ServiceContext, sender: Sender, signed: Signed[Contract]) -> None:
    contract = signed.body
    if contract.server != context.identity:
        raise MismatchError(
            "the contract names another server",
            hint="propose the study with this server's identity",
        )
    contract.curator(sender.party)
    verify_some(signed, [terms.identity.signing_key for terms in contract.curators])
    if sender.identity.signing_key not in {signature.root for signature in signed.signatures}:
        raise SignatureError(
            "the proposer has not signed the contract", hint="sign what you propose"
        )


def _add_signatures(stored: StoredStudy, sender: Sender, signed: Signed[Contract]) -> None:
    server_study = stored.resume()
    before = server_study.contract
    server_study.sign(signed)
    if server_study.contract == before:
        return
    check_new_signatures(stored.records, before, server_study.contract)
    expect(stored.state, State.PROPOSED)
    opened = server_study.state is State.OPEN
    # Rows of stored tables are drawn as soon as the study is open: the key decides which.
    drawing = opened and signed.body.stored is not None
    key = draw_key(stored.context, stored.study) if drawing else None
    stored.save(server_study, noise_key=key)
    note_signatures(stored.records, server_study.contract)
    stored.records.look(stored.study, sender.party)
    for terms in new_signers(signed.body, before, server_study.contract):
        stored.log(AuditEvent.SIGNED, terms.party_id, signed.digest)
    if opened:
        stored.log(AuditEvent.OPENED, stored.context.identity.party_id, signed.digest)


def new_signers(
    agreement: Agreement, before: Signed[AgreementType], after: Signed[AgreementType]
) -> list[CuratorTerms]:
    """Return the curators whose signatures have come, whoever has sent them."""
    there = {signature.root for signature in before.signatures}
    keys = {signature.root for signature in after.signatures} - there
    return [terms for terms in agreement.curators if terms.identity.signing_key in keys]


def check_sender(
    signed: Signed[Sent],
    sender: Sender,
    stated: bytes,
    scope: bytes,
    study: bytes,
) -> None:
    """Refuse a message of another party or of another study, and one with a wrong signature."""
    if stated != sender.party or scope != study:
        raise MismatchError(
            f"the {signed.body.kind} is of another party or of another study",
            hint="send your own messages, to the study that they are for",
        )
    verify(signed, [sender.identity.signing_key])
    sender.check_newest(signed)


def _keep(
    stored: StoredStudy,
    signed: Signed[Secret] | Signed[Alignment],
    sender: Sender,
    event: AuditEvent,
    reference: bytes = b"",
) -> bool:
    """Keep a message that curators pass to each other before they upload."""
    kind, digest = signed.body.kind, signed.digest
    new = stored.keep(kind, sender.party, digest, sender.body, reference=reference)
    if new:
        expect(stored.state, State.PROPOSED, State.OPEN)
        stored.log(event, sender.party, digest)
    return new


def _check_chunks(stored: StoredStudy, sender: Sender, digests: list[bytes]) -> bool:
    """Refuse chunks that no upload can refer to; return whether the sender's upload is complete.

    Once it is, a curator can only send its chunks again, to mend damaged ones.  In a study on
    stored tables, new pads take the place of the upload.
    """
    if stored.record.vault is not None:
        expect(stored.state, State.SAMPLED, State.JOINED)
        message = stored.records.message(stored.study, Repad.kind, sender.party)
        if message is not None:
            check_listed(digests, PARSED.load(Repad.loads, message.content).body.columns)
        return message is not None
    expect(stored.state, State.OPEN, State.UPLOADED)
    message = stored.records.message(stored.study, Upload.kind, sender.party)
    if message is None:
        return False
    body = PARSED.load(Upload.loads, message.content).body
    check_listed(digests, body.columns, body.tokens or ())
    return True


def check_listed(
    digests: Iterable[bytes], columns: Sequence[ColumnChunks], tokens: Sequence[bytes] = ()
) -> None:
    """Refuse chunks that are not among those of a message that was taken."""
    listed = [column.chunks for column in columns] + [tokens]
    if not {digest for chunks in listed for digest in chunks}.issuperset(digests):
        raise MismatchError(
            "your upload is complete, and has no such chunk",
            hint="an upload cannot be changed; end the study or vault and propose a new one",
        )
