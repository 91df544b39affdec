"""New keys of known parties: they go on from those seen before, and a revocation stays known."""

from dataclasses import replace
from pathlib import Path

import pytest

from veiltab.crypto.entropy import SystemEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import KeyChangedError, MismatchError, RevokedError, SignatureError
from veiltab.party.home import Home
from veiltab.party.known.known import Standing
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.rotating import revoke, rotate
from veiltab.wire.contract import PublicIdentity
from veiltab.wire.rotation import PartyKeys


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Return a home without a server."""
    home = Home(tmp_path / "home")
    home.create("Tax office")
    return home


@pytest.fixture
def hospital() -> PrivateIdentity:
    """Return a party with its first keys."""
    return PrivateIdentity.create("City hospital", SystemEntropy())


def stated(identity: PrivateIdentity) -> PartyKeys:
    """Return what an honest server states of a party."""
    proof = identity.signing.proof
    return PartyKeys(public_identity(identity), proof, identity.sealing.public, None)


def named(identity: PrivateIdentity) -> PublicIdentity:
    """Return whom contracts name."""
    return public_identity(identity)


def test_new_keys_are_remembered(home: Home, hospital: PrivateIdentity) -> None:
    """The party is the same, as verified as before; the server cannot go back to older keys."""
    second = rotate(hospital, SystemEntropy(), 1)
    third = rotate(second, SystemEntropy(), 2)
    for identity in (hospital, second, third, third):
        keys = home.known.newest(named(hospital), stated(identity))
        assert keys.sealing_key == identity.sealing.public
        (known,) = home.known.parties()
        assert known.rotations == identity.signing.proof
    for identity in (hospital, second):
        with pytest.raises(KeyChangedError, match="not the 2 that were seen before"):
            home.known.newest(named(hospital), stated(identity))
    (known,) = home.known.parties()
    assert known.rotations == third.signing.proof


def test_another_chain_than_before_is_refused(home: Home, hospital: PrivateIdentity) -> None:
    """Whoever has stolen an old key can sign a second chain; the first that was seen stays."""
    first, other = (rotate(hospital, SystemEntropy(), 1) for _ in range(2))
    home.known.newest(named(hospital), stated(first))
    longer = rotate(other, SystemEntropy(), 2)
    for forked in (other, longer):
        with pytest.raises(KeyChangedError, match="THE KEY HAS CHANGED"):
            home.known.newest(named(hospital), stated(forked))


def test_keys_that_nobody_has_signed_are_refused(home: Home, hospital: PrivateIdentity) -> None:
    """A server cannot put its own sealing key, or another party, in the place of the real one."""
    second = rotate(hospital, SystemEntropy(), 1)
    other = PrivateIdentity.create("City hospital", SystemEntropy())
    forged = [
        replace(stated(second), sealing_key=other.sealing.public),
        replace(stated(hospital), sealing_key=other.sealing.public),
        stated(other),
        replace(stated(hospital), rotations=rotate(other, SystemEntropy(), 1).signing.proof),
    ]
    for keys in forged:
        with pytest.raises((MismatchError, SignatureError)):
            home.known.newest(named(hospital), keys)
    (known,) = home.known.parties()
    assert known.rotations == ()


def test_a_revocation_is_never_forgotten(home: Home, hospital: PrivateIdentity) -> None:
    """Also if the server hides it later; one that the party has not signed counts for nothing."""
    other = PrivateIdentity.create("City hospital", SystemEntropy())
    forged = replace(stated(hospital), revocation=revoke(other, 1, "for fun"))
    with pytest.raises(SignatureError, match="not signed by"):
        home.known.newest(named(hospital), forged)
    home.known.newest(named(hospital), stated(hospital))
    ended = replace(stated(hospital), revocation=revoke(hospital, 1, "the key was stolen"))
    with pytest.raises(RevokedError, match="the key was stolen"):
        home.known.newest(named(hospital), ended)
    assert home.known.standings([named(hospital)]) == [Standing.REVOKED]
    with pytest.raises(RevokedError, match="the key was stolen"):
        home.known.newest(named(hospital), stated(hospital))
    with pytest.raises(RevokedError, match="the key was stolen"):
        home.known.remember([named(hospital)])
