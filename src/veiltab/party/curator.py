"""What a curator does over the network, besides pushing: propose, sign, grant."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from veiltab.core.entropy import random_bytes
from veiltab.errors import (
    ConnectionFailedError,
    HomeError,
    InputError,
    NotFoundError,
    NotGrantedError,
    ParameterError,
    StateError,
    VeiltabError,
)
from veiltab.files.chunks import FolderChunks
from veiltab.files.disk import check_new, is_file
from veiltab.files.private import write_private
from veiltab.party.context import PartyContext
from veiltab.party.evidence import check_uploaded, fetch_release, read_log
from veiltab.party.grants import is_revoked, own_grants
from veiltab.party.home import Home, read_identity
from veiltab.party.ledgers import Note
from veiltab.party.proposal import StudyDraft
from veiltab.party.refunds import refund
from veiltab.party.remote import Status, is_unknown
from veiltab.party.secrets import is_proposer, share_contribution
from veiltab.party.times import SECONDS_A_DAY
from veiltab.party.vaults.answers import answer_folder, check_own_answer
from veiltab.party.vaults.steps import check_stored_study, stored_uploads
from veiltab.protocol.curator.agreement import new_secret, sign_contract, unsigned
from veiltab.protocol.curator.grant import grant as make_grant
from veiltab.protocol.curator.ledger import Ledger
from veiltab.protocol.curator.upload import CuratorContext, Prepared
from veiltab.protocol.verify import (
    check_own_upload,
    may_see_release,
    verify_agreement,
)
from veiltab.remedies import Remedy
from veiltab.wire.codec import MAX_TEXT
from veiltab.wire.contract import NONCE_BYTES, Contract, PublicIdentity, Vault
from veiltab.wire.messages import Release, Repad, SignedGrant, Upload
from veiltab.wire.signed import Signed
from veiltab.wire.states import State

LONGEST_GRANT_DAYS = 3_650


@dataclass(frozen=True, slots=True)
class GivenGrant:
    """A grant as its curator made it: to whom, and where it was written, if to a file."""

    title: str
    researcher: PublicIdentity
    signed: SignedGrant
    file: Path | None

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that the researcher can decrypt."""
        return self.signed.body.attributes

    @property
    def expires(self) -> int:
        """Until when the server serves it, in seconds since 1970."""
        return self.signed.body.expires


def propose(context: PartyContext, draft: StudyDraft, ledger: Ledger) -> Contract:
    """Propose a study, sign it, and seal a contribution to its secret to the other curators.

    A proposal that was broken off is taken up: the same terms again, while the other curators
    have not all signed, are the same study, and cost nothing more.
    """
    context.check_identities(draft.identities())
    if draft.vault is not None:
        return _propose_stored(context, draft, draft.vault, ledger)
    unsigned_contract = _unfinished(context, draft)
    if unsigned_contract is None:
        for study in context.home.studies():
            if context.home.ledgers.ledger_of(study) is None:
                context.home.study(study).forget_if_unused()
        contribution, commitment, nonce = new_secret(context.entropy)
        contract = draft.contract(
            server=context.server.pinned, secret_commitment=commitment, nonce=nonce
        )
        unsigned_contract = unsigned(contract)
        sign_contract(unsigned_contract, context.identity, ledger)  # a refusal leaves nothing
        context.home.study(contract.study_id).save_contribution(contribution)
    signed = _sign(context, unsigned_contract, ledger)
    _send_proposal(context, signed)
    share_contribution(context, signed.body)
    return signed.body


def _send_proposal(context: PartyContext, signed: Signed[Contract]) -> None:
    """Send a proposal; if the server refuses it, the charge is taken back and nothing is left.

    A connection that breaks is no refusal: the proposal may have arrived, and is taken up by the
    next one with the same terms.
    """
    try:
        context.server.propose(signed)
    except ConnectionFailedError:
        raise
    except VeiltabError as error:
        study = signed.body.study_id
        if is_unknown(context.server.status, study):
            _take_back(context, study, f"the proposal was refused: {error.message}", error)
            context.home.study(study).forget()
        raise


