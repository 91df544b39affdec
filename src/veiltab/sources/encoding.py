"""Between a curator's table and codes: values to categories, and categories back to values.

Values are compared as text, because a contract lists categories as text and the same column is a
number in one curator's file and a string in another's.  A value that no category covers stops
everything: a row dropped in silence would bias the statistics, and nobody would know.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from veiltab.core.recode import Bins, Rule
from veiltab.core.schema import Attribute, Codes, Schema, check_range
from veiltab.errors import Offender, SchemaError, ValueNotInSchemaError

_LISTED_VALUES = 5
_LISTED_ROWS = 3
_LISTED_LENGTH = 40


@dataclass(frozen=True, slots=True)
class _Finding:
    """What is wrong with one column; findings are collected, so that one error shows them all."""

    column: str
    rows: int
    distinct: int
    offenders: tuple[Offender, ...]


def encode_column(column: pl.Series, attribute: Attribute, rule: Rule | None = None) -> Codes:
    """Turn a column into codes of the attribute, or say which values stand in the way."""
    codes = _encode(column, attribute, rule)
    if isinstance(codes, _Finding):
        raise _not_in_schema([codes])
    return codes


def encode_table(
    frame: pl.DataFrame,
    schema: Schema,
    rules: Mapping[str, Rule] | None = None,
    columns: Mapping[str, str] | None = None,
) -> list[Codes]:
    """Turn a table into one array of codes per attribute, in the schema's order.

    ``rules`` and ``columns`` are keyed by attribute; ``columns`` names the table's column where it
    is not called like the attribute.
    """
    rules, columns = rules or {}, columns or {}
    _check_attributes(rules, schema, "rules")
    _check_attributes(columns, schema, "column names")
    sources = [columns.get(name, name) for name in schema.names]
    _check_columns(sources, frame)
    codes: list[Codes] = []
    findings: list[_Finding] = []
    for attribute, source in zip(schema.attributes, sources, strict=True):
        result = _encode(frame[source], attribute, rules.get(attribute.name))
        if isinstance(result, _Finding):
            findings.append(result)
        else:
            codes.append(result)
    if findings:
        raise _not_in_schema(findings)
    return codes


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


def _encode(column: pl.Series, attribute: Attribute, rule: Rule | None) -> Codes | _Finding:
    column = column if column.name else column.alias(attribute.name)
    if isinstance(rule, Bins):
        return _bin(column, attribute, rule)
    return _look_up(column, attribute, {} if rule is None else rule.entries)


def _look_up(
    column: pl.Series, attribute: Attribute, entries: Mapping[str | None, str]
) -> Codes | _Finding:
    """Find each text's code; polars' cast to an Enum is its fastest lookup of text."""
    index = {category: code for code, category in enumerate(attribute.categories)}
    _check_targets(entries.values(), attribute, index)
    table = index | {raw: index[name] for raw, name in entries.items() if raw is not None}
    texts = _texts(column)
    positions = texts.cast(pl.Enum(list(table)), strict=False).to_physical()
    unknown = positions.is_null()
    if None in entries:
        unknown &= texts.is_not_null()
    if unknown.any():
        return _finding(texts, unknown)
    missing = index[entries[None]] if None in entries else 0
    codes = np.array([*table.values(), missing], dtype=attribute.dtype)
    return np.take(codes, positions.fill_null(len(table)).to_numpy())


def _bin(column: pl.Series, attribute: Attribute, bins: Bins) -> Codes | _Finding:
    if attribute.size != len(bins.edges) + 1:
        raise SchemaError(
            f"attribute {attribute.name!r} has {attribute.size:,} categories,"
            f" but its {len(bins.edges):,} bin edges make {len(bins.edges) + 1:,} bins",
            hint="give one category more than there are edges",
        )
    numbers = _numbers(column)
    missing = numbers.is_null()
    if missing.any():
        return _finding(_texts(column), missing)
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
        hint="convert the column to Int64 or Float64, or use a ValueMap instead of bins",
    )


def _texts(column: pl.Series) -> pl.Series:
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


def _float_texts(column: pl.Series) -> pl.Series:
    """Write whole floats as integers, however large; NaN counts as missing."""
    number = pl.col("number")
    whole = number.cast(pl.Int128, strict=False)
    text = pl.when(number == whole).then(whole.cast(pl.String)).otherwise(number.cast(pl.String))
    frame = column.fill_nan(None).to_frame("number")
    return frame.select(text).to_series().alias(column.name)


def _finding(texts: pl.Series, unknown: pl.Series) -> _Finding:
    """Count the offenders of a column and place the first few of them."""
    offending = pl.DataFrame({"value": texts.filter(unknown), "row": unknown.arg_true() + 1})
    groups = offending.group_by("value", maintain_order=True).agg(
        pl.len().alias("count"), pl.col("row").head(_LISTED_ROWS)
    )
    offenders = tuple(
        Offender(texts.name, value, count, tuple(rows))
        for value, count, rows in groups.head(_LISTED_VALUES).iter_rows()
    )
    return _Finding(texts.name, offending.height, groups.height, offenders)


def _not_in_schema(findings: Sequence[_Finding]) -> ValueNotInSchemaError:
    lines = ["the table holds values that no category covers (row 1 is the first data row)"]
    for finding in findings:
        lines.append(f"  column {finding.column!r}: {_rows(finding.rows)}")
        lines += [f"    {_describe(offender)}" for offender in finding.offenders]
        more = finding.distinct - len(finding.offenders)
        if more:
            lines.append(f"    and {more:,} more distinct value{'s' * (more > 1)}")
    return ValueNotInSchemaError(
        "\n".join(lines),
        hint="map these values to a category with a ValueMap (its key None stands for missing"
        " values), add a category, or fix the table; bins cannot take missing values",
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
            hint="name the column of an attribute that is called differently, or fix the table",
        )


def _check_targets(targets: Iterable[str], attribute: Attribute, index: Mapping[str, int]) -> None:
    unknown = [target for target in dict.fromkeys(targets) if target not in index]
    if unknown:
        raise SchemaError(
            f"the value map of {attribute.name!r} leads to"
            f" {', '.join(map(repr, unknown))}, which is no category",
            hint=f"its categories are {', '.join(map(repr, attribute.categories[:10]))}"
            + (", …" if attribute.size > 10 else ""),  # noqa: PLR2004
        )
