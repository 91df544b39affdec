"""Rows of a curator's table that do not fit: all of them, counted and written to a file.

The file is for the curator, who may see its own table: row numbers and values, of mode 600.  Memory
holds a batch of them at most.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from veiltab.files.disk import NewFile
from veiltab.files.spreadsheets import csv_bytes
from veiltab.protocol.sorting import Spool

Problem = Literal[
    "no category",
    "empty id",
    "control character in id",
    "no date in id",
    "time of day in id",
    "repeated id",
]
"""What is wrong with a row, as the file says it."""

_ROWS = 1 << 18
"""Rows of a table whose repeated ones wait in one partition of a spool."""

_REPEATED = np.dtype([("row", "<i8"), ("first", "<i8"), ("token", "V16")])


class Offenders:
    """Counts every row that does not fit and, if there is a file to be, writes it there.

    The file appears when :meth:`finish` is called, and only if something was found.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Refuse a name that is taken; nothing is written yet."""
        self.counts: dict[Problem, int] = {}
        self._file = None if path is None else NewFile(path)

    def add(
        self,
        problem: Problem,
        column: str,
        rows: pl.Series,
        values: pl.Series,
        first_rows: pl.Series | None = None,
    ) -> None:
        """Take rows with the same problem; ``first_rows`` is where their id came first."""
        if not len(rows):
            return
        header = not self.counts
        self.counts[problem] = self.counts.get(problem, 0) + len(rows)
        if self._file is None:
            return
        frame = pl.DataFrame({"row": rows, "value": values.cast(pl.String)}).select(
            "row",
            pl.lit(column).alias("column"),
            "value",
            pl.lit(problem).alias("problem"),
            (pl.lit(None) if first_rows is None else pl.lit(first_rows)).alias("first_row"),
        )
        self._file.write(csv_bytes(frame, header=header))

    def finish(self) -> Path | None:
        """Return the file that is there now, if anything was found and a file was asked for."""
        return None if self._file is None or not self.counts else self._file.finish()

    def discard(self) -> None:
        """Leave no file behind."""
        if self._file is not None:
            self._file.discard()


class Repeats:
    """The rows whose id another row has, kept on the disk until their ids are looked up.

    An intake finds them by token, in the order of tokens, and no longer knows the ids: those are in
    the table, which is read once more.
    """

    def __init__(self, spool: Spool) -> None:
        """Start with none; whatever is in the spool is deleted."""
        self.found = False
        self._spool = spool
        spool.clear()

    def add(self, rows: NDArray[np.int64], tokens: NDArray[np.uint8]) -> None:
        """Take rows, counted from 0, with their tokens; equal ones stand together, in order."""
        self.found = True
        new = np.ones(len(rows), dtype=np.bool_)
        new[1:] = (tokens[1:] != tokens[:-1]).any(axis=1)
        records = np.empty(len(rows), dtype=_REPEATED)
        records["row"] = rows + 1
        records["first"] = (rows + 1)[new][np.cumsum(new) - 1]
        records["token"] = np.ascontiguousarray(tokens).view("V16").reshape(-1)
        records = records[np.argsort(records["row"], kind="stable")]
        parts = records["row"] // _ROWS
        for start, stop in _runs(parts):
            self._spool.append(int(parts[start]), records[start:stop].view(np.uint8).data)

    def among(self, first: int, count: int) -> NDArray[np.void]:
        """Return the repeated rows among ``count`` rows from number ``first`` on, in order."""
        partitions = range(first // _ROWS, (first + count - 1) // _ROWS + 1)
        parts = [np.frombuffer(self._spool.read(number), dtype=_REPEATED) for number in partitions]
        records = np.concatenate(parts)
        records = records[(records["row"] >= first) & (records["row"] < first + count)]
        return records[np.argsort(records["row"])]

    def clear(self) -> None:
        """Leave nothing in the spool."""
        self._spool.clear()


def _runs(numbers: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield where runs of equal numbers begin and end."""
    borders = np.flatnonzero(np.diff(numbers)) + 1
    edges = [0, *borders.tolist(), len(numbers)]
    return pairwise(edges)
