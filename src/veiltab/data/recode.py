"""How a curator's own values become the categories of a study: rules, which stay with the curator.

:mod:`veiltab.data.recode_file` reads and writes them, and :mod:`veiltab.data.mapping` applies them.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

import numpy as np

from veiltab.core.schema import Attribute, check_text
from veiltab.data.dates import DateForm
from veiltab.data.folding import RULES
from veiltab.data.patterns import parse_pattern
from veiltab.errors import ParameterError, SchemaError
from veiltab.protocol.curator.table import Duplicates

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
DecimalMark = Literal[".", ","]

EDGE = r"-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
_INTERVAL = re.compile(rf"(?P<below><{EDGE})|(?P<between>{EDGE}) to <{EDGE}|>=(?P<from>{EDGE})")
"""The names that bins give to their intervals."""


@dataclass(frozen=True, slots=True, init=False)
class ValueMap:
    """Raw texts or patterns and the category of each; the key ``None`` stands for missing values.

    A value that no entry matches keeps its own text, so only the exceptions need an entry.  What
    is then no category goes to ``otherwise``, if it is given.  ``fold`` makes values, entries and
    categories alike before they are compared, by the rules that ids have: nfc, trim, lowercase.
    ``missing_values`` are texts that count as missing.
    """

    entries: Mapping[str | None, str]
    fold: tuple[str, ...]
    missing_values: tuple[str, ...]
    otherwise: str | None

    def __init__(
        self,
        entries: Mapping[str | None, str] | Mapping[str, str] | Mapping[None, str],
        *,
        fold: Iterable[str] = (),
        missing_values: Iterable[str] = (),
        otherwise: str | None = None,
    ) -> None:
        """Copy the entries, so that nobody can change them afterwards."""
        object.__setattr__(self, "entries", MappingProxyType(dict(entries)))
        object.__setattr__(self, "fold", _fold(fold))
        object.__setattr__(self, "otherwise", otherwise)
        object.__setattr__(
            self, "missing_values", _missing_values(missing_values, self.entries.get(None))
        )
        if not self.entries and not self.fold and otherwise is None:
            raise SchemaError("a value map has no entries", hint="leave it out, or list a value")
        if otherwise is not None:
            check_text(otherwise, "the category for all other values")
        for raw, category in self.entries.items():
            _check_raw(raw)
            check_text(category, f"the category for {raw!r}")
            if raw is not None and parse_pattern(raw).prefix == "":
                raise SchemaError(
                    f"the pattern {raw!r} matches everything",
                    hint="name the category of all other values with else (in Python,"
                    r" otherwise); a star itself is written \*",
                )


@dataclass(frozen=True, slots=True, init=False)
class Bins:
    """Right-open intervals between edges: below the first, ..., from the last one on.

    A value equal to an edge belongs to the interval above it.  ``missing`` is the category of
    missing values, and ``missing_values`` are texts that count as such.  ``fold`` is that of
    :class:`ValueMap`; ``decimal`` is the decimal mark of numbers that are texts, by default that
    of the table.
    """

    edges: tuple[int | float, ...]
    missing: str | None
    missing_values: tuple[str, ...]
    fold: tuple[str, ...]
    decimal: DecimalMark | None

    def __init__(
        self,
        edges: Iterable[int | float],
        *,
        missing: str | None = None,
        missing_values: Iterable[str] = (),
        fold: Iterable[str] = (),
        decimal: DecimalMark | None = None,
    ) -> None:
        """Refuse edges that leave a gap, an empty interval or no order."""
        if not isinstance(edges, Iterable):
            raise SchemaError(
                f"the edges of the bins are {edges!r}, not a list",
                hint="write one edge as a list too: Bins([40])",
            )
        object.__setattr__(self, "edges", tuple(_edge(edge) for edge in edges))
        object.__setattr__(self, "missing", missing)
        object.__setattr__(self, "missing_values", _missing_values(missing_values, missing))
        object.__setattr__(self, "fold", _fold(fold))
        object.__setattr__(self, "decimal", decimal)
        if missing is not None:
            check_text(missing, "the category of missing values")
        if decimal is not None and decimal not in get_args(DecimalMark):
            raise SchemaError(f"the decimal mark is {decimal!r}", hint="it is a point or a comma")
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
        """Build the attribute whose categories are these intervals, and that of missing values."""
        missing = () if self.missing is None else (self.missing,)
        return Attribute(name, dict.fromkeys((*self.labels(), *missing)))

    def intervals(self, attribute: Attribute) -> list[str]:
        """Return the category of each interval: all in order, but a category for missing values.

        If there is one category more than intervals, the one for missing values is none of them.
        """
        wanted = len(self.edges) + 1
        categories = list(attribute.categories)
        if self.missing is not None and attribute.size == wanted + 1 and self.missing in categories:
            categories.remove(self.missing)
        if len(categories) != wanted:
            raise SchemaError(
                f"attribute {attribute.name!r} has {attribute.size:,} categories, but its"
                f" {len(self.edges):,} bin edges make {wanted:,} bins",
                hint="give one category more than there are edges, and one for missing values if"
                " they have one of their own",
            )
        return categories


def interval_begins(label: str) -> float | None:
    """Return where an interval begins that is named as bins name theirs; None for other texts."""
    named = _INTERVAL.fullmatch(label)
    if named is None:
        return None
    return -math.inf if named["below"] else float(named["from"] or named["between"])


Rule: TypeAlias = ValueMap | Bins


@dataclass(frozen=True, slots=True, init=False)
class IdColumns:
    """The columns that tell respondents apart, in the order that was agreed on.

    ``dates`` says how dates are written in some of them, such as ``DD.MM.YYYY``: they become
    ``YYYY-MM-DD``, as everywhere else.  Years of two digits are those of the hundred years that
    end with ``latest_year``.
    """

    columns: tuple[str, ...]
    dates: Mapping[str, DateForm]

    def __init__(
        self,
        columns: str | Iterable[str],
        *,
        dates: Mapping[str, str] | None = None,
        latest_year: int | None = None,
    ) -> None:
        """Refuse dates in columns that are not among the ids."""
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        if not names or any(not isinstance(name, str) for name in names):
            raise ParameterError(
                "the columns of ids are not a list of names", hint='write columns = ["patient_no"]'
            )
        forms = {name: DateForm(form, latest_year) for name, form in (dates or {}).items()}
        for name in forms:
            if name not in names:
                raise ParameterError(
                    f"there is a form of dates for {name!r}, which is not among the columns of ids",
                    hint=f"the columns of ids are {', '.join(map(repr, names))}",
                )
        if latest_year is not None and not any(form.short for form in forms.values()):
            raise ParameterError(
                "latest_year is stated, and no date has a year of two digits",
                hint="leave it out, or write YY in the form of a date",
            )
        object.__setattr__(self, "columns", names)
        object.__setattr__(self, "dates", MappingProxyType(forms))


@dataclass(frozen=True, slots=True)
class Recode:
    """What a curator's table means: rules and columns by attribute, its ids, and repeated ids.

    ``duplicates`` says what becomes of rows with the same id: ``refuse`` them all, keep the
    ``first`` or the ``last`` row of each, or one row where all are ``identical`` in every
    attribute.
    """

    rules: Mapping[str, Rule] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    ids: IdColumns | None = None
    duplicates: Duplicates = "refuse"

    def __post_init__(self) -> None:
        """Refuse another way to treat duplicates."""
        check_duplicates(self.duplicates)


def check_duplicates(word: str) -> Duplicates:
    """Return a way to treat duplicates; any other word is refused."""
    ways: tuple[Duplicates, ...] = get_args(Duplicates)
    for way in ways:
        if word == way:
            return way
    raise ParameterError(f"duplicates is {word!r}", hint=f"choose from {', '.join(ways)}")


def _fold(rules: Iterable[str]) -> tuple[str, ...]:
    if isinstance(rules, str):
        raise SchemaError(f"fold is one text, {rules!r}", hint='write a list, as in ["trim"]')
    fold = tuple(rules)
    for rule in fold:
        if rule not in RULES:
            raise SchemaError(
                f"fold has no rule {rule!r}", hint=f"choose from {', '.join(map(repr, RULES))}"
            )
    return fold


def _missing_values(values: Iterable[str], category: str | None) -> tuple[str, ...]:
    if isinstance(values, str):
        raise SchemaError(
            f"missing_values is one text, {values!r}", hint='write a list, as in ["n/a"]'
        )
    texts = tuple(values)
    for text in texts:
        _check_raw(text)
    if None in texts or (texts and category is None):
        raise SchemaError(
            "missing_values lists what counts as missing, and missing values have no category",
            hint='name their category, as in missing = "unknown" (in Python, of the key None or'
            " with missing=…)",
        )
    return texts


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
