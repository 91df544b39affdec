"""From a table to an intake: in any batches, with one error for all that is wrong."""

import gzip
import itertools
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.support.simulator import LocalStudy, Simulator, holding
from veiltab.core.schema import Attribute, Schema
from veiltab.data.feeding import feed
from veiltab.data.recode import Bins, Rule, ValueMap
from veiltab.data.table_format import TableFormat
from veiltab.data.tables import open_table
from veiltab.errors import LinkageError, TableError, ValueNotInSchemaError
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.in_process import Terms
from veiltab.protocol.sorting import MemorySpool
from veiltab.wire.contract import Linkage

BINS = Bins([18, 65])
SCHEMA = Schema([Attribute("smoker", ["no", "yes"]), BINS.attribute("age")])
RULES: dict[str, Rule] = {"smoker": ValueMap({"J": "yes", "N": "no"}), "age": BINS}
FRAME = pl.DataFrame(
    {
        "Nr": [f"P{i:04}" for i in range(500)],
        "raucht": ["J" if i % 3 else "N" for i in range(500)],
        "age": [i % 90 for i in range(500)],
    }
)
BY_ID = Linkage.by_ids(1, ("trim", "lowercase"))


class FrameTable:
    """A table in memory, and the batches that were read from it."""

    format = TableFormat("data frame")

    def __init__(self, frame: pl.DataFrame) -> None:
        """Take the whole table."""
        self.frame = frame
        self.read = 0

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """The columns' names and types."""
        return self.frame.schema

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """Yield these columns."""
        for part in self.frame.select(columns).iter_slices(rows):
            self.read += 1
            yield part

    def row_count(self) -> int:
        """Return how many rows there are."""
        return self.frame.height


@pytest.fixture(scope="module")
def staged() -> LocalStudy:
    """Return a study, for its secret and scope."""
    own = replace(holding({"smoker": 2, "age": 3}, range(40)), attributes=SCHEMA.attributes)
    return Simulator(holdings=[own]).study(Terms(epsilon=1.0, sample_size=10))


def new_intake(staged: LocalStudy) -> Intake:
    """Start to take in the table of the first curator."""
    me = staged.contract.curators[0].party_id
    return Intake(staged.contract, staged.secret, SCHEMA, MemorySpool(), curator=me)


def taken(
    staged: LocalStudy, frame: pl.DataFrame, batch_rows: int, linkage: Linkage = BY_ID
) -> Intake:
    """Take a frame in."""
    intake = new_intake(staged)
    ids = ["Nr"] if linkage.by == "ids" else []
    columns = {"smoker": "raucht"}
    table = FrameTable(frame)
    reading = feed(intake, table, linkage, ids, rules=RULES, columns=columns, batch_rows=batch_rows)
    assert reading.rows == frame.height
    reading.check()
    return intake


def contents(intake: Intake) -> list[list[list[int]]]:
    """Return the rows in token order."""
    ((tokens, codes),) = intake.rows()
    return [tokens.tolist(), *([column.tolist()] for column in codes)]


@pytest.mark.slow
@pytest.mark.parametrize("linkage", [BY_ID, Linkage.by_rows()], ids=["ids", "rows"])
def test_batches_make_no_difference(staged: LocalStudy, linkage: Linkage) -> None:
    """One batch, or many; by ids, or by the rows' numbers, which go on from batch to batch."""
    whole = taken(staged, FRAME, 1000, linkage)
    assert whole.population == 500
    for rows in (1, 7, 499, 500):
        assert contents(taken(staged, FRAME, rows, linkage)) == contents(whole)
    turned = taken(staged, FRAME.reverse(), 64, linkage)
    assert (contents(turned) == contents(whole)) == (linkage.by == "ids")


def test_files_of_all_kinds_are_one_table(staged: LocalStudy, tmp_path: Path) -> None:
    """Also where everything is text."""
    FRAME.write_csv(tmp_path / "t.csv")
    FRAME.write_csv(tmp_path / "q.csv", quote_style="always")
    FRAME.write_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "q.csv", "t.parquet"):
        intake = new_intake(staged)
        table = open_table(str(tmp_path / name))
        feed(intake, table, BY_ID, ["Nr"], rules=RULES, columns={"smoker": "raucht"})
        assert contents(intake) == contents(taken(staged, FRAME, 1000))


