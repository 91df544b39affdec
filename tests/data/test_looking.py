"""Text files as they are: how they are written is found by looking, said, and can be named."""

import csv
import gzip
import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from veiltab.data import csv_file
from veiltab.data.tables import Table, open_table
from veiltab.errors import ParameterError, TableError, VeiltabError

PACK: Mapping[str, Any] = {"": lambda data: data, ".gz": gzip.compress, ".zst": zstd.compress}
HOSPITAL = "Nr;Größe;Gewicht\nP1;1,80;72,5\nP2;1,65;1.080,25\n"


def opened(folder: Path, data: bytes | str, name: str = "t.csv", **options: Any) -> Table:
    """Write a file and open it."""
    (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
    return open_table(str(folder / name), **options)


def rows(table: Table) -> list[tuple[Any, ...]]:
    """Read all columns."""
    return [row for frame in table.batches(list(table.columns), 3) for row in frame.iter_rows()]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            HOSPITAL.encode("cp1252"),
            "CSV, semicolons, CP1252, decimal comma, a point between thousands, header in line 1",
        ),
        (b"a\tb\n1\tx, y\n", "TSV, tabs, UTF-8, decimal point, header in line 1"),
        (b"a|b\n1|2\n", "CSV, vertical bars, UTF-8, decimal point, header in line 1"),
        ("a,b\n1,2\n".encode("utf-16"), "CSV, commas, UTF-16, decimal point, header in line 1"),
        ("a,b\n1,2\n".encode("utf-16-be"), "CSV, commas, UTF-16, decimal point, header in line 1"),
        (  # few of its bytes are zero: the mark at its beginning tells
            "имя;ответ\nаня;да\n".encode("utf-16"),
            "CSV, semicolons, UTF-16, decimal point, header in line 1",
        ),
        (b"sep=;\r\na;b\r\n1;2\r\n", "CSV, semicolons, UTF-8, decimal point, header in line 2"),
        (b"w\n72,5\n80,1\n", "CSV, one column, UTF-8, decimal comma, header in line 1"),
        (b"a;b\nx;1,5\ny;2,5\n", "CSV, semicolons, UTF-8, decimal comma, header in line 1"),
        (b"a\n1\n", "CSV, one column, UTF-8, decimal point, header in line 1"),
    ],
)
def test_what_was_found_is_said(tmp_path: Path, data: bytes, said: str) -> None:
    """In one line, which is also the beginning of the JSON."""
    table = opened(tmp_path, data)
    assert str(table.format) == said
    assert table.format.to_json()["read_as"] == said
    assert rows(table)


@pytest.mark.parametrize("name", ["t.tsv", "T.TAB", "t.txt", "t.tsv.gz", "t.TXT.zst"])
def test_a_text_file_may_have_any_of_these_names(tmp_path: Path, name: str) -> None:
    """What separates its fields is found in it, and not by its name."""
    data = PACK.get(Path(name).suffix, PACK[""])(b"a\tb\n1\tx, y\n")
    table = opened(tmp_path, data, name)
    assert rows(table) == [("1", "x, y")]
    assert (table.format.kind, table.format.separator) == ("TSV", "\t")


def test_the_parts_of_a_format_are_json(tmp_path: Path) -> None:
    """For scripts, each by its own name."""
    table = opened(tmp_path, gzip.compress(HOSPITAL.encode("cp1252")), "t.txt.gz")
    found = table.format.to_json()
    assert {key: value for key, value in found.items() if key not in ("read_as", "notes")} == {
        "kind": "CSV",
        "compression": "gzip",
        "separator": ";",
        "encoding": "cp1252",
        "quote": '"',
        "header_line": 1,
        "sheet": None,
        "parts": None,
        "decimal": ",",
        "thousands": ".",
    }
    (note,) = found["notes"]
    assert note.startswith(
        "the file is not UTF-8 (byte 5 in line 1, 0xf6), so its letters are read"
    )


