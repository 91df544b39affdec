"""Numbers that are written as texts: which mark stands before decimals, and between thousands."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

_OTHER = {",": ".", ".": ","}
_LIKE_A_NUMBER = r"^[+-]?[0-9][0-9.,]*$"
_SHARE = 0.5
"""A column with fewer values that look like numbers is not asked which marks they have."""


@dataclass(frozen=True, slots=True)
class NumberMarks:
    """How a table writes numbers: ``1234.5`` unless it is said or found otherwise."""

    decimal: str = "."
    thousands: str | None = None

    def plain(self, texts: pl.Series) -> pl.Series:
        """Write numbers as ``1234.5``; what is none is missing, wherever these marks matter.

        With decimal commas and no mark between thousands, ``1.234`` is not a number: it could be
        either of two.
        """
        if self == POINTS:
            return texts
        stripped = texts.str.strip_chars()
        if self.thousands is not None:
            grouped = stripped.str.contains(_grouped(self.thousands, self.decimal))
            bare = stripped.str.replace_all(self.thousands, "", literal=True)
            stripped = bare.zip_with(grouped.fill_null(value=False), stripped)
        mark = re.escape(self.decimal)
        number = stripped.str.contains(rf"^[+-]?[0-9]*({mark}[0-9]*)?([eE][+-]?[0-9]+)?$")
        pointed = stripped.str.replace(self.decimal, ".", literal=True)
        nothing = pl.Series(texts.name, [None], dtype=pl.String)
        return pointed.zip_with(
            number.fill_null(value=False), nothing.new_from_index(0, len(texts))
        )


POINTS = NumberMarks()
"""A decimal point, and nothing between thousands."""


@dataclass(frozen=True, slots=True)
class FoundMarks:
    """The marks that a look at some rows has found, and what could be read in two ways."""

    marks: NumberMarks
    notes: tuple[str, ...] = ()


def find_marks(
    rows: pl.DataFrame, given: NumberMarks | None, *, commas_separate: bool
) -> FoundMarks:
    """Look at the texts of some rows: which marks their numbers have.

    A comma is a decimal mark only where it does not separate fields, and where the numbers of a
    column agree.  ``given`` are marks that the user has named; then only doubts are looked for.
    """
    counts = {
        name: found for name in rows.columns if (found := _count_marks(rows[name])) is not None
    }
    marks = given or _decide(counts, commas_separate=commas_separate)
    notes = []
    if commas_separate and given is None:
        return FoundMarks(marks)
    for name, count in counts.items():
        if count.sure_comma and count.sure_point:
            notes.append(f"the column {name!r} has decimal commas and decimal points")
            continue
        doubtful = count.doubt(marks)
        if doubtful is not None:
            notes.append(_doubt_text(name, doubtful, marks))
    return FoundMarks(marks, tuple(notes))


@dataclass(frozen=True, slots=True)
class _Marks:
    """Which marks one column has: how many values, or an example."""

    sure_comma: int
    sure_point: int
    groups: Mapping[str, int]
    either: Mapping[str, str | None]

    def doubt(self, marks: NumberMarks) -> str | None:
        """Return a value that could be two numbers, if nothing else in the column decides."""
        if marks.thousands is not None:
            return None
        if marks.decimal == "." and self.sure_point:
            return self.either[","]
        if marks.decimal == "," and self.sure_comma:
            return self.either["."]
        return self.either[_OTHER[marks.decimal]] or self.either[marks.decimal]


def _count_marks(column: pl.Series) -> _Marks | None:
    values = column.drop_nulls().str.strip_chars()
    numbers = values.filter(values.str.contains(_LIKE_A_NUMBER))
    if not len(numbers) or len(numbers) < _SHARE * len(values):
        return None
    either = {mark: numbers.filter(numbers.str.contains(_doubtful(mark))) for mark in ",."}
    groups = {mark: _count(numbers, _surely_grouped(mark, _OTHER[mark])) for mark in ",."}
    decimals = {mark: _count(numbers, _decimal(mark)) - len(either[mark]) for mark in ",."}
    return _Marks(
        decimals[","] + groups["."],
        decimals["."] + groups[","],
        groups,
        {mark: found[0] if len(found) else None for mark, found in either.items()},
    )


def _count(texts: pl.Series, pattern: str) -> int:
    return len(texts.filter(texts.str.contains(pattern)))


def _decide(counts: Mapping[str, _Marks], *, commas_separate: bool) -> NumberMarks:
    """Take the comma if the numbers of some column have decimal commas, and no points."""
    commas = any(count.sure_comma and not count.sure_point for count in counts.values())
    decimal = "," if commas and not commas_separate else "."
    thousands = _OTHER[decimal]
    grouped = any(count.groups[thousands] for count in counts.values())
    return NumberMarks(decimal, thousands if grouped and not commas_separate else None)


def _doubt_text(name: str, value: str, marks: NumberMarks) -> str:
    mark = "," if "," in value else "."
    whole, fraction = value.replace(mark, ""), value.replace(mark, ".")
    read = f"read as {fraction}" if mark == marks.decimal else "not read as a number"
    return f"{value!r} in the column {name!r} could be {fraction} or {whole}; it is {read}"


def _decimal(mark: str) -> str:
    return rf"^[+-]?[0-9]+{re.escape(mark)}[0-9]+$"


def _doubtful(mark: str) -> str:
    return rf"^[+-]?[1-9][0-9]{{0,2}}{re.escape(mark)}[0-9]{{3}}$"


def _grouped(mark: str, decimal: str) -> str:
    """Match whole thousands, with decimals or without."""
    mark, decimal = re.escape(mark), re.escape(decimal)
    return rf"^[+-]?[1-9][0-9]{{0,2}}({mark}[0-9]{{3}})+({decimal}[0-9]*)?$"


def _surely_grouped(mark: str, decimal: str) -> str:
    """Match what cannot be anything but marks between thousands: two of them, or decimals."""
    mark, decimal = re.escape(mark), re.escape(decimal)
    start = "^[+-]?[1-9][0-9]{0,2}"
    return rf"{start}({mark}[0-9]{{3}}){{2,}}$|{start}({mark}[0-9]{{3}})+{decimal}[0-9]+$"
