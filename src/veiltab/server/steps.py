"""The steps that parties take in a study: each is one transaction, with its entry in the log."""

from typing import TypeVar

from veiltab.core.entropy import random_bytes
from veiltab.crypto.entropy import KEY_BYTES
from veiltab.errors import DigestError, MismatchError, QuotaError, SignatureError, StateError
from veiltab.files.bundles import BundledChunks
from veiltab.protocol.server.accept import check_upload
from veiltab.protocol.server.transitions import expect
from veiltab.protocol.verify import verify, verify_some
from veiltab.server.auth import Sender
from veiltab.server.context import ServiceContext
from veiltab.server.db.lists import HIDDEN, INBOX, LISTED
from veiltab.server.db.records import CURATOR, RESEARCHER, Records, StudyRecord
from veiltab.server.db.usage import GrantLine
from veiltab.server.limits import too_large
from veiltab.server.quotas import (
    MAX_BLOCKS,
    check_proposals,
    check_reach,
    check_space,
    check_usage,
)
from veiltab.server.stored_study import StoredStudy
from veiltab.wire.bundles import check_bundle
from veiltab.wire.contract import Contract
from veiltab.wire.messages import Alignment, Grant, Publication, Secret, SignedGrant, Upload
from veiltab.wire.signed import Signed
from veiltab.wire.states import AuditEvent, State

Sent = TypeVar("Sent", Alignment, Secret, Upload, Grant, Publication)


def propose(context: ServiceContext, sender: Sender) -> tuple[bytes, bool]:
    """Take a new contract from one of its curators; return the study, and whether it is new."""
    check_space(context)
    signed = Contract.loads(sender.body)
    contract = signed.body
    _check_proposal(context, sender, signed)
    with context.database.transaction() as records:
        if records.study(contract.study_id) is not None:
            _add_signatures(StoredStudy.find(context, records, contract.study_id), sender, signed)
            return contract.study_id, False
        check_reach(records, contract, sender.party)
        _add_study(context, records, contract, sender.party)
        check_proposals(context, records, sender.party)
        check_usage(context, records, sender.party)
        stored = StoredStudy.find(context, records, contract.study_id)
        stored.log(AuditEvent.PROPOSED, sender.party, signed.digest)
        _add_signatures(stored, sender, signed)
    return contract.study_id, True


def block(context: ServiceContext, sender: Sender, party: bytes) -> bool:
    """Refuse a party's proposals to the sender; ``False`` if they were refused before."""
    with context.database.transaction() as records:
        new = records.block(sender.party, party, context.now)
        if records.block_count(sender.party) > MAX_BLOCKS:
            raise QuotaError(
                f"you have blocked {MAX_BLOCKS:,} parties already",
                hint="unblock some; and tell the operator, who can ban a party",
            )
    return new


def unblock(context: ServiceContext, sender: Sender, party: bytes) -> bool:
    """Allow a party's proposals to the sender again; ``False`` if they were allowed before."""
    with context.database.transaction() as records:
        return records.unblock(sender.party, party)


def sign(context: ServiceContext, sender: Sender, study: bytes) -> None:
    """Take a curator's signature; the study opens when every curator has signed."""
    signed = Contract.loads(sender.body)
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
                hint="what is released stays; give no further grants, and let the others expire",
            )
        if stored.state is not State.ABORTED:
            server_study = stored.resume()
            server_study.abort()
            stored.save_end(server_study, reason=f"{sender.identity.name}: {reason}")
            stored.log(AuditEvent.ABORTED, sender.party)
            records.hide_unseen(study)
    context.folders.forget_study(study)
    context.database.scrub()


def send_secret(context: ServiceContext, sender: Sender, study: bytes) -> bool:
    """Take a contribution to the secret, sealed by one curator to another.

    The server cannot open it.
    """
    signed = Secret.loads(sender.body)
    body = signed.body
    _check_sender(signed, sender, body.sender, body.scope, study)
    with context.database.transaction() as records:
        stored = StoredStudy.of_curator(context, records, study, sender.party)
        stored.contract.body.curator(body.receiver)
        if body.receiver == sender.party:
            raise MismatchError(
                "the secret is sealed to its own sender", hint="seal it to the other curators"
            )
        return _keep(stored, signed, sender, AuditEvent.SECRET, body.receiver)


