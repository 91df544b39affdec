"""What parties can do to a study: each step is one transaction, with its entry in the log."""

from typing import TypeVar

from veiltab.core.entropy import random_bytes
from veiltab.crypto.entropy import KEY_BYTES
from veiltab.errors import DigestError, MismatchError, SignatureError, StateError
from veiltab.files.bundles import BundledChunks
from veiltab.protocol.server.accept import check_upload
from veiltab.protocol.server.states import Event, State, advance, expect
from veiltab.protocol.server.study import ServerStudy
from veiltab.protocol.verify import verify, verify_some
from veiltab.server.auth import Sender
from veiltab.server.context import Context
from veiltab.server.db.records import CURATOR, RESEARCHER, Records, StudyRecord
from veiltab.server.limits import too_large
from veiltab.server.study import GRANT, UPLOAD, Case
from veiltab.wire.audit import AuditEntry
from veiltab.wire.bundles import check_bundle
from veiltab.wire.codec import load
from veiltab.wire.contract import Contract
from veiltab.wire.messages import Alignment, Grant, Secret, SignedGrant, Upload
from veiltab.wire.signed import Signed

Sent = TypeVar("Sent", Alignment, Secret, Upload, Grant)

SECRET = "secret"  # noqa: S105 - a kind of message, sealed
ALIGNMENT = "alignment"


def propose(context: Context, sender: Sender) -> tuple[bytes, bool]:
    """Take a new contract from one of its curators; return the study, and whether it is new."""
    signed = Contract.loads(sender.body)
    contract = signed.body
    _check_proposal(context, sender, signed)
    with context.database.transaction() as records:
        if records.study(contract.study_id) is not None:
            _add_signatures(Case.find(context, records, contract.study_id), sender, signed)
            return contract.study_id, False
        _add_study(context, records, contract)
        case = Case.find(context, records, contract.study_id)
        case.log("proposed", sender.party, signed.digest)
        _add_signatures(case, sender, signed)
    return contract.study_id, True


def sign(context: Context, sender: Sender, study: bytes) -> None:
    """Take a curator's signature; the study opens when every curator has signed."""
    signed = Contract.loads(sender.body)
    with context.database.transaction() as records:
        case = Case.of_curator(context, records, study, sender.party)
        _add_signatures(case, sender, signed)


def abort(context: Context, sender: Sender, study: bytes, reason: str) -> None:
    """End a study before its release, and forget what was uploaded for it."""
    with context.database.transaction() as records:
        case = Case.of_curator(context, records, study, sender.party)
        if case.state is State.RELEASED:
            raise StateError(
                "the study is released, and cannot be aborted any more",
                hint="what is released stays; give no further grants, and let the others expire",
            )
        if case.state is not State.ABORTED:
            taken = case.resume()
            taken.state = advance(case.state, Event.ABORTED)
            name = sender.identity.name
            case.end(taken, reason=f"{name}: {reason}")
            case.log("aborted", sender.party)
    context.folders.forget_study(study)
    context.database.scrub()


def send_secret(context: Context, sender: Sender, study: bytes) -> bool:
    """Take the study's secret, sealed by one curator to another; the server cannot open it."""
    signed = Secret.loads(sender.body)
    body = signed.body
    _check_sender(signed, sender, body.sender, body.scope, study)
    with context.database.transaction() as records:
        case = Case.of_curator(context, records, study, sender.party)
        case.contract.body.curator(body.receiver)
        _check_proposer(case, sender)
        return _keep(case, SECRET, sender, signed.digest, body.receiver)


def _check_proposer(case: Case, sender: Sender) -> None:
    """Let the proposer alone send secrets: with a wrong one, anybody could block anybody else."""
    first = AuditEntry.from_json(load(case.records.audit(case.study)[0]))
    if first.actor != sender.party:
        raise MismatchError(
            "the secret is the proposer's to pass on", hint="ask the proposer to send it again"
        )


def send_alignment(context: Context, sender: Sender, study: bytes) -> bool:
    """Take a curator's count of respondents and keyed digest, for the other curators."""
    signed = Alignment.loads(sender.body)
    _check_sender(signed, sender, signed.body.curator, signed.body.study, study)
    with context.database.transaction() as records:
        case = Case.of_curator(context, records, study, sender.party)
        return _keep(case, ALIGNMENT, sender, signed.digest)


def put_chunks(context: Context, sender: Sender, study: bytes) -> bool:
    """Take a bundle of chunks; the same again changes nothing, or mends what the disk damaged.

    What was signed is what is kept.  Whether each chunk has its digest is seen when it is read.
    """
    places = check_bundle(sender.pieces)
    digests, sizes = [place.digest for place in places], [place.length for place in places]
    if max(sizes) > context.settings.chunk_bytes:
        raise too_large("a chunk", context.settings.chunk_bytes)
    with context.database.reading() as records:
        case = Case.of_curator(context, records, study, sender.party)
        complete = _check_chunks(case, sender, digests)
    store = context.folders.received(study, sender.party)
    if complete and all(map(store.has_whole, digests)):
        return False  # nothing is to be mended, and what is there need not be kept a second time
    new = store.put_bundle(sender.digest, sender.pieces)
    context.metrics.received.inc(sum(sizes))
    with context.database.reading() as records:
        after = Case.of_curator(context, records, study, sender.party).state
    if after in (State.RELEASED, State.ABORTED):  # in the meantime: it must not stay behind
        context.folders.forget_received(study)
        expect(after, State.OPEN, State.UPLOADED)
    return new


