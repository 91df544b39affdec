"""Scratch space in numbered partitions: what a table that does not fit into memory is sorted by."""

from typing import Protocol


class Spool(Protocol):
    """Partitions that are appended to, read back whole, and forgotten.

    What is spooled are records of people: whoever keeps it on a disk must keep it private, and
    :meth:`clear` must leave nothing behind.
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
