"""Sorting more records than memory holds: split by the first bits of the key, sorted part by part.

The parts wait in a spool, which is scratch space in numbered partitions.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veiltab.crypto.linkage import TOKEN_BYTES, token_order, token_words
from veiltab.errors import ParameterError
from veiltab.wire.packing import SPAN_ROWS

KEY = "key"
PARTITIONS = 256
"""Parts of a table: with 100 million rows, each has 400,000 of them, about 10 MB."""

MAX_PARTITIONS = 1 << 16
KEY_RANGE = 1 << 64
"""One more than the first 64 bits of a key can be."""

BUFFER_ROWS = 1 << 18
"""Records held before they are split: enough that each part is given some 25 kB at a time."""

BLOCK = f"V{TOKEN_BYTES}"
"""How 16 bytes are kept in a record: as one value, which is copied faster than 16."""

Records: TypeAlias = NDArray[np.void]


class Spool(Protocol):
    """Partitions that are appended to, read back whole, and forgotten.

    A spool holds records of people: on a disk it must be private, and :meth:`clear` must leave
    nothing behind.
    """

    def append(self, partition: int, data: memoryview) -> None:
        """Add bytes to the end of a partition."""

    def read(self, partition: int) -> bytes:
        """Return a whole partition; one that nothing was added to is empty."""

    def clear(self) -> None:
        """Forget every partition, those of an earlier, interrupted run too."""


class MemorySpool:
    """Partitions in memory: for tests, simulations and small tables."""

    def __init__(self) -> None:
        """Start empty."""
        self._partitions: dict[int, list[bytes]] = {}

    def append(self, partition: int, data: memoryview) -> None:
        """Add bytes to the end of a partition."""
        self._partitions.setdefault(partition, []).append(bytes(data))

    def read(self, partition: int) -> bytes:
        """Return a whole partition."""
        return b"".join(self._partitions.get(partition, []))

    def clear(self) -> None:
        """Forget every partition."""
        self._partitions.clear()


class Sorter:
    """Records of one layout, added in any order, and read back in the order of their keys.

    Records of equal keys come back in the order in which they were added.
    """

    def __init__(
        self, fields: Sequence[tuple[str, str]], spool: Spool, starts: Sequence[int]
    ) -> None:
        """Name the fields that follow the key of 16 bytes; whatever is in the spool is deleted.

        ``starts`` says with which keys the partitions begin, as :func:`range_starts` does.
        """
        if not 1 <= len(starts) <= MAX_PARTITIONS:
            raise ParameterError(
                f"a table cannot be sorted in {len(starts):,} partitions",
                hint=f"use 1 to {MAX_PARTITIONS:,}",
            )
        self._dtype: np.dtype[np.void] = np.dtype([(KEY, BLOCK), *fields])
        self._spool, self._partitions = spool, len(starts)
        self._firsts = np.array(starts, dtype=np.uint64)
        self._waiting = np.empty(0, dtype=self._dtype)
        self._held = 0
        spool.clear()

    def add(self, keys: NDArray[np.uint8], fields: Sequence[NDArray[Any]]) -> None:
        """Add records: a row of 16 bytes each, and one array for each field."""
        columns = [np.ascontiguousarray(keys).view(BLOCK).reshape(-1), *fields]
        start = 0
        while start < len(keys):
            if self._held == len(self._waiting):
                self.flush()
                self._waiting = np.empty(BUFFER_ROWS, dtype=self._dtype)
            stop = min(len(keys), start + BUFFER_ROWS - self._held)
            room = self._waiting[self._held : self._held + stop - start]
            for name, values in zip(self._dtype.names or (), columns, strict=True):
                room[name] = values[start:stop]
            self._held += stop - start
            start = stop

    def flush(self) -> None:
        """Split what is held among the partitions; needed once before reading."""
        records = self._waiting[: self._held]
        words, mask = token_words(block_bytes(records, KEY))
        stops = [*np.searchsorted(words, self._firsts[1:]).tolist(), records.size]
        words &= mask
        records = np.take(records, words.view(np.int64))
        start = 0
        for partition, stop in enumerate(stops):
            if stop > start:
                self._spool.append(partition, records[start:stop].view(np.uint8).data)
            start = stop
        self._waiting, self._held = np.empty(0, dtype=self._dtype), 0

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

    def spans(self, limit: int) -> Iterator[Records]:
        """Read the first ``limit`` records back in spans of which only the last may be short."""
        return cut(self.parts(), limit, SPAN_ROWS)


RANGE_STEP = 1 << 32
"""Ranges of keys begin at multiples of this."""


def range_starts(partitions: int, start: int = 0, stop: int = KEY_RANGE) -> list[int]:
    """Return where equal ranges of keys begin, from ``start`` up to ``stop``: 64-bit numbers.

    They are multiples of 2³², because the lowest bits of a word that is sorted number its record.
    """
    first, last = -(-start >> 32), -(-stop >> 32)
    steps = (number * (last - first) // partitions for number in range(partitions))
    return [(first + step) << 32 for step in steps]


def block_bytes(records: Records, name: str) -> NDArray[np.uint8]:
    """Return a field of 16 bytes as an array of shape (n, 16)."""
    return np.ascontiguousarray(records[name]).view(np.uint8).reshape(-1, TOKEN_BYTES)


def cut(parts: Iterable[Records], limit: int, rows: int) -> Iterator[Records]:
    """Yield the first ``limit`` records, ``rows`` at a time; what comes after is not read."""
    waiting: list[Records] = []
    held, left = 0, limit
    for part in parts:
        waiting.append(part)
        held += part.size
        if held < min(left, rows):
            continue
        rest = _joined(waiting)
        while left and rest.size >= min(left, rows):
            size = min(left, rows)
            yield rest[:size]
            rest, left = rest[size:], left - size
        if not left:
            return
        waiting, held = [rest], rest.size


def _joined(parts: Sequence[Records]) -> Records:
    """Join records as whole values: field by field would take ten times as long."""
    dtype = parts[0].dtype
    return np.concatenate([part.view(f"V{dtype.itemsize}") for part in parts]).view(dtype)
