"""A look at the columns of a table, batch by batch: which could be attributes of a study."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import polars as pl

from veiltab.core.schema import UNPRINTABLE, Attribute
from veiltab.data.encoding import value_texts
from veiltab.data.recode import Bins, Rule, ValueMap
from veiltab.errors import SchemaError
from veiltab.wire.codec import MAX_TEXT

MOST_CATEGORIES = 50
"""A column with more different values is no attribute as it is."""

SAMPLED_ROWS = 100_000
"""How many of the first rows tell an id from a measurement; categories come from all rows."""

ID_SHARE = 0.9
"""With more different values than this among its values, a column looks like an id."""

_INTERVALS = 5
_ROOM_FOR_SUFFIX = 20


class Use(Enum):
    """What a column is good for."""

    ATTRIBUTE = "attribute"
    BINS = "has many numbers"
    CONSTANT = "has the same value in every row"
    EMPTY = "has no values"
    ID = "looks like an id: almost all its values differ"
    MANY = f"has more than {MOST_CATEGORIES} different values"
    UNUSABLE = "is of a type that has no categories"


@dataclass(frozen=True, slots=True)
class ProposedAttribute:
    """A column as an attribute, with the rule that its odd values need."""

    column: str
    attribute: Attribute
    rule: Rule | None


class ColumnProfile:
    """What is known about one column after some batches; it shows no counts."""

    def __init__(self, name: str, dtype: pl.DataType) -> None:
        """Start with nothing."""
        self.name = name
        self.missing = False
        self._dtype = dtype
        self._texts: set[str] = set()
        self._usable = True
        self._sample: list[pl.Series] = []
        self._sampled = 0

    def add(self, column: pl.Series) -> None:
        """Look at the column's next rows."""
        if self._sampled < SAMPLED_ROWS:
            self._sample.append(column.head(SAMPLED_ROWS - self._sampled))
            self._sampled += len(self._sample[-1])
        if not self._usable or (self.missing and len(self._texts) > MOST_CATEGORIES):
            return
        try:
            texts = value_texts(column.unique())
        except SchemaError:
            self._usable = False
            return
        self.missing |= texts.null_count() > 0
        if len(self._texts) <= MOST_CATEGORIES:
            self._texts |= set(texts.drop_nulls().head(2 * MOST_CATEGORIES + 2).to_list())

    @property
    def values(self) -> list[str]:
        """The texts of the different values, in the column's own order if it is an enum.

        Otherwise numbers are ordered by size, and everything else by the alphabet.
        """
        if isinstance(self._dtype, pl.Enum):
            return [text for text in self._dtype.categories.to_list() if text in self._texts]
        numbers = {text: _number(text) for text in self._texts}
        if None in numbers.values():
            return sorted(self._texts)
        return sorted(self._texts, key=lambda text: (numbers[text], text))

    @cached_property
    def use(self) -> Use:
        """What the column is good for; ask after the last batch."""
        if not self._usable:
            return Use.UNUSABLE
        if not self._texts:
            return Use.EMPTY
        if len(self._texts) + self.missing == 1:
            return Use.CONSTANT
        if self._looks_like_id():
            return Use.ID
        if len(self._texts) <= MOST_CATEGORIES:
            return Use.ATTRIBUTE
        return Use.BINS if self.bins() else Use.MANY

    def bins(self) -> Bins | None:
        """Propose intervals between round numbers, which tell little about single values."""
        if not self._dtype.is_numeric() or self._dtype in (pl.Int128, pl.UInt128):
            return None
        numbers = self._values().cast(pl.Float64)
        numbers = numbers.filter(numbers.is_finite())
        low, high = numbers.quantile(0.05), numbers.quantile(0.95)
        if low is None or high is None or not low < high:
            return None
        edges = round_edges(float(low), float(high), 1.0 if self._dtype.is_integer() else 0.0)
        return Bins(edges) if edges else None

    def _values(self) -> pl.Series:
        sample = pl.concat(self._sample).drop_nulls()
        return sample.drop_nans() if self._dtype.is_float() else sample

    def _looks_like_id(self) -> bool:
        """Tell ids from columns that merely have many values: fractions are measurements."""
        if self._dtype == pl.Boolean:
            return False
        values = self._values()
        if self._dtype.is_float() and (values != values.round(0)).any():
            return False
        return values.n_unique() > ID_SHARE * len(values)


def profile_table(table: pl.DataFrame | Iterable[pl.DataFrame]) -> list[ColumnProfile]:
    """Look at every column of a table, which may come in batches of the same columns."""
    profiles: Mapping[str, ColumnProfile] | None = None
    for batch in (table,) if isinstance(table, pl.DataFrame) else table:
        if profiles is None:
            profiles = {name: ColumnProfile(name, kind) for name, kind in batch.schema.items()}
        if list(profiles) != batch.columns:
            raise SchemaError(
                "the parts of the table have different columns",
                hint="give all parts the columns of the first one, in the same order",
            )
        for name, profile in profiles.items():
            profile.add(batch[name])
    return list((profiles or {}).values())


def round_edges(low: float, high: float, least: float = 0.0) -> list[int | float]:
    """Return a few multiples of 1, 2 or 5 times a power of ten between ``low`` and ``high``.

    They are at least ``least`` apart.
    """
    width = max((high - low) / _INTERVALS, least)
    if not math.isfinite(width) or width <= 0:
        return []
    exponent = math.floor(math.log10(width))
    factor = next((f for f in (1, 2, 5) if f * 10.0**exponent >= width), 10)
    step = factor * 10.0**exponent
    if step == 0:
        return []
    first, last = math.floor(low / step) + 1, math.ceil(high / step) - 1
    if exponent >= 0:
        whole = factor * 10**exponent
        return [number * whole for number in range(first, last + 1)]
    edges = [round(number * step, -exponent) for number in range(first, last + 1)]
    return sorted(set(edges))


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def propose_attribute(profile: ColumnProfile, name: str) -> ProposedAttribute:
    """Return a column as an attribute: its values as categories, missing ones as one more."""
    values = profile.values
    categories = printable_texts(values)
    changed = zip(values, categories, strict=True)
    entries: dict[str | None, str] = {raw: new for raw, new in changed if raw != new}
    if profile.missing:
        (entries[None],) = printable_texts(["(missing)"], categories)
        categories.append(entries[None])
    rule = ValueMap(entries) if entries else None
    return ProposedAttribute(profile.name, Attribute(name, categories), rule)


def printable_texts(texts: Sequence[str], taken: Iterable[str] = ()) -> list[str]:
    """Replace what may not stand in a contract; different texts stay different."""
    used = set(taken)
    kept = {text for text in texts if _clean(text) == text} - used
    used |= kept
    return [text if text in kept else _free(_clean(text), used) for text in texts]


def _free(text: str, taken: set[str]) -> str:
    """Find a text that is not taken yet, and take it."""
    name, number = text, 2
    while name in taken:
        name, number = f"{text} ({number})", number + 1
    taken.add(name)
    return name


def _clean(text: str) -> str:
    shown = UNPRINTABLE.sub(lambda found: f"\\x{ord(found.group()):02x}", text) or "(empty)"
    return shown if len(shown) <= MAX_TEXT else f"{shown[: MAX_TEXT - _ROOM_FOR_SUFFIX]}…"