def _take_back(context: PartyContext, study: bytes, reason: str, error: VeiltabError) -> None:
    """Refund a study that the server has refused; if that cannot be, raise why it was refused."""
    try:
        refund(context, study, reason[:MAX_TEXT])
    except VeiltabError:
        raise error from None


def intended(context: PartyContext, draft: StudyDraft) -> Signed[Contract]:
    """Return what a proposal would sign: one that was broken off, or one that has no id yet."""
    unfinished = (
        _unfinished(context, draft)
        if draft.vault is None
        else _unfinished_stored(context, _stored_contract(context, draft, draft.vault))
    )
    return unfinished or unsigned(draft.provisional(context.server.pinned))


def _propose_stored(
    context: PartyContext, draft: StudyDraft, vault: Vault, ledger: Ledger
) -> Contract:
    """Propose a study on stored tables, whose secret is the vault's."""
    contract_with = _stored_contract(context, draft, vault)
    proposal = _unfinished_stored(context, contract_with)
    if proposal is None:
        proposal = unsigned(contract_with(random_bytes(NONCE_BYTES, context.entropy)))
    check_stored_study(context, proposal.body)
    signed = _sign(context, proposal, ledger)
    _send_proposal(context, signed)
    return signed.body


def _stored_contract(
    context: PartyContext, draft: StudyDraft, vault: Vault
) -> Callable[[bytes], Contract]:
    """Return how the contract of a study on stored tables comes from its nonce."""
    uploads = stored_uploads(context, vault)

    def contract_with(nonce: bytes) -> Contract:
        return draft.contract(
            server=context.server.pinned,
            secret_commitment=vault.secret_commitment,
            nonce=nonce,
            uploads=uploads,
        )

    return contract_with


def _unfinished_stored(
    context: PartyContext, contract_with: Callable[[bytes], Contract]
) -> Signed[Contract] | None:
    """Find a proposal with the same terms that not everybody has signed yet.

    One that was stopped before it was charged was never sent: nothing is left of it.
    """
    proposal, ledgers = None, context.home.ledgers
    for study in context.home.studies():
        signed = context.home.study(study).contract()
        if signed is None or contract_with(signed.body.nonce) != signed.body:
            continue
        if ledgers.ledger_of(study) is None:
            if is_unknown(context.server.status, study):
                context.home.study(study).forget()
        elif ledgers.refund_of(study) is None and _still_proposed(context, study):
            proposal = signed
    return proposal


def sign(context: PartyContext, signed: Signed[Contract], ledger: Ledger) -> Status:
    """Sign a study that somebody has proposed, if the ledger supports it.

    The contribution to the secret goes first: once everybody has signed, no part of it is missing.
    A study on stored tables has the vault's secret, and must be about this curator's own table.
    A study that takes no signature any more is not charged; one that ends before the signature
    arrives is refunded.
    """
    context.check_parties(signed.body)
    _check_signable(context, signed)
    if signed.body.stored is not None:
        check_stored_study(context, signed.body)
    study = signed.body.study_id
    is_new = context.home.ledgers.ledger_of(study) is None
    cosigned = _sign(context, signed, ledger)
    try:
        if signed.body.stored is None:
            share_contribution(context, signed.body)
        return context.server.sign(study, cosigned)
    except StateError as error:
        if is_new:
            reason = f"the signature was refused: {error.message}"
            _take_back(context, study, reason, error)
            raise StateError(f"{error.message}; nothing stays charged", hint=error.hint) from error
        raise


def _check_signable(context: PartyContext, signed: Signed[Contract]) -> None:
    """Refuse a study that takes no signature of this curator any more, before it is charged.

    Whoever has signed may sign again, unless the study was ended: that sends what is missing, and
    charges a ledger that was restored from an old copy.
    """
    status = context.server.status(signed.body.study_id)
    own = context.home.public.signing_key
    again = any(signature.root == own for signature in signed.signatures)
    if status.state == State.PROPOSED or (again and status.state != State.ABORTED):
        return
    reason = f": {status.reason}" if status.reason else ""
    raise StateError(
        f"the study is {status.state}{reason}; it takes no signature, and nothing was charged",
        hint="ask its proposer for a new study",
    )


