"""Drafts from tables: valid whatever the table holds, without counts, and ready for use."""

import json
import tomllib
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.messages import party
from veiltab.core.schema import Schema
from veiltab.data.encoding import decode_column, encode_table
from veiltab.data.profile import Use, profile_table, round_edges
from veiltab.data.recode import Recode, parse_recode
from veiltab.errors import SchemaError, StudyFileError
from veiltab.party.draft import PARTNER_FILE, Draft, draft_study
from veiltab.party.proposal import StudyDraft
from veiltab.party.study_file import read_study_file

ME = party("Krankenhaus Süd")
PARTNER = party("Tax office")
ROWS = 600

TABLE = pl.DataFrame(
    {
        "patient no": range(1000, 1000 + ROWS),
        "name": [f"Person {number}" for number in range(ROWS)],
        "smoker": ["yes", "no", "no"] * 200,
        "children": [10, 9, 2, 0, 1, None] * 100,
        "ward": ["a", "b", ""] * 200,
        "vip": [True, False] * 300,
        "age": [number % 90 for number in range(ROWS)],
        "weight": [50 + number / 7 for number in range(ROWS)],
        "country": ["Ruritania"] * ROWS,
        "comment": pl.Series([None] * ROWS, dtype=pl.String),
        "town": [f"Town {number % 70}" for number in range(ROWS)],
        "visits": [[1]] * ROWS,
        "rating": [0.5, 1.0, 1.5] * 200,
        "since": [date(2020, 1, 1), date(2019, 1, 1)] * 300,
    }
)


def completed(draft: Draft, folder: Path) -> StudyDraft:
    """Fill in the partner, as a person would, and read the study."""
    (folder / "partner.json").write_text(json.dumps(PARTNER.to_json()))
    text = draft.text.replace(PARTNER_FILE, "partner.json")
    text = text.replace('# {name = "income",', '{name = "partner\'s income",')
    text = text.replace("# expected_population", "expected_population")
    (folder / "study.toml").write_bytes(text.encode())
    return read_study_file(folder / "study.toml", ME)


def recode_of(draft: Draft, schema: Schema) -> Recode:
    """Read the drafted recode file."""
    return parse_recode(draft.recode.encode(), "recode.toml", schema)


def test_a_table_with_columns_of_every_sort(tmp_path: Path) -> None:
    """Attributes are columns of few values, numbers by size and words by the alphabet."""
    draft = draft_study(TABLE, ME, title="Smoking", epsilon=0.5)
    study = completed(draft, tmp_path)
    assert (study.title, study.epsilon) == ("Smoking", 0.5)
    assert {each.name: each.categories for each in study.curators[0].attributes} == {
        "smoker": ("no", "yes"),
        "children": ("0", "1", "2", "9", "10", "(missing)"),
        "ward": ("(empty)", "a", "b"),
        "vip": ("false", "true"),
        "rating": ("0.5", "1", "1.5"),
        "since": ("2019-01-01", "2020-01-01"),
    }


def test_the_table_is_encoded_with_the_drafts(tmp_path: Path) -> None:
    """The two files are all that is needed."""
    draft = draft_study(TABLE, ME)
    schema = completed(draft, tmp_path).curators[0].schema
    recode = recode_of(draft, schema)
    codes = encode_table(TABLE, schema, recode.rules, recode.columns)
    back = decode_column(codes[1], schema.attributes[1]).to_list()
    assert back[:6] == ["10", "9", "2", "0", "1", "(missing)"]


def test_what_is_left_out_is_explained_locally() -> None:
    """The shared file names columns that look like ids, and no other."""
    draft = draft_study(TABLE, ME)
    assert 'look like ids: "patient no", "name"' in draft.text
    for name in ("age", "weight", "country", "comment", "town", "visits", "Ruritania"):
        assert f'"{name}"' not in draft.text
    for name, why in (
        ("patient no", Use.ID),
        ("name", Use.ID),
        ("age", Use.BINS),
        ("weight", Use.BINS),
        ("country", Use.CONSTANT),
        ("comment", Use.EMPTY),
        ("town", Use.MANY),
        ("visits", Use.UNUSABLE),
    ):
        assert f'Left out: "{name}" {why.value}.' in draft.recode


def test_no_count_and_no_value_of_an_id_is_in_a_draft() -> None:
    """How often a value occurs must not be told by a file that is shared."""
    once = pl.DataFrame({"a": ["x"] * 37 + ["y"] * 63, "b": ["p", "q"] * 50})
    often = pl.concat([once] * 7 + [once.filter(pl.col("a") == "x")])
    assert draft_study(once, ME) == draft_study(often.sample(fraction=1, shuffle=True, seed=1), ME)
    assert "Person" not in draft_study(TABLE, ME).text
    assert "few people have can reveal" in draft_study(once, ME).text


