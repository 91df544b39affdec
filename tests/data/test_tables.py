"""Opening tables: which are known, and how each kind is read in bounded parts."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from veiltab.data import frames
from veiltab.data.tables import Table, open_table
from veiltab.errors import ParameterError, TableError

FRAME = pl.DataFrame({"id": [f"{i:03}" for i in range(1000)], "n": range(1000)})


def written_csv(folder: Path) -> Table:
    """Write and open a CSV file."""
    FRAME.write_csv(folder / "t.csv")
    return open_table(str(folder / "t.csv"))


def written_parquet(folder: Path) -> Table:
    """Write and open a Parquet file of several row groups."""
    FRAME.write_parquet(folder / "t.parquet", row_group_size=150)
    return open_table(str(folder / "t.parquet"))


KINDS = pytest.mark.parametrize("kind", [written_csv, written_parquet])


def read(table: Table, *columns: str, rows: int = 400) -> pl.DataFrame:
    """Read some columns whole."""
    frames = list(table.batches(columns or list(table.columns), rows))
    assert all(0 < frame.height <= rows for frame in frames)
    return pl.concat(frames)


@KINDS
@pytest.mark.parametrize("rows", [1, 7, 150, 999, 1000, 1001])
def test_batches_are_the_table(kind: Callable[[Path], Table], rows: int, tmp_path: Path) -> None:
    """In order, none longer than asked for; and a second reading is like the first."""
    table = kind(tmp_path)
    for _ in range(2):
        found = read(table, "n", "id", rows=rows)
        assert found.columns == ["n", "id"]
        assert found["id"].to_list() == FRAME["id"].to_list()
        assert found["n"].cast(pl.Int64).to_list() == list(range(1000))


@KINDS
def test_columns_are_chosen(kind: Callable[[Path], Table], tmp_path: Path) -> None:
    """In any order, once each; unknown ones are refused with those that there are."""
    table = kind(tmp_path)
    assert list(table.columns) == ["id", "n"]
    assert read(table, "n", "n").columns == ["n"]
    with pytest.raises(TableError, match="no columns 'x', 'N'") as caught:
        read(table, "x", "n", "N", "x")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("its columns are 'id', 'n'")
    assert caught.value.hint.endswith("; did you mean 'n'?")
    with pytest.raises(TableError, match="no column of the table is asked for"):
        list(table.batches([], 10))
    with pytest.raises(ParameterError):
        list(table.batches(["n"], 0))


@KINDS
def test_reading_may_stop_early(kind: Callable[[Path], Table], tmp_path: Path) -> None:
    """Whoever finds something wrong need not read the rest."""
    batches = kind(tmp_path).batches(["n"], 10)
    assert next(batches).height == 10
    del batches


def test_rows_are_counted_where_that_is_cheap(tmp_path: Path) -> None:
    """A Parquet file knows; a CSV file would have to be read."""
    assert written_parquet(tmp_path).row_count() == 1000
    assert written_csv(tmp_path).row_count() is None


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "T.CSV", "T.PARQUET"])
def test_a_file_that_is_not_there(name: str, tmp_path: Path) -> None:
    """A missing file, and an empty folder of that name."""
    with pytest.raises(TableError, match="there is no file"):
        open_table(str(tmp_path / name))
    (tmp_path / name).mkdir()
    with pytest.raises(TableError, match="has no Parquet files"):
        open_table(str(tmp_path / name))


@pytest.mark.parametrize(
    ("location", "query", "match"),
    [
        ("table.xls", None, "form of 'table.xls' is not known"),
        ("table.gz", None, "form of 'table.gz' is not known"),
        ("table.csv.bz2", None, "form of 'table.csv.bz2' is not known"),
        ("table.xlsx.gz", None, "form of 'table.xlsx.gz' is not known"),
        ("table", None, "form of 'table' is not known"),
        ("", None, "form of '' is not known"),
        ("https://example.org/t.csv", None, "not read from https://"),
        ("s3://bucket/t.parquet", None, "not read from s3://"),
        ("t.csv", "SELECT 1", "only a database takes a query"),
        ("postgresql://host/db", None, "a database has many tables"),
        ("sqlite:///t.db", "  ;\n", "a database has many tables"),
        ("sqlite://t.db", "t", "names no file"),
        ("sqlite:///", "t", "names no file"),
    ],
)
def test_what_is_no_table(location: str, query: str | None, match: str) -> None:
    """An error that says what can be used."""
    with pytest.raises(TableError, match=match) as caught:
        open_table(location, query)
    assert caught.value.hint


def test_parquet_keeps_types(tmp_path: Path) -> None:
    """Numbers, dates, missing values, categories; names of any kind."""
    frame = pl.DataFrame(
        {
            "an id": pl.Series(["a", "b", "a"], dtype=pl.Categorical),
            "😀": [1, None, 3],
            '"': [dt.date(2020, 1, 1)] * 3,
            "f": [0.5, float("nan"), None],
        }
    )
    path = tmp_path / "[odd] *name?.parquet"
    frame.write_parquet(path)
    table = open_table(str(path))
    assert list(table.columns) == frame.columns
    assert table.columns["😀"] == pl.Int64
    assert read(table).equals(frame)


@pytest.mark.parametrize("rows", [0, 1])
def test_short_parquet_files(rows: int, tmp_path: Path) -> None:
    """Without rows there are no batches."""
    FRAME.head(rows).write_parquet(tmp_path / "t.parquet")
    table = open_table(str(tmp_path / "t.parquet"))
    assert [frame.height for frame in table.batches(["id"], 10)] == [1] * rows
    assert table.row_count() == rows


@pytest.mark.slow
def test_parquet_files_longer_than_a_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices and batches of any lengths, over row groups of any length."""
    FRAME.write_parquet(tmp_path / "t.parquet", row_group_size=150)
    table = open_table(str(tmp_path / "t.parquet"))
    for read_rows in (1, 64, 150, 999, 1000):
        monkeypatch.setattr(frames, "READ_ROWS", read_rows)
        assert read(table, rows=100).equals(FRAME)


