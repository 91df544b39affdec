"""Sealing with given randomness, so that the vectors are the same in every run.

RFC 9180 in base mode with the hybrid of ML-KEM-768 and X25519, written out with HMAC and SHA-3;
real seals are made by ``cryptography``, which draws the randomness itself.  Only vectors may use
this: two seals under the same randomness are unsafe.
"""

import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from vectors.generator import mlkem
from vectors.generator.files import filler

_SUITE = b"HPKE\x64\x7a\x00\x01\x00\x02"
_COMBINER = b"\\.//^\\"


def ephemeral_key(label: str) -> bytes:
    """Return the randomness that belongs to a label: ML-KEM's message ‖ the ephemeral scalar."""
    return filler(f"ephemeral key, {label}", 64)


def seal(
    plaintext: bytes, to_public: bytes, purpose: str, context: bytes, *, ephemeral: bytes
) -> bytes:
    """Seal as section 3 says, under this randomness."""
    info = b"veiltab/v1/seal/" + purpose.encode() + b"\x00" + context
    lattice, point = to_public[: mlkem.PUBLIC_BYTES], to_public[mlkem.PUBLIC_BYTES :]
    first, ciphertext = mlkem.encapsulate(lattice, ephemeral[: mlkem.MESSAGE_BYTES])
    private = X25519PrivateKey.from_private_bytes(ephemeral[mlkem.MESSAGE_BYTES :])
    public = private.public_key().public_bytes_raw()
    second = private.exchange(X25519PublicKey.from_public_bytes(point))
    shared = hashlib.sha3_256(first + second + public + point + _COMBINER).digest()
    schedule = b"\x00" + _extract(b"", b"psk_id_hash", b"")
    schedule += _extract(b"", b"info_hash", info)
    secret = _extract(shared, b"secret", b"")
    key = _expand(secret, b"key", schedule, 32)
    nonce = _expand(secret, b"base_nonce", schedule, 12)
    return ciphertext + public + AESGCM(key).encrypt(nonce, plaintext, b"")


def _extract(salt: bytes, label: bytes, material: bytes) -> bytes:
    """RFC 9180's LabeledExtract."""
    return hmac.digest(salt, b"HPKE-v1" + _SUITE + label + material, "sha256")


def _expand(key: bytes, label: bytes, info: bytes, size: int) -> bytes:
    """RFC 9180's LabeledExpand, for at most one block of SHA-256."""
    labelled = size.to_bytes(2, "big") + b"HPKE-v1" + _SUITE + label + info
    return hmac.digest(key, labelled + b"\x01", "sha256")[:size]
