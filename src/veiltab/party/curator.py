"""What a curator does over the network, besides pushing: propose, sign, grant."""

import contextlib
from collections.abc import Sequence

from veiltab.errors import HomeError, NotFoundError, StateError
from veiltab.files.chunks import FolderChunks
from veiltab.party.ledgers import Note
from veiltab.party.remote import Status
from veiltab.party.session import Session
from veiltab.party.study_file import StudyDraft
from veiltab.protocol.curator.agreement import new_secret, share_secret, sign_contract, unsigned
from veiltab.protocol.curator.grant import grant as make_grant
from veiltab.protocol.curator.ledger import Ledger
from veiltab.protocol.curator.upload import CuratorContext
from veiltab.protocol.verify import check_own_upload, verify, verify_agreement, verify_release
from veiltab.wire.contract import Contract, PublicIdentity
from veiltab.wire.messages import Release, SignedGrant
from veiltab.wire.signed import Signed
from veiltab.wire.states import State


def propose(session: Session, draft: StudyDraft, ledger: Ledger) -> Status:
    """Propose a study, sign it, and seal its secret to the other curators.

    A proposal that was broken off is taken up: the same terms again, while the other curators
    have not all signed, are the same study, and cost nothing more.
    """
    known = _unfinished(session, draft)
    if known is None:
        secret, commitment, nonce = new_secret(session.entropy)
        contract = draft.contract(
            server=session.server.pinned, secret_commitment=commitment, nonce=nonce
        )
        session.home.study(contract.study_id).save_secret(secret)
        known = unsigned(contract)
    signed = _sign(session, known, ledger)
    status = session.server.propose(signed)
    _share(session, signed.body)
    return status


def sign(session: Session, study: bytes, ledger: Ledger) -> Status:
    """Sign a study that somebody has proposed, if the ledger supports it."""
    signed = _sign(session, session.contract(study), ledger)
    return session.server.sign(study, signed)


def choose_ledger(session: Session, dataset: str | None) -> Ledger:
    """Return the ledger of a data set; there is no default but the only one there is."""
    if dataset is not None:
        return session.home.ledgers.open_ledger(dataset).ledger
    known = [kept.ledger for kept in session.home.ledgers.all_ledgers()]
    if len(known) == 1:
        return known[0]
    names = ", ".join(repr(ledger.dataset) for ledger in known)
    raise HomeError(
        f"there are ledgers for {names}" if known else "no data set has a privacy budget yet",
        hint="say which data set the study is about, with --dataset"
        if known
        else "set one with: veiltab ledger set DATASET --epsilon LIMIT",
    )


def grant(
    session: Session,
    study: bytes,
    researcher: PublicIdentity,
    attributes: Sequence[str] | None,
    expires: int,
) -> SignedGrant:
    """Let a researcher decrypt attributes, beside those that it was granted before.

    The whole grant is returned and kept in the home; with one-time pads only its header goes to
    the server.
    """
    contract = verify_agreement(session.contract(study))
    release, _ = verify_release(contract, _fetch_release(session, study))
    place, me = session.home.study(study), session.identity.party_id
    private = FolderChunks(place.private)
    prepared = place.prepared(contract.schema_of(me), private)
    if prepared is None:
        raise StateError(
            "nothing was pushed to this study from this home",
            hint="push first, from the home that is to grant; its pads are kept there alone",
        )
    check_own_upload(release, prepared.message)
    wanted = _with_earlier(session, contract, researcher, attributes)
    desk = CuratorContext(session.identity, session.entropy, FolderChunks(place.outgoing), private)
    made = make_grant(desk, contract, prepared, researcher, wanted, expires=expires)
    place.save_grant(made)
    session.server.send_grant(study, made)
    FolderChunks(place.outgoing).clear()  # released: the server needs nothing of it any more
    return made


def _fetch_release(session: Session, study: bytes) -> Signed[Release]:
    """Refuse to hand out pads before there is a release to use them on, and to look at."""
    state = session.server.status(study).state
    if state != State.RELEASED:
        raise StateError(
            f"the study is {state}, not released",
            hint="wait with: veiltab study status STUDY --wait released",
        )
    return session.server.release(study)


def _with_earlier(
    session: Session, contract: Contract, researcher: PublicIdentity, wanted: Sequence[str] | None
) -> list[str] | None:
    """Add what the researcher has already, so that the newest grant is all that it needs.

    Only grants that this curator has signed count: a server could make up others, to have more
    granted than the curator means to.
    """
    if wanted is None:
        return None
    earlier = set()
    for given in session.server.grants(contract.study_id):
        verify(given.signed, [session.identity.signing.public])
        if given.body.researcher == researcher.party_id and given.body.expires > session.now:
            earlier |= set(given.body.attributes)
    own = contract.schema_of(session.identity.party_id).names
    return [*wanted, *(name for name in own if name in earlier and name not in wanted)]


def _sign(session: Session, signed: Signed[Contract], ledger: Ledger) -> Signed[Contract]:
    """Sign, and keep the charge and the contract before anything is sent.

    The contract is kept before it is charged too: whoever is stopped in between finds it again.
    """
    charged_to = session.home.ledgers.ledger_of(signed.body.study_id)
    paying = ledger if charged_to is None else charged_to.ledger
    cosigned, charged = sign_contract(signed, session.identity, paying)
    contract = signed.body
    place, note = session.home.study(contract.study_id), Note(contract.title, session.now)
    place.save_contract(signed)
    session.home.ledgers.save(charged, {contract.study_id: note})
    place.save_contract(cosigned)
    return cosigned


def _share(session: Session, contract: Contract) -> None:
    """Seal the secret to each of the other curators, once."""
    secret = session.home.study(contract.study_id).secret()
    me = session.identity.party_id
    for terms in contract.curators:
        if terms.party_id != me and secret is not None:
            message = share_secret(contract, session.identity, secret, terms.party_id)
            with contextlib.suppress(StateError):  # it was sent before, under another seal
                session.server.send_secret(contract.study_id, message)


def _unfinished(session: Session, draft: StudyDraft) -> Signed[Contract] | None:
    """Find a proposal with the same terms that not everybody has signed yet."""
    for study in session.home.studies():
        place = session.home.study(study)
        signed = place.contract()
        if signed is None or place.secret() is None:
            continue
        contract = signed.body
        same = draft.contract(
            server=session.server.pinned,
            secret_commitment=contract.secret_commitment,
            nonce=contract.nonce,
        )
        if same == contract and _still_proposed(session, study):
            return signed
    return None


def _still_proposed(session: Session, study: bytes) -> bool:
    try:
        return session.server.status(study).state == State.PROPOSED
    except NotFoundError:  # it never reached the server
        return True