def choose_ledger(home: Home, dataset: str | None) -> Ledger:
    """Return the ledger of a data set; there is no default but the only one there is."""
    if dataset is not None:
        return home.ledgers.open_ledger(dataset).ledger
    ledgers = [stored.ledger for stored in home.ledgers.all_ledgers()]
    if len(ledgers) == 1:
        return ledgers[0]
    names = ", ".join(repr(ledger.dataset) for ledger in ledgers)
    raise HomeError(
        f"there are ledgers for {names}" if ledgers else "no data set has a privacy budget yet",
        hint=Remedy.NAME_DATASET if ledgers else Remedy.SET_BUDGET,
    )


def grant(
    context: PartyContext,
    signed: Signed[Contract],
    researcher: str | PublicIdentity,
    attributes: Sequence[str] | None,
    *,
    days: int,
    file: Path | None,
) -> GivenGrant:
    """Let a researcher decrypt attributes, beside those that were granted before.

    ``researcher`` is an identity, the path of its file, or a name in the contract.  The whole
    grant is kept in the home, and written to ``file`` if there is one; with one-time pads only its
    header goes to the server.
    """
    if not 1 <= days <= LONGEST_GRANT_DAYS:
        raise ParameterError(
            f"a grant cannot be good for {days} days",
            hint=f"choose from 1 to {LONGEST_GRANT_DAYS:,} days",
        )
    if file is not None:
        check_new(file)
    contract = signed.body
    if contract.pads == "one-time" and file is None:
        raise ParameterError(
            "this study has one-time pads, which never pass through the server",
            hint=f"{Remedy.GRANT_FILE}, and hand it to the researcher directly",
        )
    to = find_researcher(contract, researcher)
    made = give_grant(context, signed, to, attributes, context.now + days * SECONDS_A_DAY)
    if file is not None:
        write_private(file, made.dumps())
    return GivenGrant(contract.title, to, made, file)


def find_researcher(contract: Contract, researcher: str | PublicIdentity) -> PublicIdentity:
    """Find who is meant: a file that is there, or somebody whom the contract names."""
    if isinstance(researcher, PublicIdentity):
        return researcher
    if is_file(researcher):
        return read_identity(Path(researcher))
    candidates = contract.researchers or ()
    named = [party for party in candidates if researcher in (party.name, party.party_id.hex())]
    if len(named) == 1:
        return named[0]
    names = ", ".join(repr(party.name) for party in candidates)
    raise InputError(
        f"there is no identity file {researcher!r}, and no researcher, or more than one, has"
        " that name in the contract",
        hint=f"the contract names {names}"
        if names
        else f"ask the researcher for {Remedy.IDENTITY_FILE}",
    )


def give_grant(
    context: PartyContext,
    signed: Signed[Contract],
    researcher: PublicIdentity,
    attributes: Sequence[str] | None,
    expires: int,
    *,
    before_sending: Callable[[SignedGrant], None] = lambda _: None,
) -> SignedGrant:
    """Check the release where its curators may see it, make the grant, keep it and send it.

    ``before_sending`` may still refuse.
    """
    contract = verify_agreement(signed)
    context.check_parties(contract, researcher)
    context.home.ledgers.check_charged(contract)
    release = _fetch_release(context, contract)
    curator, prepared = _prepared(context, contract, release)
    wanted = _with_earlier(context, contract, researcher, attributes)
    made = make_grant(
        curator,
        contract,
        prepared,
        researcher,
        wanted,
        expires=expires,
        sealing_key=context.sealing_key(researcher),
    )
    context.home.study(contract.study_id).save_grant(made)
    context.home.ledgers.check_charged(contract)  # it may be refunded meanwhile (party.refunds)
    before_sending(made)
    context.server.send_grant(contract.study_id, made)
    curator.outgoing.clear()  # released: the server needs nothing of it any more
    return made


def _prepared(
    context: PartyContext, contract: Contract, release: Release | None
) -> tuple[CuratorContext, Prepared[Upload] | Prepared[Repad]]:
    """Return what this home has sent to the study, if the release was made from it, and where."""
    if contract.stored is not None:
        return _prepared_answer(context, contract, release)
    folder, me = context.home.study(contract.study_id), context.identity.party_id
    private, outgoing = FolderChunks(folder.private), FolderChunks(folder.outgoing)
    prepared = folder.prepared(contract.schema_of(me), private)
    if prepared is None:
        raise StateError(
            "nothing was pushed to this study from this home",
            hint="push first, from the home that is to grant; its pads are kept there alone",
        )
    check_uploaded(context, contract, prepared.message)
    if release is not None:
        check_own_upload(release, prepared.message)
    return CuratorContext(context.identity, context.entropy, outgoing, private), prepared


