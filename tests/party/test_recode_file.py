"""Recode files: local rules for a curator's own table, read strictly and written exactly."""

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.message_strategies import TEXTS
from veiltab.core.schema import Attribute, Schema
from veiltab.data.encoding import encode_table
from veiltab.data.folding import RULES
from veiltab.data.recode import Bins, IdColumns, Recode, Rule, ValueMap
from veiltab.data.recode_file import parse_recode, read_recode_file, recode_text
from veiltab.errors import StudyFileError

SCHEMA = Schema(
    [
        Attribute("smoker", ["no", "yes", "unknown"]),
        Attribute("age", ["<40", "40 to <60", ">=60"]),
        Attribute("größe in cm", ["a", "b"]),
    ]
)

EXAMPLE = """\
duplicates = "last"

[ids]
columns = ["name", "Geburtsdatum"]
dates = {Geburtsdatum = "D.M.YY"}
latest_year = 2026

[attributes.smoker]
column = "SMK_2"
fold = ["trim", "lowercase"]
missing = "unknown"
missing_values = ["n/a", ""]
else = "unknown"
[attributes.smoker.categories]
no = "0"
yes = ["1", "Y*"]

[attributes.age]
bins = [40, 60.5]
decimal = ","

[attributes."größe in cm"]
column = "height"
missing = "a"
"""


def parse(text: str) -> Recode:
    """Read a recode file for the usual schema."""
    return parse_recode(text.encode(), "recode.toml", SCHEMA)


def test_every_part_is_read(tmp_path: Path) -> None:
    """Everything about one attribute stands in one place."""
    path = tmp_path / "recode.toml"
    path.write_text(EXAMPLE, encoding="utf-8")
    recode = read_recode_file(path, SCHEMA)
    assert recode.columns == {"smoker": "SMK_2", "größe in cm": "height"}
    assert recode.rules == {
        "smoker": ValueMap(
            {None: "unknown", "0": "no", "1": "yes", "Y*": "yes"},
            fold=["trim", "lowercase"],
            missing_values=["n/a", ""],
            otherwise="unknown",
        ),
        "age": Bins([40, 60.5], decimal=","),
        "größe in cm": ValueMap({None: "a"}),
    }
    assert recode.ids == IdColumns(
        ["name", "Geburtsdatum"], dates={"Geburtsdatum": "D.M.YY"}, latest_year=2026
    )
    assert recode.duplicates == "last"


def test_a_table_is_encoded_by_it() -> None:
    """The rules and columns are what encode_table takes."""
    frame = pl.DataFrame(
        {
            "SMK_2": [" YES", "0 ", "N/A", None, "often", "1"],
            "age": ["39,9", "40", "61", "60,5", "60,4", "7"],
            "height": ["a", "b", None, "a", "a", "a"],
        }
    )
    recode = parse(EXAMPLE)
    codes = encode_table(frame, SCHEMA, recode.rules, recode.columns)
    assert [column.tolist() for column in codes] == [
        [1, 0, 2, 2, 2, 1],
        [0, 1, 2, 2, 1, 0],
        [0, 1, 0, 0, 0, 0],
    ]


def test_an_empty_file_is_no_rule() -> None:
    """Tables whose columns and values are the study's own words need none."""
    assert parse("# nothing\n") == Recode()


