"""Recode files: local rules for a curator's own table, read strictly and written exactly."""

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.message_strategies import TEXTS
from veiltab.core.schema import Attribute, Schema
from veiltab.data.encoding import encode_table
from veiltab.data.recode import (
    Bins,
    Recode,
    Rule,
    ValueMap,
    parse_recode,
    read_recode_file,
    recode_text,
)
from veiltab.errors import StudyFileError

SCHEMA = Schema(
    [
        Attribute("smoker", ["no", "yes", "unknown"]),
        Attribute("age", ["<40", "40 to <60", ">=60"]),
        Attribute("größe in cm", ["a", "b"]),
    ]
)

EXAMPLE = """\
[columns]
smoker = "SMK_2"
"größe in cm" = "height"

[values.smoker]
"0" = "no"
1 = "yes"
missing = "unknown"
"" = "unknown"

[missing]
smoker = "unknown"
"größe in cm" = "a"

[bins.age]
edges = [40, 60.5]
"""


def parse(text: str) -> Recode:
    """Read a recode file for the usual schema."""
    return parse_recode(text.encode(), "recode.toml", SCHEMA)


def test_every_part_is_read(tmp_path: Path) -> None:
    """A raw value may be the word missing; missing values have a table of their own."""
    path = tmp_path / "recode.toml"
    path.write_text(EXAMPLE)
    found = read_recode_file(path, SCHEMA)
    assert found.columns == {"smoker": "SMK_2", "größe in cm": "height"}
    entries = {"0": "no", "1": "yes", "missing": "unknown", "": "unknown", None: "unknown"}
    assert found.rules == {
        "smoker": ValueMap(entries),
        "age": Bins([40, 60.5]),
        "größe in cm": ValueMap({None: "a"}),
    }


def test_a_table_is_encoded_by_it() -> None:
    """The rules and columns are what encode_table takes."""
    frame = pl.DataFrame(
        {"SMK_2": [0, 1, None], "age": [39, 40, 61], "height": ["a", "b", None], "more": [1, 2, 3]}
    )
    found = parse(EXAMPLE)
    codes = encode_table(frame, SCHEMA, found.rules, found.columns)
    assert [column.tolist() for column in codes] == [[0, 1, 2], [0, 1, 2], [0, 1, 0]]


def test_an_empty_file_is_no_rule() -> None:
    """Tables whose columns and values are the study's own words need none."""
    assert parse("# nothing\n") == Recode()


@pytest.mark.parametrize(
    ("text", "line", "problem", "hint"),
    [
        ('[column]\nage = "x"', 1, "column: there is no such key", "'columns'"),
        ('[columns]\nages = "x"', 2, "columns, ages", "did you mean 'age'?"),
        ("[columns]\nage = 5", 2, "must be text, not 5", "quotes"),
        ("columns = 5", 1, "columns: must be a table", "'smoker'"),
        ("[values]\nsmoker = 5", 2, "values, smoker: must be a table", "none"),
        ("[values.smoker]", 1, "values, smoker: is empty", "leave it out"),
        ('[values.smoker]\n"1" = "yess"', 2, "'yess' is not a category of 'smoker'", "'yes'"),
        ('[values.smoker]\n1.5 = "yes"', 2, "must be text, not an object", "quotes"),
        ('[values.smoke]\n"1" = "yes"', 1, "values, smoke", "'smoker'"),
        ('[missing]\nsmoker = "XX"', 2, "'XX' is not a category", "there are 'no', 'yes'"),
        ("[bins.age]\nedges = [40]", 2, "1 edges make 2 intervals", "one edge less"),
        ("[bins.age]\nedges = [60, 40]", 2, "the bin edge 40 follows 60", "increasing"),
        ("[bins.age]\nedges = [40, inf]", 2, "infinite", "finite"),
        ("[bins.age]\nedges = 40", 2, "must be a list, not 40", "edges = "),
        ("[bins.age]\nedge = [40, 60]", 2, "bins, age, edge", "'edges'"),
        ("[bins.age]", 1, "edges: is missing", "increasing"),
        ('[bins.age]\nedges=[1,2]\n[missing]\nage = "<40"', 1, "in [missing] too", "numbers only"),
        ('[bins.age]\nedges=[1,2]\n[values.age]\na = "<40"', 1, "in [values] too", "numbers only"),
    ],
)
def test_mistakes_are_named_with_their_line(text: str, line: int, problem: str, hint: str) -> None:
    """As in study files."""
    with pytest.raises(StudyFileError) as caught:
        parse(text)
    assert f"recode.toml, line {line}: " in caught.value.message
    assert problem in caught.value.message
    assert hint in caught.value.hint


def test_no_file(tmp_path: Path) -> None:
    """An ordinary error."""
    with pytest.raises(StudyFileError, match="cannot read the recode file"):
        read_recode_file(tmp_path / "none.toml", SCHEMA)


RAW = st.none() | st.text(st.characters(codec="utf-8"))
EDGES = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def recodes(draw: st.DrawFn) -> tuple[Schema, Recode]:
    """Draw attributes, with any rule and any column for some of them."""
    attributes, rules, columns = [], {}, {}
    for name in draw(st.lists(TEXTS, min_size=1, max_size=4, unique=True)):
        categories = draw(st.lists(TEXTS, min_size=1, max_size=4, unique=True))
        rule: Rule | None = draw(
            st.none()
            | st.builds(ValueMap, st.dictionaries(RAW, st.sampled_from(categories), min_size=1))
            | st.builds(Bins, st.lists(EDGES, min_size=1, max_size=3, unique=True).map(sorted))
        )
        if isinstance(rule, Bins):
            categories = list(map(str, range(len(rule.edges) + 1)))
        attributes.append(Attribute(name, categories))
        if rule is not None:
            rules[name] = rule
        if draw(st.booleans()):
            columns[name] = draw(st.text(st.characters(codec="utf-8")))
    return Schema(attributes), Recode(rules, columns)


@pytest.mark.slow
@given(recodes())
def test_what_is_written_is_read(drawn: tuple[Schema, Recode]) -> None:
    """Any raw value, any column name, any edge, to the last bit."""
    schema, recode = drawn
    found = parse_recode(recode_text(recode).encode(), "recode.toml", schema)
    assert found.columns == recode.columns
    assert found.rules == recode.rules
    for name, rule in recode.rules.items():
        again = found.rules[name]
        if isinstance(rule, Bins) and isinstance(again, Bins):
            assert [type(edge) for edge in again.edges] == [type(edge) for edge in rule.edges]
