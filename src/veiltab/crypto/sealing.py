"""Sealing (spec, section 3): bytes that one party alone can read, for one purpose alone.

Single-shot HPKE (RFC 9180, base mode) with HKDF-SHA256, AES-256-GCM and the hybrid of ML-KEM-768
and X25519: a server keeps seals for years, and they stay closed as long as one of the two holds,
even if a quantum computer breaks the other.  The purpose and the context (study, sender, receiver)
enter the key, so that a sealed part that is moved elsewhere does not open.  A seal says nothing of
its sender: the message around it is signed.
"""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)

from veiltab.core.entropy import Entropy, random_bytes
from veiltab.core.hashing import SEALING_PUBLIC_BYTES
from veiltab.crypto.derivation import exact_bytes
from veiltab.errors import ParameterError, SealError

SECRET_BYTES = 96
"""A private key: the seed of ML-KEM-768 (FIPS 203, d ‖ z) ‖ the scalar of X25519 (RFC 7748)."""

OVERHEAD = 1120 + 16
"""A seal is longer than its plaintext by the encapsulated key and the tag."""

_SEED_BYTES = 64
_LATTICE_BYTES = 1184
_SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


class SealingKey:
    """A party's private key of ML-KEM-768 and X25519; it never shows itself."""

    __slots__ = ("_key", "_public", "_secret")

    def __init__(self, secret: bytes) -> None:
        """Take the key from its seed and its scalar, 96 raw bytes."""
        self._secret = exact_bytes(secret, SECRET_BYTES, "a sealing key")
        lattice = MLKEM768PrivateKey.from_seed_bytes(self._secret[:_SEED_BYTES])
        curve = X25519PrivateKey.from_private_bytes(self._secret[_SEED_BYTES:])
        self._key = MLKEM768X25519PrivateKey(lattice, curve)
        publics = lattice.public_key(), curve.public_key()
        self._public = b"".join(public.public_bytes_raw() for public in publics)

    @classmethod
    def create(cls, entropy: Entropy) -> "SealingKey":
        """Draw a new key."""
        return cls(random_bytes(SECRET_BYTES, entropy))

    @property
    def public(self) -> bytes:
        """The public key, 1,216 bytes: what others seal to."""
        return self._public

    def open(self, sealed: bytes, purpose: str, context: bytes) -> bytes:
        """Return what was sealed to this key for this purpose and context, or raise SealError."""
        try:
            return _SUITE.decrypt(sealed, self._key, info=_info(purpose, context))
        except (InvalidTag, ValueError) as error:
            raise SealError(
                f"the sealed {purpose} does not open with this key",
                hint="it is for another party or another study, or was changed on its way; ask"
                " the sender for it again",
            ) from error

    def secret_bytes(self) -> bytes:
        """Return seed and scalar, for the key file alone (spec, section 2.1)."""
        return self._secret

    def __repr__(self) -> str:
        """Name the key by the end of its public part, which is long."""
        return f"SealingKey(public=…{self._public[_LATTICE_BYTES:].hex()})"


def seal(plaintext: bytes, to_public: bytes, purpose: str, context: bytes) -> bytes:
    """Seal ``plaintext`` to a public key: the encapsulated key ‖ the ciphertext.

    Its randomness comes from the operating system inside the library; RFC 9180 leaves no way
    to choose it, and nothing that is stored depends on it.  A curve point of small order, for which
    everybody knows the shared secret, and numbers that are no ML-KEM key are refused.
    """
    info = _info(purpose, context)
    try:
        return _SUITE.encrypt(plaintext, _public_key(to_public), info=info)
    except ValueError as error:
        raise SealError(
            f"the {purpose} cannot be sealed: the receiver's key is no usable sealing key",
            hint="ask the receiver for the identity again, and compare fingerprints",
        ) from error


def _public_key(public: bytes) -> MLKEM768X25519PublicKey:
    if len(public) != SEALING_PUBLIC_BYTES:
        raise ValueError("a sealing key has another length")
    lattice = MLKEM768PublicKey.from_public_bytes(public[:_LATTICE_BYTES])
    curve = X25519PublicKey.from_public_bytes(public[_LATTICE_BYTES:])
    return MLKEM768X25519PublicKey(lattice, curve)


def _info(purpose: str, context: bytes) -> bytes:
    """Bind a seal to its use; a purpose without 0x00 keeps purpose and context apart."""
    if not purpose.isascii() or not purpose.isprintable():
        raise ParameterError(
            f"{purpose!r} is not a purpose of a seal", hint="use one of the specification's"
        )
    return b"veiltab/v1/seal/" + purpose.encode() + b"\x00" + context
