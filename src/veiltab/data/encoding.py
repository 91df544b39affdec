"""Between a curator's table and codes: values to categories, and categories back to values.

Values that no category covers are counted over the whole table, and shown in one error.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from math import ceil
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from veiltab.core.schema import Attribute, Codes, Schema, check_range
from veiltab.data.frames import as_frame
from veiltab.data.recode import Bins, Rule
from veiltab.errors import Offender, SchemaError, TableError, ValueNotInSchemaError

_LISTED_VALUES = 5
_LISTED_ROWS = 3
_LISTED_LENGTH = 40
_KEPT_VALUES = 1000
"""Different values that are counted in a column; free text could have one for each row."""

_FEW = 8


class Encoder:
    """Turns a table into codes part by part, and finds what is wrong with all of it.

    ``rules`` and ``columns`` are keyed by attribute; ``columns`` names the table's column where it
    is not called like the attribute.
    """

    def __init__(
        self,
        schema: Schema,
        rules: Mapping[str, Rule] | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        """Refuse rules and column names for attributes that are not there."""
        self._schema, self._rules = schema, rules or {}
        _check_attributes(self._rules, schema, "rules")
        _check_attributes(columns or {}, schema, "column names")
        self.columns = tuple((columns or {}).get(name, name) for name in schema.names)
        self._findings: dict[str, _Finding] = {}
        self._rows = 0

    def encode(self, frame: pl.DataFrame) -> list[Codes] | None:
        """Return the codes of the next rows, in the schema's order.

        The answer is ``None`` if a value has no category, in these rows or earlier ones: go on to
        the end of the table, and :meth:`finish` raises an error that lists the values.
        """
        _check_columns(self.columns, frame)
        codes: list[Codes] = []
        for attribute, source in zip(self._schema.attributes, self.columns, strict=True):
            try:
                codes.append(_encode(frame[source], attribute, self._rules.get(attribute.name)))
            except _Unknown as values:
                finding = self._findings.setdefault(attribute.name, _Finding(source))
                finding.add(values.texts, values.unknown, self._rows + 1)
        self._rows += frame.height
        return None if self._findings else codes

    def finish(self) -> None:
        """Raise one error that shows every value without a category, if there is any."""
        if self._findings:
            order = [name for name in self._schema.names if name in self._findings]
            raise _not_in_schema([self._findings[name] for name in order])


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
        return _encode(column, attribute, rule)
    except _Unknown as values:
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


def value_texts(column: pl.Series) -> pl.Series:
    """Write every value in one way, whatever the file's types: 1, 1.0 and '1' are all ``1``."""
    dtype = column.dtype
    if dtype.is_float():
        return _float_texts(column)
    if isinstance(dtype, pl.Decimal):
        texts = column.cast(pl.String)
        return texts.str.replace(r"\.?0+$", "") if dtype.scale else texts
    plain = (pl.String, pl.Categorical, pl.Enum, pl.Boolean, pl.Date, pl.Null)
    if dtype.is_integer() or dtype in plain:
        return column.cast(pl.String)
    raise SchemaError(
        f"column {column.name!r} is {dtype}, which has no text to match with categories",
        hint="convert the column to text, numbers, booleans or dates",
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


class _Unknown(Exception):  # noqa: N818 - raised and caught while encoding, never shown
    """Some values of a column have no category."""

    def __init__(self, texts: pl.Series, unknown: pl.Series) -> None:
        """Take the column's texts, and which of them are unknown."""
        super().__init__()
        self.texts, self.unknown = texts, unknown


def _not_in_schema(findings: Sequence[_Finding]) -> ValueNotInSchemaError:
    """Put the findings of all columns into one error."""
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


def _encode(column: pl.Series, attribute: Attribute, rule: Rule | None) -> Codes:
    column = column if column.name else column.alias(attribute.name)
    if isinstance(rule, Bins):
        return _bin(column, attribute, rule)
    return _look_up(column, attribute, {} if rule is None else rule.entries)


def _look_up(column: pl.Series, attribute: Attribute, entries: Mapping[str | None, str]) -> Codes:
    """Find each text's code; polars' cast to an Enum is its fastest lookup of text."""
    index = {category: code for code, category in enumerate(attribute.categories)}
    _check_targets(entries.values(), attribute, index)
    table = index | {raw: index[name] for raw, name in entries.items() if raw is not None}
    missing = index[entries[None]] if None in entries else 0
    codes = np.array([*table.values(), missing], dtype=attribute.dtype)
    texts = value_texts(column)
    few = _look_up_few(texts, list(table)) if len(table) <= _FEW else None
    if few is not None:
        return np.take(codes, few) if entries else few
    positions = texts.cast(pl.Enum(list(table)), strict=False).to_physical()
    unknown = positions.is_null()
    if None in entries:
        unknown &= texts.is_not_null()
    if unknown.any():
        raise _Unknown(texts, unknown)
    return np.take(codes, positions.fill_null(len(table)).to_numpy())


def _look_up_few(texts: pl.Series, known: Sequence[str]) -> Codes | None:
    """Compare with each of a few texts, which is faster than looking each value up.

    Return ``None`` if some value is none of them.
    """
    positions = np.zeros(len(texts), dtype=np.uint8)
    matched = 0
    for position, text in enumerate(known):
        equal = (texts == text).fill_null(value=False).to_numpy()
        matched += int(np.count_nonzero(equal))
        positions += equal.view(np.uint8) * np.uint8(position)
    return positions if matched == len(texts) else None


def _bin(column: pl.Series, attribute: Attribute, bins: Bins) -> Codes:
    if attribute.size != len(bins.edges) + 1:
        raise SchemaError(
            f"attribute {attribute.name!r} has {attribute.size:,} categories,"
            f" but its {len(bins.edges):,} bin edges make {len(bins.edges) + 1:,} bins",
            hint="give one category more than there are edges",
        )
    if column.dtype == pl.String:
        return _bin_texts(column, attribute, bins)
    numbers = _numbers(column)
    missing = numbers.is_null()
    if missing.any():
        raise _Unknown(value_texts(column), missing)
    return _place(numbers, attribute, bins)


def _bin_texts(column: pl.Series, attribute: Attribute, bins: Bins) -> Codes:
    """Bin what a file without types says, such as ``40`` and ``39.5``.

    Whole numbers are compared as such, whatever else is in the column.
    """
    numbers = column.cast(pl.Float64, strict=False).fill_nan(None)
    missing = numbers.is_null()
    if missing.any():
        raise _Unknown(column, missing)
    whole = column.cast(pl.Int64, strict=False)
    codes = _place(numbers, attribute, bins)
    integers = whole.is_not_null().to_numpy()
    codes[integers] = _place(whole.drop_nulls(), attribute, bins)
    return codes


def _place(numbers: pl.Series, attribute: Attribute, bins: Bins) -> Codes:
    values = numbers.to_numpy()
    edges = _edges_like(values, bins)
    return np.asarray(np.searchsorted(edges, values, side="right"), dtype=attribute.dtype)


def _edges_like(values: NDArray[Any], bins: Bins) -> NDArray[Any]:
    """Express the edges in the values' own type, so that a value equal to an edge stays equal.

    Whole numbers are compared as such: as floats, those above 2^53 would slip over an edge.  And
    a 32-bit 0.7, which is less than a 64-bit 0.7, must not fall below an edge of 0.7.
    """
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return np.array(bins.edges, dtype=np.float64).astype(values.dtype)
    limits = np.iinfo(values.dtype)
    whole = [ceil(edge) for edge in bins.edges]
    reachable = [max(edge, int(limits.min)) for edge in whole if edge <= limits.max]
    return np.array(reachable, dtype=values.dtype)


def _numbers(column: pl.Series) -> pl.Series:
    """Refuse what cannot be binned; NaN counts as missing."""
    dtype = column.dtype
    if dtype.is_float():
        return column.fill_nan(None)
    if dtype.is_decimal() or dtype == pl.Null:
        return column.cast(pl.Float64)
    if dtype.is_integer() and dtype not in (pl.Int128, pl.UInt128):
        return column
    raise SchemaError(
        f"column {column.name!r} is {dtype}, and bins need numbers of at most 64 bits",
        hint="convert the column to Int64 or Float64, or map its values instead of bins",
    )


def _float_texts(column: pl.Series) -> pl.Series:
    """Write whole floats as integers, however large; NaN counts as missing."""
    number = pl.col("number")
    whole = number.cast(pl.Int128, strict=False)
    text = pl.when(number == whole).then(whole.cast(pl.String)).otherwise(number.cast(pl.String))
    frame = column.fill_nan(None).to_frame("number")
    return frame.select(text).to_series().alias(column.name)


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
            f"the table has no column {', '.join(map(repr, absent))}; its columns are {there}",
            hint="name the column of an attribute that is called differently, under [columns] in a"
            " recode file, or fix the table",
        )


def _check_targets(targets: Iterable[str], attribute: Attribute, index: Mapping[str, int]) -> None:
    unknown = [target for target in dict.fromkeys(targets) if target not in index]
    if unknown:
        raise SchemaError(
            f"the value map of {attribute.name!r} maps to"
            f" {', '.join(map(repr, unknown))}, which is not a category",
            hint=f"its categories are {', '.join(map(repr, attribute.categories[:10]))}"
            + (", …" if attribute.size > 10 else ""),  # noqa: PLR2004
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