def _prepared_answer(
    context: PartyContext, contract: Contract, release: Release | None
) -> tuple[CuratorContext, Prepared[Repad]]:
    folder = answer_folder(context, contract)
    answer = folder.answer(contract.study_id)
    if answer is None or release is None:
        raise StateError(
            "this home has not answered this study",
            hint="grant from the home that has; the new pads are kept there alone",
        )
    check_uploaded(context, contract, answer.message)
    check_own_answer(release, folder, answer)
    curator = CuratorContext(context.identity, context.entropy, folder.outgoing, folder.private)
    return curator, answer


def _fetch_release(context: PartyContext, contract: Contract) -> Release | None:
    """Refuse to hand out pads before there is a release to use them on, and to look at.

    Where a curator may not see it, the researcher finds out if it was made from another upload.
    """
    if contract.overlap is not None:
        raise NotGrantedError(
            "an overlap count has no values to grant",
            hint=f"its curators read its number: veiltab overlap show"
            f" {contract.study_id.hex()[:16]}",
        )
    state = context.server.status(contract.study_id).state
    if state != State.RELEASED:
        raise StateError(
            f"the study is {state}, not released",
            hint=Remedy.WAIT_RELEASED.format(contract.study_id.hex()[:16]),
        )
    if not may_see_release(contract, context.identity.party_id):
        return None
    release, _ = fetch_release(context, contract)
    return release.body


def _with_earlier(
    context: PartyContext,
    contract: Contract,
    researcher: PublicIdentity,
    wanted: Sequence[str] | None,
) -> list[str] | None:
    """Add what the researcher has already, so that the newest grant is all that it needs.

    Only grants count that this curator has signed, and has not revoked: a server could make up
    others, or hide a revocation, to have more granted than the curator means to.
    """
    if wanted is None:
        return None
    earlier, logged = set(), read_log(context, contract)
    for given in own_grants(context, contract, logged):
        body = given.body
        sent = given.signed.digest in logged.grants
        good = body.expires > context.now and not is_revoked(context, logged, body)
        if sent and good and body.researcher == researcher.party_id:
            earlier |= set(body.attributes)
    mine = contract.schema_of(context.identity.party_id).names
    return [*wanted, *(name for name in mine if name in earlier and name not in wanted)]


def _sign(context: PartyContext, signed: Signed[Contract], ledger: Ledger) -> Signed[Contract]:
    """Sign, and keep the charge and the contract before anything is sent.

    The contract is kept before it is charged too: whoever is stopped in between finds it again.
    """
    charged_to = context.home.ledgers.ledger_of(signed.body.study_id)
    paying = ledger if charged_to is None else charged_to.ledger
    cosigned, charged = sign_contract(signed, context.identity, paying)
    contract = signed.body
    folder, note = context.home.study(contract.study_id), Note(contract.title, context.now)
    folder.save_contract(signed)
    context.home.ledgers.save(charged, {contract.study_id: note})
    folder.save_contract(cosigned)
    return cosigned


def _unfinished(context: PartyContext, draft: StudyDraft) -> Signed[Contract] | None:
    """Find a proposal with the same terms that not everybody has signed yet."""
    for study in context.home.studies():
        signed = context.home.study(study).contract()
        if signed is None or not is_proposer(context, signed.body):
            continue
        if context.home.ledgers.refund_of(study) is not None:
            continue
        contract = signed.body
        same = draft.contract(
            server=context.server.pinned,
            secret_commitment=contract.secret_commitment,
            nonce=contract.nonce,
        )
        if same == contract and _still_proposed(context, study):
            return signed
    return None


def _still_proposed(context: PartyContext, study: bytes) -> bool:
    try:
        return context.server.status(study).state == State.PROPOSED
    except NotFoundError:  # it never reached the server
        return True
