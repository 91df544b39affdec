"""Parquet files, read by polars, a few rows at a time."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from veiltab.data.batches import check_names, cut, wanted_columns
from veiltab.errors import TableError
from veiltab.protocol.parallel import ordered_map

READ_ROWS = 1 << 18
"""Rows that are decoded at a time; the next ones are, while these are worked on."""


_READERS = 2


class ParquetTable:
    """A Parquet file, with the types that it was written with."""

    def __init__(self, path: Path) -> None:
        """Read what the file's end says about it."""
        self._path = path
        with self._errors():
            self._scan = pl.scan_parquet(path, glob=False, hive_partitioning=False)
            self._columns = dict(self._scan.collect_schema())
        check_names(list(self._columns))

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """The columns' names and types."""
        return self._columns

    def row_count(self) -> int:
        """Return how many rows there are."""
        with self._errors():
            count: int = self._scan.select(pl.len()).collect().item()
        return count

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """Yield these columns."""
        wanted = wanted_columns(columns, self._columns, rows)
        count = self.row_count()
        scan = self._scan.select(wanted)
        starts = range(0, count, READ_ROWS)

        def read(start: int) -> pl.DataFrame:
            with self._errors():
                return scan.slice(start, READ_ROWS).collect()

        for start, frame in zip(starts, ordered_map(read, starts, _READERS), strict=True):
            if frame.height != min(READ_ROWS, count - start):
                raise TableError(
                    f"{str(self._path)!r} changed while it was read", hint="read it when it is done"
                )
            yield from cut(frame, rows)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
            raise TableError(
                f"{str(self._path)!r} is no whole Parquet file, or may not be read",
                hint="write or copy it again; check its size and rights",
            ) from None