def test_all_unknown_values_are_found(staged: LocalStudy) -> None:
    """Over all batches, with counts and rows of the whole table; the intake takes no more."""
    bad = FRAME.with_columns(
        raucht=pl.Series(["?" if i in {10, 200, 499} else "J" for i in range(500)]),
        age=pl.Series([None if i == 300 else i % 90 for i in range(500)]),
    )
    with pytest.raises(ValueNotInSchemaError) as caught:
        taken(staged, bad, 50)
    assert [(o.column, o.value, o.count, o.rows) for o in caught.value.offenders] == [
        ("raucht", "?", 3, (11, 201, 500)),
        ("age", None, 1, (301,)),
    ]
    with pytest.raises(ValueNotInSchemaError) as whole:
        taken(staged, bad, 1000)
    assert caught.value.message == whole.value.message


def test_ids_are_unusable_wherever_they_stand(staged: LocalStudy) -> None:
    """Empty in a later batch, and the same in two batches: with rows of the whole table."""
    empty = FRAME.with_columns(Nr=pl.Series([" " if i == 77 else str(i) for i in range(500)]))
    with pytest.raises(LinkageError, match=r"an empty id .*row 78"):
        taken(staged, empty, 10)
    twice = FRAME.with_columns(Nr=pl.Series([str(i % 499) for i in range(500)]))
    with pytest.raises(LinkageError, match=r"2 rows share an id .* rows 1, 500\n  row 1: '0'"):
        taken(staged, twice, 10)


def test_an_empty_table_and_missing_columns(staged: LocalStudy) -> None:
    """Said as such."""
    with pytest.raises(LinkageError, match="no respondents"):
        taken(staged, FRAME.head(0), 10)
    intake = new_intake(staged)
    for ids in ([], ["Nr", "age"]):
        with pytest.raises(LinkageError, match=f"and you named {len(ids) or 'none'}"):
            feed(intake, FrameTable(FRAME), BY_ID, ids, rules=RULES)
    with pytest.raises(LinkageError, match="without ids, and you named 1"):
        feed(intake, FrameTable(FRAME), Linkage.by_rows(), ["Nr"], rules=RULES)


def test_a_missing_column_of_a_file(staged: LocalStudy, tmp_path: Path) -> None:
    """The table says which there are."""
    FRAME.write_csv(tmp_path / "t.csv")
    intake = new_intake(staged)
    with pytest.raises(TableError, match="no column 'smoker'"):
        feed(intake, open_table(str(tmp_path / "t.csv")), BY_ID, ["Nr"], rules=RULES)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")
@pytest.mark.parametrize("kind", ["csv.gz", "parquet"])
def test_memory_does_not_grow_with_the_table(kind: str, tmp_path: Path) -> None:
    """Millions of rows, prepared in a process of its own: 300 MB at most, all told.

    The CSV file is compressed, in CP1252 and with semicolons.
    """
    path, rows = tmp_path / f"t.{kind}", 1_500_000 if kind == "csv.gz" else 3_000_000
    numbers = pl.int_range(rows, eager=True)
    frame = pl.DataFrame({"id": numbers.cast(pl.String).str.zfill(16), "v": numbers % 7})
    if kind == "csv.gz":
        text = frame.with_columns(town=pl.lit("K*ln")).write_csv(separator=";")
        path.write_bytes(gzip.compress(text.encode().replace(b"*", b"\xf6"), 1))
    else:
        frame.write_parquet(path, row_group_size=rows)
    command = [sys.executable, "-m", "tests.support.memory", str(path), str(tmp_path / "s")]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root)  # noqa: S603
    prepared, megabytes = map(int, done.stdout.split())
    assert prepared == rows
    assert megabytes < 300


def test_first_rows_are_found_although_values_are_many(staged: LocalStudy) -> None:
    """A column of free text, with as many values as rows: some are told apart, all are counted."""
    rows = 3000
    frame = pl.DataFrame(
        {
            "Nr": map(str, range(rows)),
            "raucht": ["first", *(f"text {i}" for i in range(1, rows - 1)), "first"],
            "age": np.full(rows, 30),
        }
    )
    messages = []
    for batch in (rows, 100):
        with pytest.raises(ValueNotInSchemaError, match="3,000 rows") as caught:
            taken(staged, frame, batch)
        messages.append(caught.value.message)
        assert caught.value.offenders[0].rows[0] == 1
    assert "'first' in 2 rows: 1, 3000" in messages[1]
    for one, other in itertools.pairwise(messages):
        assert one == other
