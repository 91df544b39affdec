"""Values that no category covers: counted over a whole table, and shown in one error."""

from collections.abc import Sequence
from itertools import islice

import polars as pl

from veiltab.errors import Offender, ValueNotInSchemaError

_LISTED_VALUES = 5
_LISTED_ROWS = 3
_LISTED_LENGTH = 40
_KEPT_VALUES = 1000
"""Different values of a column that are told apart; a column of free text has one for each row."""


class Finding:
    """What is wrong with one column; findings are collected, so that one error shows them all.

    Columns of a table that is read in parts keep only so many different values.
    """

    def __init__(self, column: str) -> None:
        """Start with nothing wrong."""
        self.column, self.rows = column, 0
        self._groups: dict[str | None, tuple[int, tuple[int, ...]]] = {}

    def add(self, texts: pl.Series, unknown: pl.Series, first_row: int) -> None:
        """Count the offenders in a part of the column, and place the first few of them."""
        rows = unknown.arg_true() + first_row
        offending = pl.DataFrame({"value": texts.filter(unknown), "row": rows})
        groups = offending.group_by("value", maintain_order=True).agg(
            pl.len().alias("count"), pl.col("row").head(_LISTED_ROWS)
        )
        self.rows += offending.height
        if len(self._groups) == _KEPT_VALUES:  # no new ones are kept, so look at these alone
            kept = pl.Series(list(self._groups), dtype=pl.String)
            groups = groups.filter(pl.col("value").is_in(kept.implode(), nulls_equal=True))
        for value, count, found in groups.iter_rows():
            earlier = self._groups.get(value)
            if earlier is not None:
                listed = (*earlier[1], *found)[:_LISTED_ROWS]
                self._groups[value] = (earlier[0] + count, listed)
            elif len(self._groups) < _KEPT_VALUES:
                self._groups[value] = (count, tuple(found))

    @property
    def offenders(self) -> tuple[Offender, ...]:
        """The first few values that no category covers."""
        listed = islice(self._groups.items(), _LISTED_VALUES)
        return tuple(Offender(self.column, value, *where) for value, where in listed)

    def lines(self) -> list[str]:
        """Describe the column for people."""
        lines = [f"  column {self.column!r}: {_rows(self.rows)}"]
        lines += [f"    {_describe(offender)}" for offender in self.offenders]
        more = len(self._groups) - len(self.offenders)
        if more:
            least = "at least " if len(self._groups) == _KEPT_VALUES else ""
            lines.append(f"    and {least}{more:,} more distinct value{'s' * (more > 1)}")
        return lines


class Unknown(Exception):  # noqa: N818 - raised and caught while encoding, never shown
    """Some values of a column have no category."""

    def __init__(self, texts: pl.Series, unknown: pl.Series) -> None:
        """Take the column's texts, and which of them are unknown."""
        super().__init__()
        self.texts, self.unknown = texts, unknown


def not_in_schema(findings: Sequence[Finding]) -> ValueNotInSchemaError:
    """Put what was found in all columns into one error."""
    lines = ["the table holds values that no category covers (row 1 is the first data row)"]
    for finding in findings:
        lines += finding.lines()
    return ValueNotInSchemaError(
        "\n".join(lines),
        hint="map these values to a category under [values] and [missing] in a recode file (in"
        " Python, with a ValueMap, whose key None stands for missing values), add a category, or"
        " fix the table; bins cannot take missing values",
        offenders=tuple(offender for finding in findings for offender in finding.offenders),
    )


def _describe(offender: Offender) -> str:
    """Show a value on one line, with control characters escaped by its ``repr``."""
    value = offender.value
    if value is not None and len(value) > _LISTED_LENGTH:
        value = value[: _LISTED_LENGTH - 1] + "…"
    rows = ", ".join(f"{row}" for row in offender.rows)
    more = ", …" if offender.count > len(offender.rows) else ""
    shown = "(missing)" if value is None else repr(value)
    return f"{shown} in {_rows(offender.count)}: {rows}{more}"


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"
