"""Recode files: how a curator's own table maps to its attributes; local, and never sent.

    [columns]             # where a column is not called like its attribute
    smoker = "SMK_2"

    [values.smoker]       # raw values that are not spelt like a category
    "1" = "yes"

    [missing]             # the category of rows without a value
    smoker = "unknown"

    [bins.age]            # numbers to intervals, named by the attribute's categories in order
    edges = [40, 60]

Missing values have a table of their own, because any word can be a raw value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from veiltab.client.toml_reading import Document, Table, closest, read_bytes
from veiltab.client.toml_writing import toml_key, toml_number, toml_string
from veiltab.core.recode import Bins, Rule, ValueMap
from veiltab.core.schema import Attribute, Schema
from veiltab.wire.codec import describe, malformed

RECODE_KEYS = {
    "columns": 'write a table of attribute = "column"',
    "values": 'write a table for each attribute, such as [values.smoker], of "raw" = "category"',
    "missing": 'write a table of attribute = "category"',
    "bins": "write a table for each attribute, such as [bins.age], with edges = [40, 60]",
}
BINS_KEYS = {"edges": "write numbers in increasing order, such as edges = [40, 60]"}
_QUOTES = 'write texts in quotes, as in "1.5" = "low"'


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
    table = Table(document, (), document.values, RECODE_KEYS)
    attributes = {each.name: each for each in schema.attributes}
    names = dict.fromkeys(attributes, _QUOTES)
    columns = table.table("columns", names)
    return Recode(
        MappingProxyType(_rules(table, attributes, names)),
        MappingProxyType({key: columns.get(key, _text) for key, _ in columns.items()}),
    )


def _rules(
    table: Table, attributes: Mapping[str, Attribute], names: Mapping[str, str]
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


def _check_alone(bins: Table, values: Table, missing: Table, name: str) -> None:
    for table, what in ((values, "values"), (missing, "missing")):
        if name in table:
            raise bins.error(
                name,
                f"has bins, and stands in [{what}] too",
                "bins take numbers only: fill missing values in the table first, or list values"
                " without bins",
            )


def _bins(bins: Table, attribute: Attribute) -> Bins:
    table = bins.table(attribute.name, BINS_KEYS)

    def read(edges: object, path: str) -> Bins:
        if not isinstance(edges, list):
            raise malformed(path, f"must be a list, not {describe(edges)}")
        found = Bins(edges)
        if len(found.edges) + 1 != attribute.size:
            raise table.error(
                path,
                f"{len(found.edges):,} edges make {len(found.edges) + 1:,} intervals, and the"
                f" attribute has {attribute.size:,} categories",
                "give one edge less than there are categories",
            )
        return found

    return table.get("edges", read)


def _value_map(values: Table, name: str, attribute: Attribute) -> dict[str | None, str]:
    raw = values.get(name, lambda value, _: value)
    table = values.table(name, dict.fromkeys(raw, _QUOTES) if isinstance(raw, dict) else {})
    found: dict[str | None, str] = {
        key: _category(table, key, attribute) for key, _ in table.items()
    }
    if not found:
        raise values.error(name, "is empty", "leave it out, or list a value")
    return found


def _category(table: Table, key: str, attribute: Attribute) -> str:
    category = table.get(key, _text)
    if category not in attribute.categories:
        raise table.error(
            key,
            f"{category!r} is no category of {attribute.name!r}",
            closest(category, attribute.categories),
        )
    return category


def _text(value: object, path: str) -> str:
    if isinstance(value, str):
        return value
    raise malformed(path, f"must be text, not {describe(value)}")


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


def _lines(entries: Mapping[str, str]) -> list[str]:
    return [f"{toml_key(key)} = {toml_string(value)}" for key, value in entries.items()]
