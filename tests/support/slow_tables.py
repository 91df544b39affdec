"""A table of which a test lets one part after another be read."""

import weakref
from collections.abc import Iterator, Mapping, Sequence
from threading import Semaphore
from typing import Any

import polars as pl

from veiltab.data.table_format import TableFormat
from veiltab.data.tables import Table, open_table
from veiltab.errors import TableError

ROWS = 10
"""How many rows are read before somebody has to let it go on."""

LONGEST = 120.0
"""Seconds after which a test has surely forgotten to."""


class SlowTable:
    """A table that stands still after every ten rows, until it may go on."""

    def __init__(self, table: Table) -> None:
        """Take the table that is read so slowly."""
        self.table, self._allowed = table, Semaphore(0)
        self.broken = False
        self.most_held = 0
        """How many parts were in memory at a time: the one that was read last, and the next."""

    def go_on(self, parts: int = 1000) -> None:
        """Let so many more parts be read: all of them, unless a test says otherwise."""
        self._allowed.release(parts)

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """The columns of the table."""
        return self.table.columns

    @property
    def format(self) -> TableFormat:
        """How the table is read."""
        return self.table.format

    def row_count(self) -> None:
        """Not know it, as with files of text."""

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """Yield ten rows at a time, and wait after each."""
        parts: list[weakref.ref[pl.DataFrame]] = []
        for batch in self.table.batches(columns, min(rows, ROWS)):
            parts.append(weakref.ref(batch))
            self.most_held = max(self.most_held, sum(part() is not None for part in parts))
            yield batch
            assert self._allowed.acquire(timeout=LONGEST)
            if self.broken:
                raise TableError("the disk was unplugged", hint="plug it in again")


class SlowTables:
    """Takes the place of ``open_table``, and keeps every table that is opened."""

    def __init__(self) -> None:
        """Begin with none."""
        self.opened: list[SlowTable] = []

    def __call__(self, location: str, query: str | None = None, **written: Any) -> SlowTable:
        """Open a table."""
        self.opened.append(SlowTable(open_table(location, query, **written)))
        return self.opened[-1]
