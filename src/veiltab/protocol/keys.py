"""Which keys a party has: rotations from its first keys to its newest, and revocation (spec 2.2).

Everything here can be checked without asking anybody.  Nothing here decrypts, so that the server
can use it too; :mod:`veiltab.protocol.rotating` makes new keys.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache

from veiltab.crypto import signing
from veiltab.crypto.signing import SigningKey
from veiltab.errors import MismatchError, RevokedError, SignatureError
from veiltab.wire.contract import PublicIdentity
from veiltab.wire.rotation import PartyKeys, Revocation, Rotation, check_chain
from veiltab.wire.signed import Signed

_REMEMBERED = 1024
"""Rotations whose signatures were found right; a party's rotations come with each signature."""


@lru_cache(maxsize=_REMEMBERED)
def _verify_signatures(rotation: Signed[Rotation]) -> None:
    for signature in rotation.signatures:
        signing.verify(signature.key, rotation.signing_input, signature.signature)


def verify_chain(rotations: Sequence[Signed[Rotation]]) -> None:
    """Refuse rotations of which one is not signed by the key before it and by the new one."""
    for rotation in rotations:
        _verify_signatures(rotation)


def root_key(key: SigningKey) -> bytes:
    """Return the first public signing key of the party that a key belongs to."""
    return check_chain(key.proof)[0] if key.proof else key.public


def verify_rotations(identity: PublicIdentity, rotations: Sequence[Signed[Rotation]]) -> bytes:
    """Return the newest signing key of a party, if the rotations lead to it from its first key."""
    if not rotations:
        return identity.signing_key
    keys = check_chain(rotations)
    if keys[0] != identity.signing_key or rotations[0].body.party != identity.party_id:
        raise SignatureError(
            f"the rotations are not those of {identity.name!r}",
            hint="ask that party for its keys again, and compare fingerprints",
        )
    verify_chain(rotations)
    return keys[-1]


def newest_sealing(
    identity: PublicIdentity, rotations: Sequence[Signed[Rotation]], sealing_key: bytes
) -> bytes:
    """Return the key to seal to, if it is the one that the party has signed last."""
    verify_rotations(identity, rotations)
    if rotations:
        same = hashlib.sha256(sealing_key).digest() == rotations[-1].body.sealing_digest
    else:
        same = sealing_key == identity.sealing_key
    if not same:
        raise MismatchError(
            f"the sealing key is not the one that {identity.name!r} has signed",
            hint="seal nothing to it; compare fingerprints with that party",
        )
    return sealing_key


def verify_revocation(identity: PublicIdentity, revocation: Signed[Revocation]) -> Revocation:
    """Return the end of a party, if one of its own keys has signed it, however old the key is."""
    (signature,) = revocation.signatures
    body = revocation.body
    if signature.root != identity.signing_key or body.party != identity.party_id:
        raise SignatureError(
            f"the revocation is not signed by {identity.name!r}",
            hint="only a party itself can revoke its keys",
        )
    verify_chain(signature.rotations)
    signing.verify(signature.key, revocation.signing_input, signature.signature)
    return body


def verify_keys(identity: PublicIdentity, keys: PartyKeys) -> PartyKeys:
    """Return what a server says of a party, if all of it is signed, and the party is not revoked.

    ``identity`` is the one that the contract names.
    """
    if keys.identity.party_id != identity.party_id:
        raise MismatchError(
            f"the server has answered with the keys of another party than {identity.name!r}",
            hint="ask the server's operator; seal nothing to these keys",
        )
    if keys.revocation is not None:
        raise revoked(identity.name, verify_revocation(identity, keys.revocation))
    newest_sealing(identity, keys.rotations, keys.sealing_key)
    return keys


def revoked(name: str, revocation: Revocation) -> RevokedError:
    """Build the error of a party that has ended."""
    return RevokedError(
        f"{name!r} has revoked its keys: {revocation.reason}",
        hint="trust nothing that is signed by them; ask that party for its new identity by"
        " telephone",
    )


def extends(newer: Sequence[Signed[Rotation]], known: Sequence[Signed[Rotation]]) -> bool:
    """Tell whether a chain goes on from the one that is known, and does not fork from it."""
    return [rotation.digest for rotation in newer[: len(known)]] == [
        rotation.digest for rotation in known
    ]
