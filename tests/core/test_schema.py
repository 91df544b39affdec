import itertools
import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veiltab.core.parameters import MAX_DOMAIN_SIZE
from veiltab.core.schema import MAX_CATEGORIES, Attribute, Schema
from veiltab.errors import SchemaError


def numbered(size: int, name: str = "a") -> Attribute:
    """Build an attribute with the categories 0, 1, ..."""
    return Attribute(name, map(str, range(size)))


def schema_of(*sizes: int) -> Schema:
    """Build a schema with attributes a0, a1, ... of these sizes."""
    return Schema(numbered(size, f"a{position}") for position, size in enumerate(sizes))


@pytest.mark.parametrize(
    "text",
    [
        " ",
        "two words",
        "naïve 年齢 возраст",
        "👩‍⚕️",
        'it\'s "quoted" \\ $^*',
        "a,b;c|d",
        "\u00a0",
        "\U0010ffff",
        "^x$",
    ],
)
def test_odd_but_printable_text_is_fine(text: str) -> None:
    """Curators name columns in their own language; nothing printable is refused."""
    attribute = Attribute(text, [text, text + "2"])
    assert (attribute.name, attribute.categories) == (text, (text, text + "2"))


@pytest.mark.parametrize(
    "bad", [*"\n\x00\x1f\x7f\x9b\u2028\u202e\u2066", "a\tb", "x\ud800", "\udfffx"]
)
def test_control_characters_and_lone_surrogates_are_refused(bad: str) -> None:
    """What cannot be shown on a line or written as UTF-8 is refused, in names and categories."""
    with pytest.raises(SchemaError, match="an attribute name has a control character") as caught:
        Attribute(bad, ["x"])
    assert "printable" in caught.value.hint
    assert "\n" not in caught.value.message
    with pytest.raises(SchemaError, match="a category of 'n' has a control character"):
        Attribute("n", ["fine", bad])


def test_empty_name_and_empty_category_are_refused() -> None:
    """An empty text cannot be told from a missing one."""
    with pytest.raises(SchemaError, match="an attribute name is empty"):
        Attribute("", ["x"])
    with pytest.raises(SchemaError, match="a category of 'n' is empty") as caught:
        Attribute("n", ["x", ""])
    assert "'unknown'" in caught.value.hint


def test_names_and_categories_must_be_text() -> None:
    """Numbers are refused instead of converted: 1 and 1.0 would become different texts."""
    with pytest.raises(SchemaError, match="an attribute name is 3, not text"):
        Attribute(3, ["x"])  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match=r"a category of 'n' is 1\.0, not text") as caught:
        Attribute("n", ["x", 1.0])  # type: ignore[list-item]
    assert "'40'" in caught.value.hint


def test_a_bare_string_is_not_a_list_of_categories() -> None:
    """'yes' would otherwise silently become the categories y, e and s."""
    with pytest.raises(SchemaError, match="'yes', not a list of texts") as caught:
        Attribute("n", "yes")
    assert "list" in caught.value.hint


def test_repeated_categories_are_refused() -> None:
    """Two codes for one text could not be told apart; the message names the text."""
    with pytest.raises(SchemaError, match="attribute 'n' lists the category 'b' 2 times") as caught:
        Attribute("n", ["a", "b", "c", "b"])
    assert caught.value.hint == "list each one once"


@pytest.mark.parametrize("size", [0, MAX_CATEGORIES + 1])
def test_too_few_or_too_many_categories_are_refused(size: int) -> None:
    """The limits are 1 and 65,535, and the hint states them."""
    with pytest.raises(SchemaError, match=f"has {size:,} categories") as caught:
        numbered(size)
    assert "1 to 65,535" in caught.value.hint


@pytest.mark.parametrize(
    ("size", "dtype"),
    [(1, np.uint8), (2, np.uint8), (256, np.uint8), (257, np.uint16), (65_535, np.uint16)],
)
def test_the_dtype_is_the_narrowest_that_holds_every_code(
    size: int, dtype: type[np.uint8 | np.uint16]
) -> None:
    """256 categories have the codes 0..255 and fit a byte; one more does not."""
    attribute = numbered(size)
    assert attribute.size == size
    assert attribute.dtype is dtype
    last = Schema([attribute]).codes(np.array([size - 1]))[0]
    assert last.dtype == dtype
    assert last.tolist() == [size - 1]