def send_alignment(context: ServiceContext, sender: Sender, study: bytes) -> bool:
    """Take a curator's count of respondents and keyed digest, for the other curators."""
    signed = Alignment.loads(sender.body)
    _check_sender(signed, sender, signed.body.curator, signed.body.study, study)
    with context.database.transaction() as records:
        stored = StoredStudy.of_curator(context, records, study, sender.party)
        return _keep(stored, signed, sender, AuditEvent.ALIGNED)


def put_chunks(context: ServiceContext, sender: Sender, study: bytes) -> bool:
    """Take a bundle of chunks; the same again changes nothing, or mends what the disk damaged.

    The bytes are kept as they were signed.  Whether each chunk has its digest is checked when it is
    read.
    """
    places = check_bundle(sender.pieces)
    digests, sizes = [place.digest for place in places], [place.length for place in places]
    if max(sizes) > context.settings.chunk_bytes:
        raise too_large("a chunk", context.settings.chunk_bytes)
    with context.database.reading() as records:
        stored = StoredStudy.of_curator(context, records, study, sender.party)
        complete = _check_chunks(stored, sender, digests)
    store = context.folders.received(study, sender.party)
    if complete and all(map(store.has_whole, digests)):
        return False  # there is nothing to mend, and a second copy would only take space
    new = store.put_bundle(sender.digest, sender.pieces)
    with context.database.reading() as records:
        after = StoredStudy.of_curator(context, records, study, sender.party).state
    if after in (State.RELEASED, State.ABORTED):  # the study has ended meanwhile
        context.folders.forget_received(study)
        expect(after, State.OPEN, State.UPLOADED)
    return new


def upload(context: ServiceContext, sender: Sender, study: bytes) -> None:
    """Check a curator's upload, and take it; the last one starts the release."""
    signed = Upload.loads(sender.body)
    _check_sender(signed, sender, signed.body.curator, signed.body.scope, study)
    with context.database.reading() as records:
        stored = StoredStudy.of_curator(context, records, study, sender.party)
        earlier = records.message(study, Upload.kind, sender.party)
        if earlier is not None and earlier.digest == signed.digest:
            return
        contract = stored.contract.body
        stored.resume().has_upload(signed)  # refuses one that cannot be taken now
    _check_received(contract, signed, context.folders.received(study, sender.party))
    with context.database.transaction() as records:
        stored = StoredStudy.of_curator(context, records, study, sender.party)
        server_study = stored.resume()
        server_study.take_upload(signed)
        if not stored.keep(Upload.kind, sender.party, signed.digest, sender.body):
            return
        # The key decides the sample and its noise: a release that is repeated after a crash comes
        # out the same.
        complete = server_study.state is State.UPLOADED
        key = _draw_key(context, study) if complete else None
        stored.save(server_study, noise_key=key)
        stored.log(AuditEvent.UPLOADED, sender.party, signed.digest)
        if complete:
            stored.log(AuditEvent.COMPLETE, context.identity.party_id)


def _check_received(contract: Contract, signed: Signed[Upload], store: BundledChunks) -> None:
    """Read every chunk, outside of any transaction because it can take long.

    Damaged chunks are deleted, so that their curator sees that they are missing.
    """
    try:
        check_upload(contract, signed, store)
    except DigestError:
        store.drop_damaged()
        raise


def _draw_key(context: ServiceContext, study: bytes) -> bytes:
    """Draw the key of the sample and the noise; refuse if chunks were released with another one."""
    if len(context.folders.released(study)):
        raise StateError(
            "there are released chunks of this study, and its records know nothing of them",
            hint="the database was restored from an old copy: restore a newer one, or abort",
        )
    return random_bytes(KEY_BYTES, context.entropy)


def grant(context: ServiceContext, sender: Sender, study: bytes) -> bool:
    """Take a curator's grant: from now on its researcher is served what the grant covers."""
    sent = SignedGrant.loads(sender.body)
    body, digest = sent.body, sent.signed.digest
    _check_sender(sent.signed, sender, body.curator, body.study, study)
    with context.database.transaction() as records:
        stored = StoredStudy.of_curator(context, records, study, sender.party)
        stored.resume().accept_grant(sent, context.now)
        new = stored.keep(body.kind, sender.party, digest, sender.body, reference=body.grant_id)
        if new:
            _add_grant(stored, body)
            stored.log(AuditEvent.GRANTED, sender.party, digest)
        return new


