"""Where keys stand in a TOML file: in every way of writing them that people use."""

import tomllib
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import for_each
from veiltab.errors import StudyFileError
from veiltab.files import toml
from veiltab.files.toml import find_lines, toml_key, toml_string

TEXT = '''\
title = "a = b"  # [not.a.table]
"odd key" . 'sub' = 1

text = """
[nor.this]
nor = "this"
"\\q" = 2 """

[linkage]
by = "ids"
names = [
    ["x"],
    ["]"],  # ]
]
after = 1

[[curators]]
identity = "me"
attributes = [
    # a comment
    {name = "a", categories = [
        "one", "two",
    ]},
    {name = "b"},
]

[[curators]]
[[curators.attributes]]
name = "c"
[[curators.attributes]]
name = "d"
[curators.more]
x = 1
'''


def test_every_key_has_its_line() -> None:
    """Tables, lists of tables, lists over several lines, dotted and quoted keys."""
    tomllib.loads(TEXT.replace("\\q", "\\\\q"))
    lines = TEXT.split("\n")
    found = {place: lines[line - 1] for place, line in find_lines(TEXT).items()}
    assert found == {
        ("title",): lines[0],
        ("odd key",): lines[1],
        ("odd key", "sub"): lines[1],
        ("text",): 'text = """',
        ("linkage",): "[linkage]",
        ("linkage", "by"): 'by = "ids"',
        ("linkage", "names"): "names = [",
        ("linkage", "after"): "after = 1",
        ("curators",): "[[curators]]",
        ("curators", 0): "[[curators]]",
        ("curators", 0, "identity"): 'identity = "me"',
        ("curators", 0, "attributes"): "attributes = [",
        ("curators", 0, "attributes", 0): '    {name = "a", categories = [',
        ("curators", 0, "attributes", 1): '    {name = "b"},',
        ("curators", 1): "[[curators]]",
        ("curators", 1, "attributes"): "[[curators.attributes]]",
        ("curators", 1, "attributes", 0): "[[curators.attributes]]",
        ("curators", 1, "attributes", 0, "name"): 'name = "c"',
        ("curators", 1, "attributes", 1): "[[curators.attributes]]",
        ("curators", 1, "attributes", 1, "name"): 'name = "d"',
        ("curators", 1, "more"): "[curators.more]",
        ("curators", 1, "more", "x"): "x = 1",
    }
    assert find_lines(TEXT)["curators", 1] == 27


@given(st.lists(st.text(st.characters(codec="utf-8")), unique=True))
def test_any_key_with_any_text(keys: list[str]) -> None:
    """Brackets, quotes and marks of comments in texts do not count."""
    text = "".join(f"{toml_key(key)} = [{toml_string(key)}] # ]\n" for key in keys)
    assert find_lines(text) == {(key,): line for line, key in enumerate(keys, start=1)}


@given(st.text(st.sampled_from("[]{}\"'=.#a \n\\")))
def test_no_text_is_an_error(text: str) -> None:
    """The lines are for error messages; finding them must not be one."""
    find_lines(text)


@for_each("value", ['# "' + '\\"' * 3_000, '"""' + '\\"' * 3_000 + "\\"])
def test_quotes_that_are_not_closed_are_read_once(value: str) -> None:
    """They reach to the end of the line: a search for its end from each of them took hours."""
    assert "".join(toml._QUOTED.findall(f"x = {value}")) == value


def test_keys_of_very_many_parts_are_not_even_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser takes the square of their number."""
    parsed = Mock(side_effect=AssertionError)
    monkeypatch.setattr(tomllib, "loads", parsed)
    for key in ("a" + ".b" * 100, 'a . "b c"' + " . 'c' " * 100):
        with pytest.raises(StudyFileError, match="nested too deeply"):
            toml.Document(f"[{key}]\n".encode(), "study.toml")
    assert not parsed.called
