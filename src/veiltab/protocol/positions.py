"""Whether the drawn rows of a table are different ones (spec 10, 12.2).

A server that copies one person's row many times would take most of the noise off it.
"""

import numpy as np
from numpy.typing import NDArray

from veiltab.errors import MismatchError
from veiltab.wire.messages import MAX_MATCHED_ROWS


class DrawnPositions:
    """The positions that were seen so far, as one bit for each row of the table."""

    def __init__(self, rows: int = MAX_MATCHED_ROWS) -> None:
        """Expect positions below ``rows``; the bits grow with the largest position."""
        self._rows = rows
        self._seen = np.zeros(0, dtype=np.uint8)
        self._count = 0

    def add(self, positions: NDArray[np.int64]) -> None:
        """Take more positions; refuse rows that the table cannot have."""
        if not positions.size:
            return
        largest = int(positions.max())
        if largest >= self._rows:
            raise _not_different()
        self._reach(largest)
        bits = np.left_shift(1, positions & 7).astype(np.uint8)
        np.bitwise_or.at(self._seen, positions >> 3, bits)
        self._count += positions.size

    def check(self) -> None:
        """Refuse positions of which any came twice."""
        if int(np.bitwise_count(self._seen).sum(dtype=np.int64)) < self._count:
            raise _not_different()

    def _reach(self, position: int) -> None:
        needed = (position >> 3) + 1
        if needed > self._seen.size:
            size = min(max(needed, 2 * self._seen.size), -(-self._rows // 8))
            seen = np.zeros(size, dtype=np.uint8)
            seen[: self._seen.size] = self._seen
            self._seen = seen


def _not_different() -> MismatchError:
    return MismatchError(
        "the drawn rows are not different rows of the table",
        hint="the server must draw each respondent at most once; do not use what it sent, and"
        " tell the other parties",
    )
