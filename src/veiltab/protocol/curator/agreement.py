"""What curators agree on: the contract, the ledger's consent, and the shared secret."""

from collections.abc import Mapping
from typing import TypeVar

from veiltab.core.entropy import Entropy, random_bytes
from veiltab.crypto import derivation
from veiltab.crypto.derivation import SECRET_BYTES, secret_commitment
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.sealing import seal
from veiltab.errors import MismatchError
from veiltab.protocol.curator.ledger import Ledger
from veiltab.protocol.verify import cosign, sign, verify, verify_some
from veiltab.wire.contract import NONCE_BYTES, Agreement, Contract, PublicIdentity, Vault
from veiltab.wire.messages import Secret
from veiltab.wire.signed import Signed

AgreementType = TypeVar("AgreementType", bound=Agreement)
PURPOSE = "secret"


def public_identity(identity: PrivateIdentity) -> PublicIdentity:
    """Return what others may know of a party: who it is for ever, by its first keys."""
    first = identity.pairs[0]
    return PublicIdentity(
        name=identity.name,
        signing_key=first.signing.public,
        sealing_key=first.sealing.public,
    )


def new_secret(entropy: Entropy) -> tuple[bytes, bytes, bytes]:
    """Draw what the proposer contributes; return it with its commitment and a nonce (spec 4).

    To a study's secret every other curator contributes, too; a vault's secret is this alone.
    """
    secret = new_contribution(entropy)
    return secret, secret_commitment(secret), random_bytes(NONCE_BYTES, entropy)


def new_contribution(entropy: Entropy) -> bytes:
    """Draw what a curator contributes to a study's secret (spec 4.2)."""
    return random_bytes(SECRET_BYTES, entropy)


def sign_contract(
    signed: Signed[Contract], identity: PrivateIdentity, ledger: Ledger
) -> tuple[Signed[Contract], Ledger]:
    """Sign a contract if the ledger supports it; the charge comes out with the signature.

    Keep the new ledger before sending the signature: a study must never run uncharged.
    """
    contract = verify_some(signed, _signing_keys(signed.body))
    contract.curator(identity.party_id)
    return cosign(signed, identity.signing), charge(contract, ledger)


def charge(contract: Contract, ledger: Ledger) -> Ledger:
    """Return the ledger with the study on it, or refuse what its limits do not allow."""
    # Among decoys nobody can count the people in common: a number that is stated is never checked.
    unchecked = contract.matched and contract.coin_terms is not None
    return ledger.charge(
        contract.study_id,
        contract.epsilon,
        contract.delta,
        None if unchecked else contract.population,
        accounting=contract.accounting,
    )


def sign_vault(signed: Signed[Vault], identity: PrivateIdentity) -> Signed[Vault]:
    """Sign a vault; storing ciphertext costs no privacy until a study reads it."""
    vault = verify_some(signed, _signing_keys(signed.body))
    vault.curator(identity.party_id)
    return cosign(signed, identity.signing)


def unsigned(agreement: AgreementType) -> Signed[AgreementType]:
    """Return a contract or vault that nobody has signed yet."""
    return Signed(agreement, ())


def share_secret(
    agreement: Agreement,
    identity: PrivateIdentity,
    secret: bytes,
    receiver: bytes,
    sealing_key: bytes | None = None,
) -> Signed[Secret]:
    """Seal a contribution to a study's secret, or a vault's secret, to another curator (4.2).

    ``sealing_key`` is the receiver's newest, if it is not the first one.
    """
    _check_secret(agreement, secret)
    to = agreement.curator(receiver).identity
    context = _context(agreement, identity.party_id, receiver)
    return sign(
        Secret(
            sender=identity.party_id,
            receiver=receiver,
            scope=agreement.scope,
            sealed=seal(secret, sealing_key or to.sealing_key, PURPOSE, context),
        ),
        identity.signing,
    )


def receive_secret(
    agreement: Agreement, identity: PrivateIdentity, signed: Signed[Secret]
) -> bytes:
    """Open what another curator has sealed to this one.

    Of a study it is a contribution, and :func:`study_secret` checks the proposer's.
    """
    sender = agreement.curator(signed.body.sender).identity
    message = verify(signed, [sender.signing_key])
    if message.scope != agreement.scope or message.receiver != identity.party_id:
        raise MismatchError(
            "the sealed secret is for another study or another curator",
            hint="ask its sender for the secret of this study, sealed to you",
        )
    context = _context(agreement, message.sender, identity.party_id)
    secret = identity.open(message.sealed, PURPOSE, context)
    _check_secret(agreement, secret)
    return secret


def study_secret(contract: Contract, contributions: Mapping[bytes, bytes]) -> bytes:
    """Return the secret of a study from what every curator has contributed, by party id (4.2).

    The contract commits to the contribution of the curator who proposed it.  So nobody can be made
    to take part in a study under another secret than the proposer's.
    """
    missing = [t.identity.name for t in contract.curators if t.party_id not in contributions]
    if missing:
        raise MismatchError(
            f"{', '.join(map(repr, missing))} has not contributed to the study's secret",
            hint="wait until every curator has signed, and has sent its contribution to you",
        )
    ordered = [contributions[terms.party_id] for terms in contract.curators]
    if contract.secret_commitment not in map(secret_commitment, ordered):
        raise _wrong_secret()
    return derivation.study_secret(ordered, contract.study_id)


def _check_secret(agreement: Agreement, secret: bytes) -> None:
    """Refuse what is no secret, and another one than a vault commits to."""
    whole = len(secret) == SECRET_BYTES
    if not whole or (
        isinstance(agreement, Vault) and secret_commitment(secret) != agreement.secret_commitment
    ):
        raise _wrong_secret()


def _wrong_secret() -> MismatchError:
    return MismatchError(
        "the secret is not the one that the contract commits to",
        hint="ask the proposer for the right one; without it the rows would not match",
    )


def _context(agreement: Agreement, sender: bytes, receiver: bytes) -> bytes:
    return agreement.scope + sender + receiver


def _signing_keys(agreement: Agreement) -> list[bytes]:
    return [terms.identity.signing_key for terms in agreement.curators]
