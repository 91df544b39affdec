"""Every kind of message: its round trip, and each field refused when it is wrong."""

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.message_strategies import STRATEGIES
from tests.support.messages import EXAMPLES, filler, load_signed, signed
from veiltab.errors import MalformedError, VersionError
from veiltab.wire.codec import MAX_INTEGER, load
from veiltab.wire.signed import Message

NULLABLE = {
    "decoys": ("alignment",),
    "mechanism.keep_threshold": ("contract",),
    "mechanism.sample_size": ("contract",),
    "population": ("contract", "upload"),
    "researchers": ("contract",),
    "stored": ("contract",),
    "tokens": ("upload",),
    "uploads[0].positions": ("release",),
    "uploads[1].positions": ("release",),
}
"""Fields that may be null by themselves, and the kinds in which they may."""

WRONG_TYPES: tuple[Any, ...] = (None, True, 7, 7.5, "text?", ["list"], {"an": "object"})


def fields_of(value: object, path: str = "") -> Iterator[tuple[list[str | int], str]]:
    """Walk over every field and item below a JSON value: its keys, and its path in errors."""
    pairs: list[tuple[str | int, object, str]] = []
    if isinstance(value, dict):
        pairs = [(key, item, f"{path}.{key}".lstrip(".")) for key, item in value.items()]
    elif isinstance(value, list):
        pairs = [(position, item, f"{path}[{position}]") for position, item in enumerate(value)]
    for key, item, name in pairs:
        yield [key], name
        for keys, deeper in fields_of(item, name):
            yield [key, *keys], deeper


def changed(value: Any, keys: list[str | int], new: object) -> Any:  # noqa: ANN401 - any JSON
    """Copy a JSON value with one field replaced."""
    result = copy.deepcopy(value)
    inner = result
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = new
    return result


def same_type(left: object, right: object) -> bool:
    """Tell whether two JSON values are of the same type; whole numbers are numbers."""
    if isinstance(left, bool) or isinstance(right, bool):
        return isinstance(left, bool) and isinstance(right, bool)
    if isinstance(left, float) and isinstance(right, int | float):
        return True
    return type(left) is type(right)


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_comes_back_from_its_bytes(name: str) -> None:
    """The signed form of every kind is read as it was written."""
    body = EXAMPLES[name]()
    whole = signed(body)
    assert load_signed(type(body), whole.dumps()) == whole
    assert type(body).from_json(body.to_json()) == body
    assert hash(body) == hash(type(body).from_json(load(body.canonical())))


