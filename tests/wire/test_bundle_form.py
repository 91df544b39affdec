"""Many chunks in one body: what is put in comes out, and nothing else is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veiltab.errors import MalformedError
from veiltab.wire.bundles import (
    NamedChunk,
    bundle,
    bundled_bytes,
    filled,
    in_pieces,
    read_index,
    unbundle,
)

DIGEST = st.binary(min_size=32, max_size=32)
CHUNKS = st.lists(st.tuples(DIGEST, st.binary(max_size=60)), min_size=1, max_size=8)


@given(chunks=CHUNKS)
def test_what_is_bundled_comes_out_again(chunks: list[NamedChunk]) -> None:
    """In its order, empty chunks too; the digests are taken as they are."""
    body = bundle(chunks)
    assert [(digest, bytes(chunk)) for digest, chunk in unbundle(body)] == chunks
    assert bundled_bytes(len(chunk) for _, chunk in chunks) == len(body)


def test_the_form_is_an_index_and_chunks() -> None:
    """Numbers of four bytes, the highest first."""
    one, two = b"1" * 32, b"2" * 32
    body = b"\0\0\0\2" + one + b"\0\0\0\1" + two + b"\0\0\0\2" + b"a" + b"bc"
    assert bundle([(one, b"a"), (two, b"bc")]) == body


@given(chunks=CHUNKS, cut=st.integers(1, 500))
def test_half_a_bundle_is_none(chunks: list[NamedChunk], cut: int) -> None:
    """Wherever it is cut off."""
    body = bundle(chunks)
    with pytest.raises(MalformedError):
        unbundle(body[: max(0, len(body) - cut)])


@pytest.mark.parametrize("body", [b"", bytes(4), bytes(5), b"\xff" * 4, b"\xff" * 400])
def test_what_is_no_bundle(body: bytes) -> None:
    """Neither an empty one, nor one with an index that cannot be."""
    with pytest.raises(MalformedError):
        unbundle(body)


@given(chunks=CHUNKS, more=st.binary(min_size=1, max_size=40))
def test_nothing_comes_after_the_chunks(chunks: list[NamedChunk], more: bytes) -> None:
    """A bundle has one form."""
    with pytest.raises(MalformedError):
        unbundle(bundle(chunks) + more)


@given(chunks=CHUNKS)
def test_an_index_can_be_read_alone(chunks: list[NamedChunk]) -> None:
    """It says where each chunk is, also when the chunks are not at hand."""
    body = bundle(chunks)
    places = read_index(body[: 4 + 36 * len(chunks)])
    found = [(p.digest, body[p.start : p.start + p.length]) for p in places]
    assert found == chunks
    assert read_index(body[: 3 + 36 * len(chunks)]) == []
    wanted = {digest for digest, _ in chunks[::2]}
    assert read_index(body, wanted) == [place for place in places if place.digest in wanted]


@given(parts=st.lists(st.binary(max_size=20), max_size=8), least=st.integers(1, 60))
def test_pieces_are_the_same_bytes(parts: list[bytes], least: int) -> None:
    """Of at least the wanted length, and not one part longer than needed."""
    pieces = list(in_pieces(parts, least))
    assert b"".join(pieces) == b"".join(parts)
    assert all(least <= len(piece) < least + 20 for piece in pieces[:-1])


@given(chunks=CHUNKS, most=st.integers(1, 300))
def test_bundles_are_filled_in_order(chunks: list[NamedChunk], most: int) -> None:
    """As full as they can be, none fuller, and a chunk that is too long has one of its own."""
    bundles = list(filled(chunks, most))
    assert [chunk for each in bundles for chunk in each] == chunks
    for number, each in enumerate(bundles):
        size = len(bundle(each))
        assert size <= most or len(each) == 1
        if number + 1 < len(bundles):
            assert size + 36 + len(bundles[number + 1][0][1]) > most
