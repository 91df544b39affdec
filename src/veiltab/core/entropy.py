"""The interface of randomness, which is always an argument and never a global.

Production passes a source from :mod:`veiltab.crypto.entropy`; tests pass one that they control.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_WORD_TYPES = {8: "u1", 16: "<u2", 32: "<u4", 64: "<u8"}


class Entropy(Protocol):
    """A source of independent, uniformly random bytes."""

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite ``out`` with the next ``out.size`` bytes of the source."""


def random_words(count: int, bits: int, entropy: Entropy) -> NDArray[np.unsignedinteger]:
    """Draw ``count`` uniform unsigned integers of ``bits`` bits (8, 16, 32 or 64).

    Words are read little-endian, so that the same bytes mean the same draws on every machine.
    """
    raw = np.empty(count * bits // 8, dtype=np.uint8)
    entropy.fill(raw)
    return raw.view(_WORD_TYPES[bits])


def random_bytes(count: int, entropy: Entropy) -> bytes:
    """Draw ``count`` uniform bytes: keys, nonces, salts and ids."""
    raw = np.empty(count, dtype=np.uint8)
    entropy.fill(raw)
    return raw.tobytes()