@given(st.data())
@pytest.mark.parametrize("kind", STRATEGIES)
@settings(max_examples=60, deadline=None)
def test_any_message_comes_back_from_its_bytes(kind: str, data: st.DataObject) -> None:
    """Round trip of the body and of the signed form, byte for byte."""
    body: Message = data.draw(STRATEGIES[kind])
    assert body.kind == kind
    assert type(body).from_json(load(body.canonical())) == body
    signers = data.draw(st.sampled_from(["a", "abc"])) if body.cosigned else "a"
    whole = signed(body, *signers)
    again = load_signed(type(body), whole.dumps())
    assert again == whole
    assert again.dumps() == whole.dumps()


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_missing_field_is_named(name: str) -> None:
    """Whichever field is taken out, at any depth, the error says which."""
    body = EXAMPLES[name]()
    whole: Any = body.to_json()
    for keys, path in fields_of(whole):
        if isinstance(keys[-1], int):
            continue
        value = changed(whole, keys, None)
        inner = value
        for key in keys[:-1]:
            inner = inner[key]
        del inner[keys[-1]]
        with pytest.raises(MalformedError, match=rf"^{re.escape(path)}: "):
            type(body).from_json(value)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_unknown_field_is_named(name: str) -> None:
    """No object takes a field that the specification does not give it."""
    body = EXAMPLES[name]()
    whole: Any = body.to_json()
    paths = [([], ""), *fields_of(whole)]
    for keys, path in paths:
        inner = whole
        for key in keys:
            inner = inner[key]
        if not isinstance(inner, dict):
            continue
        extra = inner | {"extra": 1}
        value = changed(whole, keys, extra) if keys else extra
        with pytest.raises(MalformedError, match="has the unknown field 'extra'") as caught:
            type(body).from_json(value)
        assert caught.value.message.startswith(path or "the message")


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_wrong_type_is_named(name: str) -> None:
    """A value of another JSON type is refused in every field; true is not 1, and 7 is not 7.5."""
    body = EXAMPLES[name]()
    whole = json.loads(body.canonical())
    for keys, path in fields_of(whole):
        present = whole
        for key in keys:
            present = present[key]
        for wrong in WRONG_TYPES:
            allowed_null = present is None or body.kind in NULLABLE.get(path, ())
            if same_type(present, wrong) or (path == "epsilon" and wrong in (7, 7.5)):
                continue
            if allowed_null and (wrong is None or present is None):
                continue
            with pytest.raises(MalformedError, match=rf"^{re.escape(path)}") as caught:
                type(body).from_json(changed(whole, keys, wrong))
            assert "\n" not in caught.value.message


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_fixed_size_value_has_one_spelling(name: str) -> None:
    """Hexadecimal in capitals, too long, too short or with other letters is refused."""
    body = EXAMPLES[name]()
    whole: Any = body.to_json()
    seen = 0
    for keys, path in fields_of(whole):
        present = whole
        for key in keys:
            present = present[key]
        if not isinstance(present, str) or not re.fullmatch("[0-9a-f]{32,}", present):
            continue
        seen += 1
        for wrong in (
            present[:-1],
            present + "0",
            present[:-2],
            "A" + present[1:],
            "g" + present[1:],
            " " + present[1:],
            "٠" + present[1:],
            "",
        ):
            with pytest.raises(MalformedError, match=rf"^{re.escape(path)}: must be .* hex"):
                type(body).from_json(changed(whole, keys, wrong))
    assert seen >= 3


OUT_OF_RANGE: list[tuple[str, str, list[Any]]] = [
    ("contract", "title", ["", "x" * 1_001, "a\nb", "\x7f", "\x9b", "\u202e", "\ud800"]),
    ("contract", "curators", [[]]),
    ("contract", "curators.1.name", ["", "x" * 1_001, "\x1f"]),
    ("contract", "curators.1.attributes", [[]]),
    ("contract", "curators.1.attributes.0.name", ["", "x" * 1_001, "tab\t"]),
    ("contract", "curators.0.attributes.1.categories", [[]]),
    ("contract", "curators.0.attributes.1.categories.2", ["", "x" * 1_001, "\x00"]),
    ("contract", "epsilon", [0, -1, 50.000001, 51, MAX_INTEGER, 10**400, float("nan"), 1e300]),
    ("contract", "delta", [1e-31, 1, -1, float("inf")]),
    ("contract", "population", [0, -1, 2**53, 10**400]),
    ("contract", "mechanism.sample_size", [0, -1, 2**48 + 1, 100_001]),
    ("contract", "mechanism.name", ["", "Paper", "shuffle"]),
    ("contract", "linkage.mode", ["", "curators", "Matched"]),
    ("decoy contract", "mechanism.name", ["", "Decoys", "decoy"]),
    ("decoy contract", "mechanism.coin_threshold", ["0", "01", "-1", str(2**64 + 1), "9" * 21]),
    ("decoy contract", "mechanism.decoys.law", ["", "Geometric", "poisson"]),
    ("decoy contract", "mechanism.decoys.threshold", ["0", "+5", str(2**64), "5.0", "٥"]),
    ("decoy contract", "mechanism.epsilon_public", [0, -1, 50.1, float("nan")]),
    ("decoy contract", "mechanism.keep_threshold", ["0", str(2**64)]),
    ("table contract", "mechanism.decoys.weights", [[], ["0"] * 65_537]),
    ("table contract", "mechanism.decoys.weights.0", ["-1", "01", str(2**64 + 1), ""]),
    ("publication", "attributes", [[]]),
    ("publication", "epsilon", [0, 50.1]),
    ("contract", "pads", ["", "Stream", "none"]),
    ("contract", "linkage.by", ["names", "Rows"]),
    ("contract", "linkage.columns", [0, -1, 2**53]),
    ("contract", "linkage.normalisation.1", ["nfkc", ""]),
    ("contract", "stored.uploads", [[], ["00" * 32], ["00" * 32] * 3]),
    ("vault", "title", ["", "x" * 1_001]),
    ("vault", "curators", [[]]),
    (
        "secret",
        "sealed",
        ["A", "AA", "AA=", "AB==", "AAA", "A A=", "AA==\n", "QQ-_", "=AAA", "é==="],
    ),
    ("alignment", "population", [0, -5, 2**53]),
    ("upload", "columns", [[]]),
    ("upload", "columns.0.attribute", ["", "\n"]),
    ("upload", "rows", [-1, 2**48 + 1]),
    ("upload", "population", [0, 2**53]),
    ("release", "accounting", ["", "shuffle"]),
    ("release", "cells", [0, 1, -2, 2**48 + 1]),
    ("release", "columns", [[]]),
    ("release", "delta", [0.1]),
    ("release", "epsilon", [0, 50.1]),
    (
        "release",
        "keep_threshold",
        [
            "",
            "0",
            "01",
            "-5",
            "+5",
            " 5",
            "5.0",
            "٥",
            str(2**64),
            "9" * 21,
            str(2**64 - 1),
            str(2**64 - 13),
        ],
    ),
    ("release", "population", [0, 2**53]),
    ("release", "rows", [0, 2**48 + 1, 100_001]),
    ("release", "uploads", [[]]),
    ("grant", "attributes", [[]]),
    ("grant", "attributes.0", ["", "x" * 1_001]),
    ("grant", "expires", [-1, 2**53]),
    ("grant", "pads", ["both"]),
    ("repad request", "population", [0, 2**53]),
    ("repad request", "sample_size", [0, 2**48 + 1, 100_001]),
    ("repad", "rows", [0, 2**48 + 1]),
    ("repad", "columns", [[]]),
]


