import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.message_strategies import REFUSED
from veiltab.core.schema import Attribute, Schema
from veiltab.data.encoding import decode_cells, decode_column, encode_column, encode_table
from veiltab.data.recode import Bins, Rule, ValueMap
from veiltab.errors import Offender, SchemaError, ValueNotInSchemaError

YES_NO = Attribute("answer", ["yes", "no"])
AGE = Bins([40, 60])


@pytest.mark.parametrize(
    ("values", "dtype", "categories", "expected"),
    [
        (["b", "a", "b"], pl.String, ["a", "b"], [1, 0, 1]),
        (["b", "a"], pl.Categorical, ["a", "b"], [1, 0]),
        (["b", "a"], pl.Enum(["b", "a", "unused"]), ["a", "b"], [1, 0]),
        ([True, False], pl.Boolean, ["true", "false"], [0, 1]),
        ([10, 2, -1], pl.Int8, ["-1", "2", "10"], [2, 1, 0]),
        ([2**63, 2**64 - 1], pl.UInt64, [str(2**64 - 1), str(2**63)], [1, 0]),
        ([-(2**63)], pl.Int64, [str(-(2**63))], [0]),
        ([2**100], pl.Int128, ["0", str(2**100)], [1]),
        ([1.0, 2.5, -0.0], pl.Float64, ["0", "1", "2.5"], [1, 2, 0]),
        ([1e16, 2.0**70, math.inf], pl.Float64, [str(10**16), str(2**70), "inf"], [0, 1, 2]),
        ([0.7, 3.0], pl.Float32, ["3", "0.7"], [1, 0]),
        ([Decimal("1.50"), Decimal("10.00")], pl.Decimal(10, 2), ["10", "1.5"], [1, 0]),
        ([Decimal(100)], pl.Decimal(10, 0), ["1", "100"], [1]),
        ([dt.date(2024, 2, 29)], pl.Date, ["2024-02-28", "2024-02-29"], [1]),
    ],
)
def test_values_are_matched_by_their_text(
    values: list[Any], dtype: pl.DataType, categories: list[str], expected: list[int]
) -> None:
    """Every supported type has one text, whatever the file that it came from."""
    column = pl.Series("x", values, dtype)
    assert encode_column(column, Attribute("x", categories)).tolist() == expected


@pytest.mark.parametrize(
    ("size", "dtype"),
    [(1, np.uint8), (256, np.uint8), (257, np.uint16), (65_535, np.uint16)],
)
def test_codes_have_the_attributes_type(size: int, dtype: type[np.uint8 | np.uint16]) -> None:
    """The last category of every size keeps its code, there and back."""
    attribute = Attribute("x", map(str, range(size)))
    codes = encode_column(pl.Series([size - 1, 0]), attribute)
    assert codes.dtype == dtype
    assert codes.tolist() == [size - 1, 0]
    assert decode_column(codes, attribute).to_list() == [str(size - 1), "0"]


printable = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=[*map(chr, range(32)), *REFUSED]),
    min_size=1,
)


@pytest.mark.slow
@given(st.data())
@settings(deadline=None)
def test_values_survive_the_round_trip(data: st.DataObject) -> None:
    """Any categories, any rows: decoding gives back the texts, name and type included."""
    name = data.draw(printable)
    categories = data.draw(st.lists(printable, min_size=1, max_size=8, unique=True))
    values = data.draw(st.lists(st.sampled_from(categories), max_size=20))
    attribute = Attribute(name, categories)
    decoded = decode_column(encode_column(pl.Series(name, values, pl.String), attribute), attribute)
    assert decoded.name == name
    assert decoded.dtype == pl.Enum(categories)
    assert decoded.to_list() == values


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, unique=True))
@settings(deadline=None)
def test_whole_floats_and_integers_have_the_same_text(values: list[int]) -> None:
    """A column that a file reader made float, because of one gap, still matches."""
    floats = pl.Series([float(value) for value in values])
    texts = [str(int(value)) for value in floats]
    attribute = Attribute("x", dict.fromkeys(texts))
    assert decode_column(encode_column(floats, attribute), attribute).to_list() == texts


@pytest.mark.parametrize("rule", [None, ValueMap({None: "yes"}), Bins([1])])
@pytest.mark.parametrize("dtype", [pl.Int64, pl.Float64, pl.Null])
def test_columns_without_rows_are_fine(rule: Rule | None, dtype: pl.DataType) -> None:
    """No rows, no codes, no error; a reader may not even know the type."""
    codes = encode_column(pl.Series("x", [], dtype=dtype), YES_NO, rule)
    assert codes.dtype == np.uint8
    assert codes.size == 0


@pytest.mark.parametrize(
    "column",
    [
        pl.Series("c", [b"yes"]),
        pl.Series("c", [["yes"]]),
        pl.Series("c", [{"a": "yes"}]),
        pl.Series("c", [["yes"]], dtype=pl.Array(pl.String, 1)),
        pl.Series("c", [dt.datetime(2024, 1, 1)]),  # noqa: DTZ001
        pl.Series("c", [dt.timedelta(1)]),
        pl.Series("c", [object()], dtype=pl.Object),
    ],
)
def test_types_without_an_agreed_text_are_refused(column: pl.Series) -> None:
    """Bytes, nested values and times have no single spelling; the message names the type."""
    with pytest.raises(SchemaError, match=r"column 'c' is .* no text to match") as caught:
        encode_column(column, YES_NO)
    assert "convert the column" in caught.value.hint


