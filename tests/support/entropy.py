"""Entropy that a test writes down byte by byte, and entropy whose bytes are counted."""

import numpy as np
from numpy.typing import NDArray

from veiltab.core.entropy import Entropy


class ScriptedEntropy:
    """Hands out the given bytes in order and fails when they run out."""

    def __init__(self, script: bytes) -> None:
        """Remember the bytes to hand out."""
        self._script = script
        self.used = 0

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite ``out`` with the next bytes of the script."""
        assert self.used + out.size <= len(self._script), "the script is too short"
        out[:] = np.frombuffer(self._script, np.uint8, out.size, self.used)
        self.used += out.size


class CountingEntropy:
    """Another source of randomness, and how many bytes were drawn from it."""

    def __init__(self, source: Entropy) -> None:
        """Start counting."""
        self._source = source
        self.used = 0

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite ``out`` with the next bytes of the source."""
        self._source.fill(out)
        self.used += out.size
