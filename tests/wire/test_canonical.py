"""The canonical form of RFC 8785, and everything else refused without a crash (spec 1.1)."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import for_each
from veiltab.errors import MalformedError
from veiltab.wire import codec
from veiltab.wire.codec import MAX_INTEGER, dump, load

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    # RFC 8785 writes floats from 2^53 to below 10^21 as integers, which nobody may send.
    | st.floats(allow_nan=False, allow_infinity=False).filter(
        lambda number: not 2**53 <= abs(number) < 10**21
    )
    | st.text(st.characters(codec="utf-8"))
)
KEYS = st.text(st.characters(codec="utf-8"), max_size=5)
OBJECTS = st.dictionaries(
    KEYS,
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
        max_leaves=12,
    ),
    max_size=5,
)


def test_the_canonical_form_is_the_one_of_rfc_8785() -> None:
    """Keys sorted by UTF-16, the shortest numbers, no spaces: an example of the RFC's kind."""
    value = {
        "\u20ac": "Euro",
        "\r": "CR",
        "\ufb33": "Dalet",
        "1": "One",
        "\U0001f600": "Smile",
        "\u0080": "Control",
        "numbers": [333333333.33333329, 1e30, 4.5, 2e-3, 1e-27, 0.5, 100.0, -0.0],
        "literals": [None, True, False],
    }
    assert dump(value).decode() == (
        '{"\\r":"CR","1":"One","literals":[null,true,false],'
        '"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27,0.5,100,0],'
        '"\u0080":"Control","\u20ac":"Euro","\U0001f600":"Smile","\ufb33":"Dalet"}'
    )


@pytest.mark.slow
@given(OBJECTS)
@settings(max_examples=300, deadline=None)
def test_what_was_dumped_is_loaded(value: dict[str, Any]) -> None:
    """A value comes back as written, and dumps to the same bytes."""
    data = dump(value)
    loaded = load(data)
    assert loaded == value
    assert dump(loaded) == data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"{",
        b'{"a":}',
        b"[]",
        b"1",
        b'"text"',
        b"null",
        b'{"a":1} ',
        b' {"a":1}',
        b'{"a": 1}',
        b'{"a":1}\n',
        b'{"b":1,"a":2}',
        b'{"a":1,"a":1}',
        b'{"a":1,"a":2}',
        b'{"a":1.0}',
        b'{"a":1e0}',
        b'{"a":-0}',
        b'{"a":0.50}',
        b'{"a":5e-1}',
        b'{"a":01}',
        b'{"a":+1}',
        b'{"a":"\\u0061"}',
        b'{"a":"\\/"}',
        b'{"a":"\\u000A"}',
        b'{"a":"\\ud800"}',
        b'{"\\ud800":1}',
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":1e400}',
        b'{"a":9007199254740992}',
        b'{"a":-9007199254740992}',
        b'{"a":' + b"9" * 100_000 + b"}",
        b'{"a":0.' + b"9" * 100_000 + b"}",
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"{" * 1_000_000,
        '{"a":1}'.encode("utf-16"),
        b'{"a":1}\x00',
        b"{'a':1}",
        b'{"a":1}//',
        b'{"a":tru}',
    ],
    ids=lambda data: repr(data[:24]),
)
def test_any_other_spelling_is_refused(data: bytes) -> None:
    """White space, repeated keys, other numbers, other escapes, wrong Unicode, deep nesting."""
    with pytest.raises(MalformedError) as caught:
        load(data)
    assert len(caught.value.message) < 200
    assert caught.value.hint


def test_the_largest_exact_integer_passes() -> None:
    """2^53 − 1 is the last whole number that RFC 8785 carries."""
    assert load(b'{"a":9007199254740991}') == {"a": MAX_INTEGER}
    assert load(b'{"a":-9007199254740991}') == {"a": -MAX_INTEGER}


@pytest.mark.slow
def test_a_message_of_the_largest_size_passes_and_one_byte_more_does_not() -> None:
    """The limit is 67,108,864 bytes, in both directions."""
    room = 67_108_864 - len('{"a":""}')
    data = dump({"a": "x" * room})
    assert len(load(data)["a"]) == room
    with pytest.raises(MalformedError, match="67,108,865 bytes"):
        load(data[:-2] + b'x"}')
    with pytest.raises(MalformedError, match="67,108,865 bytes"):
        dump({"a": "x" * (room + 1)})


def test_size_is_checked_before_anything_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's bytes cost nothing beyond their transport once they are too many."""
    monkeypatch.setattr(codec, "MAX_MESSAGE_BYTES", 10)
    monkeypatch.setattr(json, "loads", pytest.fail)
    with pytest.raises(MalformedError, match="11 bytes, more than 10"):
        load(b"x" * 11)


@pytest.mark.parametrize(
    "value",
    [2**53, -(2**53), float("nan"), float("inf"), "\ud800", {"\ud800": 1}, b"bytes", {1: 2}, {3}],
)
def test_what_json_cannot_carry_is_not_dumped(value: object) -> None:
    """Our own mistakes are found before they leave the house."""
    with pytest.raises(MalformedError, match="cannot be written"):
        dump({"a": value})


def test_endless_nesting_is_not_dumped() -> None:
    """A list in itself ends in our own error too."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(MalformedError, match="nested too deeply"):
        dump({"a": endless})


@for_each("depth", range(900, 1000))
def test_nesting_near_the_limit_is_loaded_or_refused(depth: int) -> None:
    """The interpreter's limit is somewhere here; on neither side of it is there a crash."""
    data = b'{"a":' + b"[" * depth + b"]" * depth + b"}"
    try:
        assert set(load(data)) == {"a"}
    except MalformedError as error:
        assert "nested too deeply" in error.message  # noqa: PT017 - either outcome is right


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_either_canonical_or_refused(data: bytes) -> None:
    """Nothing else than a MalformedError, and never a second spelling."""
    try:
        value = load(data)
    except MalformedError:
        return
    assert dump(value) == data
