"""Workbooks: one sheet, its cells as texts; what a workbook has lost is said."""

import datetime as dt
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import polars as pl
import pytest
import xlsxwriter

from veiltab.data import workbooks
from veiltab.data.tables import Table, open_table
from veiltab.errors import TableError

Cells = Sequence[Sequence[Any]]

PEOPLE: list[list[Any]] = [
    ["id", "born", "weight", "smoker", "code"],
    [1, dt.date(1980, 1, 31), 72.5, True, "C34"],
    [20, dt.date(1975, 12, 1), 80, False, 7],
    ["007", None, None, True, " x "],
]
READ = [
    ("1", "1980-01-31", "72.5", "true", "C34"),
    ("20", "1975-12-01", "80", "false", "7"),
    ("007", None, None, "true", " x "),
]
_ODS = "urn:oasis:names:tc:opendocument:xmlns:"


def write_xlsx(path: Path, **sheets: Cells) -> Path:
    """Write sheets; a cell is a number, a text, a boolean, a date, a formula or nothing."""
    with xlsxwriter.Workbook(str(path), {"default_date_format": "yyyy-mm-dd"}) as book:
        for name, cells in sheets.items():
            sheet = book.add_worksheet(name)
            for place, row in enumerate(cells):
                sheet.write_row(place, 0, row)
    return path


def write_ods(path: Path, **sheets: Cells) -> Path:
    """Write the little of an OpenDocument file that its readers look at."""
    tables = "".join(
        f'<table:table table:name="{name}">'
        + "".join(
            f"<table:table-row>{''.join(map(_ods_cell, row))}</table:table-row>" for row in cells
        )
        + "</table:table>"
        for name, cells in sheets.items()
    )
    spaces = " ".join(f'xmlns:{name}="{_ODS}{name}:1.0"' for name in ("office", "table", "text"))
    content = (
        f'<office:document-content {spaces} office:version="1.2"><office:body><office:spreadsheet>'
        f"{tables}</office:spreadsheet></office:body></office:document-content>"
    )
    manifest = f'<m:manifest xmlns:m="{_ODS}manifest:1.0"/>'
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("content.xml", content)
        archive.writestr("META-INF/manifest.xml", manifest)
    return path


def _ods_cell(value: object) -> str:
    if value is None:
        return "<table:table-cell/>"
    kind, attribute, text = "string", "", str(value)
    if isinstance(value, bool):
        kind, attribute = "boolean", f'office:boolean-value="{text.lower()}"'
    elif isinstance(value, int | float):
        kind, attribute = "float", f'office:value="{text}"'
    elif isinstance(value, dt.date):
        kind, attribute = "date", f'office:date-value="{text}"'
    return (
        f'<table:table-cell office:value-type="{kind}" {attribute}><text:p>{escape(text)}</text:p>'
        "</table:table-cell>"
    )


def rows(table: Table) -> list[tuple[Any, ...]]:
    """Read all columns."""
    return [row for frame in table.batches(list(table.columns), 2) for row in frame.iter_rows()]


def refused(path: Path, **options: Any) -> tuple[str, str]:
    """Return the message and the hint of the error."""
    with pytest.raises(TableError) as caught:
        open_table(path, **options)
    return caught.value.message, caught.value.hint or ""


@pytest.mark.parametrize(
    ("write", "name"), [(write_xlsx, "People.xlsx"), (write_ods, "people.ODS")]
)
def test_cells_are_texts(tmp_path: Path, write: Callable[..., Path], name: str) -> None:
    """Whole numbers without decimals, dates as in ISO 8601, texts as they are."""
    table = open_table(write(tmp_path / name, Patients=PEOPLE, Empty=[]))
    assert list(table.columns) == PEOPLE[0]
    assert set(table.columns.values()) == {pl.String}
    assert rows(table) == READ
    assert table.row_count() == len(READ)
    kind = Path(name).suffix[1:].upper()
    assert str(table.format) == f"{kind}, sheet 'Patients', header in row 1"
    assert table.format.notes == ()
    with pytest.raises(TableError, match="no column 'ID'") as caught:
        list(table.batches(["ID"], 10))
    assert str(caught.value.hint).endswith("did you mean 'id'?")


def test_sheets(tmp_path: Path) -> None:
    """One is named where there are several; an unknown one is refused with those there are."""
    path = write_xlsx(tmp_path / "t.xlsx", **{"2024": PEOPLE, "2025 (new)": PEOPLE[:2], "None": []})
    assert refused(path) == (
        "the workbook has several sheets: '2024', '2025 (new)'",
        "name one: --sheet 2024 (in Python, sheet='2024')",
    )
    assert rows(open_table(path, sheet="2025 (new)")) == READ[:1]
    message, hint = refused(path, sheet="2023")
    assert message == "the workbook has no sheet '2023'"
    assert hint == "its sheets are '2024', '2025 (new)', 'None'"
    assert refused(path, sheet="None")[0] == "the sheet 'None' is empty"


