"""From a table to the categories of a study, by clicking: what a curator has chosen so far.

Values never leave this computer.  What is chosen here becomes a recode file, as people write it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from veiltab.console.forms import Form
from veiltab.core.schema import Attribute, Schema
from veiltab.data.patterns import escaped
from veiltab.data.profile import ColumnProfile, id_columns, profile_table
from veiltab.data.recode import Bins, Recode, Rule, ValueMap, check_duplicates
from veiltab.data.recode_file import read_recode_file, recode_text
from veiltab.data.tables import BATCH_ROWS, Table, open_table
from veiltab.errors import InputError, ParameterError
from veiltab.party.checking import ReportingTable
from veiltab.party.progress import OnProgress, ignore_progress
from veiltab.party.recode_draft import category_of_missing, named_bins
from veiltab.party.spelling import spelling

PREVIEW_ROWS = 8
MOST_VALUES = 100
"""Different values of a column that are mapped one by one; the rest have a rule of their own."""

MISSING, REST, REFUSE = "missing", "rest", ""
BARS = 24


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a column, in how many rows it is, and the category that is chosen for it."""

    text: str
    rows: int
    category: str


@dataclass(frozen=True, slots=True)
class AttributeChoice:
    """How one attribute is made of a column."""

    attribute: Attribute
    column: str
    edges: str
    values: tuple[Value, ...]
    more_values: int
    missing_rows: int
    missing: str
    rest: str
    histogram: "Histogram | None"
    words: tuple[str, ...] = ()

    @property
    def unmapped(self) -> list[Value]:
        """The values for which nothing is chosen."""
        return [value for value in self.values if not value.category and not self.rest]

    @property
    def unmapped_rows(self) -> int:
        """In how many rows they are."""
        return sum(value.rows for value in self.unmapped)


@dataclass(frozen=True, slots=True)
class Histogram:
    """How the numbers of a column lie, and the bins that are drawn on them.

    Heights and places go from 0 to 1.  ``bins`` has each bin's name and how many of the first rows
    are in it; without edges that can be read there are none.
    """

    bars: tuple[float, ...]
    low: float
    high: float
    lines: tuple[float, ...]
    bins: tuple[tuple[str, int], ...]


@dataclass(slots=True)
class ChosenTable:
    """A table that was opened, what was seen of it, and what was chosen for each attribute."""

    location: str
    query: str | None
    table: Table
    profiles: Mapping[str, ColumnProfile]
    preview: pl.DataFrame
    ids: tuple[str, ...]
    duplicates: str = "refuse"
    file: Path | None = None
    """A recode file that somebody has written before; it takes the place of the choices."""
    choices: dict[str, dict[str, str]] = field(default_factory=dict)
    written: Mapping[str, Any] = field(default_factory=dict)
    """What somebody says about how the file is written; the rest is found by looking."""

    @classmethod
    def open(
        cls,
        location: str,
        query: str | None,
        schema: Schema,
        written: Mapping[str, Any],
        progress: OnProgress = ignore_progress,
    ) -> "ChosenTable":
        """Look at a table: its columns, its first rows, and which values they have.

        It is read to its end, a batch at a time, with a report after each.
        """
        table = ReportingTable(open_table(location, query, **written), progress)
        columns = list(table.columns)
        first = next(iter(table.table.batches(columns, PREVIEW_ROWS)), None)
        profiles = {one.name: one for one in profile_table(table.batches(columns, BATCH_ROWS))}
        ids = tuple(one.name for one in id_columns(profiles.values()))[:1]
        preview = pl.DataFrame(schema=columns) if first is None else first.head(PREVIEW_ROWS)
        made = cls(location, query, table.table, profiles, preview, ids, written=written)
        for attribute in schema.attributes:
            made.choices[attribute.name] = {"column": made._column_like(attribute.name)}
        return made

    def open_again(self) -> Table:
        """Open the table anew, in the same way: it may have been replaced by a corrected one."""
        return open_table(self.location, self.query, **self.written)

    def take(self, form: Form, schema: Schema) -> None:
        """Remember what a form says."""
        self.ids = tuple(name for name in form.all("id") if name in self.profiles)
        self.duplicates = check_duplicates(form.text("duplicates", "refuse"))
        if self.file is not None:  # it says everything else, and the page has no fields for it
            return
        for number, attribute in enumerate(schema.attributes):
            start = f"{number}:"
            given = {k.removeprefix(start): v for k, v in form.pairs if k.startswith(start)}
            before = self.choices[attribute.name]
            if given.get("column") != before.get("column"):  # other values: begin anew
                given = {"column": given.get("column", "")}
            self.choices[attribute.name] = given

    def attribute(self, attribute: Attribute) -> AttributeChoice:
        """Return what is chosen for an attribute, with a draft where nothing was chosen yet."""
        given = self.choices[attribute.name]
        profile = self.profiles.get(given.get("column", ""))
        if profile is None:
            return AttributeChoice(attribute, "", "", (), 0, 0, "", "", None)
        edges, missing = _drafted(attribute, profile)
        often = sorted(profile.counts.items(), key=lambda item: (-item[1], item[0]))
        known = {spelling(category): category for category in attribute.categories}
        values = tuple(
            Value(text, rows, given.get(f"value:{text}", _like(text, attribute, known)))
            for text, rows in often[:MOST_VALUES]
        )
        return AttributeChoice(
            attribute=attribute,
            column=profile.name,
            edges=given.get("edges", edges),
            values=values,
            more_values=max(0, len(often) - MOST_VALUES),
            missing_rows=profile.missing,
            missing=given.get(MISSING, missing),
            rest=given.get(REST, ""),
            histogram=_histogram(profile, given.get("edges", edges)),
            words=profile.missing_words if profile.numbers is not None else (),
        )

    def recode(self, schema: Schema) -> Recode:
        """Return what was chosen as the rules of a recode file; what is left open is refused.

        A recode file that was named says all of it.
        """
        if self.file is not None:
            return read_recode_file(self.file, schema)
        rules: dict[str, Rule] = {}
        columns: dict[str, str] = {}
        for attribute in schema.attributes:
            choice = self.attribute(attribute)
            if not choice.column:
                raise ParameterError(
                    f"no column is chosen for {attribute.name!r}", hint="choose one in its box"
                )
            columns[attribute.name] = choice.column
            rules[attribute.name] = _rule(choice, self.profiles[choice.column])
        return Recode(rules, columns=columns, duplicates=check_duplicates(self.duplicates))

    def recode_file(self, schema: Schema) -> str:
        """Return the recode file."""
        return recode_text(self.recode(schema))

    def _column_like(self, name: str) -> str:
        alike = [column for column in self.profiles if spelling(column) == spelling(name)]
        return alike[0] if len(alike) == 1 else ""


