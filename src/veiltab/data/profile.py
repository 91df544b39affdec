"""A look at the columns of a table, batch by batch: which could be attributes of a study."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import polars as pl

from veiltab.core.schema import UNPRINTABLE, Attribute
from veiltab.data.dates import DateForm
from veiltab.data.mapping import value_texts
from veiltab.data.patterns import escaped
from veiltab.data.recode import Bins, DecimalMark, Rule, ValueMap, interval_begins
from veiltab.errors import SchemaError
from veiltab.wire.codec import MAX_TEXT

MOST_CATEGORIES = 50
"""A column with more different values is no attribute as it is."""

KEPT_VALUES = 1000
"""Of a column with more different values, only these are counted."""

SAMPLED_ROWS = 100_000
"""How many of the first rows tell an id from a measurement; categories come from all rows."""

ID_SHARE, REPEATED_ID_SHARE = 0.9, 0.5
"""With more different values than this among its values, a column looks like an id.

The second share is for texts of no other use, in a table where people may have several rows.
"""

MISSING_WORDS = frozenset(
    ("", "n/a", "na", "nan", "null", "?", "-", ".", "missing", "k.a.", "k. a.")
)
"""What people write where they know nothing, without case and spaces at the ends."""

NO_NUMBER = MISSING_WORDS | {"unknown", "not known", "no answer", "unbekannt", "keine angabe"}
"""The same among numbers; elsewhere these could be a category that somebody has chosen."""

_TEXT_LENGTH, _TEXT_VALUES = 40, 10
"""Free text has values of this length on average, and more different ones than this."""

ISO_DATES = "YYYY-MM-DD"
_DATE_FORMS = (ISO_DATES, "DD.MM.YYYY", "D.M.YYYY")
"""Forms that mean one day only; 01/02/1980 can be two."""

_MEASURED_VALUES = 10
"""With more different values than this, fractions are put into intervals."""

_SHARES = (0.2, 0.4, 0.6, 0.8)
_STEPS = 10
_ROOM_FOR_SUFFIX = 20
_DECIMALS: dict[DecimalMark, str] = {
    ".": r"^[+-]?[0-9]+(\.[0-9]+)?$",
    ",": r"^[+-]?[0-9]+(,[0-9]+)?$",
}


class Use(Enum):
    """What a column is good for."""

    ATTRIBUTE = "attribute"
    BINS = "has many numbers"
    CONSTANT = "has the same value in every row"
    EMPTY = "has no values"
    ID = "looks like an id: almost all its values differ"
    MANY = f"has more than {MOST_CATEGORIES} different values"
    TEXT = "looks like free text: its values are long and many"
    UNUSABLE = "is of a type that has no categories"


@dataclass(frozen=True, slots=True)
class ProposedAttribute:
    """A column as an attribute, with the rule that its odd values need."""

    column: str
    attribute: Attribute
    rule: Rule | None


class ColumnProfile:
    """What is known about one column after some batches."""

    def __init__(self, name: str, dtype: pl.DataType) -> None:
        """Start with nothing."""
        self.name = name
        self.missing = 0
        self.counts: dict[str, int] = {}
        self._dtype = dtype
        self._usable = True
        self._sample: list[pl.Series] = []
        self._sampled = 0

    def add(self, column: pl.Series) -> None:
        """Look at the column's next rows."""
        if self._sampled < SAMPLED_ROWS:
            self._sample.append(column.head(SAMPLED_ROWS - self._sampled))
            self._sampled += len(self._sample[-1])
        if not self._usable:
            return
        try:
            texts = value_texts(column)
        except SchemaError:
            self._usable = False
            return
        self.missing += texts.null_count()
        counted = texts.alias("value").drop_nulls().value_counts(sort=True)
        if len(self.counts) > KEPT_VALUES:
            kept = pl.Series(list(self.counts), dtype=pl.String)
            counted = counted.filter(pl.col("value").is_in(kept.implode()))
        for text, count in counted.head(2 * KEPT_VALUES).iter_rows():
            self.counts[text] = self.counts.get(text, 0) + count

    @property
    def values(self) -> list[str]:
        """The texts of the different values, in the column's own order if it is an enum.

        Otherwise numbers and the names of intervals are ordered by size, and everything else by the
        alphabet.
        """
        if isinstance(self._dtype, pl.Enum):
            return [text for text in self._dtype.categories.to_list() if text in self.counts]
        numbers = {text: _number(text) for text in self.counts}
        if None in numbers.values():
            return sorted(self.counts, key=_by_interval)
        return sorted(self.counts, key=lambda text: (numbers[text], text))

    @property
    def missing_words(self) -> tuple[str, ...]:
        """The values that stand for a missing one."""
        words = MISSING_WORDS if self.numbers is None else NO_NUMBER
        return tuple(text for text in sorted(self.counts) if _plain(text) in words)

    @cached_property
    def use(self) -> Use:
        """What the column is good for; ask after the last batch."""
        return self._useless() or self._useful()

    def _useless(self) -> Use | None:
        if not self._usable:
            return Use.UNUSABLE
        if not self.counts:
            return Use.EMPTY
        return Use.CONSTANT if len(self.counts) + bool(self.missing) == 1 else None

    def _useful(self) -> Use:
        if self._is_free_text():
            return Use.TEXT
        if self._looks_like_id():
            return Use.ID
        if len(self.counts) <= MOST_CATEGORIES and not self._is_measured():
            return Use.ATTRIBUTE
        return Use.BINS if self.bins() else Use.MANY

    @cached_property
    def numbers(self) -> tuple[pl.Series, DecimalMark] | None:
        """The numbers in the first rows and their decimal mark, if there is nothing else.

        A file without types has texts that say numbers; words for a missing one may be among them.
        """
        values = self._values()
        if self._dtype.is_numeric() and self._dtype not in (pl.Int128, pl.UInt128):
            numbers = values.cast(pl.Float64)
            return numbers.filter(numbers.is_finite()), "."
        if self._dtype != pl.String:
            return None
        texts = values.str.strip_chars()
        texts = texts.filter(~texts.str.to_lowercase().is_in(list(NO_NUMBER)))
        for mark, regex in _DECIMALS.items():
            if len(texts) and texts.str.contains(regex).all():
                return texts.str.replace(",", ".", literal=True).cast(pl.Float64), mark
        return None

    def bins(self) -> Bins | None:
        """Propose intervals with about as many rows each, between round numbers.

        Those tell little about single values.
        """
        if self.numbers is None:
            return None
        numbers, mark = self.numbers
        edges = quantile_edges(numbers)
        return Bins(edges, decimal="," if mark == "," else None) if edges else None

    def id_warnings(self) -> dict[str, str]:
        """Say what could keep the ids in the first rows from matching those of other tables.

        The keys are the rules of normalisation that would make them alike.
        """
        return {
            rule: f"{words}: agree on the normalisation {rule}, unless it makes different people"
            " alike"
            for rule, words in self.id_oddities().items()
        }

    def id_oddities(self) -> dict[str, str]:
        """Say what the first rows write in several ways, by the rule that makes it alike."""
        values = self._values()
        if values.dtype != pl.String:
            return {}
        small = (values != values.str.to_uppercase()).any()
        capital = (values != values.str.to_lowercase()).any()
        composed = values.str.normalize("NFC")
        found = {
            "nfc": ("are in different forms of Unicode", (composed != values).any()),
            "trim": ("have spaces at their ends", (values != values.str.strip_chars()).any()),
            "lowercase": ("mix capital and small letters", small and capital),
        }
        return {
            rule: f"some ids in {self.name!r} {what}"
            for rule, (what, is_so) in found.items()
            if is_so
        }

    def date_form(self) -> str | None:
        """How dates are written in the first rows, if there is nothing else, and no doubt."""
        values = self._values()
        if values.dtype != pl.String or not len(values):
            return None
        for form in _DATE_FORMS:
            if DateForm(form).to_iso(values).null_count() == 0:
                return form
        return None

    @property
    def is_text(self) -> bool:
        """Whether the column has texts that do not say numbers."""
        return self._dtype == pl.String and self.numbers is None

    def could_be_repeated_id(self) -> bool:
        """Tell whether this could be the id of people who have several rows."""
        if self.use is not Use.MANY or not self.is_text:
            return False
        values = self._values()
        return values.n_unique() > REPEATED_ID_SHARE * len(values)

    def repeated(self) -> int:
        """How many of the first rows have an id that stood in an earlier row."""
        values = self._values()
        return len(values) - values.n_unique()

    def _values(self) -> pl.Series:
        sample = pl.concat(self._sample).drop_nulls()
        return sample.drop_nans() if self._dtype.is_float() else sample

    def _is_free_text(self) -> bool:
        if self._dtype != pl.String or len(self.counts) <= _TEXT_VALUES:
            return False
        lengths = [len(text) for text in self.counts]
        return sum(lengths) >= _TEXT_LENGTH * len(lengths)

    def _looks_like_id(self) -> bool:
        """Tell ids from columns that merely have many values: fractions are measurements."""
        if self._dtype == pl.Boolean:
            return False
        if self._has_fractions():
            return False
        values = self._values()
        return values.n_unique() > ID_SHARE * len(values)

    def _is_measured(self) -> bool:
        return len(self.counts) > _MEASURED_VALUES and self._has_fractions() and bool(self.bins())

    def _has_fractions(self) -> bool:
        if self.numbers is None:
            return False
        numbers, _ = self.numbers
        return bool((numbers != numbers.round(0)).any())


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


