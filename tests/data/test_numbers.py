"""Numbers as texts: which marks they have, and what could be read in two ways."""

import polars as pl
import pytest

from tests.support.cases import for_each
from veiltab.data.numbers import POINTS, NumberMarks, find_marks

COMMAS = NumberMarks(",")
GERMAN = NumberMarks(",", ".")
ENGLISH = NumberMarks(".", ",")


def found(*values: str | None, commas_separate: bool = False) -> tuple[NumberMarks, list[str]]:
    """Look at one column."""
    rows = pl.DataFrame({"v": list(values)})
    marks = find_marks(rows, None, commas_separate=commas_separate)
    return marks.marks, list(marks.notes)


@for_each(
    "case",
    [
        (("72,5", "80"), COMMAS),
        ((" 72,5 ", "-0,125", None), COMMAS),
        (("0,123", "1,234"), COMMAS),
        (("1.234,50", "12"), GERMAN),
        (("1.234.567", "12"), GERMAN),
        (("1,234.50", "12"), ENGLISH),
        (("72.5", "80"), POINTS),
        (("80", "81"), POINTS),
        (("yes, no", "a,b"), POINTS),
        (("31.12.2020", "1.1.2021"), POINTS),
        (("72,5", "k. A.", "k. A."), POINTS),
        (("72,5", "72,6", "k. A."), COMMAS),
    ],
)
def test_marks_are_found(case: tuple[tuple[str | None, ...], NumberMarks]) -> None:
    """Where the numbers of a column leave no doubt, and most of its values are numbers."""
    values, marks = case
    assert found(*values) == (marks, [])


@for_each(
    "case",
    [
        (("1.234", "2.345"), POINTS, "could be 1.234 or 1234; it is read as 1.234"),
        (("1,234", "7"), POINTS, "could be 1.234 or 1234; it is not read as a number"),
        (("1.5", "1,234"), POINTS, "could be 1.234 or 1234; it is not read as a number"),
        (("72,5", "1.234"), COMMAS, "could be 1.234 or 1234; it is not read as a number"),
        (("72,5", "72.5"), POINTS, "has decimal commas and decimal points"),
    ],
)
def test_doubts_are_told(case: tuple[tuple[str, ...], NumberMarks, str]) -> None:
    """And fail closed: what is in doubt is no number, unless the usual way to read it is right."""
    values, marks, note = case
    decided, (told,) = found(*values)
    assert decided == marks
    assert "the column 'v'" in told
    assert told.endswith(note)


def test_commas_that_separate_are_no_decimal_marks() -> None:
    """Not even in quotes."""
    assert found("72,5", "80,1", commas_separate=True) == (POINTS, [])


@pytest.mark.parametrize(
    ("marks", "numbers", "others"),
    [
        (
            COMMAS,
            {"72,5": "72.5", " -1,25e3 ": "-1.25e3", "7": "7"},
            ["1.234", "1.5", "x", "1,2,3"],
        ),
        (GERMAN, {"1.234": "1234", "1.234.567,5": "1234567.5", "0,5": "0.5"}, ["1.23", "12.34,5"]),
        (ENGLISH, {"1,234": "1234", "1,234.5": "1234.5", "1.5": "1.5"}, ["1,23", "1,5"]),
    ],
)
def test_plain_numbers(marks: NumberMarks, numbers: dict[str, str], others: list[str]) -> None:
    """Numbers are written with a point; what is none under these marks is missing."""
    texts = pl.Series("v", [*numbers, *others, None])
    plain = marks.plain(texts)
    assert plain.to_list() == [*numbers.values(), *([None] * len(others)), None]
    assert plain.cast(pl.Float64).null_count() == len(others) + 1


def test_without_special_marks_nothing_is_touched() -> None:
    """Whatever polars takes for a number is one."""
    texts = pl.Series("v", ["1.5", " 7", "x"])
    assert POINTS.plain(texts) is texts
