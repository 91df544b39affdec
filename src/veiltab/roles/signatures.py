"""Signing messages, and deciding whether the right parties have signed (spec 1.2)."""

from collections.abc import Iterable
from typing import TypeVar

from veiltab.crypto import signing
from veiltab.crypto.signing import SigningKey
from veiltab.errors import SignatureError
from veiltab.wire.signed import Message, Signature, Signed, signing_input

Body = TypeVar("Body", bound=Message)


def sign(body: Body, key: SigningKey) -> Signed[Body]:
    """Sign a message as its only signer."""
    return Signed(body, (_signature(body, key),))


def cosign(signed: Signed[Body], key: SigningKey) -> Signed[Body]:
    """Add a party's signature to a message that several sign."""
    return signed.with_signature(_signature(signed.body, key))


def verify(signed: Signed[Body], signers: Iterable[bytes]) -> Body:
    """Return the body if exactly these keys have signed it, and every signature is right."""
    expected = set(signers)
    verify_some(signed, expected)
    missing = expected - {signature.key for signature in signed.signatures}
    if missing:
        raise SignatureError(
            f"{len(missing)} of {len(expected)} signatures on the {signed.body.kind} are missing",
            hint="wait until everybody who has to sign has signed",
        )
    return signed.body


def verify_some(signed: Signed[Body], allowed: Iterable[bytes]) -> Body:
    """Return the body if every signature on it is right and by one of these keys."""
    known = set(allowed)
    for signature in signed.signatures:
        if signature.key not in known:
            raise SignatureError(
                f"the {signed.body.kind} is signed by {signature.key.hex()}, who has no part in it",
                hint="ask for the message as its own parties signed it",
            )
        signing.verify(signature.key, signed.signing_input, signature.signature)
    return signed.body


def _signature(body: Message, key: SigningKey) -> Signature:
    data = signing_input(body.kind, body.canonical())
    return Signature(key=key.public, signature=key.sign(data))
