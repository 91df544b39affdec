"""Seals: HPKE as RFC 9180 writes it, bound to receiver, purpose and context."""

import hmac

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from veiltab.crypto.entropy import CipherEntropy, SystemEntropy
from veiltab.crypto.sealing import SealingKey, seal
from veiltab.errors import ParameterError, SealError

KEY = SealingKey(bytes(range(32)))
OTHER = SealingKey(bytes(range(1, 33)))
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
    assert len(sealed) == len(plaintext) + 32 + 16  # the ephemeral public key and the tag
    assert KEY.open(sealed, "grant", context) == plaintext


def test_a_seal_is_hpke_with_the_info_of_the_specification() -> None:
    """A decryption written down from RFC 9180 and section 3, step by step, reads it."""
    sealed = seal(b"the pads", KEY.public, "grant", CONTEXT)
    info = b"veiltab/v1/seal/grant\x00" + CONTEXT
    assert _open_by_the_book(sealed, KEY.secret_bytes(), info) == b"the pads"


def test_public_keys_are_those_of_rfc_7748() -> None:
    """The first key pair of its section 6.1: scalars and public keys are raw bytes."""
    scalar = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"
    public = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    key = SealingKey(bytes.fromhex(scalar))
    assert key.public.hex() == public
    assert key.secret_bytes().hex() == scalar


def test_every_changed_byte_is_refused() -> None:
    """Ephemeral key, ciphertext or tag: no byte can be changed, cut or added."""
    sealed = seal(b"the pads", KEY.public, "grant", CONTEXT)
    for place in range(len(sealed)):
        for bit in range(8):
            changed = bytearray(sealed)
            changed[place] ^= 1 << bit
            with pytest.raises(SealError):
                KEY.open(bytes(changed), "grant", CONTEXT)
        with pytest.raises(SealError):
            KEY.open(sealed[:place], "grant", CONTEXT)
    with pytest.raises(SealError):
        KEY.open(sealed + b"\x00", "grant", CONTEXT)


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
        seal(b"the pads", bytes.fromhex(public), "grant", CONTEXT)
    with pytest.raises(SealError):
        KEY.open(bytes.fromhex(public) + bytes(24), "grant", CONTEXT)


def test_keys_of_wrong_length_are_refused() -> None:
    """A receiver's key comes from a message: a seal error; one's own key does not."""
    for public in (b"", KEY.public[:-1], KEY.public + b"\x00"):
        with pytest.raises(SealError):
            seal(b"the pads", public, "grant", CONTEXT)
    with pytest.raises(ParameterError):
        SealingKey(bytes(31))


def test_sealing_twice_gives_different_bytes() -> None:
    """Each seal has a fresh ephemeral key: equal plaintexts do not show."""
    first = seal(b"the pads", KEY.public, "grant", CONTEXT)
    again = seal(b"the pads", KEY.public, "grant", CONTEXT)
    assert first[:32] != again[:32]
    assert first[32:] != again[32:]


def test_the_secret_never_shows() -> None:
    """Printing a key gives its public part only."""
    shown = f"{KEY!r} {KEY!s} {KEY}"
    assert KEY.secret_bytes().hex() not in shown
    assert repr(KEY.secret_bytes()) not in shown
    assert KEY.public.hex() in shown
    assert not hasattr(KEY, "__dict__")


def test_new_keys_come_from_the_entropy() -> None:
    """The same entropy gives the same key; the operating system never does."""
    first = SealingKey.create(CipherEntropy.from_seed(1, "sealing"))
    assert first.public == SealingKey.create(CipherEntropy.from_seed(1, "sealing")).public
    system = SystemEntropy()
    assert SealingKey.create(system).public != SealingKey.create(system).public


def _open_by_the_book(sealed: bytes, scalar: bytes, info: bytes) -> bytes:
    """Decrypt as RFC 9180 says: sections 4.1 (Decap), 5.1 (KeySchedule) and 5.2 (Open)."""
    enc, ciphertext = sealed[:32], sealed[32:]
    private = X25519PrivateKey.from_private_bytes(scalar)
    shared = private.exchange(X25519PublicKey.from_public_bytes(enc))
    kem, suite = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x02"
    extracted = _extract(kem, b"", b"eae_prk", shared)
    kem_context = enc + private.public_key().public_bytes_raw()
    secret = _expand(kem, extracted, b"shared_secret", kem_context, 32)
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
