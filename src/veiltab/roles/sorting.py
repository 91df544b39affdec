"""Sorting more records than memory holds: split by their key's first bits, sorted part by part.

Keys are outputs of AES-CMAC, so the parts are of almost the same size whatever the table is.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veiltab.crypto.linkage import TOKEN_BYTES, token_order
from veiltab.errors import ParameterError
from veiltab.roles.spool import Spool
from veiltab.wire.packing import CHUNK_ROWS

Records: TypeAlias = NDArray[np.void]

KEY = "key"
PARTITIONS = 256
"""Parts of a table: of 100 million rows each has 400,000, about 10 MB."""

MAX_PARTITIONS = 1 << 16
BUFFER_ROWS = 1 << 18
"""Records that are held before they are split: enough that each part is given some 25 kB."""

BLOCK = f"V{TOKEN_BYTES}"
"""How 16 bytes stand in a record: as one value, which is copied faster than 16."""


class Sorter:
    """Records of one layout, added in any order, and read back in the order of their keys.

    Records of equal keys come back in the order in which they were added.
    """

    def __init__(
        self, fields: Sequence[tuple[str, str]], spool: Spool, partitions: int = PARTITIONS
    ) -> None:
        """Take the fields that follow the key of 16 bytes; whatever is in the spool is deleted."""
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise ParameterError(
                f"a table cannot be sorted in {partitions:,} partitions",
                hint=f"use 1 to {MAX_PARTITIONS:,}",
            )
        self._dtype: np.dtype[np.void] = np.dtype([(KEY, BLOCK), *fields])
        self._spool, self._partitions = spool, partitions
        self._waiting: list[Records] = []
        self._held = 0
        spool.clear()

    def add(self, keys: NDArray[np.uint8], fields: Sequence[NDArray[Any]]) -> None:
        """Add records: a row of 16 bytes each, and one array for each field."""
        records = np.empty(len(keys), dtype=self._dtype)
        blocks = np.ascontiguousarray(keys).view(BLOCK).reshape(-1)
        for name, values in zip(self._dtype.names or (), (blocks, *fields), strict=True):
            records[name] = values
        self._waiting.append(records)
        self._held += records.size
        if self._held >= BUFFER_ROWS:
            self.flush()

    def flush(self) -> None:
        """Split what is held among the partitions; needed once before reading."""
        if not self._held:
            return
        records = _joined(self._waiting)
        self._waiting, self._held = [], 0
        first = block_bytes(records, KEY).view(">u4")[:, 0].astype(np.uint64)
        parts = (first * np.uint64(self._partitions)) >> np.uint64(32)
        narrow = parts.astype(np.uint16)  # which is sorted by radix
        records = np.take(records, np.argsort(narrow, kind="stable"))
        stops = np.cumsum(np.bincount(narrow, minlength=self._partitions)).tolist()
        start = 0
        for partition, stop in enumerate(stops):
            if stop > start:
                self._spool.append(partition, records[start:stop].view(np.uint8).data)
            start = stop

    def parts(self) -> Iterator[Records]:
        """Read the partitions back, one at a time, each of them in order."""
        for partition in range(self._partitions):
            records = self.part(partition)
            if records.size:
                yield records

    def part(self, partition: int) -> Records:
        """Read one partition back in order; the same range of keys for every such sorter."""
        records = np.frombuffer(self._spool.read(partition), dtype=self._dtype)
        return np.take(records, token_order(block_bytes(records, KEY)))

    def chunks(self, limit: int) -> Iterator[Records]:
        """Read the first ``limit`` records back in chunks of which only the last may be short."""
        rest, left = np.empty(0, dtype=self._dtype), limit
        for part in self.parts():
            rest = _joined([rest, part])
            while left and rest.size >= min(left, CHUNK_ROWS):
                size = min(left, CHUNK_ROWS)
                yield rest[:size]
                rest, left = rest[size:], left - size
            if not left:
                return


def block_bytes(records: Records, name: str) -> NDArray[np.uint8]:
    """Return a field of 16 bytes as an array of shape (n, 16)."""
    return np.ascontiguousarray(records[name]).view(np.uint8).reshape(-1, TOKEN_BYTES)


def _joined(parts: Sequence[Records]) -> Records:
    """Join records as bytes: field by field would take ten times as long."""
    raw = np.concatenate([np.ascontiguousarray(part).view(np.uint8) for part in parts])
    return raw.view(parts[0].dtype)
