"""Sources of randomness: the operating system, or AES-256 in counter mode keyed by it."""

import os

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

KEY_BYTES = 32
_URANDOM_BYTES = 1 << 16
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
        # A key gives one keystream here, so the counter may always start at zero.
        self._encryptor = Cipher(AES256(key), CTR(bytes(16))).encryptor()

    @classmethod
    def from_system(cls) -> "CipherEntropy":
        """Key the cipher with fresh bytes of the operating system: the source for production."""
        return cls(os.urandom(KEY_BYTES))

    @classmethod
    def from_seed(cls, seed: int, label: str) -> "CipherEntropy":
        """Derive a repeatable source for simulations and tests; never for a real release."""
        derive = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=label.encode())
        width = max(1, (seed.bit_length() + 7) // 8)
        return cls(derive.derive(seed.to_bytes(width, "big")))

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite ``out`` with the next bytes of the keystream."""
        view = out.data.cast("B")
        for start in range(0, len(view), len(_ZEROS)):
            block = view[start : start + len(_ZEROS)]
            self._encryptor.update_into(_ZEROS[: len(block)], block)