@pytest.mark.parametrize(
    ("data", "options", "expected"),
    [
        (b"1,2\n3,4\n", {"header": False}, [("1", "2"), ("3", "4")]),
        (b"1,2\n3,4\n", {"header": True}, [("3", "4")]),
        (b"A title\n\na;b\n1;2\n", {"skip_lines": 2}, [("1", "2")]),
        (b"a b\n1 2\n", {"separator": "space"}, [("1", "2")]),
        (b"a~b\n1~2\n", {"separator": "~"}, [("1", "2")]),
        (b"a\tb\n1\t2\n", {"separator": "\\t"}, [("1", "2")]),
        (b"a,b;c\n1,2;3\n", {"separator": "semicolon"}, [("1,2", "3")]),
        (b"a;b\n'1;2';3\n", {"quote": "'"}, [("1;2", "3")]),
        (b'a;b\n5" pipe;3\n', {"quote": "none"}, [('5" pipe', "3")]),
        (b"a;b\n\x81;\x84\n", {"encoding": "cp850"}, [("ü", "ä")]),
        ("a;b\nü;王\n".encode("utf-16-le"), {"encoding": "utf-16-le"}, [("ü", "王")]),
        ("a;b\nü;ä\n".encode("cp1252"), {"encoding": "Latin-1"}, [("ü", "ä")]),
    ],
)
def test_the_user_has_the_last_word(
    tmp_path: Path, data: bytes, options: dict[str, Any], expected: list[tuple[str, ...]]
) -> None:
    """What is named is not looked for."""
    assert rows(opened(tmp_path, data, **options)) == expected