def _like(text: str, attribute: Attribute, known: Mapping[str, str]) -> str:
    return text if text in attribute.categories else known.get(spelling(text), "")


def _drafted(attribute: Attribute, profile: ColumnProfile) -> tuple[str, str]:
    """Return edges and the category of missing values, where the categories' names say them."""
    bins = None if profile.numbers is None else named_bins(attribute)
    edges = "" if bins is None else " ".join(f"{edge:g}" for edge in bins.edges)
    return edges, category_of_missing(attribute) or ""


def _rule(choice: AttributeChoice, profile: ColumnProfile) -> Rule:
    missing = choice.missing or None
    if choice.edges.strip():
        # Words among numbers, such as "unknown", count as missing; spaces around numbers do not.
        padded = any(text != text.strip() for text in profile.counts)
        return Bins(
            _edges(choice.edges),
            missing=missing,
            missing_values=choice.words if missing else (),
            fold=("trim",) if padded else (),
        )
    entries: dict[str | None, str] = {
        escaped(value.text): value.category for value in choice.values if value.category
    }
    if missing is not None:
        entries[None] = missing
    return ValueMap(entries, otherwise=choice.rest or None)


def _edges(text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.replace(";", " ").replace(",", " ").split()]
    except ValueError:
        raise ParameterError(
            f"the edges of bins are numbers, and not {text!r}", hint="write them as in: 40 65"
        ) from None
    return [int(number) if number.is_integer() else number for number in numbers]


def _histogram(profile: ColumnProfile, text: str) -> Histogram | None:
    """Return how the numbers of a column lie, with the bins; none for columns without numbers."""
    if profile.numbers is None or profile.numbers[0].is_empty():
        return None
    numbers = profile.numbers[0]
    counts = numbers.hist(bin_count=BARS)["count"].to_list()
    most = max(counts) or 1
    low, high = float(numbers.min()), float(numbers.max())  # type: ignore[arg-type]
    try:
        edges = [float(edge) for edge in _edges(text)]
        names = Bins(edges).labels() if edges else ()
    except InputError:  # said when the table is checked
        edges, names = [], ()
    ends = [-math.inf, *edges, math.inf]
    inside = [
        int(((numbers >= lower) & (numbers < upper)).sum()) for lower, upper in pairwise(ends)
    ]
    width = high - low or 1.0
    return Histogram(
        bars=tuple(count / most for count in counts),
        low=low,
        high=high,
        lines=tuple((edge - low) / width for edge in edges if low <= edge <= high),
        bins=tuple(zip(names, inside, strict=False)),
    )


def tables_in(folder: Path) -> Iterable[tuple[str, Path, bool]]:
    """List what could be a table in a folder, and the folders in it; hidden ones are left out."""
    endings = (".csv", ".tsv", ".txt", ".parquet", ".xlsx", ".ods", ".gz", ".zst", ".db", ".sqlite")
    try:
        entries = sorted(
            folder.iterdir(), key=lambda entry: (not entry.is_dir(), entry.name.lower())
        )
    except OSError as error:
        raise ParameterError(
            f"the folder {folder} cannot be listed: {error.strerror}", hint="choose another one"
        ) from error
    for entry in entries:
        if not entry.name.startswith(".") and (
            entry.is_dir() or entry.name.lower().endswith(endings)
        ):
            yield entry.name, entry, entry.is_dir()