def test_attributes_and_schemas_are_values() -> None:
    """They are compared and hashed by content, cannot be changed, and can be replaced."""
    attribute = Attribute("n", ["a", "b"])
    assert attribute == Attribute("n", ("a", "b"))
    assert attribute != Attribute("n", ["b", "a"])
    assert hash(Schema([attribute])) == hash(Schema((attribute,)))
    assert replace(attribute, name="m") == Attribute("m", ["a", "b"])
    with pytest.raises(FrozenInstanceError):
        attribute.name = "m"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        Schema([attribute]).attributes = ()  # type: ignore[misc]


def test_a_schema_reports_names_sizes_and_cells() -> None:
    """The derived facts follow the attributes' order."""
    schema = schema_of(2, 16, 5)
    assert schema.names == ("a0", "a1", "a2")
    assert schema.sizes == (2, 16, 5)
    assert schema.domain_size == 160


def test_a_schema_without_attributes_is_refused() -> None:
    """An empty product would be one cell, and every statistic trivial."""
    with pytest.raises(SchemaError, match="no attributes") as caught:
        Schema([])
    assert "at least one" in caught.value.hint


def test_repeated_attribute_names_are_refused() -> None:
    """Grants and columns are found by name, so a name must be unique."""
    with pytest.raises(SchemaError, match="the schema lists the attribute 'x' 2 times"):
        Schema([numbered(2, "x"), numbered(3, "y"), numbered(4, "x")])


def test_a_domain_of_exactly_2_to_the_48_is_accepted() -> None:
    """The limit itself works, down to the last cell."""
    schema = schema_of(*[2**12] * 4)
    assert schema.domain_size == MAX_DOMAIN_SIZE == 2**48
    last = schema.codes(np.array([2**48 - 1]))
    assert [code.tolist() for code in last] == [[4095]] * 4
    assert schema.cells(last).tolist() == [2**48 - 1]


def test_a_larger_domain_is_refused_with_the_product_and_the_culprits() -> None:
    """The message names the product, and the hint the largest attributes first."""
    attributes = [numbered(2**12, f"big{k}") for k in range(3)]
    with pytest.raises(SchemaError, match="281,543,696,187,392 joint cells") as caught:
        Schema([numbered(1, "one"), *attributes, numbered(4097, "huge")])
    assert "'huge' (4,097)" in caught.value.hint
    assert "drop" in caught.value.hint
    assert "'one'" not in caught.value.hint


def test_an_astronomic_domain_is_refused_too() -> None:
    """A product with thousands of digits is shown as a power of ten, without a crash."""
    with pytest.raises(SchemaError, match=r"about 10\^4515 joint cells"):
        schema_of(*[2] * 15_000)


def test_subset_follows_the_given_order() -> None:
    """A researcher may ask for attributes in any order."""
    schema = schema_of(2, 3, 4)
    assert schema.subset(["a2", "a0"]).sizes == (4, 2)
    assert schema.subset(schema.names) == schema


def test_subset_refuses_unknown_repeated_and_no_names() -> None:
    """The unknown names are in the message, the known ones in the hint."""
    schema = schema_of(2, 3)
    with pytest.raises(SchemaError, match="no attribute 'x', 'y'") as caught:
        schema.subset(["a0", "x", "y"])
    assert caught.value.hint == "its attributes are 'a0', 'a1'"
    with pytest.raises(SchemaError, match="'a0' 2 times"):
        schema.subset(["a0", "a0"])
    with pytest.raises(SchemaError, match="no attributes"):
        schema.subset([])


@pytest.mark.parametrize("sizes", [(1,), (7,), (2, 3), (3, 2), (1, 4, 1), (2, 3, 4, 5), (1, 1)])
def test_cells_number_the_combinations_in_lexicographic_order(sizes: tuple[int, ...]) -> None:
    """First attribute most significant: exactly the order of itertools.product."""
    schema = schema_of(*sizes)
    combinations = list(itertools.product(*map(range, sizes)))
    columns = [np.array(column) for column in zip(*combinations, strict=True)]
    cells = schema.cells(columns)
    assert cells.dtype == np.int64
    assert cells.tolist() == list(range(math.prod(sizes)))
    assert [codes.tolist() for codes in schema.codes(cells)] == [c.tolist() for c in columns]
    texts = [tuple(map(str, combination)) for combination in combinations]
    assert [schema.labels(cell) for cell in cells.tolist()] == texts