def test_decimal_marks_can_be_named(tmp_path: Path) -> None:
    """Both, or either."""
    marks = opened(tmp_path, b"a;b\n1.234;2\n", decimal="comma", thousands=".").format.marks
    assert (marks.decimal, marks.thousands) == (",", ".")
    marks = opened(tmp_path, b"a;b\n1.234;2\n", thousands="point").format.marks
    assert (marks.decimal, marks.thousands) == (",", ".")
    assert opened(tmp_path, b"a;b\n1,5;2\n", decimal=".").format.marks.decimal == "."


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        (
            b"a,b;c\n1,2;3\n",
            "the fields could be separated by commas (2 fields) or semicolons (2 fields)",
            "--separator comma (in Python, separator='comma')",
        ),
        (
            b"note\nhello, world\nwell\n",
            (
                "nothing separates all lines into the same number of fields: in the first 3, commas"
                " give 1 to 2 fields, semicolons give 1 field, tabs give 1 field, vertical bars"
                " give 1 field"
            ),
            "--separator semicolon",
        ),
        (
            b"Patients 2025\n\nid;a\n1;2\n3;4\n",
            "the first 2 lines have one field, and those below have 2, separated by semicolons",
            "--skip-lines 2 (in Python, skip_lines=2)",
        ),
        (
            b"Patients 2025;;\nid;a;b\n1;2;3\n",
            "column 2 of the table has no name",
            "--skip-lines 1",
        ),
        (
            b"1;2\n3;4\n",
            "the names of the columns look like a row of data: '1', '2'",
            "--no-header",
        ),
        (
            b"P1;m;34\nP2;f;35\n",
            "the names of the columns look like a row of data: 'P1', 'm', '34'",
            "--no-header (in Python, header=False)",
        ),
        (b"a;a\n1;2\n", "the table has two columns 'a'", "--no-header"),
        (
            "ü;ä\nö;1\n".encode() + b"\xfc;2\n",
            "most of 't.csv' is UTF-8, and one byte is not: byte 11 in line 3, 0xfc",
            "--encoding cp1252",
        ),
        (
            b"a;b\n\x81\xfc;1\n",
            (
                "'t.csv' is in no encoding that can be told: not in UTF-8 (byte 4 in line 2, 0x81),"
                " and not in CP1252, which has no 0x81"
            ),
            "--encoding cp850",
        ),
        (
            b"a;b\n1;\0\n",
            "line 2 of 't.csv' has a zero byte, which no text has",
            "--encoding utf-16-le",
        ),
        (
            b"a,b\r1,2\r3,4\r",
            "the lines of the file end with carriage returns alone",
            "line endings of Windows or Unix",
        ),
        (
            b"PK\x03\x04abc",
            "'t.csv' is a workbook, or another archive, and not a text file",
            ".xlsx",
        ),
        (b"PAR1abc", "'t.csv' is a Parquet file, and not a text file", ".parquet"),
        # Without the time: the names of tests must not depend on the second in which they are read.
        (
            gzip.compress(b"a", mtime=0),
            "'t.csv' is compressed with gzip, and not a text file",
            ".csv.gz",
        ),
        (zstd.compress(b"a"), "'t.csv' is compressed with zstd, and not a text file", ".csv.zst"),
        (b"%PDF-1.7", "'t.csv' is a PDF document, and not a text file", "export"),
    ],
)
def test_a_wrong_guess_fails_with_its_cause(
    tmp_path: Path, data: bytes, message: str, hint: str
) -> None:
    """When the file is opened, and never with a missing column later on."""
    with pytest.raises(TableError) as caught:
        opened(tmp_path, data)
    assert caught.value.message == message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("data", "options", "column", "message", "hint"),
    [
        (
            b"id;a\n1;2\n",
            {"separator": ","},
            "id",
            (
                "the fields are probably separated by semicolons, not by commas: read as it was,"
                " the table lacks 'id'"
            ),
            "--separator semicolon",
        ),
        (
            b"id a\n1 2\n",
            {},
            "id",
            (
                "the fields are probably separated by spaces, not by commas: read as it was, the"
                " table lacks 'id'"
            ),
            "--separator space",
        ),
        (
            "Größe;a\n1;2\n".encode(),
            {"encoding": "latin-1"},
            "Größe",
            (
                "the file is probably not in Latin-1: read as it was, the table lacks 'Größe', and"
                " one of its columns differs in nothing but letters that are not ASCII"
            ),
            "--encoding utf-8",
        ),
        (
            b'Clinic;"Export\nof 2025"\n"Ward\nB";\nid;a\n1;2\n',
            {},
            "id",
            (
                "the names of the columns are probably in line 5, which has 'id': read as it was,"
                " the table lacks 'id'"
            ),
            "--skip-lines 4 (in Python, skip_lines=4)",
        ),
        (
            b"id;a\nx;2\n",
            {"header": False},
            "id",
            (
                "the names of the columns are probably in line 1, which has 'id': read as it was,"
                " the table lacks 'id'"
            ),
            "--header (header=True); its columns are",
        ),
        (b"a;b\n1;id\n2;id\n", {}, "id", "the table has no column 'id'", "its columns are"),
        (b"Id ;a\n1;2\n", {}, "ID", "the table has no column 'ID'", "did you mean 'Id '?"),
        (b"id;a\n1;2\n", {}, "x", "the table has no column 'x'", "its columns are 'id', 'a'"),
    ],
)
def test_a_missing_column_has_a_cause(  # noqa: PLR0917 - pytest passes them by name
    tmp_path: Path, data: bytes, options: dict[str, Any], column: str, message: str, hint: str
) -> None:
    """The columns that there are, and what is probably wrong with how the file was read."""
    with pytest.raises(TableError) as caught:
        list(opened(tmp_path, data, **options).batches([column], 10))
    assert caught.value.message == message
    assert hint in (caught.value.hint or "")