def test_one_offender_is_described_in_full() -> None:
    """The whole message and hint, as a curator sees them."""
    column = pl.Series("the answer", ["yes", "maybe", "no", "maybe"])
    with pytest.raises(ValueNotInSchemaError) as caught:
        encode_column(column, YES_NO)
    assert caught.value.message == (
        "the table holds values that no category covers (row 1 is the first data row)\n"
        "  column 'the answer': 2 rows\n"
        "    'maybe' in 2 rows: 2, 4"
    )
    assert caught.value.offenders == (Offender("the answer", "maybe", 2, (2, 4)),)
    for advice in ("ValueMap", "None", "add a category", "fix the table"):
        assert advice in caught.value.hint
    assert (caught.value.code, caught.value.exit_code) == ("value_not_in_schema", 2)


def test_more_than_five_offenders_are_counted() -> None:
    """Five values in order of first appearance, three rows each, and how many more there are."""
    column = pl.Series("x", ["g", "yes", "f", "e", "d", None, "b", "a", "g", "g", "g", "a"])
    with pytest.raises(ValueNotInSchemaError) as caught:
        encode_column(column, YES_NO)
    assert caught.value.message.splitlines()[1:] == [
        "  column 'x': 11 rows",
        "    'g' in 4 rows: 1, 9, 10, …",
        "    'f' in 1 row: 3",
        "    'e' in 1 row: 4",
        "    'd' in 1 row: 5",
        "    (missing) in 1 row: 6",
        "    and 2 more distinct values",
    ]
    assert [o.value for o in caught.value.offenders] == ["g", "f", "e", "d", None]
    assert caught.value.offenders[0].rows == (1, 9, 10)


def test_the_sixth_offender_is_one_more_value() -> None:
    """Singular and plural are told apart; exactly five have no such line."""
    with pytest.raises(ValueNotInSchemaError, match=r"and 1 more distinct value$"):
        encode_column(pl.Series(range(6)), YES_NO)
    with pytest.raises(ValueNotInSchemaError) as caught:
        encode_column(pl.Series(range(5)), YES_NO)
    assert "more" not in caught.value.message


@pytest.mark.parametrize(
    ("values", "dtype", "shown"),
    [
        ([math.nan, None], pl.Float64, "(missing) in 2 rows: 1, 2"),
        ([None], pl.Null, "(missing) in 1 row: 1"),
        (["(missing)"], pl.String, "'(missing)' in 1 row"),
        ([""], pl.String, "'' in 1 row"),
        (["Yes "], pl.String, "'Yes ' in 1 row"),
        (["a\nb\x00\x1b"], pl.String, r"'a\nb\x00\x1b' in 1 row"),
        (["it's"], pl.String, '"it\'s" in 1 row'),
        (["x" * 40], pl.String, f"'{'x' * 40}' in"),
        (["é" * 41], pl.String, f"'{'é' * 39}…' in"),
        ([True], pl.Boolean, "'true' in"),
        ([1.0, 1.5], pl.Float64, "'1' in 1 row: 1\n    '1.5' in 1 row: 2"),
        ([2**64 - 1], pl.UInt64, "'18446744073709551615' in"),
        ([dt.date(1999, 12, 31)], pl.Date, "'1999-12-31' in"),
    ],
)
def test_offenders_are_shown_on_one_line(values: list[Any], dtype: Any, shown: str) -> None:  # noqa: ANN401
    """Missing values, blanks, control characters and long texts can all be recognised."""
    with pytest.raises(ValueNotInSchemaError) as caught:
        encode_column(pl.Series("x", values, dtype), YES_NO)
    assert f"  column 'x': {len(values)} row" in caught.value.message
    assert f"    {shown}" in caught.value.message


def test_offenders_keep_their_whole_text_as_data() -> None:
    """Only the message is shortened."""
    with pytest.raises(ValueNotInSchemaError) as caught:
        encode_column(pl.Series("x", ["\t" * 100]), YES_NO)
    assert caught.value.offenders[0].value == "\t" * 100


def test_a_nameless_column_is_called_like_its_attribute() -> None:
    """A series built in a notebook often has no name, and an error must point somewhere."""
    with pytest.raises(ValueNotInSchemaError, match="column 'answer': 1 row"):
        encode_column(pl.Series(["x"]), YES_NO)


ODD = ["Größe (cm)", "*", "^.*$", "👩‍⚕️", "a \"b\" 'c'", " "]


