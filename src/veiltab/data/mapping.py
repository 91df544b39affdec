"""Rules applied to columns: from values to codes, a batch at a time.

A rule is compiled once.  Where it takes more than a lookup, the different values of a batch are
mapped, and not every row.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from veiltab.core.schema import Attribute, Codes
from veiltab.data.numbers import POINTS, NumberMarks
from veiltab.data.patterns import (
    AMBIGUOUS,
    NONE,
    Pattern,
    PatternTable,
    ambiguous,
    fold_values,
    parse_pattern,
)
from veiltab.data.recode import Bins, Rule, ValueMap
from veiltab.errors import SchemaError

_FEW = 8
_LISTED_CATEGORIES = 10


class UnknownValues(Exception):  # noqa: N818 - raised and caught while encoding, never shown
    """Some values of a column have no category."""

    def __init__(self, texts: pl.Series, unknown: pl.Series) -> None:
        """Take the column's texts, and which of them are unknown."""
        super().__init__()
        self.texts, self.unknown = texts, unknown


class Mapper:
    """A rule for one attribute, compiled: :meth:`codes` takes the column, part by part."""

    def __init__(
        self, attribute: Attribute, rule: Rule | None, marks: NumberMarks = POINTS
    ) -> None:
        """Refuse a rule that leads to categories that the attribute does not have.

        ``marks`` are those of numbers that are texts, unless the rule has its own.
        """
        self._attribute = attribute
        self._map: _Numbers | _Texts | _Lookup
        if isinstance(rule, Bins):
            self._map = _Numbers(attribute, rule, marks)
        elif rule is not None and _needs_matching(rule):
            self._map = _Texts(attribute, rule)
        else:
            self._map = _Lookup(attribute, rule)

    def codes(self, column: pl.Series) -> Codes:
        """Return the codes of some rows; :class:`UnknownValues` says which have none."""
        named = column if column.name else column.alias(self._attribute.name)
        return self._map.codes(named)


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


class _Lookup:
    """Texts that are categories or are listed, as they are: the usual case, and the fastest."""

    def __init__(self, attribute: Attribute, rule: ValueMap | None) -> None:
        entries: Mapping[str | None, str] = {} if rule is None else rule.entries
        index = _index(attribute, entries.values())
        exact = index if rule is None else _exact(_compile(attribute, rule, index))
        self._known, self._listed = list(exact), rule is not None
        self._takes_missing = None in entries
        missing = index[entries[None]] if None in entries else 0
        self._codes = np.array([*exact.values(), missing], dtype=attribute.dtype)

    def codes(self, column: pl.Series) -> Codes:
        """Find each text's code; polars' cast to an Enum is its fastest lookup of text."""
        texts = value_texts(column)
        few = _look_up_few(texts, self._known) if len(self._known) <= _FEW else None
        if few is not None:
            return np.take(self._codes, few) if self._listed else few
        places = texts.cast(pl.Enum(self._known), strict=False).to_physical()
        unknown = places.is_null()
        if self._takes_missing:
            unknown &= texts.is_not_null()
        if unknown.any():
            raise UnknownValues(texts, unknown)
        return np.take(self._codes, places.fill_null(len(self._known)).to_numpy())


class _Texts:
    """Texts that are folded, or compared with patterns, or may fall under ``otherwise``."""

    def __init__(self, attribute: Attribute, rule: ValueMap) -> None:
        self._dtype, self._fold = attribute.dtype, rule.fold
        index = _index(attribute, [*rule.entries.values(), rule.otherwise])
        self._missing = index[rule.entries[None]] if None in rule.entries else NONE
        self._otherwise = NONE if rule.otherwise is None else index[rule.otherwise]
        compiled = _compile(attribute, rule, index)
        exact = _exact(compiled)
        self._known = pl.Enum(list(exact))
        self._codes = np.array([*exact.values(), NONE], dtype=np.int64)
        self._patterns = PatternTable((p, code) for p, code in compiled.items() if not p.plain)

    def codes(self, column: pl.Series) -> Codes:
        texts = value_texts(column)
        different = texts.unique().drop_nulls()
        mapped = np.append(self._map(different), self._missing)
        places = texts.cast(pl.Enum(different)).to_physical().fill_null(len(different))
        codes = mapped[places.to_numpy()]
        unknown = codes == NONE
        if unknown.any():
            raise UnknownValues(texts, pl.Series(unknown))
        return np.asarray(codes, dtype=self._dtype)

    def _map(self, different: pl.Series) -> NDArray[np.int64]:
        """Return the codes of different texts: exact texts first, then patterns, then the rest."""
        texts = fold_values(different, self._fold)
        places = texts.cast(self._known, strict=False).to_physical()
        codes: NDArray[np.int64]
        codes = self._codes[places.fill_null(len(self._codes) - 1).to_numpy()]
        rest = np.flatnonzero(codes == NONE)
        if len(self._patterns) and rest.size:
            left = texts.gather(rest)
            codes[rest] = self._patterns.targets(left)
            odd = np.flatnonzero(codes == AMBIGUOUS)
            if odd.size:
                first = int(odd[0])
                raise ambiguous(
                    different.name, different[first], self._patterns.rivals(texts[first])
                )
        codes[codes == NONE] = self._otherwise
        return codes