def _add_grant(stored: StoredStudy, body: Grant) -> None:
    """Note what a new grant covers, and for whom; refuse too many."""
    records, limits, study = stored.records, stored.context.settings, stored.study
    names = stored.contract.body.schema.names
    covered = [(names.index(name), name) for name in body.attributes]
    line = GrantLine(body.grant_id, body.curator, body.researcher, covered, body.expires)
    if not records.add_granted(study, line):
        raise MismatchError("another grant has this id", hint="draw a fresh id for each grant")
    if (
        records.grant_count(study, body.curator) > limits.study_grants
        or records.grant_count(study, body.curator, body.researcher) > limits.researcher_grants
    ):
        raise QuotaError(
            f"you have given {limits.study_grants:,} grants in this study, or"
            f" {limits.researcher_grants} of them to this researcher",
            hint="give grants for longer, and for several attributes at once",
        )
    blocked = records.has_blocked(body.researcher, body.curator)
    place, now = HIDDEN if blocked else INBOX, stored.context.now
    records.add_member(study, body.researcher, RESEARCHER, place=place, now=now)


def publish(context: ServiceContext, sender: Sender, study: bytes) -> bool:
    """Take a researcher's word which copy of its counts is the published one: once, for good."""
    signed = Publication.loads(sender.body)
    body, digest = signed.body, signed.digest
    _check_sender(signed, sender, body.researcher, body.study, study)
    with context.database.transaction() as records:
        stored = StoredStudy.of(context, records, study, sender.party)
        stored.resume().accept_publication(signed, context.now)
        new = stored.keep(body.kind, sender.party, digest, sender.body)
        if new:
            stored.log(AuditEvent.PUBLISHED, sender.party, digest)
        return new


def _check_proposal(context: ServiceContext, sender: Sender, signed: Signed[Contract]) -> None:
    contract = signed.body
    if contract.server != context.identity:
        raise MismatchError(
            "the contract names another server",
            hint="propose the study with this server's identity",
        )
    if contract.stored is not None:
        raise MismatchError(
            "this service takes uploads for one study each, and holds no stored tables",
            hint="propose a study where the curators or the server sample fresh uploads",
        )
    contract.curator(sender.party)
    verify_some(signed, [terms.identity.signing_key for terms in contract.curators])
    if sender.identity.signing_key not in {signature.key for signature in signed.signatures}:
        raise SignatureError(
            "the proposer has not signed the contract", hint="sign what you propose"
        )


def _add_study(
    context: ServiceContext, records: Records, contract: Contract, proposer: bytes
) -> None:
    """Keep a new contract without its signatures, which are added as a step of their own."""
    study, now = contract.study_id, context.now
    records.add_study(
        StudyRecord(
            study=study,
            title=contract.title,
            contract=Signed(contract, ()).dumps(),
            state=str(State.PROPOSED),
            noise_key=None,
            reason=None,
            created=now,
            updated=now,
            proposer=proposer,
            any_researcher=contract.researchers is None,
        )
    )
    for position, (path, party) in enumerate(contract.parties()):
        if path != "server":
            records.add_member(
                study,
                party.party_id,
                CURATOR if path.startswith("curators") else RESEARCHER,
                place=LISTED if party.party_id == proposer else INBOX,
                name=party.name,
                position=position,
                now=now,
            )


def _add_signatures(stored: StoredStudy, sender: Sender, signed: Signed[Contract]) -> None:
    server_study = stored.resume()
    before = server_study.contract
    server_study.sign(signed)
    if server_study.contract == before:
        return
    expect(stored.state, State.PROPOSED)
    stored.save(server_study)
    keys = {signature.key for signature in server_study.contract.signatures}
    stored.records.save_signed(
        stored.study,
        [terms.party_id for terms in signed.body.curators if terms.identity.signing_key in keys],
    )
    stored.records.look(stored.study, sender.party)
    stored.log(AuditEvent.SIGNED, sender.party, signed.digest)
    if server_study.state is State.OPEN:
        stored.log(AuditEvent.OPENED, stored.context.identity.party_id, signed.digest)


def _check_sender(
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

    Once it is, a curator can only send its chunks again, to mend damaged ones.
    """
    expect(stored.state, State.OPEN, State.UPLOADED)
    message = stored.records.message(stored.study, Upload.kind, sender.party)
    if message is None:
        return False
    body = Upload.loads(message.content).body
    columns = [column.chunks for column in body.columns] + [body.tokens or ()]
    if not {digest for chunks in columns for digest in chunks}.issuperset(digests):
        raise MismatchError(
            "your upload is complete, and has no such chunk",
            hint="an upload cannot be changed; abort the study and propose a new one",
        )
    return True
