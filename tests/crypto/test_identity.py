"""Identities: ids of both keys, fingerprints for people, and nothing secret in sight."""

import dataclasses
from hashlib import sha256

import pytest

from veiltab.core.hashing import party_id
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity, fingerprint
from veiltab.crypto.sealing import SealingKey
from veiltab.crypto.signing import SigningKey
from veiltab.errors import ParameterError

SIGNING = SigningKey(b"\x11" * 32)
SEALING = SealingKey(b"\x22" * 96)


def test_the_party_id_is_a_hash_of_both_keys() -> None:
    """Section 2, byte for byte; the signing key comes first."""
    expected = sha256(b"veiltab/v1/identity\x00" + SIGNING.public + SEALING.public).digest()
    assert party_id(SIGNING.public, SEALING.public) == expected
    assert PrivateIdentity("Clinic", SIGNING, SEALING).party_id == expected
    with pytest.raises(ParameterError, match="1,216"):
        party_id(SEALING.public, SIGNING.public)


def test_the_name_is_not_part_of_it() -> None:
    """Anybody may call a key anything, so a name proves nothing."""
    first = PrivateIdentity("Clinic", SIGNING, SEALING)
    assert first.party_id == PrivateIdentity("Tax office", SIGNING, SEALING).party_id


def test_fingerprints_are_thirty_digits_in_six_groups() -> None:
    """The first 16 bytes modulo 10^30: 2^128 − 1 is 340282366 920938463463374607431768211455."""
    largest = b"\xff" * 16 + bytes(16)
    assert fingerprint(largest) == "92093 84634 63374 60743 17682 11455"
    smallest = bytes(15) + b"\x07" + b"\xff" * 16
    assert fingerprint(smallest) == "00000 00000 00000 00000 00000 00007"


def test_only_whole_ids_and_keys_are_taken() -> None:
    """Part of an id, or an id in hexadecimal, is refused."""
    for value in (b"", bytes(31), bytes(64)):
        with pytest.raises(ParameterError):
            fingerprint(value)
        with pytest.raises(ParameterError):
            party_id(value, SEALING.public)
        with pytest.raises(ParameterError):
            party_id(SIGNING.public, value)


def test_creating_draws_both_keys() -> None:
    """The two keys are different draws from the given entropy, signing first."""
    entropy = CipherEntropy.from_seed(1, "identity")
    identity = PrivateIdentity.create("Clinic", entropy)
    again = CipherEntropy.from_seed(1, "identity")
    assert identity.signing.secret_bytes() == SigningKey.create(again).secret_bytes()
    assert identity.sealing.secret_bytes() == SealingKey.create(again).secret_bytes()
    assert identity.signing.secret_bytes() != identity.sealing.secret_bytes()
    assert identity.party_id != PrivateIdentity.create("Clinic", entropy).party_id


def test_an_identity_is_frozen() -> None:
    """No key can be put under another name later."""
    identity = PrivateIdentity("Clinic", SIGNING, SEALING)
    with pytest.raises(dataclasses.FrozenInstanceError):
        identity.name = "other"  # type: ignore[misc]


def test_the_secrets_never_show() -> None:
    """Printing an identity shows its name and fingerprint."""
    identity = PrivateIdentity("Clinic", SIGNING, SEALING)
    shown = f"{identity!r} {identity!s} {identity}"
    for secret in (SIGNING.secret_bytes(), SEALING.secret_bytes()):
        assert secret.hex() not in shown
        assert repr(secret) not in shown
    assert "Clinic" in shown
    assert fingerprint(identity.party_id) in shown


@pytest.mark.parametrize("name", ["", "two\nlines", "\x7f", "\ud800", "x" * 1001])
def test_names_that_no_message_could_carry_are_refused(name: str) -> None:
    """Section 1.1: 1 to 1,000 characters, none of them a control character or half a pair."""
    with pytest.raises(ParameterError):
        PrivateIdentity(name, SIGNING, SEALING)


def test_any_script_makes_a_name() -> None:
    """A thousand characters of any script are a name, however many bytes they take."""
    assert PrivateIdentity("😀" * 1000, SIGNING, SEALING).name == "😀" * 1000
