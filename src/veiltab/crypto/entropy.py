"""Sources of randomness: the operating system, or AES-256 in counter mode keyed by it."""

import os
from collections.abc import Iterator
from itertools import count

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR, GCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

KEY_BYTES = 32
_URANDOM_BYTES = 1 << 16
_NONCE_BYTES = 12
_NONCE_KEYSTREAM_BYTES = 16 << 32
_TAG_BYTES = 2 * 16
_ZEROS = memoryview(bytes(1 << 19))  # long enough that a call costs nothing beside the cipher


class SystemEntropy:
    """The operating system's own random bytes, with no cipher of ours in between.

    One-time pads need it (spec, section 6): a keyed stream would make their secrecy against an
    unbounded server computational.  Long-lived keys and secrets are drawn from it too.  Implements
    :class:`veiltab.core.entropy.Entropy`.
    """

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite ``out`` with fresh bytes of the operating system."""
        view = out.data.cast("B")
        for start in range(0, len(view), _URANDOM_BYTES):
            block = view[start : start + _URANDOM_BYTES]
            block[:] = os.urandom(len(block))


class CipherEntropy:
    """The AES-256-CTR keystream of a secret key, as a source of random bytes.

    Implements :class:`veiltab.core.entropy.Entropy`.
    """

    def __init__(self, key: bytes) -> None:
        """Start the keystream of ``key`` (32 bytes) at its first byte."""
        self._pieces = keystream(key)
        self._cipher, self._left = next(self._pieces)

    @classmethod
    def from_system(cls) -> "CipherEntropy":
        """Key the cipher with fresh bytes of the operating system: the source for production."""
        return cls(os.urandom(KEY_BYTES))

    @classmethod
    def from_seed(cls, seed: int, label: str) -> "CipherEntropy":
        """Derive a repeatable source for simulations and tests; never for a real release."""
        width = max(1, (seed.bit_length() + 7) // 8)
        return cls.from_key(seed.to_bytes(width, "big"), label)

    @classmethod
    def from_key(cls, key: bytes, label: str) -> "CipherEntropy":
        """Derive a source for one purpose from a secret key that serves several."""
        derive = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=label.encode())
        return cls(derive.derive(key))

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite ``out`` with the next bytes of the keystream."""
        view = out.data.cast("B")
        while view:
            if not self._left:
                self._cipher, self._left = next(self._pieces)
            size = min(len(view), len(_ZEROS), self._left)
            self._cipher.update_into(_ZEROS[:size], view[:size])
            self._left -= size
            view = view[size:]


def keystream(key: bytes) -> Iterator[tuple[CipherContext, int]]:
    """Yield the AES-256-CTR keystream of ``key``, from counter 0 on, as ciphers and their bytes.

    A key gives one keystream here, so the counter may always start at zero.  Galois/counter mode
    makes the same keystream, and where the processor has wide vectors twice as fast; but it always
    begins at the third block of 2³², because it keeps two for its tag, which nobody asks for here.
    """
    for nonce in count():
        start = nonce.to_bytes(_NONCE_BYTES, "big")
        yield Cipher(AES256(key), CTR(start + bytes(4))).encryptor(), _TAG_BYTES
        yield Cipher(AES256(key), GCM(start)).encryptor(), _NONCE_KEYSTREAM_BYTES - _TAG_BYTES