@pytest.mark.parametrize("dtype", [pl.String, pl.Int64, pl.Float64])
def test_odd_names_survive_a_whole_table(dtype: type[pl.DataType]) -> None:
    """Names that polars would take for patterns are plain names here."""
    schema = Schema(Attribute(name, ["0", "1"]) for name in ODD)
    frame = pl.DataFrame({name: [k % 2] for k, name in enumerate(ODD)})
    codes = encode_table(frame.cast(dtype), schema)
    assert [column.tolist() for column in codes] == [[k % 2] for k in range(len(ODD))]
    decoded = decode_cells(schema.cells(codes), schema)
    assert decoded.columns == ODD
    assert decoded.cast(pl.String).equals(frame.cast(pl.String))


def test_a_table_is_encoded_in_the_schemas_order() -> None:
    """Extra columns are ignored, rules and column names are found by attribute."""
    frame = pl.DataFrame({"z": [0, 0], "Alter": [20, 60], "answer": ["J", "no"]})
    schema = Schema([YES_NO, AGE.attribute("age")])
    rules: dict[str, Rule] = {"age": AGE, "answer": ValueMap({"J": "yes"})}
    answer, age = encode_table(frame, schema, rules, {"age": "Alter"})
    assert (answer.tolist(), age.tolist()) == ([0, 1], [0, 2])


def test_one_column_may_serve_two_attributes() -> None:
    """The same number can be binned twice, finely and coarsely."""
    fine, coarse = Bins([1, 2]), Bins([2])
    schema = Schema([fine.attribute("fine"), coarse.attribute("coarse")])
    frame = pl.DataFrame({"n": [0, 1, 2]})
    rules, columns = {"fine": fine, "coarse": coarse}, {"fine": "n", "coarse": "n"}
    codes = encode_table(frame, schema, rules, columns)
    assert [column.tolist() for column in codes] == [[0, 1, 2], [0, 0, 1]]


def test_a_table_without_rows_is_fine() -> None:
    """No rows, but one column of the right type per attribute."""
    schema = Schema([YES_NO, Attribute("n", map(str, range(300)))])
    codes = encode_table(pl.DataFrame({"answer": [], "n": []}), schema)
    assert [column.dtype for column in codes] == [np.uint8, np.uint16]
    assert decode_cells(schema.cells(codes), schema).shape == (0, 2)


def test_offenders_in_two_columns_are_reported_together() -> None:
    """A curator should not have to fix a table one error at a time."""
    frame = pl.DataFrame({"answer": ["yes", "x"], "ok": ["a", "a"], "Alter": [None, 50]})
    schema = Schema([YES_NO, Attribute("ok", ["a"]), AGE.attribute("age")])
    with pytest.raises(ValueNotInSchemaError) as caught:
        encode_table(frame, schema, {"age": AGE}, {"age": "Alter"})
    assert caught.value.message.splitlines()[1:] == [
        "  column 'answer': 1 row",
        "    'x' in 1 row: 2",
        "  column 'Alter': 1 row",
        "    (missing) in 1 row: 1",
    ]
    assert caught.value.offenders == (
        Offender("answer", "x", 1, (2,)),
        Offender("Alter", None, 1, (1,)),
    )


def test_absent_columns_are_listed_with_those_that_are_there() -> None:
    """All absent columns at once, by the names that were looked for."""
    schema = Schema([YES_NO, Attribute("b", ["x"]), Attribute("c", ["x"])])
    frame = pl.DataFrame({"Answer": ["yes"], "c": ["x"]})
    with pytest.raises(SchemaError) as caught:
        encode_table(frame, schema, columns={"b": "B"})
    assert caught.value.message == (
        "the table has no columns 'answer', 'B'; its columns are 'Answer', 'c'"
    )
    assert "called differently" in caught.value.hint
    with pytest.raises(SchemaError, match="its columns are none"):
        encode_table(pl.DataFrame(), schema)


def test_rules_and_columns_for_unknown_attributes_are_refused() -> None:
    """A misspelt attribute must not switch its rule off in silence."""
    frame, schema = pl.DataFrame({"answer": ["yes"]}), Schema([YES_NO])
    with pytest.raises(SchemaError, match="rules for unknown attributes: 'anwser'") as caught:
        encode_table(frame, schema, {"anwser": ValueMap({"J": "yes"})})
    assert caught.value.hint == "the schema's attributes are 'answer'"
    with pytest.raises(SchemaError, match="column names for unknown attributes: 'q'"):
        encode_table(frame, schema, columns={"q": "answer"})


@pytest.mark.parametrize("code", [-1, 2])
def test_decoding_refuses_codes_out_of_range(code: int) -> None:
    """A negative code would otherwise count from the end."""
    with pytest.raises(SchemaError, match=f"codes of 'answer' are out of range: {code}"):
        decode_column(np.array([0, code]), YES_NO)
    with pytest.raises(SchemaError, match=f"cells are out of range: {code}"):
        decode_cells(np.array([code]), Schema([YES_NO]))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int64, np.uint64])
def test_decoding_takes_codes_of_any_integer_type(dtype: type[np.integer[Any]]) -> None:
    """Codes may have been computed with, and widened on the way."""
    decoded = decode_column(np.array([1, 0], dtype=dtype), YES_NO)
    assert (decoded.to_list(), decoded.name) == (["no", "yes"], "answer")
    assert decoded.dtype == pl.Enum(["yes", "no"])
