"""Respondents' ids as bytes (spec 5): every rule, every refusal, and nothing lost on the way."""

import datetime as dt
import unicodedata
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veiltab.crypto.linkage import IdMessages
from veiltab.data.folding import RULES
from veiltab.data.ids import id_messages, row_messages
from veiltab.errors import LinkageError

WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
"""Characters with the Unicode property White_Space, by the Unicode Character Database."""

NOT_WHITE_SPACE = "\u200b\ufeff\u180e\u2060"
"""Invisible too, but without the property; Python strips others than these as well."""


def unpacked(messages: IdMessages) -> list[bytes]:
    """Return the messages one by one."""
    bounds = zip(messages.offsets[:-1], messages.offsets[1:], strict=True)
    return [messages.data[start:stop].tobytes() for start, stop in bounds]


def messages_of(values: list[Any], *rules: str, dtype: pl.DataType | None = None) -> list[bytes]:
    """Return the messages of one column."""
    frame = pl.DataFrame({"id": pl.Series(values, dtype=dtype)})
    return unpacked(id_messages(frame, ["id"], rules))


def refused(values: list[Any], *rules: str) -> str:
    """Return why a column of ids is refused."""
    with pytest.raises(LinkageError) as caught:
        messages_of(values, *rules)
    assert caught.value.hint
    return caught.value.message


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        (["b", "a"], pl.String, [b"b", b"a"]),
        (["b", "a"], pl.Categorical, [b"b", b"a"]),
        (["b", "a"], pl.Enum(["a", "b"]), [b"b", b"a"]),
        ([10, 9, -1], pl.Int64, [b"10", b"9", b"-1"]),
        ([255, 0], pl.UInt8, [b"255", b"0"]),
        ([2**64 - 1], pl.UInt64, [b"18446744073709551615"]),
        ([2**100], pl.Int128, [b"1267650600228229401496703205376"]),
    ],
)
def test_text_and_whole_numbers(
    values: list[Any], dtype: pl.DataType, expected: list[bytes]
) -> None:
    """Texts as they are and integers in decimal, whatever their width."""
    assert messages_of(values, dtype=dtype) == expected


def test_a_number_and_its_text_are_the_same_respondent() -> None:
    """One curator may have read the ids as numbers and the other as text."""
    assert messages_of([7, 42]) == messages_of(["7", "42"])
    assert messages_of(["007"]) != messages_of([7])


def test_texts_are_utf_8() -> None:
    """Characters of one to four bytes, and offsets that count bytes."""
    texts = ["a", "é", "王", "\U0001f600", "aé王"]
    assert messages_of(texts) == [text.encode() for text in texts]


def test_several_columns_are_joined_by_a_byte_that_no_id_has() -> None:
    """In the order that is asked for; what belongs to which column stays clear."""
    frame = pl.DataFrame({"name": ["ab", "a"], "born": ["c", "bc"], "no": [1, 2]})
    both = unpacked(id_messages(frame, ["name", "born"], ()))
    assert both == [b"ab\x1fc", b"a\x1fbc"]
    assert unpacked(id_messages(frame, ["no", "name", "born"], ())) == [
        b"1\x1fab\x1fc",
        b"2\x1fa\x1fbc",
    ]


def test_columns_may_repeat_where_the_whole_does_not() -> None:
    """Two people may share a name or a birthday, but not both; the intake refuses those."""
    frame = pl.DataFrame({"name": ["Ann", "Ann", "Bo"], "born": [1990, 1991, 1990]})
    assert len(set(unpacked(id_messages(frame, ["name", "born"], ())))) == 3
    twice = pl.DataFrame({"name": ["Ann", "Bo", "Ann"], "born": [1990, 1990, 1990]})
    first, _, third = unpacked(id_messages(twice, ["name", "born"], ()))
    assert first == third == b"Ann\x1f1990"


@pytest.mark.parametrize("character", WHITE_SPACE)
def test_trim_takes_white_space_from_both_ends(character: str) -> None:
    """Every character with the property, and none from the middle."""
    text = f"{character}{character}x y{character}"
    assert messages_of([text], "trim") == [b"x y"]


