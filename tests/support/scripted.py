"""Entropy that a test writes down byte by byte."""

import numpy as np
from numpy.typing import NDArray


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
