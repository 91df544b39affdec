"""How a curator's own values become the categories of a study: rules, and the files that hold them.

Recode files stay with the curator; they are never sent.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from veiltab.core.schema import Attribute, Schema, check_text
from veiltab.errors import SchemaError
from veiltab.files.toml import (
    Document,
    TomlTable,
    closest,
    read_bytes,
    toml_key,
    toml_number,
    toml_string,
)
from veiltab.wire.codec import describe, malformed

RECODE_KEYS = {
    "columns": 'write a table of attribute = "column"',
    "values": 'write a table for each attribute, such as [values.smoker], of "raw" = "category"',
    "missing": 'write a table of attribute = "category"',
    "bins": "write a table for each attribute, such as [bins.age], with edges = [40, 60]",
}
BINS_KEYS = {"edges": "write numbers in increasing order, such as edges = [40, 60]"}
_QUOTES = 'write texts in quotes, as in "1.5" = "low"'
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, init=False)
class ValueMap:
    """Raw texts and the category of each; the key ``None`` stands for missing values.

    A value that is not listed keeps its own text, so only the exceptions need an entry.
    """

    entries: Mapping[str | None, str]

    def __init__(
        self, entries: Mapping[str | None, str] | Mapping[str, str] | Mapping[None, str]
    ) -> None:
        """Copy the entries, so that nobody can change them afterwards."""
        object.__setattr__(self, "entries", MappingProxyType(dict(entries)))
        if not self.entries:
            raise SchemaError("a value map has no entries", hint="leave it out, or list a value")
        for raw, category in self.entries.items():
            _check_raw(raw)
            check_text(category, f"the category for {raw!r}")


@dataclass(frozen=True, slots=True, init=False)
class Bins:
    """Right-open intervals between edges: below the first, ..., from the last one on.

    A value equal to an edge belongs to the interval above it.
    """

    edges: tuple[int | float, ...]

    def __init__(self, edges: Iterable[int | float]) -> None:
        """Refuse edges that leave a gap, an empty interval or no order."""
        object.__setattr__(self, "edges", tuple(_edge(edge) for edge in edges))
        if not self.edges:
            raise SchemaError("the bins have no edges", hint="give one edge for two bins")
        for lower, upper in pairwise(self.edges):
            if lower >= upper:
                raise SchemaError(
                    f"the bin edge {_text(upper)} follows {_text(lower)}",
                    hint="list the edges in strictly increasing order",
                )

    def labels(self) -> tuple[str, ...]:
        """Name the intervals: ``<40``, ``40 to <60``, ``>=60``."""
        texts = [_text(edge) for edge in self.edges]
        between = (f"{lower} to <{upper}" for lower, upper in pairwise(texts))
        return (f"<{texts[0]}", *between, f">={texts[-1]}")

    def attribute(self, name: str) -> Attribute:
        """Build the attribute whose categories are these intervals."""
        return Attribute(name, self.labels())


Rule: TypeAlias = ValueMap | Bins


@dataclass(frozen=True, slots=True)
class Recode:
    """Rules and column names by attribute, as ``encode_table`` takes them."""

    rules: Mapping[str, Rule] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)


def read_recode_file(path: Path, schema: Schema) -> Recode:
    """Read a recode file for the attributes of one curator."""
    return parse_recode(read_bytes(path, "recode file"), str(path), schema)


def parse_recode(data: bytes, name: str, schema: Schema) -> Recode:
    """Read a recode file; whatever the schema does not have is an error, as in a study file."""
    document = Document(data, name)
    table = TomlTable(document, (), document.values, RECODE_KEYS)
    attributes = {attribute.name: attribute for attribute in schema.attributes}
    names = dict.fromkeys(attributes, _QUOTES)
    columns = table.table("columns", names)
    return Recode(
        MappingProxyType(_rules(table, attributes, names)),
        MappingProxyType({key: columns.get(key, _category_text) for key, _ in columns.items()}),
    )


def recode_text(recode: Recode) -> str:
    """Write a recode file that is read as the same rules and columns."""
    missing: dict[str, str] = {}
    sections = [("[columns]", _lines(recode.columns))]
    for name, rule in recode.rules.items():
        if isinstance(rule, Bins):
            edges = ", ".join(map(toml_number, rule.edges))
            sections.append((f"[bins.{toml_key(name)}]", [f"edges = [{edges}]"]))
            continue
        entries = {raw: category for raw, category in rule.entries.items() if raw is not None}
        sections.append((f"[values.{toml_key(name)}]", _lines(entries)))
        if None in rule.entries:
            missing[name] = rule.entries[None]
    sections.append(("[missing]", _lines(missing)))
    return "\n".join("\n".join([header, *lines, ""]) for header, lines in sections if lines)


def _rules(
    table: TomlTable, attributes: Mapping[str, Attribute], names: Mapping[str, str]
) -> dict[str, Rule]:
    values, missing = table.table("values", names), table.table("missing", names)
    bins = table.table("bins", names)
    rules: dict[str, Rule] = {}
    for name, attribute in attributes.items():
        if name in bins:
            _check_alone(bins, values, missing, name)
            rules[name] = _bins(bins, attribute)
            continue
        entries: dict[str | None, str] = {}
        if name in values:
            entries |= _value_map(values, name, attribute)
        if name in missing:
            entries[None] = _category(missing, name, attribute)
        if entries:
            rules[name] = ValueMap(entries)
    return rules


def _check_alone(bins: TomlTable, values: TomlTable, missing: TomlTable, name: str) -> None:
    for table, what in ((values, "values"), (missing, "missing")):
        if name in table:
            raise bins.error(
                name,
                f"has bins, and stands in [{what}] too",
                "bins take numbers only: fill missing values in the table first, or list values"
                " without bins",
            )


def _bins(bins: TomlTable, attribute: Attribute) -> Bins:
    table = bins.table(attribute.name, BINS_KEYS)

    def read(edges: object, path: str) -> Bins:
        if not isinstance(edges, list):
            raise malformed(path, f"must be a list, not {describe(edges)}")
        made = Bins(edges)
        if len(made.edges) + 1 != attribute.size:
            raise table.error(
                path,
                f"{len(made.edges):,} edges make {len(made.edges) + 1:,} intervals, and the"
                f" attribute has {attribute.size:,} categories",
                "give one edge less than there are categories",
            )
        return made

    return table.get("edges", read)


def _value_map(values: TomlTable, name: str, attribute: Attribute) -> dict[str | None, str]:
    raw = values.get(name, lambda value, _: value)
    table = values.table(name, dict.fromkeys(raw, _QUOTES) if isinstance(raw, dict) else {})
    entries: dict[str | None, str] = {
        key: _category(table, key, attribute) for key, _ in table.items()
    }
    if not entries:
        raise values.error(name, "is empty", "leave it out, or list a value")
    return entries


def _category(table: TomlTable, key: str, attribute: Attribute) -> str:
    category = table.get(key, _category_text)
    if category not in attribute.categories:
        raise table.error(
            key,
            f"{category!r} is not a category of {attribute.name!r}",
            closest(category, attribute.categories),
        )
    return category


def _category_text(value: object, path: str) -> str:
    if isinstance(value, str):
        return value
    raise malformed(path, f"must be text, not {describe(value)}")


def _lines(entries: Mapping[str, str]) -> list[str]:
    return [f"{toml_key(key)} = {toml_string(value)}" for key, value in entries.items()]


def _check_raw(raw: object) -> None:
    """Allow whatever a table can hold, the empty text and control characters included."""
    if raw is None or (isinstance(raw, str) and not _LONE_SURROGATE.search(raw)):
        return
    raise SchemaError(
        f"a value map has the key {raw!r}, which no table holds as text",
        hint="write keys as text, as in '1' or 'true', and None for missing values",
    )


def _edge(edge: object) -> int | float:
    """Take a plain finite number; minus zero becomes zero, because labels show it."""
    number = edge.item() if isinstance(edge, np.generic) else edge
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise SchemaError(
            f"a bin edge is {edge!r}, not a number", hint="list whole or decimal numbers"
        )
    if not _is_finite(number):
        raise SchemaError(
            "a bin edge is NaN, infinite or too large for a floating-point number",
            hint="use finite numbers; the outer bins are unbounded as they are",
        )
    return number or 0


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


def _text(edge: float) -> str:
    return repr(edge).removesuffix(".0")
