"""Encoding tables that come in parts, and numbers that come as texts."""

import polars as pl
import pytest

from veiltab.core.schema import Attribute, Schema
from veiltab.data.encoding import Encoder, encode_column
from veiltab.data.recode import Bins
from veiltab.errors import ValueNotInSchemaError


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("17", 0),
        ("18", 1),
        ("17.999", 0),
        ("18.0", 1),
        ("-3", 0),
        ("1e3", 2),
        ("65", 2),
        ("007", 0),
    ],
)
def test_texts_are_binned_as_the_numbers_that_they_are(text: str, code: int) -> None:
    """A CSV file has nothing but texts; a whole number and a decimal one may stand together."""
    bins = Bins([18, 65])
    column = pl.Series("age", [text, "0.5", "30"])
    assert encode_column(column, bins.attribute("age"), bins).tolist() == [code, 0, 1]


def test_large_whole_numbers_in_texts_are_exact() -> None:
    """Above 2^53 two of them are one float; what else stands in the column changes nothing."""
    edge = 2**53 + 1
    bins = Bins([edge])
    texts = [str(edge - 1), str(edge)]
    for others in ([], ["0.5"]):
        codes = encode_column(pl.Series("n", [*texts, *others]), bins.attribute("n"), bins)
        assert codes[:2].tolist() == [0, 1]


@pytest.mark.parametrize("text", ["", " 18", "18 ", "old", "NaN", "1,5", "0x10", None])
def test_texts_that_are_no_numbers_are_not_binned(text: str | None) -> None:
    """They are shown as they are."""
    bins = Bins([18])
    with pytest.raises(ValueNotInSchemaError) as caught:
        encode_column(pl.Series("age", ["30", text], dtype=pl.String), bins.attribute("age"), bins)
    assert [(o.value, o.rows) for o in caught.value.offenders] == [(text, (2,))]


def test_an_encoder_goes_on_after_it_found_something() -> None:
    """Codes as long as all is well; then nothing but findings, with rows of the whole table."""
    schema = Schema([Attribute("a", ["x", "y"])])
    encoder = Encoder(schema)
    frames = [pl.DataFrame({"a": values}) for values in (["x", "y"], ["?", "x"], ["y", "?"])]
    first = encoder.encode(frames[0])
    assert first is not None
    assert first[0].tolist() == [0, 1]
    encoder.finish()
    assert encoder.encode(frames[1]) is None
    assert encoder.encode(frames[2]) is None
    with pytest.raises(ValueNotInSchemaError, match=r"'\?' in 2 rows: 3, 6$"):
        encoder.finish()
