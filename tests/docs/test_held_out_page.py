"""The page on held-out settings: all of them, what was measured there, and every function."""

import inspect
import re

from tests.docs.test_gallery import NO_ANALYSES, OWNERS
from tests.support.documents import ROOT, Table, prose, tables
from tests.support.heldout import HELD_OUT
from tests.support.heldout_run import OUTSIDE, REJECTING
from tests.support.heldout_table import described, markdown, read

PAGE = ROOT / "docs" / "explanation" / "held-out-settings.md"
MEASURED = ROOT / "tests" / "support" / "heldout_measured.jsonl"
ESTIMATES = ROOT / "docs" / "explanation" / "estimates.md"
NOT_MEASURED = {"export", "write_csv", "margins"}
"""What writes files, or shows what a user gave."""


def entries() -> list[Table]:
    """Return the tables of what was measured, one row for each setting."""
    first = "held-out setting"
    return [t for t in tables(prose(PAGE)) if t.header[0] == first and "mechanism" not in t.header]


def functions() -> dict[str, list[tuple[str, str]]]:
    """Return for each function the columns that are about it, and in which tables they are."""
    found: dict[str, list[tuple[str, str]]] = {}
    for table in (t for t in tables(prose(PAGE)) if t.header[0] == "function"):
        for row in table.rows:
            named = [name.rpartition(".")[2] for name in row[0].split(", ")]
            columns = row[1].split(" and ") if table.header[1] == "column" else []
            for name in named:
                found[name] = [(column, row[2]) for column in columns]
    return found


def test_the_page_lists_the_settings_as_they_are() -> None:
    """Name, size, mechanism and promise of each."""
    assert "\n".join(described()) in PAGE.read_text("utf-8")


def test_every_entry_lies_where_it_should_or_says_why_not() -> None:
    """Intervals 93% to 97%, tests 4% to 6%.

    Where answers are missing or said to be rough, intervals may hold more often, and tests may
    reject less often.
    """
    assert entries()
    explained = PAGE.read_text("utf-8").partition("Outside of these:")[2]
    assert all(f"*{setting}*: {name}" in explained for name, setting in OUTSIDE)
    for table in entries():
        assert [row[0] for row in table.rows] == [setting.name for setting in HELD_OUT]
        for row in table.rows:
            for name, entry in zip(table.header[1:], row[1:], strict=True):
                if not entry or entry == "–":
                    continue
                low, high = (4.0, 6.0) if name in REJECTING else (93.0, 97.0)
                rate = float(re.split(r"[* ]", entry)[0])
                if "*" in entry or "(" in entry:
                    low, high = (0.0, high) if name in REJECTING else (low, 100.0)
                outside = (name, row[0]) in OUTSIDE
                assert (low <= rate <= high) != outside, (row[0], name, entry)


def test_the_tables_are_those_of_the_file_of_measurements() -> None:
    """Nobody typed a number; and nothing is left to be measured, or to be asked again."""
    *tables, _, header, dashes = markdown(read([MEASURED]))
    assert header.startswith("| question | settings that suit it |")
    assert set(dashes) <= set("|-")
    assert set(tables) <= set(PAGE.read_text("utf-8").splitlines())


def test_every_function_has_a_row() -> None:
    """Whatever the gallery shows was measured, and no row is about a function that is not there."""
    methods = {
        name
        for owner in OWNERS
        for name, _ in inspect.getmembers(owner, callable)
        if not name.startswith("_")
    }
    assert methods - NO_ANALYSES - NOT_MEASURED | {"compare", "pool"} == set(functions())


def test_every_column_is_there() -> None:
    """A row names columns that the tables really have."""
    here = {name for table in entries() for name in table.header}
    there = {name for table in tables(prose(ESTIMATES)) for name in table.header}
    for name, columns in functions().items():
        for column, where in columns:
            assert where in {"here", "estimates"}, name
            assert column in (here if where == "here" else there), (name, column)
