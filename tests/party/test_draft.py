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
from veiltab.core.schema import Attribute, Schema
from veiltab.data.encoding import decode_column, encode_table
from veiltab.data.profile import MISSING_WORDS, Use, profile_table, quantile_edges
from veiltab.data.recode import Bins, Recode, ValueMap
from veiltab.data.recode_file import parse_recode
from veiltab.errors import SchemaError, StudyFileError
from veiltab.party.draft import PARTNER_FILE, Draft, draft_recode, draft_study
from veiltab.party.proposal import StudyDraft
from veiltab.party.spelling import spelling
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
    text = text.replace("FILL IN: ", "")
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
        "ward": ("a", "b", "(missing)"),
        "vip": ("false", "true"),
        "age": ("<15", "15 to <35", "35 to <50", "50 to <70", ">=70"),
        "weight": ("<65", "65 to <85", "85 to <100", "100 to <120", ">=120"),
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
    assert codes[4][:90].tolist() == [
        sum(age >= edge for edge in (15, 35, 50, 70)) for age in range(90)
    ]


def test_what_is_left_out_is_explained_locally() -> None:
    """The shared file names columns that look like ids, and no other."""
    draft = draft_study(TABLE, ME)
    assert 'look like ids: "patient no", "name"' in draft.text
    for name in ("country", "comment", "town", "visits", "Ruritania"):
        assert f'"{name}"' not in draft.text
    for name, why in (
        ("patient no", Use.ID),
        ("name", Use.ID),
        ("country", Use.CONSTANT),
        ("comment", Use.EMPTY),
        ("town", Use.MANY),
        ("visits", Use.UNUSABLE),
    ):
        assert f'Left out: "{name}" {why.value}.' in draft.recode


def test_incomes_that_almost_all_differ_are_put_into_intervals_when_asked_for() -> None:
    """Whoever names such a column gets its intervals; others see them in a comment."""
    ids = [f"P{number}" for number in range(99)]
    table = pl.DataFrame({"nr": ids, "income": range(8_000, 107_000, 1000)})
    asked, _ = draft_recode(table, ["income"])
    bins = tomllib.loads(asked)["attributes"]["income"]["bins"]
    assert len(bins) > 2
    assert '"income" looks like an id' not in asked
    every, _ = draft_recode(table)
    assert "attributes" not in tomllib.loads(every)
    assert f"# bins = {bins}" in every


def test_intervals_are_in_their_order_and_not_in_the_alphabet_s() -> None:
    """Correlations, trends and comparisons go by the order of categories."""
    ages = ["40 to <60", ">=60", "unknown", "<40", "<40"]
    (profile,) = profile_table(pl.DataFrame({"age": ages}))
    assert profile.values == ["<40", "40 to <60", ">=60", "unknown"]


