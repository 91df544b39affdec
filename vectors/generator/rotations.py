"""Vectors of rotations and revocations: sections 2.2 and 2.3 of the specification."""

from dataclasses import replace
from typing import Any

from vectors.generator.files import Document, bad, case, document, entropy, filler
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.signing import SigningKey
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.rotating import revoke, rotate
from veiltab.protocol.verify import cosign, sign
from veiltab.wire.rotation import PartyKeys, Revocation, Rotation
from veiltab.wire.signed import Signature, Signed

AT = 1_800_000_000
MALFORMED, SIGNATURE, MISMATCH = "malformed_message", "bad_signature", "mismatch"


def rotations() -> Document:
    """Sections 2.2 and 2.3: keys that take the place of others, and the end of a party."""
    source = entropy("rotations")
    first = PrivateIdentity.create("a party", source)
    second = rotate(first, source, AT)
    third = rotate(second, source, AT + 1)
    other = rotate(PrivateIdentity.create("another party", source), source, AT)
    cases = [
        case("the first keys", _expected(first), keys=_keys(first)),
        case("one rotation", _expected(second), keys=_keys(second)),
        case("two rotations", _expected(third), keys=_keys(third)),
    ]
    for name, error, keys in _bad_keys(first, second, third, other):
        cases.append(bad(name, error, keys=keys))
    gone = {"reason": "lost", "party": first.party_id.hex()}
    for name, identity in (("first", first), ("newest", third)):
        keys = _keys(third) | {"revocation": revoke(identity, AT, "lost").to_json()}
        cases.append(bad(f"revoked_by_the_{name}_key", "revoked_party", keys=keys))
    body = Revocation(at=AT, party=first.party_id, reason=gone["reason"])
    forged = _keys(third) | {"revocation": sign(body, other.signing).to_json()}
    cases.append(bad("revoked_by_another", SIGNATURE, keys=forged))
    moved = revoke(other, AT, "lost").to_json()
    cases.append(bad("revoked_other", SIGNATURE, keys=_keys(third) | {"revocation": moved}))
    return document(
        "Sections 2.2 and 2.3. `keys` is what a server answers of a party: its first keys, its"
        " rotations, its newest sealing key and its revocation. Expected are the newest keys.",
        cases,
    )


def _keys(identity: PrivateIdentity) -> dict[str, Any]:
    proof = identity.signing.proof
    return PartyKeys(public_identity(identity), proof, identity.sealing.public, None).to_json()


def _expected(identity: PrivateIdentity) -> dict[str, str]:
    return {
        "party_id": identity.party_id.hex(),
        "sealing_key": identity.sealing.public.hex(),
        "signing_key": identity.signing.public.hex(),
    }


def _bad_keys(
    first: PrivateIdentity, second: PrivateIdentity, third: PrivateIdentity, other: PrivateIdentity
) -> list[tuple[str, str, dict[str, Any]]]:
    good, newest = _keys(third), third.signing.proof
    one, two = (rotation.to_json() for rotation in newest)
    plain = SigningKey(second.signing.secret_bytes())
    old_only = sign(newest[0].body, first.signing)
    new_only = sign(newest[0].body, plain)
    later = replace(newest[0].body, at=AT + 2)
    wrong = Signed(newest[0].body, tuple(map(_broken, newest[0].signatures)))

    def chain(*links: dict[str, Any]) -> dict[str, Any]:
        return good | {"rotations": list(links)}

    stranger = cosign(sign(newest[0].body, other.earlier[0].signing), plain)
    return [
        ("missing_link", MALFORMED, chain(two)),
        ("order_of_rotations", MALFORMED, chain(two, one)),
        ("repeated_rotation", MALFORMED, chain(one, one)),
        ("signed_by_the_old_key_only", MALFORMED, chain(old_only.to_json(), two)),
        ("signed_by_the_new_key_only", MALFORMED, chain(new_only.to_json(), two)),
        ("older_than_the_one_before", MALFORMED, chain(_both(later, first, plain), two)),
        ("wrong_signatures", SIGNATURE, chain(wrong.to_json(), two)),
        ("signed_by_a_stranger", SIGNATURE, chain(stranger.to_json(), two)),
        ("rotations_of_another", SIGNATURE, good | {"rotations": _keys(other)["rotations"]}),
        ("rotations_of_no_party", SIGNATURE, chain(_both(_of(newest[0].body), first, plain))),
        ("older_sealing_key", MISMATCH, good | {"sealing_key": second.sealing.public.hex()}),
        ("no_rotations", MISMATCH, good | {"rotations": []}),
        ("forgotten_rotation", MISMATCH, chain(one)),
        ("unknown_field", MALFORMED, good | {"more": 1}),
    ]


def _of(body: Rotation) -> Rotation:
    return replace(body, party=filler("another party"))


def _both(body: Rotation, old: PrivateIdentity, new: SigningKey) -> dict[str, Any]:
    return cosign(sign(body, old.signing), new).to_json()


def _broken(signature: Signature) -> Signature:
    return replace(signature, signature=bytes(64))