@st.composite
def schemas_with_cells(draw: st.DrawFn) -> tuple[Schema, list[int]]:
    """Draw a schema of mixed sizes, wide and narrow, and some of its cells."""
    size = st.sampled_from([1, 2, 3, 10, 256, 257, 1000])
    schema = schema_of(*draw(st.lists(size, min_size=1, max_size=4)))
    cells = draw(st.lists(st.integers(0, schema.domain_size - 1), max_size=20))
    return schema, cells


@given(schemas_with_cells())
@settings(deadline=None)
def test_cells_survive_the_round_trip(drawn: tuple[Schema, list[int]]) -> None:
    """Cells to codes to cells is the identity, and each step equals plain-integer arithmetic."""
    schema, cells = drawn
    codes = schema.codes(np.array(cells, dtype=np.int64))
    assert schema.cells(codes).tolist() == cells
    assert [c.dtype for c in codes] == [attribute.dtype for attribute in schema.attributes]
    for row, cell in enumerate(cells):
        expected = 0
        for size, column in zip(schema.sizes, codes, strict=True):
            expected = expected * size + int(column[row])
        assert expected == cell


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int32, np.int64, np.uint64])
def test_codes_of_any_integer_type_are_joined(dtype: type[np.integer[Any]]) -> None:
    """Sums are done in 64 bits, so narrow inputs do not overflow and none is refused."""
    schema = schema_of(100, 100, 100)
    column = np.array([99, 0], dtype=dtype)
    assert schema.cells([column] * 3).tolist() == [999_999, 0]


def test_the_inputs_are_left_alone() -> None:
    """Neither direction writes into the caller's arrays."""
    schema = schema_of(3, 4)
    first, second = np.array([1, 2]), np.array([3, 0])
    cells = schema.cells([first, second])
    schema.codes(cells)
    assert (first.tolist(), second.tolist(), cells.tolist()) == ([1, 2], [3, 0], [7, 8])


def test_no_rows_are_fine() -> None:
    """A table without rows has no cells, in the right types."""
    schema = schema_of(2, 300)
    cells = schema.cells([np.array([], dtype=np.uint8), np.array([], dtype=np.uint16)])
    assert cells.dtype == np.int64
    assert cells.size == 0
    assert [codes.dtype for codes in schema.codes(cells)] == [np.uint8, np.uint16]


def test_cells_refuses_the_wrong_number_of_columns() -> None:
    """The hint lists the attributes that are expected."""
    with pytest.raises(SchemaError, match="1 columns of codes for 2 attributes") as caught:
        schema_of(2, 3).cells([np.array([0])])
    assert "'a0', 'a1'" in caught.value.hint


def test_cells_refuses_columns_of_different_lengths() -> None:
    """Broadcasting would silently repeat the single code of a short column."""
    with pytest.raises(SchemaError, match="different lengths: 1, 3"):
        schema_of(2, 3).cells([np.array([0]), np.array([0, 1, 2])])


@pytest.mark.parametrize(("code", "shown"), [(3, "3"), (-1, "-1"), (255, "255")])
def test_cells_refuses_codes_out_of_range(code: int, shown: str) -> None:
    """A code outside its attribute would land in another row's cell."""
    with pytest.raises(SchemaError, match=f"codes of 'a1' are out of range: {shown}$") as caught:
        schema_of(2, 3).cells([np.array([0, 1]), np.array([2, code])])
    assert "from 0 to 2" in caught.value.hint


@pytest.mark.parametrize("values", [[0.0], [True], [[0]], 0, ["0"], []])
def test_cells_refuses_what_is_not_a_column_of_whole_numbers(values: object) -> None:
    """Floats, booleans and other shapes are a caller's mistake."""
    with pytest.raises(SchemaError, match="dimensional array of") as caught:
        schema_of(2).cells([np.array(values)])
    assert "one-dimensional array of whole numbers" in caught.value.hint


@pytest.mark.parametrize("cell", [-1, 6])
def test_codes_and_labels_refuse_cells_out_of_range(cell: int) -> None:
    """A cell from another schema is found before it becomes a wrong category."""
    with pytest.raises(SchemaError, match=f"cells are out of range: {cell}") as caught:
        schema_of(2, 3).codes(np.array([0, cell]))
    assert "from 0 to 5" in caught.value.hint
    with pytest.raises(SchemaError, match=f"out of range: {cell}"):
        schema_of(2, 3).labels(cell)