def test_a_parquet_file_that_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of two tables are never mixed unseen where their numbers differ."""
    monkeypatch.setattr(frames, "READ_ROWS", 100)  # a few slices are read ahead
    FRAME.write_parquet(tmp_path / "t.parquet")
    batches = open_table(str(tmp_path / "t.parquet")).batches(["id"], 100)
    assert next(batches).height == 100
    FRAME.head(500).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(TableError, match=r"changed while it was read|not a complete Parquet file"):
        list(batches)


@pytest.mark.parametrize("keep", [0, 3, 100, -1])
def test_truncated_parquet_files(keep: int, tmp_path: Path) -> None:
    """The end of the file says what it holds, so that none of it is used."""
    path = tmp_path / "t.parquet"
    FRAME.write_parquet(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(TableError, match="not a complete Parquet file"):
        open_table(str(path))


def test_damaged_parquet_files(tmp_path: Path) -> None:
    """Damage in the middle is found when that part is read."""
    path = tmp_path / "t.parquet"
    FRAME.write_parquet(path, compression="zstd")
    data = np.frombuffer(path.read_bytes(), dtype=np.uint8).copy()
    data[4:400] ^= 0xFF
    path.write_bytes(data.tobytes())
    with pytest.raises(TableError, match="not a complete Parquet file"):
        read(open_table(str(path)))


def test_a_file_that_nobody_may_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system's reason is shown."""
    (tmp_path / "t.csv").write_text("a\n1\n")

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(TableError, match="Permission denied"):
        open_table(str(tmp_path / "t.csv"))


def test_folders_of_parquet_files(tmp_path: Path) -> None:
    """The parts are one table, by name; files of other tools that begin with a mark are none."""
    folder = tmp_path / "people"
    folder.mkdir()
    FRAME.head(400).write_parquet(folder / "part-0.parquet")
    FRAME.slice(400).select("n", "id").write_parquet(folder / "part-1.parquet")
    for name in ("_SUCCESS", ".part-0.parquet.crc"):
        (folder / name).write_text("")
    table = open_table(folder)
    assert str(table.format) == "Parquet, 2 parts"
    assert table.row_count() == 1000
    assert read(table).equals(FRAME)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (FRAME.select("id"), "the parts differ in 'n': Int64 in 'a.parquet', no column in"),
        (FRAME.with_columns(pl.col("n").cast(pl.String)), "the parts differ in 'n': Int64 in"),
        (FRAME.with_columns(m=1), "the parts differ in 'm': no column in 'a.parquet', Int32 in"),
        (b"PAR1 and no more", "is not a complete Parquet file"),
        ("rest.csv", "has a file 'rest.csv' beside its Parquet files"),
        ("year=2024", "has a folder 'year=2024' beside its Parquet files"),
    ],
)
def test_folders_that_are_no_table(
    other: pl.DataFrame | bytes | str, message: str, tmp_path: Path
) -> None:
    """Nothing is left out unseen, and nothing is made to fit."""
    FRAME.write_parquet(tmp_path / "a.parquet")
    if isinstance(other, pl.DataFrame):
        other.write_parquet(tmp_path / "b.parquet")
    elif isinstance(other, bytes):
        (tmp_path / "b.parquet").write_bytes(other)
    else:
        made = tmp_path / other
        made.write_text("a\n1\n") if made.suffix == ".csv" else made.mkdir()
    with pytest.raises(TableError) as caught:
        open_table(tmp_path)
    assert message in caught.value.message
