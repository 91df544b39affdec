"""The steps by which parties change their keys, and learn those of others (spec 2.2 and 2.3)."""

from contextlib import suppress
from typing import TypeVar

from veiltab.errors import (
    MessageError,
    NotFoundError,
    SignatureError,
    StateError,
    UnauthenticatedError,
)
from veiltab.protocol.keys import newest_sealing, verify_revocation
from veiltab.server.context import ServiceContext
from veiltab.server.db.records import Records
from veiltab.wire.codec import exact_fields, load
from veiltab.wire.contract import Agreement
from veiltab.wire.requests import MAX_SKEW_SECONDS
from veiltab.wire.rotation import SEALING_KEY, PartyKeys, Revocation, Rotation, signed_part
from veiltab.wire.signed import Signed

AgreementType = TypeVar("AgreementType", bound=Agreement)
_ROTATION = signed_part(Rotation)


def rotate(context: ServiceContext, body: bytes) -> tuple[bytes, bool]:
    """Put new keys in the place of a party's; return the party, and whether they are new here.

    A rotation is signed by the old and by the new key, and so anybody may send it.  Of two with the
    same number the first one stays: whoever holds a stolen key may have sent it, and then its owner
    is told so, and can revoke the party.
    """
    with suppress(MessageError):
        fields = exact_fields(load(body), ("rotation", "sealing_key"), "")
        rotation = _ROTATION.read(fields["rotation"], "rotation")
        sealing_key = SEALING_KEY.read(fields["sealing_key"], "sealing_key")
        with context.database.transaction() as records:
            new = _add_rotation(context, records, rotation, sealing_key)
        if new is not None:
            return rotation.body.party, new
    raise _not_theirs("rotation")


def _add_rotation(
    context: ServiceContext, records: Records, rotation: Signed[Rotation], sealing_key: bytes
) -> bool | None:
    """Add a rotation to a party's; ``False`` if it is there already, ``None`` if it is nobody's."""
    number, keys = rotation.body.sequence, records.party_keys(rotation.body.party)
    if keys is None or keys.revocation is not None:
        return None
    newest_sealing(keys.identity, (*keys.rotations[: number - 1], rotation), sealing_key)
    if number <= len(keys.rotations):
        _check_same(keys.rotations[number - 1], rotation)
        return False
    if rotation.body.at > context.now + MAX_SKEW_SECONDS:
        return None
    records.add_rotation(rotation, sealing_key)
    return True


def _check_same(earlier: Signed[Rotation], rotation: Signed[Rotation]) -> None:
    """Refuse a rotation that has the place of another one, and show both."""
    if earlier.digest != rotation.digest:
        raise StateError(
            f"there is another rotation number {rotation.body.sequence} already, to the key"
            f" {earlier.body.signing_key.hex()}, and this one is to"
            f" {rotation.body.signing_key.hex()}",
            hint="if you did not make the first one, your key was stolen: revoke your identity"
            " with: veiltab id revoke",
        )


def revoke(context: ServiceContext, body: bytes) -> bytes:
    """End a party by a message that one of its keys has signed; return its party id.

    Anybody may send it, and whatever is wrong with it, the answer is the same: a stranger is not
    told who is registered here.
    """
    with suppress(MessageError):
        revocation = Revocation.loads(body)
        party = revocation.body.party
        with context.database.transaction() as records:
            keys = records.party_keys(party)
            if keys is not None:
                verify_revocation(keys.identity, revocation)
                records.revoke(revocation)
                return party
    raise _not_theirs("revocation")


def _not_theirs(what: str) -> UnauthenticatedError:
    return UnauthenticatedError(
        f"this is no {what} by a party that is registered here, and not revoked",
        hint="a party's own key has to sign it; compare clock and server",
    )


def party_keys(context: ServiceContext, party: bytes) -> PartyKeys:
    """Return the keys of a party, its rotations and its revocation, for another party."""
    with context.database.reading() as records:
        keys = records.party_keys(party)
    if keys is None:
        raise NotFoundError(
            f"there is no party {party.hex()} here", hint="ask that party whether it is registered"
        )
    return keys


def check_new_signatures(
    records: Records, before: Signed[AgreementType], after: Signed[AgreementType]
) -> None:
    """Refuse a signature that was not there before by a key which its party has replaced.

    Whoever sends it: a curator could pass on what somebody has signed with a stolen old key.
    """
    parties = {terms.identity.signing_key: terms.party_id for terms in after.body.curators}
    for signature in set(after.signatures) - set(before.signatures):
        if records.newest_key(parties[signature.root]) != signature.key:
            raise SignatureError(
                f"the {after.body.kind} is signed with a key that was replaced or revoked",
                hint="sign it again with the newest key; if you have not replaced it, revoke the"
                " identity",
            )
