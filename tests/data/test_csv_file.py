"""CSV files: everything is text, every row is checked, and blocks are cut between rows."""

import csv
import gzip
import io
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veiltab.data import csv_file
from veiltab.data.csv_file import CsvTable
from veiltab.errors import TableError

Cells = Sequence[Sequence[str | None]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the table will be."""
    return tmp_path / "table.csv"


def read(path: Path, data: bytes, rows: int = 100) -> list[tuple[str | None, ...]]:
    """Write a file and read all of it."""
    path.write_bytes(data)
    table = CsvTable(path)
    frames = list(table.batches(list(table.columns), rows))
    return [row for frame in frames for row in frame.iter_rows()]


def refused(path: Path, data: bytes) -> str:
    """Return why a file is refused."""
    with pytest.raises(TableError) as caught:
        read(path, data)
    assert caught.value.hint
    return caught.value.message


def test_everything_is_text(path: Path) -> None:
    """Nothing is guessed: zeros, dates, words for nothing and spaces stay as they are."""
    data = b"a,b,c,d\n007,1.0, x ,NA\n2020-01-01,null,NaN,true\n"
    assert read(path, data) == [
        ("007", "1.0", " x ", "NA"),
        ("2020-01-01", "null", "NaN", "true"),
    ]
    assert set(CsvTable(path).columns.values()) == {pl.String}


def test_an_empty_field_is_missing(path: Path) -> None:
    """In quotes or without; first, in the middle or last; a space is not empty."""
    assert read(path, b'a,b,c\n,,\n1,"",3\n"",2,""\n , ,\n') == [
        (None, None, None),
        ("1", None, "3"),
        (None, "2", None),
        (" ", " ", None),
    ]


def test_of_one_column_an_empty_line_is_missing(path: Path) -> None:
    """There is no other way to write it; of more columns, it is a row with too few fields."""
    assert read(path, b"a\n1\n\n2\n") == [("1",), (None,), ("2",)]
    assert refused(path, b"a,b\n1,2\n\n3,4\n") == "row 2 (line 3) has 1 field, and the header has 2"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("last", [True, False])
def test_ends_of_lines_and_byte_order_marks(
    path: Path, end: str, bom: bytes, *, last: bool
) -> None:
    """With either, and with or without one at the end of the file."""
    text = end.join(["id,ü", "1,é", "2,王"]) + end * last
    assert read(path, bom + text.encode()) == [("1", "é"), ("2", "王")]
    assert list(CsvTable(path).columns) == ["id", "ü"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_empty_lines_at_the_end_are_no_rows(
    path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the blocks are cut."""
    for size in (1, 2, 3, 5, 8, 100):
        monkeypatch.setattr(csv_file, "BLOCK_BYTES", max(size, 6))
        assert read(path, f"a,b{end}1,2{end}3,4{end}{end}{end}".encode()) == [
            ("1", "2"),
            ("3", "4"),
        ]


def test_quotes(path: Path) -> None:
    """Commas, line breaks and doubled quotes in quotes; quotes in the header."""
    data = b'"a,b","c\nd"\n"1,2","3\n4"\n"say ""yes""",\n'
    assert read(path, data) == [("1,2", "3\n4"), ('say "yes"', None)]
    assert list(CsvTable(path).columns) == ["a,b", "c\nd"]


@pytest.mark.parametrize("names", [["a b", " c "], ["😀", "\u200b"], ['"', "'"], ["#x", "1"]])
def test_odd_names_of_columns(path: Path, names: list[str]) -> None:
    """Any text will do, as long as there is some."""
    buffer = io.StringIO()
    csv.writer(buffer).writerows([names, ["1", "2"]])
    assert read(path, buffer.getvalue().encode()) == [("1", "2")]
    assert list(CsvTable(path).columns) == names


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"\xef\xbb\xbf", "the file is empty"),
        (b"\n\n", "the file is empty"),
        (b"\n1,2\n", "line 1 is empty, where the names of the columns should be"),
        (b"a,\n1,2\n", "column 2 of the table has no name"),
        (b"a,b,a\n1,2,3\n", "the table has two columns 'a'"),
        (b'a,"b\n1,2\n', "the header is not well quoted"),
        (b"a,b\n1,2\n3\n", "row 2 (line 3) has 1 field, and the header has 2"),
        (b"a,b\n1,2\n3,4\n5,6,7\n", "row 3 (line 4) has 3 fields, and the header has 2"),
        (b"a,b\n1\n3,4,5\n", "row 1 (line 2) has 1 field, and the header has 2"),
        (b'a,b\n"1\n1",2\n"x,y"\n', "row 2 (line 4) has 1 field, and the header has 2"),
        (b'a,b\n1,"2\n3,4\n', "a quote in the file is never closed"),
        (b"\0", "line 1 of 'table.csv' has a zero byte, which no text has"),
        (b'a,b\n1,2\n"x"y,3\n', "row 2 (line 3) has a quote in the middle of a field"),
        (b'a,b\n"1",2\nx"y,3\n4",5\n', "row 2 (line 3) has a quote in the middle of a field"),
        (b'a,b\nx"y,3"z,4\n', "row 1 (line 2) has a quote in the middle of a field"),
        (b'a,b\n1,""x""\n', "row 1 (line 2) has a quote in the middle of a field"),
        (b'a,b\n1, "x"\n', "row 1 (line 2) has a quote in the middle of a field"),
        (b'a,b\n1,2\n3\nx"y"z,4\n', "row 2 (line 3) has 1 field, and the header has 2"),
    ],
)
def test_what_cannot_be_read(path: Path, data: bytes, message: str) -> None:
    """An error that says what and where, and never a traceback."""
    assert refused(path, data) == message


