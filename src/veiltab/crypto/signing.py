"""Ed25519 signatures (spec, section 1.2): who said what.

A key that took the place of another one carries the proof of it, which goes into every signature.
What is signed is built by the messages themselves; here are only keys and bytes.  This module knows
nothing of sealing, so that the server can sign and verify without being able to decrypt.
"""

from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from veiltab.core.entropy import Entropy, random_bytes
from veiltab.crypto.derivation import exact_bytes
from veiltab.errors import SignatureError

SEED_BYTES = 32
PUBLIC_BYTES = 32
SIGNATURE_BYTES = 64


class SigningKey:
    """A party's private Ed25519 key; it never shows itself.

    ``proof`` are the rotations that lead from the party's first key to this one (section 2.2), none
    for the first key.  This module knows nothing of their form.
    """

    __slots__ = ("_key", "_public", "proof")

    def __init__(self, seed: bytes, proof: tuple[Any, ...] = ()) -> None:
        """Take the key from its RFC 8032 seed, 32 raw bytes."""
        self.proof = proof
        self._key = Ed25519PrivateKey.from_private_bytes(
            exact_bytes(seed, SEED_BYTES, "a signing key")
        )
        self._public = self._key.public_key().public_bytes_raw()

    @classmethod
    def create(cls, entropy: Entropy) -> "SigningKey":
        """Draw a new key."""
        return cls(random_bytes(SEED_BYTES, entropy))

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes: it stands beside every signature."""
        return self._public

    def sign(self, message: bytes) -> bytes:
        """Return the signature of ``message``, 64 bytes; the same message gives the same one."""
        return self._key.sign(message)

    def secret_bytes(self) -> bytes:
        """Return the seed, for the key file alone (spec, section 2.1)."""
        return self._key.private_bytes_raw()

    def __repr__(self) -> str:
        """Name the key by its public part."""
        return f"SigningKey(public={self._public.hex()})"


def verify(public: bytes, message: bytes, signature: bytes) -> None:
    """Raise SignatureError unless ``signature`` is the key's signature of ``message``.

    A key or signature of a wrong length is no signature either: these come from other parties.
    """
    if len(public) == PUBLIC_BYTES and len(signature) == SIGNATURE_BYTES:
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
        except (InvalidSignature, ValueError):
            pass
        else:
            return
    raise SignatureError(
        f"the signature does not fit the message and the key {public[:PUBLIC_BYTES].hex()}",
        hint="ask the sender for the message again; if it fails again, compare fingerprints",
    )