def test_proposed_bins_can_be_pasted(tmp_path: Path) -> None:
    """The attribute into the study file, and the section by taking away its marks."""
    draft = draft_study(TABLE.select("age", "smoker"), ME)
    lines = draft.recode.split("\n")
    start = next(number for number, line in enumerate(lines) if "{name" in line)
    attribute = lines[start].removeprefix("#")
    study = draft.text.replace("attributes = [", f"attributes = [\n{attribute}", 1)
    pasted = Draft(
        "study", study, "\n".join(line.removeprefix("# ") for line in lines[start + 1 :])
    )
    schema = completed(pasted, tmp_path).curators[0].schema
    assert schema.attributes[0].categories == ("<20", "20 to <40", "40 to <60", "60 to <80", ">=80")
    recode = recode_of(pasted, schema)
    codes = encode_table(TABLE, schema, recode.rules, recode.columns)
    assert codes[0][:90].tolist() == [min(age // 20, 4) for age in range(90)]


def test_a_draft_is_not_complete_before_the_partner_is_filled_in(tmp_path: Path) -> None:
    """It is valid TOML, and nobody can propose it by mistake."""
    path = tmp_path / "study.toml"
    path.write_text(draft_study(TABLE, ME).text)
    assert tomllib.loads(path.read_text())["curators"][1]["identity"] == PARTNER_FILE
    with pytest.raises(StudyFileError, match=r"curators no\. 2"):
        read_study_file(path, ME)


def test_batches_give_the_same_draft() -> None:
    """A large table need not fit in memory."""

    def batches() -> Iterator[pl.DataFrame]:
        yield from TABLE.iter_slices(50)

    assert draft_study(batches(), ME) == draft_study(TABLE, ME)


def test_batches_of_other_columns_are_refused() -> None:
    """They are not one table."""
    with pytest.raises(SchemaError, match="different columns"):
        profile_table([pl.DataFrame({"a": [1]}), pl.DataFrame({"b": [1]})])


def test_values_of_late_rows_are_not_missed() -> None:
    """The categories are those of all rows, and so are missing values."""
    late: list[str | None] = ["a", "b"] * 60_000
    late += ["c", None]
    draft = draft_study(pl.DataFrame({"x": late}).iter_slices(10_000), ME)
    assert 'categories = ["a", "b", "c", "(missing)"]' in draft.text


def test_too_many_cells_are_left_out(tmp_path: Path) -> None:
    """A study of all of forty columns would be refused, or all noise."""
    table = pl.DataFrame({f"c{number:02}": list("abcd") * 10 for number in range(40)})
    draft = draft_study(table, ME)
    assert len(completed(draft, tmp_path).curators[0].attributes) == 10
    assert draft.recode.count("too many joint cells") == 30


@pytest.mark.parametrize(
    "table", [pl.DataFrame(), pl.DataFrame({"a": []}), pl.DataFrame({"a": range(100)}), []]
)
def test_a_table_with_nothing_to_propose(table: pl.DataFrame | list[pl.DataFrame]) -> None:
    """Still a file, which says where to fill in."""
    draft = draft_study(table, ME)
    assert tomllib.loads(draft.text)["curators"][0]["attributes"] == []
    assert "FILL IN: no column" in draft.text
    assert tomllib.loads(draft.recode) == {}


ODD = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(
    ["", " ", "\n", "(empty)", "(missing)", "\\x0a", '"', "#", "x" * 1001, "x" * 1002, "\x7f"]
)


@pytest.mark.slow
@given(
    st.lists(ODD, min_size=1, max_size=5, unique=True),
    st.lists(ODD | st.none(), min_size=1, max_size=6, unique=True),
)
def test_any_names_and_values_make_a_draft_that_works(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], values: list[str | None]
) -> None:
    """Control characters, quotes, newlines, empty texts, words that look like our own."""
    table = pl.DataFrame(dict.fromkeys(names, values * 20), schema=dict.fromkeys(names, pl.String))
    draft = draft_study(table, ME)
    parsed = tomllib.loads(draft.text)
    if not parsed["curators"][0]["attributes"]:
        assert len(values) == 1
        return
    schema = completed(draft, tmp_path_factory.mktemp("draft")).curators[0].schema
    assert len(schema.attributes) == len(names)
    recode = recode_of(draft, schema)
    for column, attribute in zip(
        encode_table(table, schema, recode.rules, recode.columns), schema.attributes, strict=True
    ):
        assert attribute.size == len(values)
        assert len(set(column.tolist())) == len(values)  # different values stay different


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 1e300))
def test_edges_are_few_and_between(low: float, width: float) -> None:
    """Increasing, and within what they divide, or not proposed at all."""
    edges = round_edges(low, low + width)
    assert len(edges) <= 6
    assert edges == sorted(set(edges))


def test_edges_are_round() -> None:
    """They tell nothing about single values."""
    assert round_edges(3.2, 97.4) == [20, 40, 60, 80]
    assert round_edges(0.013, 0.0871) == [0.02, 0.04, 0.06, 0.08]
    assert round_edges(-1234, 98765) == [0, 20_000, 40_000, 60_000, 80_000]
    assert round_edges(0, 3, 1.0) == [1, 2]