def test_titles_and_headers(tmp_path: Path) -> None:
    """As in text files."""
    path = write_xlsx(tmp_path / "t.xlsx", S=[["Patients 2025"], *PEOPLE])
    message, hint = refused(path)
    assert message == "column 2 of the table has no name"
    assert "--skip-lines 1" in hint
    table = open_table(path, skip_lines=1)
    assert rows(table) == READ
    assert str(table.format).endswith("header in row 2")
    titled = open_table(
        write_xlsx(tmp_path / "w.xlsx", S=[["Ward", "B", "of", "2025", "."], [], *PEOPLE])
    )
    with pytest.raises(TableError, match=r"in row 3, which has 'smoker': .* lacks 'smoker', 'y'"):
        list(titled.batches(["smoker", "y"], 10))
    path = write_xlsx(tmp_path / "n.xlsx", S=[[1, 2], [3, 4]])
    assert refused(path)[0] == "the names of the columns look like a row of data: '1', '2'"
    assert rows(open_table(path, header=False)) == [("1", "2"), ("3", "4")]
    path = write_xlsx(tmp_path / "d.xlsx", S=[["a", "a"], [3, 4]])
    assert refused(path)[0] == "the table has two columns 'a'"


def test_rows_keep_their_numbers(tmp_path: Path) -> None:
    """Empty rows in the middle stay, so that errors name the right row; those at the end go."""
    path = write_xlsx(tmp_path / "t.xlsx", S=[["a", "b"], [1, 2], [], [3, 4], ["", ""], [""]])
    assert rows(open_table(path)) == [("1", "2"), (None, None), ("3", "4")]
    assert rows(open_table(write_xlsx(tmp_path / "h.xlsx", S=[["a", "b"]]))) == []


def test_what_a_workbook_has_lost(tmp_path: Path) -> None:
    """Zeros that only the format shows, digits beyond the fifteenth, and errors of formulas."""
    path = tmp_path / "t.xlsx"
    with xlsxwriter.Workbook(str(path)) as book:
        sheet = book.add_worksheet("S")
        sheet.write_row(0, 0, ["id", "card", "ratio"])
        sheet.write_number(1, 0, 7, book.add_format({"num_format": "00000"}))
        sheet.write_number(1, 1, 1234567890123456)
        sheet.write_formula(1, 2, "=1/0", None, "#DIV/0!")
    table = open_table(path)
    assert rows(table) == [("7", "1234567890123456", None)]
    zeros, errors, digits = table.format.notes
    assert zeros.startswith("the workbook shows some numbers with zeros in front")
    assert errors == "some cells of the workbook hold errors such as #N/A; they are read as missing"
    assert digits.startswith("the column 'card' has 16 digits or more")


def test_what_is_no_workbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its own cause."""
    path = tmp_path / "t.xlsx"
    old = bytes.fromhex("d0cf11e0a1b11ae1")
    whole = write_xlsx(path, S=PEOPLE).read_bytes()
    for data, message in (
        (b"", "'t.xlsx' is empty"),
        (b"id;a\n1;2\n", "'t.xlsx' is not a workbook"),
        (old + "EncryptedPackage".encode("utf-16-le"), "'t.xlsx' is protected by a password"),
        (old + bytes(600), "'t.xlsx' is a workbook of an old kind, .xls"),
        (whole[:-100], f"{str(path)!r} is not a complete workbook"),
        (b"PK\x03\x04junk", f"{str(path)!r} is not a complete workbook"),
    ):
        path.write_bytes(data)
        assert refused(path)[0] == message
    ods = write_ods(tmp_path / "t.ods", S=PEOPLE)
    with zipfile.ZipFile(ods, "a") as archive:
        archive.writestr("META-INF/manifest.xml.new", "<encryption-data/>")
    assert refused(ods)[0] == "'t.ods' is protected by a password"
    assert refused(write_xlsx(path, S=[]))[0] == "the workbook 't.xlsx' is empty"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "no workbook")
    assert refused(path)[0] == f"{str(path)!r} is not a complete workbook"

    write_xlsx(path, S=PEOPLE)
    monkeypatch.setattr(workbooks, "find_spec", lambda _: None)
    assert refused(path) == (
        "what reads .xlsx files is not installed",
        "install it with: pip install 'veiltab[spreadsheets]'",
    )


def test_a_small_file_that_is_a_huge_table(tmp_path: Path) -> None:
    """A cell in the last corner makes 17 thousand million of a few; this process goes on."""
    path = tmp_path / "t.xlsx"
    with xlsxwriter.Workbook(str(path)) as book:
        sheet = book.add_worksheet("S")
        sheet.write_row(0, 0, ["id", "smoker"])
        sheet.write(1_048_575, 16_383, "x")
    assert path.stat().st_size < 10_000
    message, hint = refused(path)
    assert message.startswith(f"{str(path)!r} cannot be opened: reading it needs more than 4 GiB")
    assert hint == "save the sheet with the table alone, or save it as CSV"


def test_a_reader_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in its way is said; the file is not called too large, or damaged."""
    path = write_xlsx(tmp_path / "t.xlsx", S=PEOPLE)
    monkeypatch.setattr(workbooks, "READER", "veiltab.data.absent")
    message, _ = refused(path)
    assert "did not start" in message
    assert "No module named veiltab.data.absent)" in message
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    message, hint = refused(path)
    assert "No such file or directory" in message
    assert f"check that {tmp_path / 'absent'} finds veiltab" in hint


def test_a_search_that_a_file_could_make_endless() -> None:
    """Half a million beginnings of cells, such as in a comment, are searched at once."""
    assert not workbooks._ERROR_CELL.search(b"<c " * 500_000)
    assert workbooks._ERROR_CELL.search(b'<c r="A1" s="2" t="e"><v>#N/A</v></c>')
