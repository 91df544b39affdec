"""What all kinds of tables have in common."""

from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from veiltab.errors import ParameterError, TableError


def wanted_columns(wanted: Sequence[str], there: Iterable[str], rows: int) -> list[str]:
    """Return the wanted columns, each once, if the table has them all."""
    if rows < 1:
        raise ParameterError(f"a batch cannot have {rows} rows", hint="use 1 or more")
    columns = list(there)
    absent = [name for name in dict.fromkeys(wanted) if name not in columns]
    if absent:
        raise TableError(
            f"the table has no column {', '.join(map(repr, absent))}",
            hint=f"its columns are {', '.join(map(repr, columns)) or 'none'}",
        )
    if not wanted:
        raise TableError("no column of the table is asked for", hint="name at least one column")
    return list(dict.fromkeys(wanted))


def check_names(names: Sequence[str]) -> None:
    """Refuse columns that could not be told apart."""
    seen: set[str] = set()
    for place, name in enumerate(names, start=1):
        if not name:
            raise TableError(
                f"column {place} of the table has no name", hint="give every column a name"
            )
        if name in seen:
            raise TableError(
                f"the table has two columns {name!r}", hint="give every column a name of its own"
            )
        seen.add(name)


def cut(frame: pl.DataFrame, rows: int) -> Iterator[pl.DataFrame]:
    """Yield a frame in parts of at most so many rows; of no rows, nothing."""
    for start in range(0, frame.height, rows):
        yield frame.slice(start, rows)