@pytest.mark.parametrize(
    ("text", "line", "problem", "hint"),
    [
        ('[attribute]\nage = "x"', 1, "attribute: there is no such key", "'attributes'"),
        ("attributes = 5", 1, "attributes: must be a table", "'smoker'"),
        ("[attributes]\nsmoker = 5", 2, "attributes, smoker: must be a table", "'column'"),
        ('[attributes.smoke]\ncolumn = "x"', 1, "smoke: you have no such", "'smoker'"),
        ("[attributes.age]\ncolumn = 5", 2, "must be text, not 5", "column = "),
        ('[attributes.age]\ncolum = "x"', 2, "no such key", "'column'"),
        ("[attributes.smoker.categories]", 1, "categories: is empty", "leave it out"),
        ('[attributes.smoker.categories]\nyess = "1"', 2, "no such key", "did you mean 'yes'?"),
        ("[attributes.smoker.categories]\nyes = 1", 2, "must be text, not 1", "quotes"),
        ("[attributes.smoker.categories]\nyes = [1]", 2, "must be text, not 1", "quotes"),
        (
            '[attributes.smoker.categories]\nyes = "1"\nno = ["0", "1"]',
            3,
            "'1' stands under 'yes' already",
            "under one category",
        ),
        ('[attributes.smoker.categories]\nno = "*"', 1, "matches everything", "else"),
        ('[attributes.smoker]\nelse = "XX"', 2, "'XX' is not a category", "'no', 'yes'"),
        ('[attributes.smoker]\nmissing = "XX"', 2, "'XX' is not a category", "'no', 'yes'"),
        ('[attributes.smoker]\nmissing_values = ["x"]', 2, "have no category", "missing ="),
        ('[attributes.smoker]\nmissing_values = "x"', 2, "a list of texts", "missing_values ="),
        ('[attributes.smoker]\nfold = ["upper"]', 2, "no rule 'upper'", "'lowercase'"),
        ('[attributes.smoker]\nfold = "trim"', 2, "must be a list of texts", "fold ="),
        ('[attributes.smoker]\ndecimal = ","', 2, "goes with bins only", "leave it out"),
        ("[attributes.age]\nbins = [40]", 2, "1 bin edges make 2 bins", "one category more"),
        ("[attributes.age]\nbins = [60, 40]", 2, "the bin edge 40 follows 60", "increasing"),
        ("[attributes.age]\nbins = [40, inf]", 2, "infinite", "finite"),
        ("[attributes.age]\nbins = 40", 2, "must be a list, not 40", "bins = "),
        ('[attributes.age]\nbins=[1,2]\ndecimal = ";"', 2, "mark is ';'", "comma"),
        ('[attributes.age]\nbins=[1,2]\nelse = "<40"', 3, "does not go with bins", "missing_"),
        (
            '[attributes.age]\nbins=[1,2]\n[attributes.age.categories]\n"<40" = "a"',
            3,
            "categories: does not go with bins",
            "take numbers",
        ),
        ('[attributes.age]\nbins=[1,2]\nmissing = "?"', 3, "'?' is not a category", "there are"),
        ('duplicates = "any"', 1, "duplicates is 'any'", "refuse, first, last, identical"),
        ("[ids]", 1, "columns: is missing", "columns ="),
        ('[ids]\ncolumns = "a"', 2, "must be a list of texts", "columns ="),
        ("[ids]\ncolumns = []", 2, "not a list of names", "patient_no"),
        ('[ids]\ncolumns=["a"]\ndates = {b = "DD.MM.YYYY"}', 3, "for 'b'", "are 'a'"),
        ('[ids]\ncolumns=["a"]\ndates = {a = "DD.MM.YY"}', 3, "1905 or 2005", "latest_year"),
        ('[ids]\ncolumns=["a"]\ndates = {a = "DD.MM"}', 3, "not a form of dates", "DD.MM.YYYY"),
        ('[ids]\ncolumns=["a"]\ndates = {a = 5}', 3, "not a form of dates", "DD.MM.YYYY"),
        ('[ids]\ncolumns=["a"]\ndates = "DD.MM.YYYY"', 3, "must be a table", "dates ="),
        ('[ids]\ncolumns=["a"]\nlatest_year = 2026', 2, "no date has a year", "leave it out"),
        (
            '[ids]\ncolumns=["a"]\ndates={a="D.M.YY"}\nlatest_year = "26"',
            3,
            "latest_year is '26'",
            "such as 2026",
        ),
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


FOLDS = st.lists(st.sampled_from(RULES), max_size=3, unique=True)
COMMON = st.lists(st.text(st.characters(codec="utf-8")), max_size=2, unique=True)


@st.composite
def value_maps(draw: st.DrawFn, categories: list[str]) -> ValueMap:
    """Draw a value map with every option."""
    names = st.sampled_from(categories)
    keys = RAW.filter(lambda raw: raw is None or raw.strip("*"))
    entries = draw(st.dictionaries(keys, names, min_size=1))
    missing = draw(COMMON) if None in entries else ()
    otherwise = draw(st.none() | names)
    return ValueMap(entries, fold=draw(FOLDS), missing_values=missing, otherwise=otherwise)


@st.composite
def bins(draw: st.DrawFn) -> Bins:
    """Draw bins with every option."""
    edges = sorted(draw(st.lists(EDGES, min_size=1, max_size=3, unique=True)))
    missing = draw(st.none() | st.just("none"))
    values = () if missing is None else draw(COMMON)
    mark = draw(st.sampled_from([".", ","]))
    return Bins(edges, missing=missing, missing_values=values, fold=draw(FOLDS), decimal=mark)  # type: ignore[arg-type]


@st.composite
def recodes(draw: st.DrawFn) -> tuple[Schema, Recode]:
    """Draw attributes, with any rule and any column for some of them, and ids."""
    attributes, rules, columns = [], {}, {}
    for name in draw(st.lists(TEXTS, min_size=1, max_size=4, unique=True)):
        categories = draw(st.lists(TEXTS, min_size=1, max_size=4, unique=True))
        rule: Rule | None = draw(st.none() | value_maps(categories) | bins())
        if isinstance(rule, Bins):
            categories = list(map(str, range(len(rule.edges) + 1)))
            categories += [] if rule.missing is None else [rule.missing]
        attributes.append(Attribute(name, categories))
        if rule is not None:
            rules[name] = rule
        if draw(st.booleans()):
            columns[name] = draw(st.text(st.characters(codec="utf-8")))
    ids = draw(st.none() | st.just(IdColumns(["a b", "c"], dates={"a b": "YYYY/M/D"})))
    duplicates = draw(st.sampled_from(["refuse", "first", "last", "identical"]))
    return Schema(attributes), Recode(rules, columns, ids, duplicates)  # type: ignore[arg-type]


@pytest.mark.slow
@given(recodes())
def test_what_is_written_is_read(drawn: tuple[Schema, Recode]) -> None:
    """Any raw value, any column name, any edge, to the last bit."""
    schema, recode = drawn
    found = parse_recode(recode_text(recode).encode(), "recode.toml", schema)
    assert found == recode
    for name, rule in recode.rules.items():
        again = found.rules[name]
        if isinstance(rule, Bins) and isinstance(again, Bins):
            assert [type(edge) for edge in again.edges] == [type(edge) for edge in rule.edges]


def test_a_draft_that_nobody_has_completed() -> None:
    """Every line is named that still says FILL IN, as in a study file."""
    text = '[attributes.age]\ncolumn = "FILL IN"\n[attributes.smoker.categories]\n"FILL IN" = ["9"]'
    with pytest.raises(StudyFileError) as caught:
        parse(text)
    assert caught.value.message == (
        "recode.toml is not complete: it says FILL IN on line 2 (attributes, age, column); line 4"
        " (attributes, smoker, categories, FILL IN)"
    )