class _Numbers:
    """Numbers, or texts that say numbers, in intervals."""

    def __init__(self, attribute: Attribute, bins: Bins, marks: NumberMarks) -> None:
        self._bins, self._dtype = bins, attribute.dtype
        self._marks = marks if bins.decimal is None else NumberMarks(bins.decimal)
        index = _index(attribute, [bins.missing])
        self._codes = np.array(
            [index[category] for category in bins.intervals(attribute)], dtype=attribute.dtype
        )
        self._missing = None if bins.missing is None else index[bins.missing]
        listed = pl.Series(bins.missing_values, dtype=pl.String)
        self._listed = fold_values(listed, bins.fold)

    def codes(self, column: pl.Series) -> Codes:
        if column.dtype in (pl.Categorical, pl.Enum):
            column = column.cast(pl.String)
        numbers = self._numbers(column)
        missing = self._are_missing(column)
        unknown = numbers.is_null() & ~missing if missing is not None else numbers.is_null()
        if unknown.any():
            raise UnknownValues(value_texts(column), unknown)
        if missing is None or not missing.any():
            return np.take(self._codes, self._place(column, numbers))
        there = ~missing
        codes: Codes = np.full(len(column), self._missing).astype(self._dtype)
        placed = self._place(column.filter(there), numbers.filter(there))
        codes[there.to_numpy()] = self._codes[placed]
        return codes

    def _are_missing(self, column: pl.Series) -> pl.Series | None:
        if self._missing is None:
            return None
        if not len(self._listed):
            return (column.fill_nan(None) if column.dtype.is_float() else column).is_null()
        texts = value_texts(column)
        listed = fold_values(texts, self._bins.fold).is_in(self._listed.implode())
        return texts.is_null() | listed.fill_null(value=False)

    def _numbers(self, column: pl.Series) -> pl.Series:
        """Refuse what cannot be binned; NaN counts as missing."""
        dtype = column.dtype
        if dtype == pl.String:
            return self._plain(column).cast(pl.Float64, strict=False).fill_nan(None)
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

    def _plain(self, column: pl.Series) -> pl.Series:
        """Write numbers with a decimal point; what is none by the marks is missing."""
        return self._marks.plain(fold_values(column, self._bins.fold))

    def _place(self, column: pl.Series, numbers: pl.Series) -> NDArray[np.int64]:
        """Return the number of each interval; whole numbers in texts are compared as such."""
        placed = _place(numbers, self._bins)
        if column.dtype == pl.String:
            whole = self._plain(column).cast(pl.Int64, strict=False)
            placed[whole.is_not_null().to_numpy()] = _place(whole.drop_nulls(), self._bins)
        return placed


def _needs_matching(rule: ValueMap) -> bool:
    keys = [raw for raw in rule.entries if raw is not None]
    starred = any("*" in raw and not parse_pattern(raw).plain for raw in keys)
    return bool(rule.fold) or rule.otherwise is not None or starred


def _exact(compiled: Mapping[Pattern, int]) -> dict[str, int]:
    return {pattern.pieces[0]: code for pattern, code in compiled.items() if pattern.plain}


def _compile(attribute: Attribute, rule: ValueMap, index: Mapping[str, int]) -> dict[Pattern, int]:
    """Return every pattern, folded, and its code: what is listed goes before the categories."""
    listed = [(parse_pattern(raw), name) for raw, name in rule.entries.items() if raw is not None]
    if None in rule.entries:
        listed += [(Pattern((text,)), rule.entries[None]) for text in rule.missing_values]
    compiled = _folded(attribute, listed, rule.fold, index)
    own = [(Pattern((name,)), name) for name in attribute.categories]
    unlisted = [(p, name) for p, name in own if p.folded(rule.fold) not in compiled]
    return _folded(attribute, unlisted, rule.fold, index) | compiled


def _folded(
    attribute: Attribute,
    patterns: Iterable[tuple[Pattern, str]],
    rules: Sequence[str],
    index: Mapping[str, int],
) -> dict[Pattern, int]:
    compiled: dict[Pattern, int] = {}
    first: dict[Pattern, tuple[Pattern, str]] = {}
    for pattern, name in patterns:
        alike = pattern.folded(rules)
        earlier, category = first.setdefault(alike, (pattern, name))
        if category != name:
            raise SchemaError(
                f"for {attribute.name!r}, {str(earlier)!r} and {str(pattern)!r} are the same"
                f" text by {', '.join(rules) or 'the rules'}, and belong to {category!r} and"
                f" {name!r}",
                hint="list each text once, or leave out the rule of fold that makes them alike",
            )
        compiled[alike] = index[name]
    return compiled


def _index(attribute: Attribute, targets: Iterable[str | None]) -> dict[str, int]:
    """Return the code of each category, if the targets of a rule are among them."""
    index = {category: code for code, category in enumerate(attribute.categories)}
    unknown = [name for name in dict.fromkeys(targets) if name is not None and name not in index]
    if unknown:
        raise SchemaError(
            f"the rule for {attribute.name!r} maps to"
            f" {', '.join(map(repr, unknown))}, which is not a category",
            hint=f"its categories are"
            f" {', '.join(map(repr, attribute.categories[:_LISTED_CATEGORIES]))}"
            + (", …" if attribute.size > _LISTED_CATEGORIES else ""),
        )
    return index


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


def _place(numbers: pl.Series, bins: Bins) -> NDArray[np.int64]:
    values = numbers.to_numpy()
    return np.asarray(np.searchsorted(_edges_like(values, bins), values, side="right"))


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


def _float_texts(column: pl.Series) -> pl.Series:
    """Write whole floats as integers, however large; NaN counts as missing."""
    number = pl.col("number")
    whole = number.cast(pl.Int128, strict=False)
    text = pl.when(number == whole).then(whole.cast(pl.String)).otherwise(number.cast(pl.String))
    frame = column.fill_nan(None).to_frame("number")
    return frame.select(text).to_series().alias(column.name)