@pytest.mark.parametrize(("name", "dotted", "values"), OUT_OF_RANGE)
def test_values_out_of_range_are_named(name: str, dotted: str, values: list[Any]) -> None:
    """Texts, numbers, lists and choices outside what the specification states."""
    body = EXAMPLES[name]()
    keys = [int(key) if key.isdigit() else key for key in dotted.split(".")]
    path = re.sub(r"\.(\d+)", r"[\1]", dotted)
    for value in values:
        with pytest.raises(MalformedError, match=rf"^{re.escape(path)}: ") as caught:
            type(body).from_json(changed(body.to_json(), keys, value))
        assert len(caught.value.message) < 300


@pytest.mark.parametrize("name", EXAMPLES)
def test_another_version_is_told_apart(name: str) -> None:
    """Version 2 may have any other fields; it is not called malformed."""
    body = EXAMPLES[name]()
    for version in (0, 2, -1, 999):
        with pytest.raises(VersionError, match="version"):
            type(body).from_json(body.to_json() | {"version": version, "more": 1})
    with pytest.raises(MalformedError, match=r"^version: "):
        type(body).from_json(body.to_json() | {"version": "1"})


def test_a_message_of_another_kind_is_refused() -> None:
    """Each parser takes its own kind, also where the fields would be the same."""
    bodies = [build() for build in EXAMPLES.values()]
    for body in bodies:
        for other in {type(each) for each in bodies} - {type(body)}:
            with pytest.raises(MalformedError, match=rf"^kind: must be '{other.kind}', not"):
                other.from_json(body.to_json())


def test_a_message_that_nobody_would_accept_cannot_be_made() -> None:
    """The same checks hold for what we build ourselves."""
    for name, change, path in [
        ("contract", {"title": ""}, "title"),
        ("contract", {"nonce": filler("x", 15)}, "nonce"),
        ("contract", {"nonce": "00" * 16}, "nonce"),
        ("contract", {"epsilon": "0.5"}, "epsilon"),
        ("alignment", {"population": True}, "population"),
        ("secret", {"sealed": "AAAA"}, "sealed"),
        ("grant", {"pads": "none"}, "pads"),
        ("release", {"keep_threshold": "5"}, "keep_threshold"),
    ]:
        with pytest.raises(MalformedError, match=rf"^{path}: "):
            EXAMPLES[str(name)](**change)  # type: ignore[arg-type]
