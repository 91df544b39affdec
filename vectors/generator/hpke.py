"""Sealing with a given ephemeral key, so that the vectors are the same in every run.

RFC 9180 in base mode, written out with HMAC; real seals are made by ``cryptography``, which draws
the ephemeral key itself.  Only vectors may use this: two seals under one ephemeral key are unsafe.
"""

import hmac

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from vectors.generator.files import filler

_KEM = b"KEM\x00\x20"
_SUITE = b"HPKE\x00\x20\x00\x01\x00\x02"


def ephemeral_key(label: str) -> bytes:
    """Return the ephemeral private key that belongs to a label; each is used once."""
    return filler(f"ephemeral key, {label}")


def seal(
    plaintext: bytes, to_public: bytes, purpose: str, context: bytes, *, ephemeral: bytes
) -> bytes:
    """Seal as section 3 says, under this ephemeral key."""
    info = b"veiltab/v1/seal/" + purpose.encode() + b"\x00" + context
    private = X25519PrivateKey.from_private_bytes(ephemeral)
    public = private.public_key().public_bytes_raw()
    exchanged = private.exchange(X25519PublicKey.from_public_bytes(to_public))
    prk = _extract(_KEM, b"", b"eae_prk", exchanged)
    shared = _expand(_KEM, prk, b"shared_secret", public + to_public, 32)
    schedule = b"\x00" + _extract(_SUITE, b"", b"psk_id_hash", b"")
    schedule += _extract(_SUITE, b"", b"info_hash", info)
    secret = _extract(_SUITE, shared, b"secret", b"")
    key = _expand(_SUITE, secret, b"key", schedule, 32)
    nonce = _expand(_SUITE, secret, b"base_nonce", schedule, 12)
    return public + AESGCM(key).encrypt(nonce, plaintext, b"")


def _extract(suite: bytes, salt: bytes, label: bytes, material: bytes) -> bytes:
    """RFC 9180's LabeledExtract."""
    return hmac.digest(salt, b"HPKE-v1" + suite + label + material, "sha256")


def _expand(suite: bytes, key: bytes, label: bytes, info: bytes, size: int) -> bytes:
    """RFC 9180's LabeledExpand, for at most one block of SHA-256."""
    labelled = size.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.digest(key, labelled + b"\x01", "sha256")[:size]
