"""Keys that take the place of others: signatures with their proof, and attacks on the chain."""

import json
from dataclasses import replace

import pytest

from veiltab.core.hashing import MAX_ROTATIONS
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.sealing import seal
from veiltab.crypto.signing import SigningKey
from veiltab.errors import (
    MalformedError,
    MismatchError,
    ParameterError,
    RevokedError,
    SealError,
    SignatureError,
)
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.keys import (
    extends,
    newest_sealing,
    root_key,
    verify_keys,
    verify_revocation,
    verify_rotations,
)
from veiltab.protocol.rotating import revoke, rotate, with_proof
from veiltab.protocol.verify import add_missing, cosign, sign, verify, verify_some
from veiltab.wire.codec import dump
from veiltab.wire.messages import Secret
from veiltab.wire.rotation import PartyKeys, check_chain
from veiltab.wire.signed import Signed

ENTROPY = CipherEntropy.from_seed(1, "keys")
FIRST = PrivateIdentity.create("Clinic", ENTROPY)
SECOND = rotate(FIRST, ENTROPY, 100)
THIRD = rotate(SECOND, ENTROPY, 200)
OTHER = PrivateIdentity.create("Clinic", ENTROPY)
PUBLIC = public_identity(FIRST)
BODY = Secret(sender=FIRST.party_id, receiver=OTHER.party_id, scope=bytes(32), sealed=b"x")


def keys_of(identity: PrivateIdentity) -> PartyKeys:
    """Return what an honest server answers."""
    return PartyKeys(
        public_identity(identity), identity.signing.proof, identity.sealing.public, None
    )


@pytest.mark.parametrize("identity", [FIRST, SECOND, THIRD])
def test_a_signature_proves_itself(identity: PrivateIdentity) -> None:
    """Whoever knows the first key alone can verify what a newer one has signed."""
    signed = Secret.loads(sign(BODY, identity.signing).dumps())
    assert verify(signed, [PUBLIC.signing_key]) == BODY
    assert signed.signatures[0].root == PUBLIC.signing_key == root_key(identity.signing)
    with pytest.raises(SignatureError):
        verify(signed, [OTHER.signing.public])
    assert public_identity(identity) == PUBLIC
    assert identity.party_id == FIRST.party_id
    assert verify_rotations(PUBLIC, identity.signing.proof) == identity.signing.public
    assert verify_keys(PUBLIC, keys_of(identity)).sealing_key == identity.sealing.public


def test_a_newer_key_without_its_proof_is_a_stranger() -> None:
    """And a proof without a signature by the key that it leads to is none."""
    plain = SigningKey(THIRD.signing.secret_bytes())
    with pytest.raises(SignatureError, match="no part in it"):
        verify(sign(BODY, plain), [PUBLIC.signing_key])
    signature = sign(BODY, THIRD.signing).signatures[0]
    for proof in (SECOND.signing.proof, THIRD.signing.proof[1:]):
        with pytest.raises(MalformedError):
            replace(signature, rotations=proof)
    borrowed = replace(sign(BODY, plain).signatures[0], signature=bytes(64))
    forged = Signed(BODY, (replace(borrowed, rotations=THIRD.signing.proof),))
    with pytest.raises(SignatureError, match="does not fit"):
        verify(forged, [PUBLIC.signing_key])


def test_nobody_can_rotate_to_a_key_that_is_not_theirs() -> None:
    """Otherwise what its owner signs would count as signed by a thief."""
    body = replace(SECOND.signing.proof[0].body, signing_key=OTHER.signing.public)
    alone = sign(body, FIRST.signing)
    claimed = replace(alone.signatures[0], key=OTHER.signing.public, signature=bytes(64))
    twice = alone.with_signature(claimed)
    signature = replace(sign(BODY, OTHER.signing).signatures[0], rotations=(twice,))
    with pytest.raises(SignatureError):
        verify(Signed(BODY, (signature,)), [PUBLIC.signing_key])
    with pytest.raises(MalformedError):
        replace(signature, rotations=(alone,))


def test_a_party_signs_once_whatever_its_keys_are() -> None:
    """Signatures are counted by parties; of the same party the first stays where many sign."""
    contract_like = sign(SECOND.signing.proof[0].body, FIRST.signing)
    again = cosign(contract_like, THIRD.signing)
    assert [signature.key for signature in again.signatures] == [THIRD.signing.public]
    assert add_missing(contract_like, again) == contract_like
    both = cosign(again, OTHER.signing)
    roots = [signature.root for signature in both.signatures]
    assert roots == sorted({PUBLIC.signing_key, OTHER.signing.public})
    verify_some(both, roots)
    with pytest.raises(MalformedError, match="greater"):
        Signed(both.body, tuple(reversed(both.signatures)))
    with pytest.raises(MalformedError, match="greater"):
        Signed(both.body, (contract_like.signatures[0], again.signatures[0]))