def test_ids_of_people_with_several_rows_are_ids() -> None:
    """Most of all there, odd ids and repeated ones have to be pointed out; towns are no ids."""
    numbers = [f" Abc-{n:04}" for n in range(300)]
    towns = [f"Town {n % 140}" for n in range(500)]
    table = pl.DataFrame(
        {"nr": [*numbers, *numbers[:200]], "town": towns, "visits": range(1000, 1500)}
    )
    table = table.with_columns(pl.col("visits") // 2)
    draft = draft_study(table, ME)
    assert 'look like ids: "nr"\n' in draft.text
    assert 'normalisation = ["trim", "lowercase"]' in draft.text
    assert "WARNING: 200 of the first rows repeat an id" in draft.recode
    assert len(draft.warnings) == 2
    assert f'Left out: "town" {Use.MANY.value}.' in draft.recode
    assert "[attributes.visits]\nbins = " in draft.recode
    table = table.with_columns(nr=pl.Series(f"p{n}" for n in range(500)), street=table["nr"])
    assert 'look like ids: "nr"\n' in draft_study(table, ME).text


def test_no_count_and_no_value_of_an_id_is_in_a_draft() -> None:
    """How often a value occurs must not be told by a file that is shared."""
    once = pl.DataFrame({"a": ["x"] * 37 + ["y"] * 63, "b": ["p", "q"] * 50})
    often = pl.concat([once] * 7 + [once.filter(pl.col("a") == "x")])
    assert draft_study(once, ME) == draft_study(often.sample(fraction=1, shuffle=True, seed=1), ME)
    assert "Person" not in draft_study(TABLE, ME).text
    assert "few people have can reveal" in draft_study(once, ME).text


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
    known = ((text or "").strip().casefold() not in MISSING_WORDS for text in values)
    forms = [
        spelling(text or "") if is_so else None for text, is_so in zip(values, known, strict=True)
    ]
    if not parsed["curators"][0]["attributes"]:
        assert len(set(forms)) == 1
        return
    schema = completed(draft, tmp_path_factory.mktemp("draft")).curators[0].schema
    assert len(schema.attributes) == len(names)
    recode = recode_of(draft, schema)
    for column, attribute in zip(
        encode_table(table, schema, recode.rules, recode.columns), schema.attributes, strict=True
    ):
        assert attribute.size == len(set(forms))
        codes = dict(zip(forms, column[: len(values)].tolist(), strict=True))
        assert column.tolist() == [codes[form] for form in forms] * 20  # like with like
        assert len(set(codes.values())) == len(codes)  # and different values stay different


@given(
    st.lists(
        st.floats(allow_nan=False, allow_infinity=False) | st.integers(-100, 100).map(float),
        min_size=1,
        max_size=30,
    )
)
def test_edges_are_few_and_divide_the_numbers(values: list[float]) -> None:
    """Increasing, with numbers below all of them, or not proposed at all."""
    edges = quantile_edges(pl.Series(values))
    assert len(edges) <= 4
    assert edges == sorted(set(edges))
    assert all(edge > min(values) for edge in edges)
    if all(value == round(value) and abs(value) < 2**53 for value in values):
        assert all(isinstance(edge, int) for edge in edges)


def test_edges_are_round_and_follow_the_rows() -> None:
    """They tell nothing about single values, and each interval has about as many rows."""
    assert quantile_edges(pl.Series(range(101)).cast(pl.Float64)) == [20, 40, 60, 80]
    skewed = pl.Series([float(number) ** 3 for number in range(101)])
    assert quantile_edges(skewed) == [50_000, 200_000, 500_000]
    assert quantile_edges(pl.Series([0.013, 0.02, 0.041, 0.062, 0.087])) == [
        0.02,
        0.035,
        0.05,
        0.065,
    ]


MESSY = pl.DataFrame(
    {
        "Fall": [f"{'ab' if n % 2 else 'AB'}{n} " for n in range(300)],
        "Alter": [str(n % 90) if n % 10 else ("n/a", "unbekannt")[n // 10 % 2] for n in range(300)],
        "Größe": [f"1,{50 + n % 40}" for n in range(300)],
        "Diagnose": [" C50.9", "c34.1 ", "I10"] * 100,
        "BMI": [f"{18 + n / 17:.1f}".replace(".", ",") for n in range(300)],
        "Raucher": ["Non-smoker", "non smoker", " NON-SMOKER", "Smoker", "smoker.", None] * 50,
        "Blut": ["A+", "A-", "0+"] * 100,
        "Befund": [f"Patient {n % 40} klagt über Schmerzen im linken Knie" for n in range(300)],
    }
)


def test_a_messy_csv_is_proposed_as_a_person_would() -> None:
    """Numbers in texts, gaps, decimal commas, spellings; no free text, and ids with a warning."""
    draft = draft_study(MESSY, ME)
    for name in ("Fall", "Befund"):
        assert f'name = "{name}"' not in draft.text
    assert f'Left out: "Befund" {Use.TEXT.value}.' in draft.recode
    assert "klagt" not in draft.text + draft.recode
    assert 'normalisation = ["trim", "lowercase"]' in draft.text
    assert [warning.split("normalisation ")[1].split(",")[0] for warning in draft.warnings] == [
        "trim",
        "lowercase",
    ]
    assert all(warning in draft.recode.replace("\n# ", " ") for warning in draft.warnings)
    parsed = tomllib.loads(draft.text)["curators"][0]["attributes"]
    schema = Schema(Attribute(entry["name"], entry["categories"]) for entry in parsed)
    recode = recode_of(draft, schema)
    assert recode.rules["Alter"] == Bins(
        [15, 30, 50, 70], missing="(missing)", missing_values=["n/a", "unbekannt"]
    )
    assert recode.rules["Größe"] == Bins([1.56, 1.64, 1.72, 1.8], decimal=",")
    diagnosis = schema.attributes[schema.names.index("Diagnose")]
    assert sorted(diagnosis.categories) == ["C50.9", "I10", "c34.1"]
    assert recode.rules["BMI"] == Bins([22, 25, 29, 32], decimal=",")
    assert dict(zip(schema.names, schema.sizes, strict=True))["Blut"] == 3
    smoker = schema.attributes[schema.names.index("Raucher")]
    assert smoker.categories == ("Non-smoker", "Smoker", "(missing)")
    assert recode.rules["Raucher"] == ValueMap(
        {"non smoker": "Non-smoker", "smoker.": "Smoker", None: "(missing)"},
        fold=["nfc", "trim", "lowercase"],
    )
    codes = encode_table(MESSY, schema, recode.rules, recode.columns)
    assert codes[schema.names.index("Raucher")][:6].tolist() == [0, 0, 0, 1, 1, 2]