def test_a_first_row_that_looks_like_the_names_is_pointed_out(tmp_path: Path) -> None:
    """Different words above numbers, unless they are words for a missing one, or the user knows."""
    titled = "Ward;B;2025 export\nid;age;smoker\na;30;no\nb;40;yes\n"
    (note,) = opened(tmp_path, titled).format.notes
    assert "the first row looks like the names of the columns ('id', 'age', …)" in note
    assert "if so, --skip-lines 1 (in Python, skip_lines=1)" in note
    assert opened(tmp_path, titled, header=True).format.notes == ()
    assert opened(tmp_path, titled, skip_lines=1).format.notes == ()
    for first in ("a;N/A ;no", "a;x;a", "a;;no", "7;x;no"):
        data = f"id;age;smoker\n{first}\nb;30;no\nc;40;yes\n"
        assert opened(tmp_path, data).format.notes == ()


def test_an_odd_byte_far_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole file is checked, also columns that are not read; the byte's place is told."""
    monkeypatch.setattr(csv_file, "HEAD_BYTES", 100)
    monkeypatch.setattr(csv_file, "BLOCK_BYTES", 64)
    data = b"a;b\n" + b"1;2\n" * 1000
    table = opened(tmp_path, data + b"3;M\xfcller\n")
    with pytest.raises(TableError) as caught:
        list(table.batches(["a"], 10))
    assert caught.value.message == (
        f"line 1,002 of 't.csv' is not UTF-8: byte {len(data) + 3:,} is 0xfc"
    )
    assert "--encoding cp1252" in (caught.value.hint or "")
    table = opened(tmp_path, data + b"3;M\xfcller\n", encoding="cp1252")
    assert rows(table)[-1] == ("3", "Müller")
    table = opened(tmp_path, b"\xfc;b\n" + data + b"3;\x81\n")
    with pytest.raises(TableError, match=r"line 1,003 of 't\.csv' is not CP1252: byte .* is 0x81"):
        rows(table)


