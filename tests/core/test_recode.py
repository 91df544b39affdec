import math
from dataclasses import FrozenInstanceError
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import in_soak
from veiltab.core.schema import Attribute
from veiltab.data.encoding import encode_column
from veiltab.data.recode import Bins, ValueMap
from veiltab.errors import SchemaError, ValueNotInSchemaError

YES_NO = Attribute("answer", ["yes", "no"])
AGE = Bins([40, 60])


def test_a_value_map_keeps_its_entries() -> None:
    """Any text may be a key, the empty one and control characters included, and None."""
    entries = {"": "unknown", "a\tb": "x", "年": "y", None: "unknown"}
    assert dict(ValueMap(entries).entries) == entries
    assert ValueMap(entries) == ValueMap(dict(reversed(entries.items())))


def test_a_value_map_cannot_be_changed() -> None:
    """Neither through the map nor through the dictionary that it was built from."""
    source: dict[str | None, str] = {"m": "male"}
    values = ValueMap(source)
    source["m"] = "female"
    assert values.entries["m"] == "male"
    with pytest.raises(TypeError):
        values.entries["m"] = "female"  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        values.entries = {}  # type: ignore[misc]


def test_an_empty_value_map_is_refused() -> None:
    """A map that maps nothing is a mistake of whoever wrote it."""
    with pytest.raises(SchemaError, match="a value map has no entries") as caught:
        ValueMap({})
    assert "leave it out" in caught.value.hint


@pytest.mark.parametrize("key", [1, 1.5, True, b"x", "\ud800"])
def test_keys_that_no_table_holds_as_text_are_refused(key: str) -> None:
    """A number as key would never match, so it is refused with the way to write it."""
    with pytest.raises(SchemaError, match="which no table holds as text") as caught:
        ValueMap({key: "x"})
    assert "'1'" in caught.value.hint
    assert "None for missing" in caught.value.hint


@pytest.mark.parametrize("category", ["", "a\nb", 3, None])
def test_categories_that_cannot_exist_are_refused(category: str) -> None:
    """A target that no attribute can have is found when the map is written."""
    with pytest.raises(SchemaError, match="the category for 'm' "):
        ValueMap({"m": category})


def test_bins_name_their_intervals() -> None:
    """The labels say which side an edge belongs to."""
    assert Bins([40, 60]).labels() == ("<40", "40 to <60", ">=60")
    assert Bins([0]).labels() == ("<0", ">=0")


@pytest.mark.parametrize(
    ("edge", "text"),
    [(40.0, "40"), (0.5, "0.5"), (-3, "-3"), (1e300, "1e+300"), (2**70, str(2**70)), (-0.0, "0")],
)
def test_labels_show_numbers_as_people_write_them(edge: float, text: str) -> None:
    """Whole floats lose their '.0', and minus zero its sign."""
    assert Bins([edge]).labels() == (f"<{text}", f">={text}")


def test_bins_build_their_attribute() -> None:
    """The attribute has one category more than there are edges."""
    assert Bins([18, 65]).attribute("age") == Attribute("age", ["<18", "18 to <65", ">=65"])


def test_bins_accept_numpy_numbers() -> None:
    """Edges from an array become plain numbers, and compare equal to them."""
    bins = Bins(np.array([1, 2], dtype=np.int32))
    assert bins == Bins([1, 2])
    assert [type(edge) for edge in bins.edges] == [int, int]
    assert Bins(np.array([0.5])).edges == (0.5,)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-100, 100)))
def test_labels_are_always_distinct_categories(numbers: list[float]) -> None:
    """Whatever the edges, the attribute can be built and has a category per interval."""
    edges = sorted(set(numbers) | {0})
    assert Bins(edges).attribute("n").size == len(edges) + 1


def test_bins_cannot_be_changed() -> None:
    """They are values: equal by content, hashable, frozen."""
    assert hash(Bins([1, 2])) == hash(Bins((1, 2)))
    with pytest.raises(FrozenInstanceError):
        Bins([1]).edges = (2,)  # type: ignore[misc]


@pytest.mark.parametrize("edge", [math.nan, math.inf, -math.inf, 10**400])
def test_edges_must_be_finite(edge: float) -> None:
    """NaN has no place in an order, and an infinite edge makes an empty bin."""
    with pytest.raises(SchemaError, match="NaN, infinite or too large") as caught:
        Bins([1, edge])
    assert "unbounded" in caught.value.hint


@pytest.mark.parametrize("edge", ["40", True, None, 1j])
def test_edges_must_be_numbers(edge: float) -> None:
    """A text or a truth value is refused instead of converted."""
    with pytest.raises(SchemaError, match="not a number") as caught:
        Bins([edge])
    assert "numbers" in caught.value.hint