@pytest.mark.parametrize("character", NOT_WHITE_SPACE)
def test_trim_takes_nothing_else(character: str) -> None:
    """Characters that only look like nothing stay."""
    assert messages_of([f"{character}x"], "trim") == [f"{character}x".encode()]
    assert messages_of([f" {character}x"], "trim") == [f"{character}x".encode()]


@pytest.mark.parametrize("character", "\x1c\x1d\x1e\x1f")
def test_separators_are_not_trimmed(character: str) -> None:
    """Python's own strip would take these away, and an id with one would slip through."""
    assert "control character" in refused([f"x{character}"], "trim")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ÄÖÜ", "äöü"),
        ("STRASSE", "strasse"),
        ("ß", "ß"),
        ("ΟΔΥΣΣΕΥΣ", "οδυσσευς"),
        ("İ", "i\u0307"),
    ],
)
def test_lowercase_is_unicodes(text: str, expected: str) -> None:
    """The default mapping: with a final sigma, without a locale, and without case folding."""
    assert messages_of([text], "lowercase") == [expected.encode()]


def test_nfc_makes_equivalent_texts_equal() -> None:
    """A letter with an accent is one character or two; without the rule these are two people."""
    composed, decomposed = "Müller é", "Mu\u0308ller e\u0301"
    assert composed != decomposed
    assert messages_of([composed], "nfc") == messages_of([decomposed], "nfc")
    assert messages_of([composed]) != messages_of([decomposed])
    assert len(messages_of([composed, decomposed])) == 2
    first, second = messages_of([composed, decomposed], "nfc")
    assert first == second


@pytest.mark.slow
@given(st.lists(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x2FFF), min_size=1)))
@settings(deadline=None)
def test_nfc_is_that_of_the_standard_library(texts: list[str]) -> None:
    """An independent implementation of the same algorithm."""
    by_form = {unicodedata.normalize("NFC", text): text for text in texts}
    found = messages_of(list(by_form.values()), "nfc", dtype=pl.String())
    assert found == [form.encode() for form in by_form]


def test_rules_apply_in_the_order_of_the_list() -> None:
    """J with a caron has no capital of one character, so the order decides."""
    text = "J\u030c"
    assert messages_of([text], "nfc", "lowercase") == ["j\u030c".encode()]
    assert messages_of([text], "lowercase", "nfc") == ["\u01f0".encode()]


def test_rules_make_ids_meet() -> None:
    """The usual three together, and each respondent once."""
    ours, theirs = [" Jose\u0301 ", "ANN"], ["josé", "\tAnn"]
    assert messages_of(ours, *RULES) == messages_of(theirs, *RULES) == ["josé".encode(), b"ann"]
    assert messages_of(["Ann", "ann "], *RULES) == [b"ann", b"ann"]


def test_without_rules_ids_stay_as_they_are() -> None:
    """Nothing is normalised that the contract does not say."""
    texts = [" Ann", "ann", "ANN ", "e\u0301"]
    assert messages_of(texts) == [text.encode() for text in texts]


def test_unknown_rules_are_refused() -> None:
    """Also for a table without rows: two curators must not read one rule in two ways."""
    assert "no normalisation rule 'upper'" in refused(["a"], "nfc", "upper")
    with pytest.raises(LinkageError, match="'NFC'") as caught:
        messages_of([], "NFC", dtype=pl.String())
    assert caught.value.hint == "choose from nfc, trim, lowercase"


@pytest.mark.parametrize("rules", [(), ("trim",)])
def test_empty_and_missing_ids_are_refused(rules: tuple[str, ...]) -> None:
    """With their rows, counting from 1; a blank is empty once it is trimmed."""
    values = ["a", None, "", "b", " "]
    message = refused(values, *rules)
    trimmed = "; row 5: ''" if rules else ""
    assert message == (
        f"{2 + len(rules)} rows have an empty id in column 'id'"
        f" (row 2: (missing); row 3: ''{trimmed})"
    )
    assert "an empty id" in refused([1, None, 3])


