"""Tables that are too long for memory, written a part at a time."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
from polars.io.plugins import register_io_source

ATTRIBUTES = {"smoker": ["no", "yes"], "age": ["<40", "40 to <60", ">=60", "unknown"]}
CELLS = 8

_SCHEMA = {"id": pl.String, "smoker": pl.String, "age": pl.String}
_PART_ROWS = 500_000
_STEP = 0x9E3779B97F4A7C15
"""Its multiples modulo 2⁶⁴ look like numbers at random, and are all different."""


def write_long_table(path: Path, rows: int) -> Path:
    """Write a Parquet file of respondents with ids of 20 digits and two attributes."""

    def parts(
        columns: list[str] | None,
        _predicate: pl.Expr | None,
        _rows: int | None,
        _batch: int | None,
    ) -> Iterator[pl.DataFrame]:
        for start in range(0, rows, _PART_ROWS):
            frame = _part(start, min(start + _PART_ROWS, rows))
            yield frame if columns is None else frame.select(columns)

    lazy = register_io_source(parts, schema=_SCHEMA)
    lazy.sink_parquet(path, row_group_size=_PART_ROWS // 4)
    return path


def cell_counts(rows: int) -> list[int]:
    """Return how many respondents of such a table are in each cell, in the order of the schema."""
    counts = [rows // CELLS] * CELLS
    for number in range(rows % CELLS):
        counts[_cell(number)] += 1
    return counts


def _cell(number: int) -> int:
    return 4 * (number % 2) + number // 2 % 4


def _part(start: int, stop: int) -> pl.DataFrame:
    number = pl.col("number")
    smoker, age = (pl.Series(each) for each in ATTRIBUTES.values())
    frame = pl.DataFrame({"number": pl.int_range(start, stop, eager=True)})
    return frame.select(
        id=(number.cast(pl.UInt64) * _STEP).cast(pl.String).str.zfill(20),
        smoker=pl.lit(smoker).gather(number % 2),
        age=pl.lit(age).gather(number // 2 % 4),
    )
