"""Seals: HPKE with ML-KEM-768 and X25519, bound to receiver, purpose and context."""

import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from veiltab.crypto.entropy import CipherEntropy, SystemEntropy
from veiltab.crypto.sealing import OVERHEAD, SealingKey, seal
from veiltab.errors import ParameterError, SealError

KEY = SealingKey(bytes(range(96)))
OTHER = SealingKey(bytes(range(1, 97)))
CONTEXT = b"scope" + bytes(27)

# The points of small order on Curve25519 and its twist, in both of their spellings.
SMALL_ORDER = [
    "00" * 32,
    "01" + "00" * 31,
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ec" + "ff" * 30 + "7f",
    "ed" + "ff" * 30 + "7f",
    "ee" + "ff" * 30 + "7f",
]


@settings(max_examples=50)
@given(plaintext=st.binary(max_size=200), context=st.binary(max_size=100))
def test_what_is_sealed_opens(plaintext: bytes, context: bytes) -> None:
    """The receiver reads exactly what was sealed, at a fixed cost in bytes."""
    sealed = seal(plaintext, KEY.public, "grant", context)
    # ML-KEM's ciphertext, the ephemeral public key and the tag
    assert len(sealed) == len(plaintext) + OVERHEAD == len(plaintext) + 1088 + 32 + 16
    assert KEY.open(sealed, "grant", context) == plaintext


def test_a_seal_is_hpke_with_the_info_of_the_specification() -> None:
    """A decryption from RFC 9180, the hybrid's combiner and section 3, step by step, reads it."""
    sealed = seal(b"the pads", KEY.public, "grant", CONTEXT)
    info = b"veiltab/v1/seal/grant\x00" + CONTEXT
    assert _open_by_the_book(sealed, KEY.secret_bytes(), info) == b"the pads"


def test_public_keys_are_those_of_rfc_7748() -> None:
    """The curve's half is the first key pair of its section 6.1; it follows ML-KEM's."""
    scalar = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
    public = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    key = SealingKey(bytes(64) + bytes.fromhex(scalar))
    lattice = MLKEM768PrivateKey.from_seed_bytes(bytes(64)).public_key().public_bytes_raw()
    assert key.public == lattice + bytes.fromhex(public)
    assert key.secret_bytes() == bytes(64) + bytes.fromhex(scalar)


def test_every_changed_byte_is_refused() -> None:
    """Either half of the encapsulated key, ciphertext or tag: nothing can be changed or cut."""
    sealed = seal(b"the pads", KEY.public, "grant", CONTEXT)
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1 << place % 8
        with pytest.raises(SealError):
            KEY.open(bytes(changed), "grant", CONTEXT)
        with pytest.raises(SealError):
            KEY.open(sealed[:place], "grant", CONTEXT)
    with pytest.raises(SealError):
        KEY.open(sealed + b"\x00", "grant", CONTEXT)


def test_each_half_of_the_key_is_needed() -> None:
    """Whoever breaks one half alone, with the other one guessed, reads nothing."""
    sealed = seal(b"the pads", KEY.public, "grant", CONTEXT)
    mine, others = KEY.secret_bytes(), OTHER.secret_bytes()
    for half in (mine[:64] + others[64:], others[:64] + mine[64:]):
        with pytest.raises(SealError):
            SealingKey(half).open(sealed, "grant", CONTEXT)


def test_a_seal_is_bound_to_receiver_purpose_and_context() -> None:
    """Moved to another party, use or study, it does not open."""
    sealed = seal(b"the pads", KEY.public, "grant", CONTEXT)
    for key, purpose, context in [
        (OTHER, "grant", CONTEXT),
        (KEY, "secret", CONTEXT),
        (KEY, "grant", CONTEXT[:-1]),
        (KEY, "grant", b""),
        (KEY, "gran", b"t\x00" + CONTEXT),
    ]:
        with pytest.raises(SealError) as caught:
            key.open(sealed, purpose, context)
        assert caught.value.hint
        assert "the pads" not in str(caught.value)


def test_a_purpose_cannot_run_into_the_context() -> None:
    """A purpose with a zero byte in it would make two different bindings the same."""
    for purpose in ("grant\x00", "größe"):
        with pytest.raises(ParameterError):
            seal(b"", KEY.public, purpose, b"")


