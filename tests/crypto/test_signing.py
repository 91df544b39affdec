"""Signatures: RFC 8032's answers, and nothing that is not exactly what was signed."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veiltab.crypto.entropy import CipherEntropy, SystemEntropy
from veiltab.crypto.signing import SigningKey, verify
from veiltab.errors import ParameterError, SignatureError

# RFC 8032, section 7.1, tests 1 to 3: seed, public key, message, signature.
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701c"
            "f9b46bd25bf5f0595bbe24655141438e7a100b"
        ),
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        (
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0"
            "f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        ),
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        (
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f76098"
            "4dc6594a7c15e9716ed28dc027beceea1ec40a"
        ),
    ),
]
KEY = SigningKey(bytes(range(32)))


@pytest.mark.parametrize(("seed", "public", "message", "signature"), VECTORS)
def test_published_answers(seed: str, public: str, message: str, signature: str) -> None:
    """Keys are RFC 8032 seeds, public keys and signatures its raw bytes."""
    key = SigningKey(bytes.fromhex(seed))
    assert key.public.hex() == public
    assert key.sign(bytes.fromhex(message)).hex() == signature
    verify(bytes.fromhex(public), bytes.fromhex(message), bytes.fromhex(signature))


@given(message=st.binary(max_size=200))
def test_a_signature_verifies(message: bytes) -> None:
    """Whatever is signed verifies, and not for another message."""
    signature = KEY.sign(message)
    verify(KEY.public, message, signature)
    with pytest.raises(SignatureError):
        verify(KEY.public, message + b"\x00", signature)


def test_every_changed_bit_is_refused() -> None:
    """No bit of the signature or of the key can be changed."""
    signature = KEY.sign(b"message")
    for place in range(64 * 8):
        with pytest.raises(SignatureError):
            verify(KEY.public, b"message", _flip(signature, place))
    for place in range(32 * 8):
        with pytest.raises(SignatureError):
            verify(_flip(KEY.public, place), b"message", signature)


def test_wrong_lengths_are_bad_signatures() -> None:
    """What other parties send may have any length; it must not surface as another error."""
    signature = KEY.sign(b"message")
    for public, given_signature in [
        (b"", signature),
        (KEY.public[:-1], signature),
        (KEY.public + b"\x00", signature),
        (KEY.public, b""),
        (KEY.public, signature[:-1]),
        (KEY.public, signature + b"\x00"),
        (b"\xff" * 32, signature),
    ]:
        with pytest.raises(SignatureError) as caught:
            verify(public, b"message", given_signature)
        assert caught.value.hint


def test_a_seed_has_32_bytes() -> None:
    """A shorter or longer seed is refused and not shown."""
    for seed in (b"", b"\x5a" * 31, b"\x5a" * 64):
        with pytest.raises(ParameterError) as caught:
            SigningKey(seed)
        assert "5a5a" not in str(caught.value)
        assert "ZZ" not in repr(caught.value)


def test_the_secret_never_shows() -> None:
    """Printing a key, or formatting it, gives its public part only."""
    shown = f"{KEY!r} {KEY!s} {KEY}"
    assert KEY.secret_bytes().hex() not in shown
    assert repr(KEY.secret_bytes()) not in shown
    assert KEY.public.hex() in shown
    assert not hasattr(KEY, "__dict__")


def test_new_keys_come_from_the_entropy() -> None:
    """The same entropy gives the same key; the operating system never does."""
    first = SigningKey.create(CipherEntropy.from_seed(1, "signing"))
    again = SigningKey.create(CipherEntropy.from_seed(1, "signing"))
    assert first.secret_bytes() == again.secret_bytes()
    assert SigningKey(first.secret_bytes()).public == first.public
    system = SystemEntropy()
    assert SigningKey.create(system).public != SigningKey.create(system).public


def test_signing_does_not_bring_sealing_along() -> None:
    """The server signs; by construction it must not be able to decrypt (design, section 5)."""
    script = (
        "import sys, veiltab.crypto.signing;"
        "loaded = {'veiltab.crypto.' + n for n in ('sealing', 'pads', 'identity')};"
        "sys.exit(bool(loaded & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0  # noqa: S603


def _flip(value: bytes, place: int) -> bytes:
    changed = bytearray(value)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)