@pytest.mark.parametrize("packed", [".gz", ".zst"])
def test_damaged_compressed_files(tmp_path: Path, packed: str) -> None:
    """Truncated, with something behind the end, or not compressed at all."""
    whole = PACK[packed](b"a;b\n" + b"1;2\n" * 5000)
    for bad in (whole[:-9], whole + b"garbage", b"a;b\n1;2\n", b""):
        with pytest.raises(TableError, match=r"cannot be read|is empty"):
            rows(opened(tmp_path, bad, f"t.csv{packed}"))


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the standard library has it")
def test_zst_without_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra to install."""
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    monkeypatch.delattr("backports.zstd", raising=False)
    with pytest.raises(TableError, match=r"what reads \.zst files is not installed") as caught:
        opened(tmp_path, zstd.compress(b"a;b\n1;2\n"), "t.csv.zst")
    assert caught.value.hint == "install it with: pip install 'veiltab[zstd]'"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"separator": "ab"}, "'ab' cannot separate fields"),
        ({"separator": "x"}, "'x' cannot separate fields"),
        ({"separator": '"'}, "'\"' cannot separate fields"),
        ({"separator": "é"}, "'é' cannot separate fields"),
        ({"encoding": "utf-9"}, "there is no encoding 'utf-9'"),
        ({"encoding": "hex"}, "there is no encoding 'hex'"),
        ({"encoding": ""}, "there is no encoding ''"),
        ({"decimal": "x"}, "'x' cannot stand before decimals"),
        ({"thousands": ";"}, "';' cannot stand between thousands"),
        ({"decimal": ",", "thousands": "comma"}, "',' cannot stand before decimals and between"),
        ({"quote": "x"}, "'x' cannot enclose fields"),
        ({"skip_lines": -1}, "-1 lines cannot be skipped"),
        ({"sheet": "x"}, "a text file has no sheet to name"),
    ],
)
def test_options_that_no_file_can_have(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    """They are refused, also where they would change nothing."""
    with pytest.raises(ParameterError) as caught:
        opened(tmp_path, b"a;b\n1;2\n", **options)
    assert caught.value.message.startswith(message)


def test_options_where_they_mean_nothing(tmp_path: Path) -> None:
    """A Parquet file, a database and a frame have no separator."""
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "t.parquet")
    for source in (tmp_path / "t.parquet", tmp_path, "sqlite:///t.db", pl.DataFrame({"a": [1]})):
        with pytest.raises(ParameterError, match="has no separator to name"):
            open_table(source, separator=";")
    with pytest.raises(TableError, match="there is nothing below the first 9 lines"):
        opened(tmp_path, b"a;b\n1;2\n", skip_lines=9)


def test_columns_without_a_name(tmp_path: Path) -> None:
    """As where every line ends with a separator: they get a number, and that is said."""
    table = opened(tmp_path, b"id;a;\n1;2;\n")
    assert list(table.columns) == ["id", "a", "column_3"]
    assert table.format.notes == ("columns without a name are called 'column_3'",)
    table = opened(tmp_path, b"m;x\nm;y\n")
    (note,) = table.format.notes
    assert note.startswith("the name of the column 'm' is also one of its values")


LETTERS = {
    "utf-8": "aé王😀 ,;\t|\"'\n.0",
    "utf-8-sig": 'aé王 ,;\t"\n',
    "utf-16": 'aé王😀 ,;\t|"\n',
    "utf-16-le": 'aé ,;\t|"\n0',
    "utf-16-be": 'aé ,;\t|"\n0',
    "cp1252": "aéœ€ ,;\t|\"'\n.0",
    "latin-1": 'aéß ,;\t|"\n',
}


def test_values_that_begin_like_a_zlib_stream(tmp_path: Path) -> None:
    """Polars would take a block of rows that begins with them for a compressed one."""
    cells = [("x^2", "1"), ("x\x01", "2"), ("x", "3")]
    data = "formula,n\n" + "".join(f"{formula},{n}\n" for formula, n in cells)
    with pytest.MonkeyPatch.context() as patch:
        for block in (1, 2**20):
            patch.setattr(csv_file, "BLOCK_BYTES", block)
            assert rows(opened(tmp_path, data.encode(), "t.csv")) == cells


@st.composite
def written(draw: st.DrawFn) -> tuple[str, str, list[list[str]], bytes]:
    """Draw cells, and write them in some dialect and encoding."""
    encoding = draw(st.sampled_from(sorted(LETTERS)))
    separator = draw(st.sampled_from(",;\t|"))
    width = draw(st.integers(2, 4))
    cell = st.text(st.sampled_from(LETTERS[encoding]), max_size=5)
    cells = draw(st.lists(st.lists(cell, min_size=width, max_size=width), max_size=8))
    quoting: Any = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter=separator, quoting=quoting, lineterminator=end)
    writer.writerows([[f"column {i}" for i in range(width)], *cells])
    return encoding, separator, cells, buffer.getvalue().encode(encoding)


@pytest.mark.slow
@given(file=written(), packed=st.sampled_from(["", ".gz", ".zst"]), block=st.integers(1, 50))
def test_any_table_comes_back_in_any_dialect(
    tmp_path_factory: pytest.TempPathFactory,
    file: tuple[str, str, list[list[str]], bytes],
    packed: str,
    block: int,
) -> None:
    """Found by looking it is the same table or an error; if it is named, it is the same table."""
    encoding, separator, cells, data = file
    expected = [tuple(text or None for text in row) for row in cells]
    folder = tmp_path_factory.mktemp("t")
    name = f"t.csv{packed}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_file, "BLOCK_BYTES", block)
        named = {"encoding": encoding, "separator": separator, "header": True}
        assert rows(opened(folder, PACK[packed](data), name, **named)) == expected
        try:
            found = opened(folder, PACK[packed](data), name)
        except VeiltabError as error:
            assert "--encoding" in (error.hint or "")  # noqa: PT017 - few files are in doubt
        else:
            assert found.format.separator == separator
            assert rows(found) == expected
