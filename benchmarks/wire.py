"""Bytes on the wire against the least that any encoding of unpredictable records could take.

Ciphertext is uniform, so that nobody can do with less than Σ log₂ k bits.  Headers of requests are
left out: a request carries megabytes.
"""

import math
from collections.abc import Sequence

from benchmarks.timing import Figure
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


def wire_figures() -> list[Figure]:
    """Return rows for some tables, and for the number of categories that fits worst."""
    rows = [_row(name, sizes) for name, sizes in TABLES.items()]
    worst = max(range(2, LARGEST_SIZE + 1), key=lambda size: _row("", (size,)).value)
    return [*rows, _row(f"{worst} categories, the worst of all up to {LARGEST_SIZE:,}", (worst,))]


def _row(name: str, sizes: Sequence[int]) -> Figure:
    lengths = [packed_length(size, CHUNK_ROWS) for size in sizes]
    bundles = sum(ENTRY_BYTES + length for length in lengths) / BUNDLE_BYTES
    total = bundles * bundled_bytes([]) + sum(ENTRY_BYTES + length for length in lengths)
    used, least = total / CHUNK_ROWS, sum(map(math.log2, sizes)) / 8
    what = f"bytes of a record of {name}: {used:.3f}, at least {least:.3f}"
    return Figure(what, used / least, "× Σ log₂ k", f"at most {MOST:g}", used <= MOST * least)
