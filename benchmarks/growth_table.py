"""A table of any length, made batch by batch."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from veiltab.core.schema import Codes, count_cells, mix
from veiltab.crypto.linkage import IdMessages

SIZES = ((2, 3), (2, 2))
"""How many categories the attributes of each curator have: 24 cells together."""

ID_CHARACTERS, ID_DIGITS = 16, 4
BATCH_ROWS = 16**ID_DIGITS
"""How many rows are made at a time; the last digits of their ids number them."""


class Batches:
    """A table that is never in memory as a whole: it repeats its codes, and its ids count on."""

    def __init__(self, rows: int) -> None:
        """Prepare so many rows; the codes are not uniform, so that a wrong pad would show."""
        self._rows = rows
        generator = np.random.default_rng(1)
        self._codes: list[list[Codes]] = [
            [generator.integers(0, k, (2, BATCH_ROWS)).min(axis=0).astype(np.uint8) for k in sizes]
            for sizes in SIZES
        ]
        last = "".join(f"{number:0{ID_DIGITS}x}" for number in range(BATCH_ROWS)).encode()
        self._ids = np.empty((BATCH_ROWS, ID_CHARACTERS), dtype=np.uint8)
        self._ids[:, -ID_DIGITS:] = np.frombuffer(last, dtype=np.uint8).reshape(-1, ID_DIGITS)
        self._offsets = np.arange(0, ID_CHARACTERS * (BATCH_ROWS + 1), ID_CHARACTERS)

    def of(self, curator: int) -> Iterator[tuple[IdMessages, Sequence[Codes]]]:
        """Yield the ids and codes of a curator's rows; each batch overwrites the ids before."""
        for batch, start in enumerate(range(0, self._rows, BATCH_ROWS)):
            count = min(BATCH_ROWS, self._rows - start)
            first = f"{batch:0{ID_CHARACTERS - ID_DIGITS}x}".encode()
            self._ids[:, :-ID_DIGITS] = np.frombuffer(first, dtype=np.uint8)
            ids = IdMessages(self._ids[:count].reshape(-1), self._offsets[: count + 1])
            yield ids, [column[:count] for column in self._codes[curator]]

    def cell_counts(self) -> NDArray[np.int64]:
        """Return how many respondents are in each joint cell."""
        sizes = [k for sizes in SIZES for k in sizes]
        cells = mix(sizes, [column for codes in self._codes for column in codes])
        whole, rest = divmod(self._rows, BATCH_ROWS)
        counts = [count_cells(part, math.prod(sizes)) for part in (cells, cells[:rest])]
        return np.asarray(whole * counts[0] + counts[1])