def test_an_empty_list_of_rotations_is_not_written() -> None:
    """There is one way to write a signature of the first key, and one for others."""
    plain = json.loads(sign(BODY, FIRST.signing).dumps())
    assert set(plain["signatures"][0]) == {"key", "signature"}
    plain["signatures"][0]["rotations"] = []
    with pytest.raises(MalformedError, match="left out"):
        Secret.loads(dump(plain))
    rotated = json.loads(sign(BODY, SECOND.signing).dumps())
    rotated["signatures"][0]["rotations"][0]["signatures"][0]["rotations"] = []
    with pytest.raises(MalformedError):
        Secret.loads(dump(rotated))


def test_a_rotation_is_not_signed_by_a_chain() -> None:
    """A proof inside a proof could be nested without end."""
    link = cosign(sign(THIRD.signing.proof[1].body, SECOND.signing), THIRD.signing)
    with pytest.raises(MalformedError):
        check_chain((SECOND.signing.proof[0], link))


def test_rotations_are_of_one_party_and_one_way() -> None:
    """Another party's, a fork, a step back: refused, or told apart."""
    theirs = rotate(OTHER, ENTROPY, 100)
    with pytest.raises(SignatureError, match="not those of"):
        verify_rotations(PUBLIC, theirs.signing.proof)
    twin = replace(PUBLIC, sealing_key=OTHER.sealing.public)
    with pytest.raises(SignatureError, match="not those of"):
        verify_rotations(twin, THIRD.signing.proof)
    fork = rotate(FIRST, ENTROPY, 100)
    assert extends(THIRD.signing.proof, SECOND.signing.proof)
    assert extends(THIRD.signing.proof, ())
    for newer in (SECOND.signing.proof, fork.signing.proof, ()):
        assert not extends(newer, THIRD.signing.proof)
    assert not extends(fork.signing.proof, SECOND.signing.proof)


def test_seals_go_to_the_newest_key_and_old_ones_still_open() -> None:
    """A server cannot pass off an old sealing key, or one of its own, as the newest."""
    for wrong in (FIRST, SECOND, OTHER):
        with pytest.raises(MismatchError):
            newest_sealing(PUBLIC, THIRD.signing.proof, wrong.sealing.public)
    with pytest.raises(MismatchError):
        newest_sealing(PUBLIC, (), THIRD.sealing.public)
    for receiver in (FIRST, SECOND, THIRD):
        sealed = seal(b"pads", receiver.sealing.public, "grant", b"")
        assert THIRD.open(sealed, "grant", b"") == b"pads"
    with pytest.raises(SealError):
        SECOND.open(seal(b"pads", THIRD.sealing.public, "grant", b""), "grant", b"")


def test_the_sixty_fifth_rotation_is_refused() -> None:
    """Neither made nor read: every signature carries all of them."""
    identity = FIRST
    for at in range(MAX_ROTATIONS):
        identity = identity.with_new_keys(ENTROPY, at + 1)
    identity = with_proof(identity)
    signed = sign(BODY, identity.signing)
    assert len(signed.dumps()) < 50_000
    assert verify(Secret.loads(signed.dumps()), [PUBLIC.signing_key]) == BODY
    with pytest.raises(ParameterError, match="64 times"):
        rotate(identity, ENTROPY, 100)
    proof = identity.signing.proof
    with pytest.raises(MalformedError, match="at most 64"):
        replace(signed.signatures[0], rotations=(*proof, proof[-1]))


def test_only_the_party_itself_can_revoke() -> None:
    """With its first key, long before it has others, or with its newest."""
    for identity in (FIRST, THIRD):
        revocation = revoke(identity, 300, "stolen")
        assert verify_revocation(PUBLIC, revocation).reason == "stolen"
        with pytest.raises(RevokedError, match="stolen"):
            verify_keys(PUBLIC, replace(keys_of(SECOND), revocation=revocation))
    body = revoke(FIRST, 300, "stolen").body
    for forged in (sign(body, OTHER.signing), revoke(OTHER, 300, "stolen")):
        with pytest.raises(SignatureError):
            verify_keys(PUBLIC, replace(keys_of(SECOND), revocation=forged))
    with pytest.raises(MismatchError, match="another party"):
        verify_keys(PUBLIC, keys_of(OTHER))