@pytest.mark.parametrize("data", [b"a,b", b"a,b\n", b"a,b\r\n", b"a,b\n\n"])
def test_a_header_alone_is_a_table_without_rows(path: Path, data: bytes) -> None:
    """What that means is for others to say."""
    assert read(path, data) == []
    assert list(CsvTable(path).columns) == ["a", "b"]


def test_rows_are_counted_over_blocks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors name rows of the whole table."""
    monkeypatch.setattr(csv_file, "BLOCK_BYTES", 64)
    rows = b"".join(b"%d,x\n" % row for row in range(1, 100))
    message = refused(path, b"a,b\n" + rows + b"100\n")
    assert message == "row 100 (line 101) has 1 field, and the header has 2"
    monkeypatch.setattr(csv_file, "HEAD_BYTES", 64)
    place = len(rows) + 8
    message = refused(path, b"a,b\n" + rows + b"100,\xff\n")
    assert message == f"line 101 of 'table.csv' is not UTF-8: byte {place:,} is 0xff"


def test_a_quote_that_is_never_closed_does_not_fill_the_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row is as long as that."""
    monkeypatch.setattr(csv_file, "BLOCK_BYTES", 100)
    monkeypatch.setattr(csv_file, "MAX_RECORD_BYTES", 1000)
    long = b'1,"' + b"x\n" * 2000
    assert refused(path, b"a,b\n" + long + b'"\n') == "a quote in the file is never closed"
    for long in (b"1," + b"2" * 2000, b"1,2" + b"\n" * 2000):
        assert refused(path, b"a,b\n" + long + b"\n3,4\n").startswith("a row of the file has more")


def test_compressed_files(tmp_path: Path) -> None:
    """By the end of the name; a truncated or wrong one is refused."""
    path, data = tmp_path / "t.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 5000)
    assert len(read(path, data)) == 5000
    for bad in (data[:-9], data[: len(data) // 2], b"a,b\n1,2\n", b""):
        assert refused(path, bad)


cell = st.text(st.sampled_from('a,"\n\r é'), max_size=6)


@st.composite
def tables(draw: st.DrawFn) -> list[list[str]]:
    """Draw rows of cells with everything in them that could be mistaken."""
    width = draw(st.integers(2, 4))
    return draw(st.lists(st.lists(cell, min_size=width, max_size=width), max_size=12))


@pytest.mark.slow
@given(rows=tables(), block=st.integers(1, 40), batch=st.integers(1, 5))
def test_any_cells_come_back_wherever_blocks_are_cut(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], block: int, batch: int
) -> None:
    """Against the standard library's writer, with every block length."""
    width = len(rows[0]) if rows else 2
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([[f"c{i}" for i in range(width)], *rows])
    data = buffer.getvalue().encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_file, "BLOCK_BYTES", max(block, data.index(b"\n") + 1))
        found = read(tmp_path_factory.mktemp("csv") / "t.csv", data, rows=batch)
    assert found == [tuple(text or None for text in row) for row in rows]
