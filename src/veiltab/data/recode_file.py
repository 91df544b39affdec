"""Recode files: how a curator's own table maps to a study, in TOML that people write and read.

They stay with the curator, and are never sent.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from types import MappingProxyType
from typing import Any

from veiltab.core.schema import Attribute, Schema
from veiltab.data.recode import Bins, IdColumns, Recode, Rule, ValueMap, check_duplicates
from veiltab.files.toml import (
    Document,
    TomlTable,
    check_filled_in,
    closest,
    read_bytes,
    toml_key,
    toml_number,
    toml_string,
    toml_strings,
)
from veiltab.protocol.curator.table import Duplicates
from veiltab.wire.codec import describe, malformed

RECODE_KEYS = {
    "duplicates": 'write "refuse", "first", "last" or "identical"',
    "ids": 'write a table with columns = ["patient_no"]',
    "attributes": "write a table for each attribute, such as [attributes.age]",
}
RECODE_IDS_KEYS = {
    "columns": 'write the columns of an id in the agreed order, as in columns = ["name", "born"]',
    "dates": 'write how dates are written in a column, as in dates = {born = "DD.MM.YYYY"}',
    "latest_year": "write the last of the hundred years that YY stands for, such as 2026",
}
RECODED_KEYS = {
    "column": 'write the name of the column, such as column = "SMK_2"',
    "fold": 'choose from "nfc", "trim", "lowercase", as in fold = ["trim", "lowercase"]',
    "categories": 'write a table of category = values, as in yes = ["1", "Y*"]',
    "else": 'write the category of all other values, as in else = "other"',
    "bins": "write the edges in increasing order, as in bins = [40, 60]",
    "decimal": 'write decimal = "," if numbers are written like 1,5',
    "missing": 'write the category of missing values, as in missing = "unknown"',
    "missing_values": 'write the texts that count as missing, as in missing_values = ["n/a"]',
}
_QUOTES = 'write texts in quotes, as in yes = "1", or several in a list, as in yes = ["1", "Y*"]'


def read_recode_file(path: Path, schema: Schema) -> Recode:
    """Read a recode file for the attributes of one curator."""
    return parse_recode(read_bytes(path, "recode file"), str(path), schema)


def parse_recode(data: bytes, name: str, schema: Schema) -> Recode:
    """Read a recode file; whatever the schema does not have is an error, as in a study file."""
    document = Document(data, name)
    check_filled_in(document)
    table = TomlTable(document, (), document.values, RECODE_KEYS)
    names = {attribute.name: RECODE_KEYS["attributes"] for attribute in schema.attributes}
    _check_names(document, names)
    parts = table.table("attributes", names)
    rules: dict[str, Rule] = {}
    columns: dict[str, str] = {}
    for attribute in schema.attributes:
        if attribute.name not in parts:
            continue
        part = parts.table(attribute.name, RECODED_KEYS)
        if "column" in part:
            columns[attribute.name] = part.get("column", _read_text)
        rule = _rule(part, attribute)
        if rule is not None:
            rules[attribute.name] = rule
    return Recode(
        MappingProxyType(rules),
        MappingProxyType(columns),
        _ids(table) if "ids" in table else None,
        table.get_or("duplicates", _read_duplicates, "refuse"),
    )


def _check_names(document: Document, names: Iterable[str]) -> None:
    """Refuse attributes that the study does not have, or that another curator has."""
    given = document.values.get("attributes")
    for name in given if isinstance(given, dict) else ():
        if name not in names:
            raise document.error(
                ("attributes", name),
                "you have no such attribute here",
                f"{closest(name, names)}; delete this part if it is of no use",
            )


def recode_text(recode: Recode) -> str:
    """Write a recode file that is read as the same rules, columns and ids."""
    sections = []
    if recode.duplicates != "refuse":
        sections.append([f"duplicates = {toml_string(recode.duplicates)}"])
    if recode.ids is not None:
        sections.append(ids_lines(recode.ids))
    sections += [
        attribute_lines(name, recode.columns.get(name), recode.rules.get(name))
        for name in dict.fromkeys([*recode.columns, *recode.rules])
    ]
    return "\n".join("\n".join([*lines, ""]) for lines in sections)


def ids_lines(ids: IdColumns) -> list[str]:
    """Write ``[ids]``."""
    lines = ["[ids]", f"columns = {toml_strings(ids.columns)}"]
    dates = [f"{toml_key(n)} = {toml_string(form.form)}" for n, form in ids.dates.items()]
    if dates:
        lines.append(f"dates = {{{', '.join(dates)}}}")
    years = {form.latest_year for form in ids.dates.values()} - {None}
    return lines + [f"latest_year = {year}" for year in years]


def attribute_lines(name: str, column: str | None, rule: Rule | None) -> list[str]:
    """Write the table of one attribute."""
    lines = [f"[attributes.{toml_key(name)}]"]
    if column is not None:
        lines.append(f"column = {toml_string(column)}")
    if rule is None:
        return lines
    if rule.fold:
        lines.append(f"fold = {toml_strings(rule.fold)}")
    if isinstance(rule, Bins):
        lines.append(f"bins = [{', '.join(map(toml_number, rule.edges))}]")
        if rule.decimal is not None:
            lines.append(f"decimal = {toml_string(rule.decimal)}")
    missing = rule.missing if isinstance(rule, Bins) else rule.entries.get(None)
    if missing is not None:
        lines.append(f"missing = {toml_string(missing)}")
    if rule.missing_values:
        lines.append(f"missing_values = {toml_strings(rule.missing_values)}")
    return lines if isinstance(rule, Bins) else lines + _category_lines(name, rule)


def _category_lines(name: str, rule: ValueMap) -> list[str]:
    lines = [] if rule.otherwise is None else [f"else = {toml_string(rule.otherwise)}"]
    listed: dict[str, list[str]] = {}
    for raw, category in rule.entries.items():
        if raw is not None:
            listed.setdefault(category, []).append(raw)
    if listed:
        lines.append(f"[attributes.{toml_key(name)}.categories]")
    for category, values in listed.items():
        shown = toml_string(values[0]) if len(values) == 1 else toml_strings(tuple(values))
        lines.append(f"{toml_key(category)} = {shown}")
    return lines


def _ids(table: TomlTable) -> IdColumns:
    part = table.table("ids", RECODE_IDS_KEYS)
    columns = part.get("columns", _read_texts)
    latest = part.get_or("latest_year", lambda value, _: value, None)
    if "dates" not in part:
        return part.get("columns", lambda _, __: IdColumns(columns, latest_year=latest))

    def read(value: object, path: str) -> IdColumns:
        if not isinstance(value, dict):
            raise malformed(path, f"must be a table, not {describe(value)}")
        return IdColumns(columns, dates=value, latest_year=latest)

    return part.get("dates", read)


def _rule(part: TomlTable, attribute: Attribute) -> Rule | None:
    """Read the rule of one attribute, if it has any."""
    binned = "bins" in part
    for key in ("categories", "else") if binned else ("decimal",):
        if key in part:
            raise part.error(
                key,
                "does not go with bins" if binned else "goes with bins only",
                "bins take numbers: list all else in missing_values"
                if binned
                else "leave it out, or write bins = [40, 60]",
            )
    if not binned and not any(key in part for key in RECODED_KEYS if key != "column"):
        return None
    nothing: tuple[str, ...] = ()
    fold = part.get_or("fold", _read_texts, nothing)
    missing = _category(part, "missing", attribute)
    values = part.get_or("missing_values", _read_texts, nothing)
    if binned:
        decimal: Any = part.get_or("decimal", _read_text, None)

        def bins(edges: list[Any]) -> Bins:
            made = Bins(edges, missing=missing, missing_values=values, fold=fold, decimal=decimal)
            made.intervals(attribute)
            return made

        return _located(part, "bins", lambda edges: bins(_read_list(edges)))
    entries: dict[str | None, str] = {} if missing is None else {None: missing}
    if "categories" in part:
        entries |= _entries(part, attribute)
    otherwise = _category(part, "else", attribute)
    keys = ("missing_values", "categories", "fold", "else", "missing")
    return _located(
        part,
        next(key for key in keys if key in part),
        lambda _: ValueMap(entries, fold=fold, missing_values=values, otherwise=otherwise),
    )


def _located(part: TomlTable, key: str, make: Callable[[Any], Rule]) -> Rule:
    """Make a rule; what is wrong with it is said with the line of this key."""
    return part.get(key, lambda value, _: make(value))


def _read_list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise malformed("bins", f"must be a list, not {describe(value)}")
    return value


def _entries(part: TomlTable, attribute: Attribute) -> dict[str | None, str]:
    """Read values by category; a value may stand in one category only."""
    names = dict.fromkeys(attribute.categories, _QUOTES)
    table = part.table("categories", names)
    entries: dict[str | None, str] = {}
    for category in dict(table.items()):
        for raw in table.get(category, _read_text_or_texts):
            if entries.setdefault(raw, category) != category:
                raise table.error(
                    category,
                    f"{raw!r} stands under {entries[raw]!r} already",
                    "list each value under one category",
                )
    if not entries:
        raise part.error("categories", "is empty", "leave it out, or list a value")
    return entries


def _category(table: TomlTable, key: str, attribute: Attribute) -> str | None:
    category = table.get_or(key, _read_text, None)
    if category is not None and category not in attribute.categories:
        raise table.error(
            key,
            f"{category!r} is not a category of {attribute.name!r}",
            closest(category, attribute.categories),
        )
    return category


def _read_duplicates(value: object, path: str) -> Duplicates:
    return check_duplicates(_read_text(value, path))


def _read_text(value: object, path: str) -> str:
    if isinstance(value, str):
        return value
    raise malformed(path, f"must be text, not {describe(value)}")


def _read_texts(value: object, path: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise malformed(path, f"must be a list of texts, not {describe(value)}")
    return tuple(_read_text(item, path) for item in value)


def _read_text_or_texts(value: object, path: str) -> tuple[str, ...]:
    return _read_texts(value, path) if isinstance(value, list) else (_read_text(value, path),)