def upload(context: Context, sender: Sender, study: bytes) -> None:
    """Take a curator's upload if it is wholly right; the last one starts the release."""
    signed = Upload.loads(sender.body)
    _check_sender(signed, sender, signed.body.curator, signed.body.scope, study)
    with context.database.reading() as records:
        case = Case.of_curator(context, records, study, sender.party)
        earlier = records.message(study, UPLOAD, sender.party)
        if earlier is not None and earlier.digest == signed.digest:
            return
        contract = case.contract.body
        case.resume().has_upload(signed)  # refuses one that has no place here
    _check_received(contract, signed, context.folders.received(study, sender.party))
    with context.database.transaction() as records:
        case = Case.of_curator(context, records, study, sender.party)
        taken = case.resume()
        taken.take_upload(signed)
        if not case.keep(UPLOAD, sender.party, signed.digest, sender.body):
            return
        # From here on the sample and its noise are decided: whoever repeats the release after a
        # crash gets the same bytes.
        complete = taken.state is State.UPLOADED
        key = _draw_key(context, study) if complete else None
        case.save(taken, noise_key=key)
        case.log("uploaded", sender.party, signed.digest)
        if complete:
            case.log("complete", context.identity.party_id)


def _check_received(contract: Contract, signed: Signed[Upload], store: BundledChunks) -> None:
    """Read every chunk, which can take long: outside of any transaction.

    What is damaged is deleted, so that its curator sees that it is missing.
    """
    try:
        check_upload(contract, signed, store)
    except DigestError:
        store.drop_damaged()
        raise


def _draw_key(context: Context, study: bytes) -> bytes:
    """Draw the key of the sample and the noise, unless something was released with another one."""
    if len(context.folders.released(study)):
        raise StateError(
            "there are released chunks of this study, and its records know nothing of them",
            hint="the database was restored from an old copy: restore a newer one, or abort",
        )
    return random_bytes(KEY_BYTES, context.entropy)


def grant(context: Context, sender: Sender, study: bytes) -> bool:
    """Take a curator's grant: from now on its researcher is served what the grant covers."""
    found = SignedGrant.loads(sender.body)
    _check_sender(found.signed, sender, found.body.curator, found.body.study, study)
    with context.database.transaction() as records:
        case = Case.of_curator(context, records, study, sender.party)
        case.resume().accept_grant(found, context.now)
        digest = found.signed.digest
        new = case.keep(GRANT, sender.party, digest, sender.body, reference=found.body.grant_id)
        if new:
            records.add_member(study, found.body.researcher, RESEARCHER)
            case.log("granted", sender.party, digest)
        return new


def _check_proposal(context: Context, sender: Sender, signed: Signed[Contract]) -> None:
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


def _add_study(context: Context, records: Records, contract: Contract) -> None:
    """Keep a new contract, which nobody has signed as far as the records go."""
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
        )
    )
    for terms in contract.curators:
        records.add_member(study, terms.party_id, CURATOR)
    for researcher in contract.researchers or ():
        records.add_member(study, researcher.party_id, RESEARCHER)


def _add_signatures(case: Case, sender: Sender, signed: Signed[Contract]) -> None:
    taken: ServerStudy = case.resume()
    before = taken.contract
    taken.sign(signed)
    if taken.contract == before:
        return
    expect(case.state, State.PROPOSED)
    opened = taken.state is State.OPEN
    case.save(taken)
    case.log("signed", sender.party, signed.digest)
    if opened:
        case.log("opened", case.context.identity.party_id, signed.digest)


def _check_sender(
    signed: Signed[Sent],
    sender: Sender,
    stated: bytes,
    scope: bytes,
    study: bytes,
) -> None:
    """Refuse a message of somebody else, or of another study, whoever passes it on."""
    if stated != sender.party or scope != study:
        raise MismatchError(
            f"the {signed.body.kind} is of another party or of another study",
            hint="send your own messages, to the study that they are for",
        )
    verify(signed, [sender.identity.signing_key])


def _keep(case: Case, kind: str, sender: Sender, digest: bytes, reference: bytes = b"") -> bool:
    """Keep a message that curators pass to each other before they upload."""
    new = case.keep(kind, sender.party, digest, sender.body, reference=reference)
    if new:
        expect(case.state, State.PROPOSED, State.OPEN)
        case.log("secret" if kind == SECRET else "aligned", sender.party, digest)
    return new


def _check_chunks(case: Case, sender: Sender, digests: list[bytes]) -> bool:
    """Refuse chunks that no upload can refer to any more, except to mend one that does.

    Say whether the sender's upload is complete.
    """
    expect(case.state, State.OPEN, State.UPLOADED)
    sent = case.records.message(case.study, UPLOAD, sender.party)
    if sent is None:
        return False
    body = Upload.loads(sent.content).body
    columns = [column.chunks for column in body.columns] + [body.tokens or ()]
    if not {digest for chunks in columns for digest in chunks}.issuperset(digests):
        raise MismatchError(
            "your upload is complete, and has no such chunk",
            hint="an upload cannot be changed; abort the study and propose a new one",
        )
    return True
