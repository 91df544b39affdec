"""Between a curator's table and codes: values to categories, and categories back to values.

Values that no category covers are counted over the whole table, and shown in one error.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from veiltab.core.schema import Attribute, Codes, Schema, check_range
from veiltab.data.batches import columns_named
from veiltab.data.frames import as_frame
from veiltab.data.mapping import Mapper, UnknownValues
from veiltab.data.numbers import POINTS, NumberMarks
from veiltab.data.offenders import Offenders
from veiltab.data.recode import Rule
from veiltab.errors import Offender, SchemaError, TableError, ValueNotInSchemaError
from veiltab.remedies import Remedy

_LISTED_VALUES = 5
_LISTED_ROWS = 3
_LISTED_LENGTH = 40
_KEPT_VALUES = 1000
"""Different values that are counted in a column; free text could have one for each row."""


class Encoder:
    """Turns a table into codes part by part, and finds what is wrong with all of it.

    ``rules`` and ``columns`` are keyed by attribute; ``columns`` names the table's column where it
    is not called like the attribute.  ``marks`` are those of numbers in columns of texts.
    """

    def __init__(
        self,
        schema: Schema,
        rules: Mapping[str, Rule] | None = None,
        columns: Mapping[str, str] | None = None,
        marks: NumberMarks = POINTS,
        offenders: Offenders | None = None,
    ) -> None:
        """Refuse rules and column names for attributes that are not there.

        ``offenders`` is told of every row with a value that no category covers.
        """
        self._schema = schema
        _check_attributes(rules or {}, schema, "rules")
        _check_attributes(columns or {}, schema, "column names")
        self.columns = tuple((columns or {}).get(name, name) for name in schema.names)
        self._mappers = [
            Mapper(attribute, (rules or {}).get(attribute.name), marks)
            for attribute in schema.attributes
        ]
        self._offenders = Offenders() if offenders is None else offenders
        self._findings: dict[str, _Finding] = {}
        self._rows = 0

    def encode(self, frame: pl.DataFrame) -> list[Codes] | None:
        """Return the codes of the next rows, in the schema's order.

        The answer is ``None`` if a value has no category, in these rows or earlier ones: go on to
        the end of the table, and :meth:`finish` raises an error that lists the values.
        """
        _check_columns(self.columns, frame)
        codes: list[Codes] = []
        for name, source, mapper in zip(
            self._schema.names, self.columns, self._mappers, strict=True
        ):
            try:
                codes.append(mapper.codes(frame[source]))
            except UnknownValues as values:
                finding = self._findings.setdefault(name, _Finding(source))
                finding.add(values.texts, values.unknown, self._rows + 1)
                rows = values.unknown.arg_true() + self._rows + 1
                offending = values.texts.filter(values.unknown)
                self._offenders.add("no category", source, rows, offending)
        self._rows += frame.height
        return None if self._findings else codes

    def error(self) -> ValueNotInSchemaError | None:
        """Return one error that shows the values without a category, if there are any."""
        if not self._findings:
            return None
        order = [name for name in self._schema.names if name in self._findings]
        return _not_in_schema([self._findings[name] for name in order])

    def finish(self) -> None:
        """Raise that error, if there is one."""
        error = self.error()
        if error is not None:
            raise error


def encode_table(
    frame: object,
    schema: Schema,
    rules: Mapping[str, Rule] | None = None,
    columns: Mapping[str, str] | None = None,
) -> list[Codes]:
    """Turn a whole table into one array of codes per attribute: :class:`Encoder` at once."""
    table = as_frame(frame)
    if table is None:
        raise TableError(
            f"cannot encode an object of type {type(frame).__name__}",
            hint="give a data frame of polars or pandas",
        )
    encoder = Encoder(schema, rules, columns)
    codes = encoder.encode(table)
    encoder.finish()
    return codes or []


def encode_column(column: pl.Series, attribute: Attribute, rule: Rule | None = None) -> Codes:
    """Turn a column into codes of the attribute; an error lists the values without a category."""
    try:
        return Mapper(attribute, rule).codes(column)
    except UnknownValues as values:
        finding = _Finding(values.texts.name)
        finding.add(values.texts, values.unknown, first_row=1)
        raise _not_in_schema([finding]) from None


def decode_column(codes: NDArray[np.integer[Any]], attribute: Attribute) -> pl.Series:
    """Turn codes back into categories."""
    codes = np.asarray(codes)
    check_range(codes, attribute.size, f"codes of {attribute.name!r}")
    categories = list(attribute.categories)
    texts = pl.Series(attribute.name, categories, dtype=pl.Enum(categories))
    return texts.gather(pl.Series(codes))


def decode_cells(cells: NDArray[np.integer[Any]], schema: Schema) -> pl.DataFrame:
    """Turn joint cells back into a table, one column per attribute."""
    return pl.DataFrame(
        [
            decode_column(codes, attribute)
            for codes, attribute in zip(schema.codes(cells), schema.attributes, strict=True)
        ]
    )


class _Finding:
    """What is wrong with one column; findings are collected, so that one error shows them all.

    Of a table that is read in parts, only the first different values are kept.
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
        for value, count, places in groups.iter_rows():
            earlier = self._groups.get(value)
            if earlier is not None:
                listed = (*earlier[1], *places)[:_LISTED_ROWS]
                self._groups[value] = (earlier[0] + count, listed)
            elif len(self._groups) < _KEPT_VALUES:
                self._groups[value] = (count, tuple(places))

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


def _not_in_schema(findings: Sequence[_Finding]) -> ValueNotInSchemaError:
    """Put the findings of all columns into one error."""
    lines = ["the table holds values that no category covers (row 1 is the first data row)"]
    for finding in findings:
        lines += finding.lines()
    return ValueNotInSchemaError(
        "\n".join(lines),
        hint="list these values under their category in a recode file (in Python, in a ValueMap,"
        " whose key None stands for missing values), or say there what becomes of missing values"
        " (missing), of all others (else), of numbers (bins = [40, 60]) and of numbers like 1,5"
        ' (decimal = ","); or add a category, or fix the table.'
        f" {Remedy.DRAFT_RECODE}",
        offenders=tuple(offender for finding in findings for offender in finding.offenders),
    )


def _check_attributes(names: Iterable[str], schema: Schema, what: str) -> None:
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise SchemaError(
            f"there are {what} for unknown attributes: {', '.join(map(repr, unknown))}",
            hint=f"the schema's attributes are {', '.join(map(repr, schema.names))}",
        )


def _check_columns(sources: Sequence[str], frame: pl.DataFrame) -> None:
    absent = [source for source in sources if source not in frame.columns]
    if absent:
        there = ", ".join(map(repr, frame.columns)) or "none"
        raise SchemaError(
            f"the table has no {columns_named(absent)}; its columns are {there}",
            hint="name the column of an attribute that is called differently in a recode file, with"
            ' column = "…", or fix the table',
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
