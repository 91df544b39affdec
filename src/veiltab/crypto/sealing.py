"""Sealing (spec, section 3): bytes that one party alone can read, for one purpose alone.

Single-shot HPKE (RFC 9180, base mode) with X25519, HKDF-SHA256 and AES-256-GCM.  The purpose and
the context (study, sender, receiver) enter the key, so that a sealed part that is moved elsewhere
does not open.  A seal says nothing of its sender: the message around it is signed.
"""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from veiltab.core.entropy import Entropy, random_bytes
from veiltab.crypto.derivation import exact_bytes
from veiltab.errors import ParameterError, SealError

KEY_BYTES = 32
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


class SealingKey:
    """A party's private X25519 key; it never shows itself."""

    __slots__ = ("_key", "_public")

    def __init__(self, scalar: bytes) -> None:
        """Take the key from its RFC 7748 scalar, 32 raw bytes."""
        self._key = X25519PrivateKey.from_private_bytes(
            exact_bytes(scalar, KEY_BYTES, "a sealing key")
        )
        self._public = self._key.public_key().public_bytes_raw()

    @classmethod
    def create(cls, entropy: Entropy) -> "SealingKey":
        """Draw a new key."""
        return cls(random_bytes(KEY_BYTES, entropy))

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes: what others seal to."""
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
        """Return the scalar, for the key file alone (spec, section 2.1)."""
        return self._key.private_bytes_raw()

    def __repr__(self) -> str:
        """Name the key by its public part."""
        return f"SealingKey(public={self._public.hex()})"


def seal(plaintext: bytes, to_public: bytes, purpose: str, context: bytes) -> bytes:
    """Seal ``plaintext`` to a public key: the ephemeral key ‖ the ciphertext.

    The ephemeral key comes from the operating system inside the library; RFC 9180 leaves no way
    to choose it, and nothing that is stored depends on it.  A public key of small order, for which
    everybody knows the shared secret, is refused.
    """
    info = _info(purpose, context)
    try:
        return _SUITE.encrypt(plaintext, X25519PublicKey.from_public_bytes(to_public), info=info)
    except ValueError as error:
        raise SealError(
            f"the {purpose} cannot be sealed: the receiver's key is no usable X25519 key",
            hint="ask the receiver for the identity again, and compare fingerprints",
        ) from error


def _info(purpose: str, context: bytes) -> bytes:
    """Bind a seal to its use; a purpose without 0x00 keeps purpose and context apart."""
    if not purpose.isascii() or not purpose.isprintable():
        raise ParameterError(
            f"{purpose!r} is not a purpose of a seal", hint="use one of the specification's"
        )
    return b"veiltab/v1/seal/" + purpose.encode() + b"\x00" + context
