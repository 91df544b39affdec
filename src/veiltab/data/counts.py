"""Tables of cell counts: read from a file, or the paper's Adult table, which is built in."""

from importlib.resources import as_file, files
from os import PathLike
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from veiltab.core.channel import MAX_ESTIMATED_CELLS
from veiltab.core.parameters import MAX_POPULATION_SIZE
from veiltab.core.schema import Attribute, CountTable, Schema
from veiltab.data.encoding import decode_cells, encode_column
from veiltab.data.text_stream import marked
from veiltab.errors import CountsError, ParameterError, SchemaError

COUNT_COLUMN = "count"
CARDINALITIES = (12, 24, 48, 96, 192, 384, 768)
"""The numbers of cells that the paper goes through."""

_FORMAT = (
    "the file is a CSV with a column for each attribute and a column 'count',"
    " and a row for every combination of categories, also the empty ones"
)


def read_counts(path: str | PathLike[str]) -> CountTable:
    """Read and check a complete joint table; categories come in order of first appearance."""
    path = Path(path)
    frame = _read_text(path)
    names = [name for name in frame.columns if name != COUNT_COLUMN]
    if len(names) == len(frame.columns) or not names:
        raise CountsError(
            f"{path} needs a column '{COUNT_COLUMN}' and a column for at least one attribute; it"
            f" has {', '.join(map(repr, frame.columns))}",
            hint=_FORMAT,
        )
    for name in names:
        _refuse(path, frame[name].is_null(), f"no value for {name!r}")
    counts = _parse_counts(path, frame[COUNT_COLUMN])
    try:
        schema = Schema(
            Attribute(name, frame[name].unique(maintain_order=True).to_list()) for name in names
        )
    except SchemaError as error:
        raise CountsError(f"{path}: {error.message}", hint=error.hint) from error
    return CountTable(schema, _arrange(path, frame, schema, counts))


def adult_table(cells: int = 24) -> CountTable:
    """Return the Adult counts over the first attributes, as many as make ``cells`` cells."""
    if cells not in CARDINALITIES:
        raise ParameterError(
            f"the Adult table has no version with {cells} cells",
            hint=f"choose one of {', '.join(map(str, CARDINALITIES))}",
        )
    with as_file(files("veiltab.data") / "adult_joint_768.csv") as path:
        whole = read_counts(path)
    names, product = [], 1
    for attribute in whole.schema.attributes:
        if product < cells:
            names.append(attribute.name)
            product *= attribute.size
    return whole.marginal(names)


def _read_text(path: Path) -> pl.DataFrame:
    """Read every column as text, so that nothing is guessed before it is checked."""
    data = _read_bytes(path)
    try:
        data.decode("utf-8")  # polars would change what is not UTF-8 in the header
        header = pl.read_csv(marked(data), n_rows=1, has_header=False, infer_schema=False)
        frame = pl.read_csv(marked(data), infer_schema=False, truncate_ragged_lines=False)
    except pl.exceptions.NoDataError as error:
        raise CountsError(f"{path} is empty", hint=_FORMAT) from error
    except UnicodeDecodeError as error:
        raise CountsError(
            f"{path} is not a CSV file in UTF-8: byte {error.start + 1:,} is not", hint=_FORMAT
        ) from error
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        raise CountsError(f"{path} is not a CSV file in UTF-8: {reason}", hint=_FORMAT) from error
    if frame.is_empty():
        raise CountsError(f"{path} has a header but no rows", hint=_FORMAT)
    names = header.row(0)
    if len(set(names)) < len(names):
        raise CountsError(f"{path} has two columns of the same name", hint=_FORMAT)
    return frame


def _read_bytes(path: Path) -> bytes:
    """Read this one file; polars would take a path as a pattern, and a folder as its files."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise CountsError(f"{path} is a device or a pipe, not a file", hint=_FORMAT)
        return path.read_bytes()
    except FileNotFoundError as error:
        raise CountsError(f"there is no file {path}", hint="check the path") from error
    except OSError as error:
        raise CountsError(f"{path} cannot be read: {error.strerror}", hint=_FORMAT) from error


def _parse_counts(path: Path, column: pl.Series) -> NDArray[np.int64]:
    text = column.str.strip_chars()
    _refuse(path, text.is_null() | (text == ""), "no count")
    _refuse(path, text.str.contains(r"^-\s*[0-9.]+$"), "a negative count")
    _refuse(path, text.str.contains(r"^[0-9]*\.[0-9]*$"), "a fractional count")
    _refuse(path, ~text.str.contains(r"^[0-9]+$"), "a count that is not a whole number")
    _refuse(path, ~text.str.contains(r"^.{1,18}$"), "a count of more than 18 digits")
    counts = text.cast(pl.Int64)
    total = counts.cast(pl.Int128).sum()  # 64 bits could overflow without a word
    if total == 0:
        raise CountsError(f"every count in {path} is zero", hint="count at least one respondent")
    if total > MAX_POPULATION_SIZE:
        raise CountsError(
            f"the counts in {path} add up to {total:,}, more than 2^53",
            hint="check the counts: the table is about one population",
        )
    return counts.to_numpy()


def _arrange(
    path: Path, frame: pl.DataFrame, schema: Schema, counts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Put the counts in the order of the cells; each cell must be there exactly once."""
    if schema.domain_size > MAX_ESTIMATED_CELLS:
        raise CountsError(
            f"the categories in {path} make {schema.domain_size:,} cells",
            hint=f"use at most {MAX_ESTIMATED_CELLS:,}: drop attributes or merge categories",
        )
    cells = schema.cells([encode_column(frame[a.name], a) for a in schema.attributes])
    rows = np.bincount(cells, minlength=schema.domain_size)
    if rows.max() > 1:
        raise CountsError(
            f"{path} lists the cell {_name(schema, int(rows.argmax()))} more than once",
            hint="add its counts up in one row",
        )
    if rows.min() == 0:
        missing = int(np.count_nonzero(rows == 0))
        raise CountsError(
            f"{path} lacks {missing} of {schema.domain_size} cells, such as"
            f" {_name(schema, int(rows.argmin()))}",
            hint="add a row with count 0 for every combination that nobody has",
        )
    ordered = np.empty_like(counts)
    ordered[cells] = counts
    return ordered


def _name(schema: Schema, cell: int) -> str:
    return " / ".join(schema.labels(cell))


def _refuse(path: Path, bad: pl.Series, what: str) -> None:
    rows = bad.arg_true()
    if len(rows):
        raise CountsError(
            f"{path} has {what} in {len(rows)} row(s), first in line {rows[0] + 2}", hint=_FORMAT
        )


def adult_records(cells: int = 24) -> pl.DataFrame:
    """Return the Adult table as records, one row for each person, with a number in ``person``."""
    table = adult_table(cells)
    people = np.repeat(np.arange(table.counts.size), table.counts)
    columns = decode_cells(people, table.schema)
    return columns.insert_column(0, pl.int_range(1, len(people) + 1, eager=True).alias("person"))
