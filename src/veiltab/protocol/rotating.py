"""New keys for whoever holds the old ones: rotations and revocations (spec 2.2 and 2.3)."""

import hashlib
from dataclasses import replace
from itertools import pairwise

from veiltab.core.entropy import Entropy
from veiltab.crypto.identity import KeyPair, PrivateIdentity
from veiltab.crypto.signing import SigningKey
from veiltab.protocol.verify import cosign, sign
from veiltab.wire.rotation import Revocation, Rotation
from veiltab.wire.signed import Signed


def rotate(identity: PrivateIdentity, entropy: Entropy, at: int) -> PrivateIdentity:
    """Draw new keys; the identity keeps the old ones, for what was sealed to them."""
    return with_proof(identity.with_new_keys(entropy, max(at, identity.at, 1)))


def with_proof(identity: PrivateIdentity) -> PrivateIdentity:
    """Give the newest signing key what shows to everybody that it is the party's.

    Signatures of Ed25519 are always the same, so the rotations follow from the keys and need not
    be kept.
    """
    if not identity.earlier:
        return identity
    rotations = tuple(
        _rotation(identity.party_id, number, before, new)
        for number, (before, new) in enumerate(pairwise(identity.pairs), start=1)
    )
    return replace(identity, signing=SigningKey(identity.signing.secret_bytes(), rotations))


def _rotation(party: bytes, number: int, before: KeyPair, new: KeyPair) -> Signed[Rotation]:
    body = Rotation(
        at=new.at,
        party=party,
        sealing_digest=hashlib.sha256(new.sealing.public).digest(),
        sequence=number,
        signing_key=new.signing.public,
    )
    plain = [SigningKey(pair.signing.secret_bytes()) for pair in (before, new)]
    return cosign(sign(body, plain[0]), plain[1])


def revoke(identity: PrivateIdentity, at: int, reason: str) -> Signed[Revocation]:
    """Make the message that ends a party; it may be kept for years before it is sent."""
    body = Revocation(at=at, party=identity.party_id, reason=reason)
    return sign(body, identity.signing)
