"""A first recode file for a study that is agreed on: the table's values, and its categories.

What is spelt like a category is mapped to it.  All else is written under FILL IN, with the number
of rows, so that a person decides; nothing is guessed.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import polars as pl

from veiltab.core.schema import Attribute, Schema
from veiltab.data.patterns import escaped
from veiltab.data.profile import (
    KEPT_VALUES,
    ColumnProfile,
    id_columns,
    profile_table,
)
from veiltab.data.recode import EDGE, Bins, Rule
from veiltab.data.recode_file import attribute_lines
from veiltab.errors import SchemaError
from veiltab.files.toml import FILL_IN, closest, comment, toml_key, toml_string
from veiltab.party.draft import ABOUT_RECODE, check_columns, id_comments
from veiltab.party.spelling import spelling, value_map
from veiltab.remedies import Remedy

_LISTED = 100
"""Values that are written under FILL IN; others are counted."""

_UNKNOWN = frozenset(
    map(
        spelling, ("missing", "(missing)", "unknown", "not known", "no answer", "unbekannt", "k.A.")
    )
)
_FIRST, _LAST = re.compile(f"<({EDGE})"), re.compile(f">=({EDGE})")
_MIDDLE = re.compile(f"({EDGE}) to <({EDGE})")


def draft_recode_for(
    table: pl.DataFrame | Iterable[pl.DataFrame],
    schema: Schema,
    columns: Mapping[str, str] | None = None,
) -> tuple[str, tuple[str, ...]]:
    """Draft a recode file for a curator's attributes, and return it with warnings about ids.

    ``columns`` names those of attributes that are called otherwise.
    """
    named = columns or {}
    for name in named:
        if name not in schema.names:
            raise SchemaError(
                f"you have no attribute {name!r} here", hint=closest(name, schema.names)
            )
    profiles = {profile.name: profile for profile in profile_table(table)}
    if not profiles:
        raise SchemaError("the table has no rows to look at", hint="give a table with some rows")
    check_columns(named.values(), profiles)
    ids = id_columns(profiles.values())
    text = comment(ABOUT_RECODE) + "".join(map(id_comments, ids))
    for attribute in schema.attributes:
        lines = _attribute(attribute, profiles, named.get(attribute.name))
        text += "\n" + "".join(f"{line}\n" for line in lines)
    return text, tuple(line for profile in ids for line in profile.id_warnings().values())


def _attribute(
    attribute: Attribute, profiles: Mapping[str, ColumnProfile], column: str | None
) -> list[str]:
    column = _column(attribute.name, profiles) if column is None else column
    if column is None:
        there = ", ".join(map(toml_string, profiles))
        lines = attribute_lines(attribute.name, FILL_IN, None)
        lines[1] += "  # no column is called like the attribute"
        more = f"To have its values mapped too, {Remedy.NAME_COLUMN}."
        return [*lines, *comment(f"The columns are {there}.\n{more}").splitlines()]
    profile = profiles[column]
    named = None if column == attribute.name else column
    bins = named_bins(attribute)
    if bins is not None and profile.numbers is not None:
        return _binned(attribute, profile, named, bins)
    return _matched(attribute, profile, named)


def _column(name: str, columns: Iterable[str]) -> str | None:
    """Find the column of an attribute: of the same name, or of one that is spelt alike."""
    alike = [column for column in columns if spelling(column) == spelling(name)]
    if name in alike:
        return name
    return alike[0] if len(alike) == 1 else None


def _binned(
    attribute: Attribute, profile: ColumnProfile, column: str | None, bins: Bins
) -> list[str]:
    words = profile.missing_words
    _, mark = profile.numbers or (None, ".")
    missing = bins.missing if words or profile.missing else None
    fold = ("trim",) if any(text != text.strip() for text in profile.counts) else ()
    left = _left_missing(profile, words, missing)
    rule = Bins(
        bins.edges,
        missing=missing,
        missing_values=() if missing is None else words,
        fold=fold,
        decimal="," if mark == "," else None,
    )
    return attribute_lines(attribute.name, column, rule) + left


def _matched(attribute: Attribute, profile: ColumnProfile, column: str | None) -> list[str]:
    """Map values that are spelt like a category, and leave the others to be filled in."""
    known = {spelling(category): category for category in attribute.categories}
    groups: dict[str, list[str]] = {}
    for text in profile.counts:
        category = text if text in attribute.categories else known.get(spelling(text))
        if category is not None:
            groups.setdefault(category, []).append(text)
    matched = {text for group in groups.values() for text in group}
    words = tuple(text for text in profile.missing_words if text not in matched)
    missing = category_of_missing(attribute) if words or profile.missing else None
    rule: Rule | None = value_map(groups.items(), missing, () if missing is None else words)
    lines = attribute_lines(attribute.name, column, rule)
    left = _left_missing(profile, words, missing)
    place = next((n for n, line in enumerate(lines) if line.endswith(".categories]")), len(lines))
    lines[place:place] = left
    unmatched = [text for text in profile.counts if text not in matched and text not in words]
    return lines + _fill_in(attribute, profile, unmatched, listed=place + len(left) < len(lines))


def _left_missing(profile: ColumnProfile, words: Sequence[str], missing: str | None) -> list[str]:
    """Ask for the category of missing values, if there are any and no category is for them."""
    rows = profile.missing + sum(profile.counts[text] for text in words)
    if not rows or missing is not None:
        return []
    listed = [f"missing_values = [{', '.join(map(toml_string, words))}]"] if words else []
    return [f"missing = {toml_string(FILL_IN)}  # {_rows(rows)}", *listed]


def _fill_in(
    attribute: Attribute, profile: ColumnProfile, texts: Sequence[str], *, listed: bool
) -> list[str]:
    if not texts:
        return []
    often = sorted(texts, key=lambda text: (-profile.counts[text], text))
    lines = [] if listed else [f"[attributes.{toml_key(attribute.name)}.categories]"]
    names = ", ".join(map(toml_string, attribute.categories[:_LISTED]))
    lines += comment(
        f"Move each value into a line of its category, as in {toml_key(attribute.categories[0])} ="
        f' ["1", "C34*"], or take them all away and write else = "…" above.'
        f"\nThe categories are {names}."
    ).splitlines()
    lines.append(f"{toml_string(FILL_IN)} = [")
    lines += [
        f"    {toml_string(escaped(text))},  # {_rows(profile.counts[text])}"
        for text in often[:_LISTED]
    ]
    if len(often) > _LISTED:
        least = "at least " if len(profile.counts) > KEPT_VALUES else ""
        lines.append(f"    # and {least}{len(often) - _LISTED:,} more different values")
    return [*lines, "]"]


def category_of_missing(attribute: Attribute) -> str | None:
    """Return the one category that is for missing values, if its name says so."""
    named = [name for name in attribute.categories if spelling(name) in _UNKNOWN]
    return named[0] if len(named) == 1 else None


def named_bins(attribute: Attribute) -> Bins | None:
    """Return the intervals that the categories name, and the category of missing values."""
    missing = category_of_missing(attribute)
    names = [name for name in attribute.categories if name != missing]
    if len(names) < 2:  # noqa: PLR2004 - one interval has no edge
        return None
    first, last = _FIRST.fullmatch(names[0]), _LAST.fullmatch(names[-1])
    between = [_MIDDLE.fullmatch(name) for name in names[1:-1]]
    if first is None or last is None or None in between:
        return None
    edges = [first[1], *(match[2] for match in between if match is not None)]
    made = [float(edge) if "." in edge or "e" in edge else int(edge) for edge in edges]
    if any(low >= high for low, high in pairwise(made)):
        return None
    bins = Bins(made, missing=missing)
    return bins if bins.labels() == tuple(names) else None


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"
