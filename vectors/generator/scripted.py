"""Entropy whose bytes are chosen one by one."""

import numpy as np
from numpy.typing import NDArray


class Scripted:
    """Hands out the given bytes in order; implements :class:`veiltab.core.entropy.Entropy`."""

    def __init__(self, script: bytes) -> None:
        """Remember the bytes to hand out."""
        self._script = script

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite ``out`` with the next bytes; too few of them are an error."""
        out[:] = np.frombuffer(self._script[: out.size], np.uint8)
        self._script = self._script[out.size :]
