"""What curators agree on: the contract, the ledger's consent, and the shared secret."""

from typing import TypeVar

from veiltab.core.entropy import Entropy, random_bytes
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
    """Return what others may know of a party."""
    return PublicIdentity(
        name=identity.name,
        signing_key=identity.signing.public,
        sealing_key=identity.sealing.public,
    )


def new_secret(entropy: Entropy) -> tuple[bytes, bytes, bytes]:
    """Draw a study's or vault's secret; return it with its commitment and a nonce (spec 4)."""
    secret = random_bytes(SECRET_BYTES, entropy)
    return secret, secret_commitment(secret), random_bytes(NONCE_BYTES, entropy)


def sign_contract(
    signed: Signed[Contract], identity: PrivateIdentity, ledger: Ledger
) -> tuple[Signed[Contract], Ledger]:
    """Sign a contract if the ledger supports it; the charge comes out with the signature.

    Keep the new ledger before sending the signature: a study must never run uncharged.
    """
    contract = verify_some(signed, _signing_keys(signed.body))
    contract.curator(identity.party_id)
    charged = ledger.charge(
        contract.study_id,
        contract.epsilon,
        contract.delta,
        contract.population,
        accounting=contract.accounting,
    )
    return cosign(signed, identity.signing), charged


def sign_vault(signed: Signed[Vault], identity: PrivateIdentity) -> Signed[Vault]:
    """Sign a vault; storing ciphertext costs no privacy until a study reads it."""
    vault = verify_some(signed, _signing_keys(signed.body))
    vault.curator(identity.party_id)
    return cosign(signed, identity.signing)


def unsigned(agreement: AgreementType) -> Signed[AgreementType]:
    """Return a contract or vault that nobody has signed yet."""
    return Signed(agreement, ())


def share_secret(
    agreement: Agreement, identity: PrivateIdentity, secret: bytes, receiver: bytes
) -> Signed[Secret]:
    """Seal the secret to another curator (spec 4.2)."""
    _check_commitment(agreement, secret)
    to = agreement.curator(receiver).identity
    context = _context(agreement, identity.party_id, receiver)
    return sign(
        Secret(
            sender=identity.party_id,
            receiver=receiver,
            scope=agreement.scope,
            sealed=seal(secret, to.sealing_key, PURPOSE, context),
        ),
        identity.signing,
    )


def receive_secret(
    agreement: Agreement, identity: PrivateIdentity, signed: Signed[Secret]
) -> bytes:
    """Open the secret that another curator has sealed to this one, and check it."""
    sender = agreement.curator(signed.body.sender).identity
    message = verify(signed, [sender.signing_key])
    if message.scope != agreement.scope or message.receiver != identity.party_id:
        raise MismatchError(
            "the sealed secret is for another study or another curator",
            hint="ask the proposer to send the secret of this study to you",
        )
    context = _context(agreement, message.sender, identity.party_id)
    secret = identity.sealing.open(message.sealed, PURPOSE, context)
    _check_commitment(agreement, secret)
    return secret


def _check_commitment(agreement: Agreement, secret: bytes) -> None:
    if len(secret) != SECRET_BYTES or secret_commitment(secret) != agreement.secret_commitment:
        raise MismatchError(
            "the secret is not the one that the contract commits to",
            hint="ask the proposer for the right one; without it the rows would not match",
        )


def _context(agreement: Agreement, sender: bytes, receiver: bytes) -> bytes:
    return agreement.scope + sender + receiver


def _signing_keys(agreement: Agreement) -> list[bytes]:
    return [terms.identity.signing_key for terms in agreement.curators]
