"""Parquet files and data frames: tables whose columns have types already."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from veiltab.data.batches import check_names, cut, wanted_columns
from veiltab.data.table_format import TableFormat
from veiltab.errors import TableError
from veiltab.protocol.parallel import ordered_map

READ_ROWS = 1 << 18
"""Rows that are decoded at a time; the next ones are decoded while these are worked on."""

_READERS = 2
_NUMPY_KINDS = "biuf"
"""Columns of pandas that NumPy holds as booleans or numbers are taken as they are."""


class ParquetTable:
    """A Parquet file, with the types that it was written with."""

    format = TableFormat("Parquet")

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
                    f"{str(self._path)!r} changed while it was read",
                    hint="read it again when it is complete",
                )
            yield from cut(frame, rows)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
            raise TableError(
                f"{str(self._path)!r} is not a complete Parquet file, or you may not read it",
                hint="write or copy it again; check its size and rights",
            ) from None


class ParquetFolder:
    """A folder of Parquet files with the same columns, one after the other by name."""

    def __init__(self, folder: Path) -> None:
        """Read what the end of each file says about it."""
        self._parts = {path.name: ParquetTable(path) for path in _parts(folder)}
        names = iter(self._parts.items())
        first, part = next(names)
        self._columns = part.columns
        for name, other in names:
            _check_alike(first, self._columns, name, other.columns)
        self.format = TableFormat("Parquet", parts=len(self._parts))

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """The columns' names and types, in the order of the first part."""
        return self._columns

    def row_count(self) -> int:
        """Return how many rows there are."""
        return sum(part.row_count() for part in self._parts.values())

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """Yield these columns."""
        for part in self._parts.values():
            yield from part.batches(columns, rows)


def _parts(folder: Path) -> list[Path]:
    """Return the parts by name, and refuse what else could be a part that is not read."""
    try:
        inside = sorted(path for path in folder.iterdir() if path.name[0] not in "._")
    except OSError as error:
        raise TableError(
            f"{str(folder)!r} cannot be read: {error.strerror}", hint="check your rights"
        ) from error
    parts = [path for path in inside if path.suffix.lower() == ".parquet" and path.is_file()]
    if not parts:
        raise TableError(
            f"the folder {str(folder)!r} has no Parquet files",
            hint="name a file, or another folder",
        )
    if len(parts) < len(inside):
        other = next(path for path in inside if path not in parts)
        kind = "folder" if other.is_dir() else "file"
        raise TableError(
            f"the folder {str(folder)!r} has a {kind} {other.name!r} beside its Parquet files",
            hint="a table's folder has nothing but its parts; move the rest elsewhere",
        )
    return parts


def _check_alike(
    first: str, there: Mapping[str, pl.DataType], other: str, here: Mapping[str, pl.DataType]
) -> None:
    for name in (*there, *here):
        kinds = [
            str(columns[name]) if name in columns else "no column" for columns in (there, here)
        ]
        if kinds[0] != kinds[1]:
            raise TableError(
                f"the parts differ in {name!r}: {kinds[0]} in {first!r}, {kinds[1]} in {other!r}",
                hint="write all parts with the same columns and types",
            )


class FrameTable:
    """A data frame in memory."""

    format = TableFormat("data frame")

    def __init__(self, frame: pl.DataFrame) -> None:
        """Take a polars frame; see :func:`as_frame` for others."""
        self._frame = frame
        check_names(frame.columns)

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """The columns' names and types."""
        return self._frame.schema

    def row_count(self) -> int:
        """Return how many rows there are."""
        return self._frame.height

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """Yield these columns."""
        wanted = wanted_columns(columns, self._frame.columns, rows)
        for name in wanted:
            if self._frame.schema[name] == pl.Object:  # such as intervals that pandas.cut makes
                raise TableError(
                    f"the column {name!r} holds Python objects, which have no categories",
                    hint=f"make them texts first, for instance with frame[{name!r}].astype(str)",
                )
        yield from cut(self._frame.select(wanted), rows)


def as_frame(source: object) -> pl.DataFrame | None:
    """Return a polars frame, a lazy one, or a pandas frame as a polars frame; else ``None``."""
    if isinstance(source, pl.DataFrame):
        return source
    if isinstance(source, pl.LazyFrame):
        try:
            return source.collect()
        except pl.exceptions.PolarsError as error:
            raise TableError(
                f"the lazy frame cannot be collected: {error}", hint="collect it yourself first"
            ) from error
    # pandas need not be installed: a frame is known by where its class comes from.
    if any(cls.__module__.partition(".")[0] == "pandas" for cls in type(source).__mro__):
        return _from_pandas(source)
    return None


def _from_pandas(frame: Any) -> pl.DataFrame:  # noqa: ANN401 - pandas is no dependency
    """Convert without pyarrow, which neither library needs: missing values become null."""
    if getattr(frame, "ndim", None) != 2:  # noqa: PLR2004 - rows and columns
        raise TableError("a pandas series is no table", hint="use series.to_frame()")
    names = [str(name) for name in frame.columns]
    check_names(names)
    return pl.DataFrame([_from_column(name, frame.iloc[:, i]) for i, name in enumerate(names)])


def _from_column(name: str, column: Any) -> pl.Series:  # noqa: ANN401 - as above
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in _NUMPY_KINDS:
        return pl.Series(name, column.to_numpy(), nan_to_null=True)
    values = column.astype(object).where(column.notna(), None).tolist()
    # An ordered categorical column of texts, or of intervals as cut() makes them, is an enum.
    if getattr(column.dtype, "ordered", False) and len(column.dtype.categories):
        categories = column.dtype.categories
        are_intervals = str(categories.dtype).startswith("interval")
        if are_intervals or all(isinstance(category, str) for category in categories):
            texts = [None if value is None else str(value) for value in values]
            return pl.Series(name, texts, dtype=pl.Enum(map(str, categories)))
    try:
        return pl.Series(name, values, strict=True)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        raise TableError(
            f"the column {name!r} mixes values of several types",
            hint=f"give it one type, for instance with frame[{name!r}].astype(str)",
        ) from None
