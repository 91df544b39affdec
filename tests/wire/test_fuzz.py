"""Hostile bytes: a parser returns exactly what it was given, or a MessageError; nothing else."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.messages import EXAMPLES, load_signed, signed
from veiltab.errors import MalformedError, MessageError
from veiltab.wire.packing import (
    pack,
    pack_positions,
    packed_length,
    unpack,
    unpack_positions,
    unpack_tokens,
)
from veiltab.wire.signed import Message

MUTATIONS = 1_500
"""For each of the eleven examples: more than 16,000 in all."""

CHUNK_MUTATIONS = 300
"""For each of thirteen sizes: about 4,000 in all."""

BODIES = {name: build() for name, build in EXAMPLES.items()}
WHOLE = {name: signed(body).dumps() for name, body in BODIES.items()}
FRAGMENTS = [
    *(b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b" ", b"\n", b"\x00", b"\xff", b"\xc3"),
    *(b"null", b"true", b"-0", b"1e5", b"1.0", b"1e400", b"NaN", b"9" * 30, b"[" * 2_000),
    *(b"\\ud800", b"\\u0041", b'"kind":"grant",', b'"version":2', b'""', b"[[]]", b"{}"),
    *("é".encode(), "\u2028".encode(), "\U0001f600".encode(), b"\xed\xa0\x80", b"\xef\xbb\xbf"),
]


def mutated(source: random.Random, data: bytes, other: bytes) -> bytes:
    """Damage bytes in one of many ways, some of which leave valid JSON."""
    start = source.randrange(len(data))
    stop = min(len(data), start + source.choice([1, 2, 8, 64, len(data)]))
    there = source.randrange(len(other))
    ways: list[Callable[[], bytes]] = [
        lambda: data[:start] + bytes([data[start] ^ 1 << source.randrange(8)]) + data[start + 1 :],
        lambda: data[:start] + source.choice(b"0123456789abcdef").to_bytes() + data[start + 1 :],
        lambda: data[:start],
        lambda: data[start:],
        lambda: data[:start] + data[stop:],
        lambda: data[:start] + source.choice(FRAGMENTS) + data[start:],
        lambda: data[:start] + source.choice(FRAGMENTS) + data[stop:],
        lambda: data[:start] + source.randbytes(stop - start) + data[stop:],
        lambda: data[:stop] + data[start:],
        lambda: data[:start] + other[there:],
        lambda: data[:start] + other[there : there + stop - start] + data[stop:],
        lambda: data + other,
        lambda: _token_splice(source, data, other),
    ]
    return source.choice(ways)()


def _token_splice(source: random.Random, data: bytes, other: bytes) -> bytes:
    """Put one quoted text of the other message in the place of one of this message."""
    pieces, donors = data.split(b'"'), other.split(b'"')
    if min(len(pieces), len(donors)) > 1:
        pieces[source.randrange(1, len(pieces), 2)] = donors[source.randrange(1, len(donors), 2)]
    return b'"'.join(pieces)


def check(kind: type[Message], data: bytes) -> bool:
    """Parse bytes; tell whether they were accepted, and fail on anything but the two outcomes."""
    try:
        whole = load_signed(kind, data)
    except MessageError as error:
        problem = error
    else:
        assert whole.dumps() == data
        return True
    assert problem.hint
    assert "\n" not in problem.message
    assert len(problem.message) < 400
    return False


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_damaged_messages(name: str) -> None:
    """Flips, cuts, insertions, repetitions and splices of two valid messages, by a fixed seed."""
    source = random.Random(f"wire {name}")  # noqa: S311 - repeatable damage, no secret
    accepted = 0
    for _ in range(MUTATIONS):
        data = mutated(source, WHOLE[name], source.choice(list(WHOLE.values())))
        while source.random() < 0.2:
            data = mutated(source, data or b" ", WHOLE[name])
        accepted += check(type(BODIES[name]), data)
    assert 0 < accepted < MUTATIONS / 2  # a changed digit of a digest is still a message


@pytest.mark.parametrize("name", EXAMPLES)
def test_messages_of_other_kinds(name: str) -> None:
    """Every parser on every valid message: each takes only its own kind."""
    for other, data in WHOLE.items():
        assert check(type(BODIES[name]), data) == (BODIES[name].kind == BODIES[other].kind)


@given(st.binary(max_size=300))
@pytest.mark.parametrize("name", EXAMPLES)
@settings(deadline=None)
def test_any_bytes(name: str, data: bytes) -> None:
    """Hypothesis knows nothing of our format, and may send anything."""
    check(type(BODIES[name]), data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@given(st.data())
@pytest.mark.parametrize("name", EXAMPLES)
@settings(deadline=None)
def test_any_values_in_the_place_of_a_field(name: str, data: st.DataObject) -> None:
    """Valid but for one field, which holds any JSON at all, also what JSON bytes cannot hold."""
    whole = BODIES[name].to_json()
    value: Any = whole
    key: Any = data.draw(st.sampled_from(sorted(whole)))
    while isinstance(value[key], dict | list) and value[key] and data.draw(st.booleans()):
        value = value[key]
        keys = sorted(value) if isinstance(value, dict) else range(len(value))
        key = data.draw(st.sampled_from(keys))
    value[key] = data.draw(JSON)
    kind = type(BODIES[name])
    try:
        body = kind.from_json(whole)
    except MessageError:
        return
    assert kind.from_json(body.to_json()) == body


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 16, 21, 65, 100, 255, 256, 1000, 65_535])
def test_damaged_chunks(size: int) -> None:
    """A packed chunk is refused, or it is the packing of what it unpacks to."""
    source = random.Random(f"chunk {size}")  # noqa: S311 - repeatable damage, no secret
    for _ in range(CHUNK_MUTATIONS):
        count = source.choice([1, 2, 20, 64, 65, 500])
        codes = np.array([source.randrange(size) for _ in range(count)], dtype=np.uint16)
        data = pack(codes, size)
        damaged = mutated(source, data or b"\x00", source.randbytes(40) or b"\x00")
        if source.random() < 0.5:  # of the right length: only the words can be wrong
            damaged = (damaged + source.randbytes(len(data)))[: packed_length(size, count)]
        try:
            unpacked = unpack(damaged, size, count)
        except MalformedError:
            continue
        assert pack(unpacked, size) == damaged


@given(st.binary(max_size=64), st.integers(0, 5))
@settings(deadline=None)
def test_any_bytes_as_tokens_and_positions(data: bytes, count: int) -> None:
    """Only the length can be wrong."""
    for parse, width in ((unpack_tokens, 16), (unpack_positions, 6)):
        if len(data) != width * count:
            with pytest.raises(MalformedError):
                parse(data, count)
        else:
            parse(data, count)
    exact = (data * 6)[: 6 * count].ljust(6 * count, b"\x01")
    assert pack_positions(unpack_positions(exact, count)) == exact
