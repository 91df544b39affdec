"""New keys for a party, and the end of a party (spec 2.2 and 2.3).

A party is named by its first keys for ever.  Each rotation puts another pair in the place of the
one before, and is signed by both signing keys; a revocation ends the party.
"""

from collections.abc import Sequence
from typing import ClassVar

from veiltab.core.hashing import MAX_ROTATIONS, SEALING_PUBLIC_BYTES
from veiltab.wire.codec import (
    MAX_INTEGER,
    TEXT,
    Codec,
    Part,
    exact_fields,
    hexadecimal,
    integer,
    items,
    malformed,
    message,
    nested,
    optional,
    part,
    wired,
)
from veiltab.wire.contract import DIGEST, PARTY_ID, PublicIdentity
from veiltab.wire.signed import KEY_BYTES, Body, Signed, SignedMessage

SEALING_KEY = hexadecimal(SEALING_PUBLIC_BYTES)
_TIME = integer(0, MAX_INTEGER)
_SIGNERS = 2


@message
class Rotation(SignedMessage):
    """New keys of a party: the signing key, and the digest of the sealing key, which is long.

    It is signed by the signing key before and by the new one, which so shows that it is the
    party's own.
    """

    kind: ClassVar[str] = "rotation"
    cosigned: ClassVar[bool] = True

    at: int = wired(_TIME)
    party: bytes = wired(PARTY_ID)
    sealing_digest: bytes = wired(DIGEST)
    sequence: int = wired(integer(1, MAX_ROTATIONS))
    signing_key: bytes = wired(hexadecimal(KEY_BYTES))


@message
class Revocation(SignedMessage):
    """The end of a party: nobody trusts any of its keys from now on."""

    kind: ClassVar[str] = "revocation"

    at: int = wired(_TIME)
    party: bytes = wired(PARTY_ID)
    reason: str = wired(TEXT)


def check_chain(rotations: Sequence[Signed[Rotation]]) -> list[bytes]:
    """Return the signing keys from the first to the newest, if each follows the one before.

    The signatures are not verified here.
    """
    keys = [_key_before(rotations[0])]
    for number, rotation in enumerate(rotations, start=1):
        body, path = rotation.body, f"rotations[{number - 1}]"
        if body.sequence != number or body.party != rotations[0].body.party:
            raise malformed(path, "does not follow the one before")
        if number > 1 and body.at < rotations[number - 2].body.at:
            raise malformed(path, "is older than the one before")
        if _key_before(rotation) != keys[-1] or body.signing_key in keys:
            raise malformed(path, "is not signed by the key before and by a new one")
        keys.append(body.signing_key)
    return keys


def _key_before(rotation: Signed[Rotation]) -> bytes:
    """Return the key that the rotation replaces: the one of its two signers that is not new."""
    before = {item.key for item in rotation.signatures} - {rotation.body.signing_key}
    plain = not any(item.rotations for item in rotation.signatures)
    if len(rotation.signatures) != _SIGNERS or len(before) != 1 or not plain:
        raise malformed("rotations", "must be signed by the key before and by the new one")
    return before.pop()


def signed_part(kind: type[Body]) -> Codec[Signed[Body]]:
    """Return the codec of a signed message inside another object."""

    def read(value: object, path: str) -> Signed[Body]:
        return Signed.from_json(kind, exact_fields(value, ("body", "signatures"), path))

    return Codec(read, lambda value, _: value.to_json())


ROTATIONS = items(signed_part(Rotation), most=MAX_ROTATIONS)


@part
class PartyKeys(Part):
    """What a server knows of a party: its first keys, its rotations, its newest sealing key."""

    identity: PublicIdentity = wired(nested(PublicIdentity))
    rotations: tuple[Signed[Rotation], ...] = wired(ROTATIONS)
    sealing_key: bytes = wired(SEALING_KEY)
    revocation: Signed[Revocation] | None = wired(optional(signed_part(Revocation)))

    def check(self) -> None:
        """Refuse rotations that are no chain."""
        if self.rotations:
            check_chain(self.rotations)