@pytest.mark.parametrize("edges", [[1, 1], [2, 1], [1, 3, 2], [0, -0.0], [1, 1.0]])
def test_edges_must_increase(edges: list[float]) -> None:
    """Equal edges would make an interval that no value can fall into."""
    with pytest.raises(SchemaError, match=r"the bin edge .* follows") as caught:
        Bins(edges)
    assert "strictly increasing" in caught.value.hint


def test_bins_need_an_edge() -> None:
    """Without an edge there is only one category, and nothing to measure."""
    with pytest.raises(SchemaError, match="the bins have no edges") as caught:
        Bins([])
    assert "one edge for two bins" in caught.value.hint
    with pytest.raises(SchemaError, match="the edges of the bins are 40, not a list") as caught:
        Bins(40)  # type: ignore[arg-type]
    assert "Bins([40])" in caught.value.hint


@pytest.mark.parametrize("extra", [252, 253, 254, 255, 65_533, *in_soak(65_532, 65_534, 65_535)])
def test_large_value_maps_do_not_overflow(extra: int) -> None:
    """The lookup has more entries than codes have bits, and still finds the right ones."""
    entries: dict[str | None, str] = {f"raw{k}": ("yes", "no")[k % 2] for k in range(extra)}
    entries[None] = "no"
    column = pl.Series(["no", f"raw{extra - 1}", None, "raw0", "yes"])
    codes = encode_column(column, YES_NO, ValueMap(entries))
    assert codes.tolist() == [1, (extra - 1) % 2, 1, 0, 0]


def test_a_value_map_applies_first_and_passes_the_rest_on() -> None:
    """Listed values are mapped, even if they are categories; the others are matched as is."""
    values = ValueMap({"J": "yes", "": "no", "no": "yes"})
    column = pl.Series(["J", "yes", "", "no"])
    assert encode_column(column, YES_NO, values).tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([None, 1], pl.Int64),
        ([None, 1.0], pl.Float64),
        ([math.nan, 1.0], pl.Float64),
        ([math.nan, 1.0], pl.Float32),
        ([None, True], pl.Boolean),
        ([None, "1"], pl.Categorical),
        ([None, Decimal(1)], pl.Decimal(5, 3)),
    ],
)
def test_the_key_none_catches_missing_values(values: list[Any], dtype: pl.DataType) -> None:
    """Null and NaN both mean that nobody knows; other keys are texts, for every type."""
    rule = ValueMap({None: "no", "1": "yes", "true": "yes"})
    assert encode_column(pl.Series("x", values, dtype), YES_NO, rule).tolist() == [1, 0]


def test_a_column_of_nulls_alone_can_be_mapped() -> None:
    """An empty column of a CSV file arrives without any type."""
    codes = encode_column(pl.Series("x", [None, None]), YES_NO, ValueMap({None: "no"}))
    assert codes.tolist() == [1, 1]


def test_a_value_map_must_lead_to_categories() -> None:
    """A misspelt target is an error of the map, even if no row uses it."""
    with pytest.raises(SchemaError, match="rule for 'answer' maps to 'nope', 'nay'") as caught:
        encode_column(pl.Series(["yes"]), YES_NO, ValueMap({"n": "nope", "m": "nope", None: "nay"}))
    assert caught.value.hint == "its categories are 'yes', 'no'"
    many = Attribute("x", map(str, range(1000)))
    with pytest.raises(SchemaError) as caught:
        encode_column(pl.Series(["1"]), many, ValueMap({"n": "nope"}))
    assert caught.value.hint.endswith("'8', '9', …")


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([-5, 39, 40, 59, 60, 99], pl.Int64),
        ([0, 39, 40, 59, 60, 255], pl.UInt8),
        ([-math.inf, 39.999, 40.0, 59.5, 60.0, math.inf], pl.Float64),
        ([-1.0, 39.5, 40.0, 59.5, 60.0, 1e30], pl.Float32),
        ([Decimal(tenths) / 10 for tenths in (-10, 399, 400, 599, 600, 999)], pl.Decimal(10, 1)),
    ],
)
def test_a_value_equal_to_an_edge_belongs_above_it(values: list[Any], dtype: pl.DataType) -> None:
    """Bins are right-open, for every numeric type."""
    codes = encode_column(pl.Series("x", values, dtype), AGE.attribute("age"), AGE)
    assert codes.tolist() == [0, 0, 1, 1, 2, 2]


def test_fractional_edges_bin_whole_numbers() -> None:
    """No whole number lies between 1.2 and 1.8, and 2 is above both."""
    bins = Bins([0.5, 1.2, 1.8])
    codes = encode_column(pl.Series([0, 1, 2]), bins.attribute("x"), bins)
    assert codes.tolist() == [0, 1, 3]