def test_an_id_that_is_empty_in_one_of_several_columns() -> None:
    """A part that is missing would make respondents alike who are not."""
    frame = pl.DataFrame({"name": ["Ann", "Bo"], "born": ["1990", None]})
    with pytest.raises(LinkageError, match=r"an empty id in column 'born' \(row 2: \(missing\)\)"):
        id_messages(frame, ["name", "born"], ())


@pytest.mark.parametrize("code", range(0x20))
def test_control_characters_are_refused(code: int) -> None:
    """Every character below U+0020, wherever it stands: the separator is one of them."""
    for text in (f"a{chr(code)}b", f"{chr(code)}a", f"a{chr(code)}"):
        assert "1 row has an id with a control character" in refused(["x", text])


def test_other_odd_characters_are_ids() -> None:
    """The rule is about U+0020 and below; delete and the like are somebody's id."""
    assert messages_of(["\x7f", "\x80", " "]) == [b"\x7f", "\x80".encode(), b" "]


def test_many_offenders_are_counted_and_a_few_are_shown() -> None:
    """All rows are bad, five are listed."""
    message = refused([f"{letter}\t" for letter in "abcdefg"])
    assert message.startswith("7 rows have an id with a control character")
    assert message.endswith("row 5: 'e\\t'; and 2 more)")


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1.0], "Float64"),
        ([True], "Boolean"),
        ([None], "Null"),
        ([b"x"], "Binary"),
        ([dt.datetime(2024, 2, 29)], "Datetime"),  # noqa: DTZ001
        ([[1]], "List"),
    ],
)
def test_other_types_are_refused(values: list[Any], dtype: str) -> None:
    """Their text depends on who writes it."""
    assert refused(values).startswith(f"the id column 'id' is {dtype}")


def test_missing_columns_are_refused() -> None:
    """The hint lists the ones there are; no column at all is none either."""
    frame = pl.DataFrame({"id": ["a"], "age": [1]})
    with pytest.raises(LinkageError, match="no id column 'ID'") as caught:
        id_messages(frame, ["id", "ID"], ())
    assert caught.value.hint == "its columns are 'id', 'age'"
    with pytest.raises(LinkageError, match="no id column is named"):
        id_messages(frame, [], ())


def test_an_empty_table_has_no_messages() -> None:
    """Of text or numbers, in one column or two."""
    frame = pl.DataFrame(schema={"id": pl.String, "no": pl.Int64})
    for columns in (["id"], ["no"], ["id", "no"]):
        found = id_messages(frame, columns, RULES)
        assert len(found) == 0
        assert found.offsets.tolist() == [0]
        assert found.data.size == 0


def test_row_numbers_in_the_place_of_ids() -> None:
    """In decimal, from 0."""
    assert unpacked(row_messages(12)) == [str(row).encode() for row in range(12)]
    assert len(row_messages(12)) == 12
    assert len(row_messages(0)) == 0
    assert unpacked(row_messages(3, first_row=101)) == [b"100", b"101", b"102"]


def test_rows_count_from_the_start_of_the_table() -> None:
    """A part of a longer table says where it begins, whatever is wrong in it."""
    for values, what in ((["a", None], "an empty id"), (["a", "b\t"], "a control character")):
        frame = pl.DataFrame({"id": values})
        with pytest.raises(LinkageError, match=rf"{what} .*\(row 1002: "):
            id_messages(frame, ["id"], (), first_row=1001)


printable = st.text(
    st.characters(exclude_categories=["Cs"], min_codepoint=0x20), min_size=1, max_size=12
)


@given(st.lists(st.tuples(printable, printable), unique=True))
@settings(deadline=None)
def test_data_and_offsets_hold_every_message(rows: list[tuple[str, str]]) -> None:
    """Any texts in any script: bytes and bounds give back exactly the joined texts."""
    frame = pl.DataFrame(
        {"a": [a for a, _ in rows], "b": [b for _, b in rows]},
        schema={"a": pl.String, "b": pl.String},
    )
    found = id_messages(frame, ["a", "b"], ())
    assert found.data.dtype == np.uint8
    assert found.offsets.dtype == np.int64
    assert found.offsets.size == len(rows) + 1
    assert found.offsets[0] == 0
    assert found.offsets[-1] == found.data.size
    assert unpacked(found) == [f"{a}\x1f{b}".encode() for a, b in rows]