@pytest.mark.parametrize("public", SMALL_ORDER)
def test_keys_of_small_order_are_refused(public: str) -> None:
    """To such a key everybody could read; as an ephemeral key it would say nothing of a sender."""
    with pytest.raises(SealError):
        seal(b"the pads", KEY.public[:1184] + bytes.fromhex(public), "grant", CONTEXT)
    with pytest.raises(SealError):
        KEY.open(bytes(1088) + bytes.fromhex(public) + bytes(24), "grant", CONTEXT)


def test_numbers_that_are_no_lattice_key_are_refused() -> None:
    """FIPS 203, section 7.2: a coefficient of 3,329 or more is no ML-KEM key."""
    with pytest.raises(SealError):
        seal(b"the pads", b"\xff" * 1152 + KEY.public[1152:], "grant", CONTEXT)


def test_keys_of_wrong_length_are_refused() -> None:
    """A receiver's key comes from a message: a seal error; one's own key does not."""
    for public in (b"", KEY.public[:-1], KEY.public + b"\x00"):
        with pytest.raises(SealError):
            seal(b"the pads", public, "grant", CONTEXT)
    with pytest.raises(ParameterError):
        SealingKey(bytes(95))


def test_sealing_twice_gives_different_bytes() -> None:
    """Each seal has fresh randomness in every part: equal plaintexts do not show."""
    first = seal(b"the pads", KEY.public, "grant", CONTEXT)
    again = seal(b"the pads", KEY.public, "grant", CONTEXT)
    for part in (slice(0, 1088), slice(1088, 1120), slice(1120, None)):
        assert first[part] != again[part]


def test_the_secret_never_shows() -> None:
    """Printing a key gives its public part only."""
    shown = f"{KEY!r} {KEY!s} {KEY}"
    assert KEY.secret_bytes().hex() not in shown
    assert repr(KEY.secret_bytes()) not in shown
    assert KEY.public[-32:].hex() in shown
    assert not hasattr(KEY, "__dict__")


def test_new_keys_come_from_the_entropy() -> None:
    """The same entropy gives the same key; the operating system never does."""
    first = SealingKey.create(CipherEntropy.from_seed(1, "sealing"))
    assert first.public == SealingKey.create(CipherEntropy.from_seed(1, "sealing")).public
    system = SystemEntropy()
    assert SealingKey.create(system).public != SealingKey.create(system).public


def _open_by_the_book(sealed: bytes, secret: bytes, info: bytes) -> bytes:
    """Decapsulate both halves and combine them; then RFC 9180, sections 5.1 and 5.2."""
    enc, ciphertext = sealed[:1120], sealed[1120:]
    lattice = MLKEM768PrivateKey.from_seed_bytes(secret[:64])
    curve = X25519PrivateKey.from_private_bytes(secret[64:])
    shared = lattice.decapsulate(enc[:1088])
    shared += curve.exchange(X25519PublicKey.from_public_bytes(enc[1088:]))
    shared += enc[1088:] + curve.public_key().public_bytes_raw() + b"\\.//^\\"
    secret = hashlib.sha3_256(shared).digest()
    suite = b"HPKE\x64\x7a\x00\x01\x00\x02"
    id_hash = _extract(suite, b"", b"psk_id_hash", b"")
    schedule = b"\x00" + id_hash + _extract(suite, b"", b"info_hash", info)
    secret = _extract(suite, secret, b"secret", b"")
    key = _expand(suite, secret, b"key", schedule, 32)
    nonce = _expand(suite, secret, b"base_nonce", schedule, 12)
    return AESGCM(key).decrypt(nonce, ciphertext, b"")


def _extract(suite: bytes, salt: bytes, label: bytes, material: bytes) -> bytes:
    """Return LabeledExtract of RFC 9180, section 4."""
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + material, "sha256")


def _expand(suite: bytes, key: bytes, label: bytes, info: bytes, count: int) -> bytes:
    """Return LabeledExpand of RFC 9180, section 4, for up to one block of output."""
    labeled = count.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.digest(key, labeled + b"\x01", "sha256")[:count]
