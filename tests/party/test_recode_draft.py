"""Drafts of recode files for a study that is agreed on: what is certain is mapped, nothing else."""

import polars as pl
import pytest

from veiltab.core.schema import Attribute, Schema
from veiltab.data.encoding import encode_table
from veiltab.data.recode import Bins, ValueMap
from veiltab.data.recode_file import parse_recode
from veiltab.errors import SchemaError, StudyFileError
from veiltab.files.toml import toml_string
from veiltab.party.draft import draft_recode
from veiltab.party.recode_draft import draft_recode_for

SCHEMA = Schema(
    [
        Attribute("smoker", ["no", "yes", "unknown"]),
        Attribute("age", ["<40", "40 to <60", ">=60", "not known"]),
        Attribute("diagnosis", ["lung cancer", "other"]),
    ]
)
TABLE = pl.DataFrame(
    {
        "Nr": [f"p{n} " for n in range(120)],
        "Smoker ": ["YES", "No ", None, "?"] * 30,
        "AGE": [str(20 + n % 60) if n % 7 else "n/a" for n in range(120)],
        "diagnosis": ["Lung-cancer", "C34*", "C50", None] * 30,
    }
)


def test_values_are_mapped_where_they_are_spelt_alike() -> None:
    """Columns too; numbers go into the intervals that the categories name."""
    text, warnings = draft_recode_for(TABLE.drop("diagnosis"), Schema(SCHEMA.attributes[:2]))
    recode = parse_recode(text.encode(), "r", SCHEMA)
    assert recode.columns == {"smoker": "Smoker ", "age": "AGE"}
    assert recode.rules == {
        "smoker": ValueMap(
            {None: "unknown"}, fold=["nfc", "trim", "lowercase"], missing_values=["?"]
        ),
        "age": Bins([40, 60], missing="not known", missing_values=["n/a"]),
    }
    (warning,) = warnings
    assert "'Nr' have spaces at their ends" in warning
    assert f"# WARNING: {warning}." in text.replace("\n# makes", " makes")
    codes = encode_table(TABLE, Schema(SCHEMA.attributes[:2]), recode.rules, recode.columns)
    assert codes[0][:4].tolist() == [1, 0, 2, 2]


def test_what_is_not_certain_is_left_to_be_filled_in() -> None:
    """With counts; the draft is refused as it is, and works once a person has decided."""
    text, _ = draft_recode_for(TABLE, SCHEMA)
    assert '    "C34\\\\*",  # 30 rows\n    "C50",  # 30 rows\n' in text
    assert 'missing = "FILL IN"  # 30 rows' in text
    with pytest.raises(StudyFileError, match=r"FILL IN on .*\(attributes, diagnosis, missing\)"):
        parse_recode(text.encode(), "r", SCHEMA)
    text = text.replace('missing = "FILL IN"', 'missing = "other"')
    with pytest.raises(StudyFileError, match=r"diagnosis, categories, FILL IN\)$"):
        parse_recode(text.encode(), "r", SCHEMA)
    recode = parse_recode(text.replace('"FILL IN" = [', "other = [").encode(), "r", SCHEMA)
    codes = encode_table(TABLE, SCHEMA, recode.rules, recode.columns)
    assert codes[2][:4].tolist() == [0, 1, 1, 1]


def test_a_column_that_nobody_can_find_is_asked_for() -> None:
    """None of the name, or two that look like it."""
    for columns in (["a"], ["Smoker", "SMOKER"]):
        frame = pl.DataFrame({name: ["yes", "no"] for name in columns})
        text, _ = draft_recode_for(frame, Schema(SCHEMA.attributes[:1]))
        assert 'column = "FILL IN"' in text
        listed = ", ".join(map(toml_string, columns))
        assert f"# The columns are {listed}." in text
        with pytest.raises(StudyFileError, match="attributes, smoker, column"):
            parse_recode(text.encode(), "r", SCHEMA)


def test_a_column_that_is_named_is_mapped_whatever_it_is_called() -> None:
    """Values and intervals as if it were called like the attribute; slips are found."""
    frame = pl.DataFrame({"Raucher": ["yes ", "No"], "Alter": ["39", ""], "age": ["x", "y"]})
    schema = Schema(SCHEMA.attributes[:2])
    names = {"smoker": "Raucher", schema.names[1]: "Alter"}
    text, _ = draft_recode_for(frame, schema, names)
    recode = parse_recode(text.encode(), "r", schema)
    assert recode.columns == names
    renamed = frame.drop("age").rename({column: name for name, column in names.items()})
    again = parse_recode(draft_recode_for(renamed, schema)[0].encode(), "r", schema)
    assert recode.rules == again.rules
    with pytest.raises(SchemaError, match="you have no attribute 'Smoker' here") as caught:
        draft_recode_for(frame, schema, {"Smoker": "Raucher"})
    assert "smoker" in str(caught.value.hint)
    with pytest.raises(SchemaError, match="the table has no column 'raucher'"):
        draft_recode_for(frame, schema, {"smoker": "raucher"})


def test_many_unknown_values_are_counted() -> None:
    """A file that nobody can read helps nobody."""
    frame = pl.DataFrame({"smoker": [f"v{n}" for n in range(500)] * 2})
    text, _ = draft_recode_for(frame, Schema(SCHEMA.attributes[:1]))
    assert text.count("# 2 rows") == 100
    assert "# and 400 more different values" in text


def test_a_draft_without_a_study_says_what_to_write_into_one() -> None:
    """The columns that are asked for, or all that can be."""
    text, warnings = draft_recode(TABLE)
    assert len(warnings) == 1
    assert '# In the study file: {name = "AGE", categories = ["<' in text
    assert "bins = [" in text
    only, _ = draft_recode(TABLE, ["diagnosis"])
    assert "[attributes.diagnosis]" in only
    assert "[attributes.AGE]" not in only
    with pytest.raises(SchemaError, match="no column 'age'"):
        draft_recode(TABLE, ["age"])


def test_tables_with_little_in_them() -> None:
    """No rows, one row, one value."""
    with pytest.raises(SchemaError, match="no rows to look at"):
        draft_recode_for([], SCHEMA)
    for values in ([], ["yes"], [None]):
        frame = pl.DataFrame({"smoker": pl.Series(values, dtype=pl.String)})
        text, _ = draft_recode_for(frame, Schema(SCHEMA.attributes[:1]))
        recode = parse_recode(text.encode(), "r", SCHEMA)
        encode_table(frame, Schema(SCHEMA.attributes[:1]), recode.rules, recode.columns)


def test_dates_of_birth_are_offered_as_a_part_of_ids() -> None:
    """With the form in which the table writes them."""
    days = [f"{1 + n % 28}.{1 + n % 12}.{1930 + n}" for n in range(70)]
    text, warnings = draft_recode(pl.DataFrame({"geb.": days, "x": ["a", "b"] * 35}))
    assert '# columns = ["FILL IN", "geb."]\n# dates = {"geb." = "D.M.YYYY"}\n' in text
    assert warnings == ()


def test_repeated_ids_are_pointed_out() -> None:
    """With what can be done about them."""
    frame = pl.DataFrame({"nr": [*range(100), 5, 6], "x": ["a", "b"] * 51})
    text, _ = draft_recode(frame)
    assert "WARNING: 2 of the first rows repeat an id of an earlier row." in text
    assert '"identical"' in text