def id_columns(profiles: Iterable[ColumnProfile]) -> list[ColumnProfile]:
    """Return the columns that look like ids.

    Where no text does, people may have several rows: then it is also those that could be their ids.
    """
    every = list(profiles)
    several = not any(one.use is Use.ID and one.is_text for one in every)
    return [one for one in every if one.use is Use.ID or (several and one.could_be_repeated_id())]


def quantile_edges(numbers: pl.Series) -> list[int | float]:
    """Return round numbers near the quantiles: multiples of 1, 2 or 5 times a power of ten.

    Whole numbers have whole edges.  No edge is at or below the smallest number.
    """
    low, high = numbers.quantile(0.05), numbers.quantile(0.95)
    if low is None or high is None or not low < high or not math.isfinite(high - low):
        return []
    step, decimals = _round_step((high - low) / _STEPS, (numbers == numbers.round(0)).all())
    if not step:
        return []
    edges = set()
    for share in _SHARES:
        multiple = round((numbers.quantile(share, "linear") or 0.0) / step) * step
        if math.isfinite(multiple):
            edges.add(round(multiple, decimals) if decimals else int(multiple))
    least = float(numbers.min())  # type: ignore[arg-type]
    return sorted(edge for edge in edges if edge > least)


def _round_step(width: float, whole: bool) -> tuple[float, int]:  # noqa: FBT001
    """Return a step of about this width, and how many decimals its multiples have."""
    exponent = math.floor(math.log10(width))
    factor = max(factor for factor in (1, 2, 5) if factor * 10.0**exponent <= width)
    if exponent < 0 and not whole:
        return factor * 10.0**exponent, -exponent
    return max(1.0, factor * 10.0**exponent), 0


def _plain(text: str) -> str:
    return text.strip().casefold()


def _by_interval(text: str) -> tuple[bool, float, str]:
    """Put intervals in front of other texts, so that <40 comes before 40 to <60."""
    begins = interval_begins(text)
    return begins is None, begins or 0.0, text


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
    entries: dict[str | None, str] = {escaped(raw): new for raw, new in changed if raw != new}
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
