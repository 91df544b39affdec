"""TOML texts: whatever goes in comes out, in values, keys, lists and comments."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veiltab.errors import StudyFileError
from veiltab.files.toml import comment, toml_key, toml_number, toml_string, toml_strings

ANY_TEXT = st.text(st.characters(codec="utf-8"))


@given(ANY_TEXT)
def test_every_text_comes_back_on_one_line(text: str) -> None:
    """Quotes, backslashes, newlines and control characters included."""
    written = toml_string(text)
    assert tomllib.loads(f"x = {written}") == {"x": text}
    assert "\n" not in written


@given(ANY_TEXT, st.lists(ANY_TEXT))
def test_keys_and_lists_come_back(key: str, values: list[str]) -> None:
    """The empty key too, which TOML allows in quotes."""
    assert tomllib.loads(f"{toml_key(key)} = {toml_strings(tuple(values))}") == {key: values}


@given(ANY_TEXT)
def test_any_text_in_a_comment_stays_a_comment(text: str) -> None:
    """No name of a column can add a line to a study file."""
    assert tomllib.loads(comment(f"about {toml_string(text)}\nand more")) == {}


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_come_back_with_their_type(number: float) -> None:
    """A whole float stays a float."""
    found = tomllib.loads(f"x = {toml_number(number)}")["x"]
    assert found == number
    assert type(found) is type(number)


def test_every_ascii_character_comes_back() -> None:
    """All of them at once, so that none depends on luck."""
    text = "".join(map(chr, range(128)))
    assert tomllib.loads(f"x = {toml_string(text)}") == {"x": text}


def test_what_no_file_can_hold_is_refused() -> None:
    """A lone surrogate has no UTF-8."""
    with pytest.raises(StudyFileError, match="surrogate"):
        toml_string("a\ud800")