def test_single_precision_values_meet_their_edge() -> None:
    """A 32-bit 0.7 is below the 64-bit one, yet the table shows 0.7: it belongs above."""
    bins = Bins([0.7, 1e300])
    column = pl.Series([0.6999, 0.7, 1.0], dtype=pl.Float32)
    assert encode_column(column, bins.attribute("x"), bins).tolist() == [0, 1, 1]


def test_huge_whole_numbers_are_binned_exactly() -> None:
    """As floats, 2^60 - 1 and 2^60 would be the same number."""
    bins = Bins([2**60, 2**60 + 1])
    column = pl.Series([2**60 - 1, 2**60, 2**60 + 1])
    assert encode_column(column, bins.attribute("x"), bins).tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt8, pl.Int64, pl.UInt64])
def test_edges_beyond_the_columns_type_are_fine(dtype: type[pl.DataType]) -> None:
    """A narrow column cannot reach far edges, and must not wrap around either."""
    bins = Bins([-1e30, -1000, 5, 2**64, 1e30])
    column = pl.Series("x", [4, 5, 127], dtype)
    assert encode_column(column, bins.attribute("x"), bins).tolist() == [2, 3, 3]


@given(
    st.lists(st.integers(-1000, 1000), min_size=1, max_size=300, unique=True),
    st.lists(st.integers(-1100, 1100) | st.floats(-1100, 1100), max_size=30),
)
@settings(deadline=None)
def test_bins_agree_with_counting_edges(edges: list[int], values: list[float]) -> None:
    """The code is the number of edges that are not above the value."""
    bins = Bins(sorted(edges))
    column = pl.Series("x", [float(value) for value in values], pl.Float64)
    codes = encode_column(column, bins.attribute("x"), bins)
    assert codes.tolist() == [sum(edge <= value for edge in edges) for value in values]
    assert codes.dtype == (np.uint8 if len(edges) < 256 else np.uint16)


def test_bins_read_plain_numbers_from_text_and_nothing_else() -> None:
    """A CSV is all text; but '1,5' means different numbers in different countries."""
    texts = pl.Series("years", ["39", "39.5", "40", "1e2"])
    numbers = pl.Series("years", [39.0, 39.5, 40.0, 100.0])
    attribute = AGE.attribute("age")
    listed = texts.cast(pl.Categorical)  # how a frame may keep texts
    codes = [encode_column(column, attribute, AGE).tolist() for column in (texts, listed, numbers)]
    assert codes[0] == codes[1] == codes[2]
    with pytest.raises(ValueNotInSchemaError) as caught:
        encode_column(pl.Series("years", ["39", "1,5", "forty", ""]), attribute, AGE)
    assert [each.value for each in caught.value.offenders] == ["1,5", "forty", ""]


@pytest.mark.parametrize("dtype", [pl.Boolean, pl.Date, pl.Int128, pl.Time])
def test_bins_need_a_column_of_numbers(dtype: type[pl.DataType]) -> None:
    """A date or a flag has no place on the line of numbers."""
    with pytest.raises(SchemaError, match=r"column 'years' is .*, and bins need numbers") as caught:
        encode_column(pl.Series("years", [], dtype), AGE.attribute("age"), AGE)
    assert "convert the column to Int64 or Float64" in caught.value.hint


def test_bins_need_one_category_more_than_edges() -> None:
    """Otherwise a code would have no category, or a category no value."""
    with pytest.raises(SchemaError, match="has 2 categories, but its 2 bin edges make 3") as caught:
        encode_column(pl.Series([1]), YES_NO, AGE)
    assert "one category more" in caught.value.hint


def test_a_value_map_without_none_leaves_missing_values_as_offenders() -> None:
    """Nothing is guessed for missing values; and None does not hide unknown ones."""
    with pytest.raises(ValueNotInSchemaError, match=r"\(missing\) in 1 row: 2"):
        encode_column(pl.Series(["j", None]), YES_NO, ValueMap({"j": "yes"}))
    with pytest.raises(ValueNotInSchemaError) as caught:
        encode_column(pl.Series(["k", None]), YES_NO, ValueMap({None: "yes"}))
    assert [offender.value for offender in caught.value.offenders] == ["k"]


@pytest.mark.parametrize("dtype", [pl.Int64, pl.Float64, pl.Float32])
def test_missing_numbers_need_a_category(dtype: type[pl.DataType]) -> None:
    """Without one they are offenders, and the hint names the key."""
    with pytest.raises(ValueNotInSchemaError, match=r"\(missing\) in 1 row: 2") as caught:
        encode_column(pl.Series("x", [50, None], dtype), AGE.attribute("age"), AGE)
    assert "missing values (missing)" in caught.value.hint


def test_nan_cannot_be_binned() -> None:
    """NumPy would sort NaN above every edge, into the last bin."""
    with pytest.raises(ValueNotInSchemaError, match=r"\(missing\) in 1 row: 1"):
        encode_column(pl.Series("x", [math.nan, 1.0]), AGE.attribute("age"), AGE)
