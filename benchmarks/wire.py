"""Bytes on the wire against the least that any encoding of unpredictable records could take."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from veiltab.wire.bundles import BUNDLE_BYTES, ENTRY_BYTES, bundled_bytes
from veiltab.wire.packing import CHUNK_ROWS, packed_length

MOST = 1.04
LARGEST_SIZE = 1_024
TABLES = {
    "2 categories": (2,),
    "6 categories": (6,),
    "2, 3 and 4 categories": (2, 3, 4),
    "ten attributes of 2 to 16 categories": (2, 2, 3, 4, 5, 6, 7, 9, 12, 16),
}


@dataclass(frozen=True, slots=True)
class WireRatio:
    """What a record takes on the wire, headers of requests left out, and what it must take.

    Ciphertext is uniform, so that nobody can do with less than Σ log₂ k bits.
    """

    name: str
    bytes_per_record: float
    entropy_bytes: float

    goal = f"at most {MOST:g} times the entropy"

    @property
    def ratio(self) -> float:
        """How many times the entropy it is."""
        return self.bytes_per_record / self.entropy_bytes

    @property
    def met(self) -> bool:
        """Whether the goal was met."""
        return self.ratio <= MOST


def wire_ratios() -> list[WireRatio]:
    """Return rows for some tables, and for the number of categories that fits worst."""
    rows = [_row(name, sizes) for name, sizes in TABLES.items()]
    worst = max(range(2, LARGEST_SIZE + 1), key=lambda size: _row("", (size,)).ratio)
    return [*rows, _row(f"{worst} categories, the worst of all up to {LARGEST_SIZE:,}", (worst,))]


def _row(name: str, sizes: Sequence[int]) -> WireRatio:
    lengths = [packed_length(size, CHUNK_ROWS) for size in sizes]
    bundles = sum(ENTRY_BYTES + length for length in lengths) / BUNDLE_BYTES
    total = bundles * bundled_bytes([]) + sum(ENTRY_BYTES + length for length in lengths)
    return WireRatio(name, total / CHUNK_ROWS, sum(map(math.log2, sizes)) / 8)
