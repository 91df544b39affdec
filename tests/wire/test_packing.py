"""Columns as bytes: exact, small, and refused when they are not just so (spec 7)."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veiltab.core.schema import Codes
from veiltab.errors import MalformedError, ParameterError, SchemaError
from veiltab.wire import packing
from veiltab.wire.packing import (
    CHUNK_ROWS,
    chunk_count,
    chunk_slices,
    pack,
    pack_positions,
    pack_tokens,
    packed_length,
    unpack,
    unpack_positions,
    unpack_tokens,
)

SIZES = [1, 2, 3, 4, 5, 7, 8, 16, 17, 21, 65, 100, 255, 256, 257, 1000, 4096, 40_000, 65_535]
FULL_WORDS = [2, 4, 16, 256, 65_536]
"""Bases b with b^g = 2⁶⁴ exactly: their largest word is 2⁶⁴ − 1."""


def reference_planes(size: int) -> list[tuple[int, int, int]]:
    """Choose the planes as section 7 says: divisor, base and digits per word of each."""

    def digits(base: int) -> int:
        return max(g for g in range(1, 65) if base**g <= 2**64)

    def cost(base: int) -> Fraction:
        return Fraction(64, digits(base)) if base > 1 else Fraction(0)

    best = min(
        (cost(2**s) + cost(math.ceil(Fraction(size, 2**s))), s) for s in range(17) if 2**s <= size
    )
    low = 2 ** best[1]
    bases = [(1, low), (low, math.ceil(Fraction(size, low)))]
    return [(divisor, base, digits(base)) for divisor, base in bases if base > 1]


def reference_pack(codes: list[int], size: int) -> bytes:
    """Pack with Python's integers, word by word, straight from the text of section 7."""
    packed = b""
    for divisor, base, per_word in reference_planes(size):
        plane = [code // divisor % (base if divisor == 1 else size) for code in codes]
        for start in range(0, len(plane), per_word):
            word_digits = plane[start : start + per_word]
            word = sum(digit * base**j for j, digit in enumerate(word_digits))
            count = len(word_digits)
            width = 8 if count == per_word else ((base**count - 1).bit_length() + 7) // 8
            packed += word.to_bytes(width, "little")
    return packed


def codes_below(size: int, count: int, seed: int = 1) -> Codes:
    """Draw repeatable codes; test data, not secrets."""
    dtype = np.uint8 if size <= 256 else np.uint16
    return np.random.default_rng([seed, size]).integers(0, size, count).astype(dtype)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 999])
def test_bytes_are_those_of_the_reference(size: int, count: int) -> None:
    """The vectorised packing is the one that the specification describes."""
    codes = codes_below(size, count)
    data = pack(codes, size)
    assert data == reference_pack(codes.tolist(), size)
    assert len(data) == packed_length(size, count)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_round_trip(data: st.DataObject) -> None:
    """Codes come back, in the narrowest type, whatever type they went in with."""
    size = data.draw(st.integers(1, 65_535) | st.sampled_from(SIZES))
    codes = data.draw(st.lists(st.integers(0, size - 1), max_size=200))
    packed = pack(np.array(codes, dtype=data.draw(st.sampled_from(["u2", "i4", "u8"]))), size)
    assert packed == reference_pack(codes, size)
    unpacked = unpack(packed, size, len(codes))
    assert unpacked.tolist() == codes
    assert unpacked.dtype == (np.uint8 if size <= 256 else np.uint16)


@pytest.mark.parametrize("size", SIZES)
def test_full_chunks_round_trip_at_the_extremes(size: int) -> None:
    """A whole chunk of the largest code fills every word as far as it goes."""
    for codes in (
        np.full(CHUNK_ROWS, size - 1),
        np.zeros(CHUNK_ROWS),
        codes_below(size, CHUNK_ROWS),
    ):
        column = codes.astype(np.uint16)
        assert (unpack(pack(column, size), size, CHUNK_ROWS) == column).all()


@pytest.mark.parametrize("base", FULL_WORDS)
def test_words_that_fill_64_bits_do_not_overflow(base: int) -> None:
    """b^g = 2⁶⁴: all digits at their largest make the word 2⁶⁴ − 1, and every word is valid."""
    per_word = packing.digits_per_word(base)
    assert base**per_word == 2**64
    digits = np.full(3 * per_word, base - 1, dtype=np.uint16)
    data = packing.pack_plane(digits, base)
    assert data == b"\xff" * 24
    assert (packing.unpack_plane(data, base, digits.size) == digits).all()


def test_size_is_within_a_tenth_of_the_least_possible() -> None:
    """For every k up to 256 a chunk takes at most 1.1 times log₂k bits per row; 1.0375 in fact."""
    ratios = {
        size: packed_length(size, CHUNK_ROWS) * 8 / (CHUNK_ROWS * math.log2(size))
        for size in range(2, 257)
    }
    assert max(ratios.values()) <= 1.0375
    assert max(ratios, key=lambda size: ratios[size]) == 65


def test_small_chunks_waste_less_than_a_byte_per_plane() -> None:
    """The last word of a plane takes only the bytes it needs."""
    for size in range(2, 257):
        packing = len(reference_planes(size))
        for count in range(1, 200):
            least = count * math.log2(size) / 8
            assert packed_length(size, count) <= 1.0375 * least + packing


def test_an_attribute_of_one_category_takes_no_bytes() -> None:
    """There is nothing to tell; the chunk is there, and empty."""
    assert pack(np.zeros(1000, dtype=np.uint8), 1) == b""
    assert unpack(b"", 1, 1000).tolist() == [0] * 1000
    with pytest.raises(MalformedError, match="has 1 bytes, not 0"):
        unpack(b"\x00", 1, 1000)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [1, 64, 100])
def test_another_length_is_refused(size: int, count: int) -> None:
    """A byte more, a byte less, a row more: never guessed at."""
    data = pack(codes_below(size, count), size)
    with pytest.raises(MalformedError, match="bytes, not"):
        unpack(data + b"\x00", size, count)
    if data:
        with pytest.raises(MalformedError, match="bytes, not"):
            unpack(data[:-1], size, count)
        with pytest.raises(MalformedError, match="bytes, not"):
            unpack(data, size, count + 64)


@pytest.mark.parametrize(("size", "digits"), [(3, 40), (5, 27), (7, 22), (10, 19), (255, 8)])
def test_a_word_of_base_to_the_g_or_more_is_refused(size: int, digits: int) -> None:
    """The first word that is too large, in a full word and in the last, shorter one."""
    full = pack(np.full(digits, size - 1, dtype=np.uint8), size)
    assert int.from_bytes(full, "little") == size**digits - 1
    with pytest.raises(MalformedError, match=f"too large for base {size}"):
        unpack((size**digits).to_bytes(8, "little"), size, digits)
    with pytest.raises(MalformedError, match=f"too large for base {size}"):
        unpack(b"\xff" * 8, size, digits)
    short = pack(np.full(digits + 2, size - 1, dtype=np.uint8), size)
    assert int.from_bytes(short[8:], "little") == size**2 - 1
    with pytest.raises(MalformedError, match=f"too large for base {size}"):
        unpack(short[:8] + (size**2).to_bytes(len(short) - 8, "little"), size, digits + 2)


def test_a_code_of_k_or_more_is_refused() -> None:
    """Two planes can hold a little more than k: of 21, up to 2·11 − 1, so the code 21 fits."""
    data = bytearray(pack(np.array([20], dtype=np.uint8), 21))
    assert bytes(data) == b"\x00\x0a"
    data[0] = 1
    with pytest.raises(MalformedError, match="a packed code is 21 or more"):
        unpack(bytes(data), 21, 1)


def test_every_valid_chunk_has_one_form() -> None:
    """All bytes of short planes: accepted exactly as often as there are columns."""
    for size, count in [(3, 2), (5, 3), (21, 1), (6, 2)]:
        length = packed_length(size, count)
        assert length == len(reference_planes(size))
        seen = set()
        for data in map(bytes, itertools.product(*[range(256 if length == 1 else 12)] * length)):
            try:
                codes = unpack(data, size, count)
            except MalformedError:
                continue
            assert pack(codes, size) == data
            seen.add(tuple(codes.tolist()))
        assert len(seen) == size**count


@pytest.mark.parametrize("bad", [[3], [-1], [300], [1.0], [[0, 1]]])
def test_codes_out_of_range_are_not_packed(bad: list[object]) -> None:
    """A code that does not fit is our own mistake, and not reduced silently."""
    with pytest.raises(SchemaError):
        pack(np.array(bad), 3)


def test_sizes_and_counts_out_of_range_are_refused() -> None:
    """An attribute has 1 to 65,535 categories, a chunk at most 65,536 rows."""
    for size in (0, -1, 65_536):
        with pytest.raises(ParameterError, match="cannot have"):
            packed_length(size, 1)
    for count in (-1, CHUNK_ROWS + 1):
        with pytest.raises(ParameterError, match="a chunk cannot have"):
            unpack(b"", 1, count)
    with pytest.raises(ParameterError, match="a chunk cannot have"):
        pack(np.zeros(CHUNK_ROWS + 1, dtype=np.uint8), 2)


def test_chunks_cover_a_column() -> None:
    """65,536 rows each, and the rest in the last."""
    assert [chunk_count(rows) for rows in (1, 65_536, 65_537, 2**48)] == [1, 1, 2, 2**32]
    assert list(chunk_slices(140_000)) == [
        slice(0, 65_536),
        slice(65_536, 131_072),
        slice(131_072, 140_000),
    ]


def test_tokens_round_trip() -> None:
    """16 bytes per row, as they are."""
    tokens = np.arange(48, dtype=np.uint8).reshape(3, 16)
    data = pack_tokens(tokens)
    assert data == bytes(range(48))
    assert (unpack_tokens(data, 3) == tokens).all()
    assert pack_tokens(np.asfortranarray(tokens)) == data
    for wrong in (data[:-1], data + b"\x00", b""):
        with pytest.raises(MalformedError, match="a chunk of 3 tokens"):
            unpack_tokens(wrong, 3)
    for bad in (tokens.reshape(-1), tokens.astype(np.uint16), tokens[:, :8], tokens[None]):
        with pytest.raises(ParameterError, match="tokens are an array"):
            pack_tokens(bad)  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 2**48 - 1), max_size=50))
@settings(deadline=None)
def test_positions_round_trip(positions: list[int]) -> None:
    """6 bytes per row, little-endian."""
    data = pack_positions(np.array(positions, dtype=np.int64))
    assert data == b"".join(position.to_bytes(6, "little") for position in positions)
    unpacked = unpack_positions(data, len(positions))
    assert unpacked.tolist() == positions
    assert unpacked.dtype == np.int64
    with pytest.raises(MalformedError, match="positions has"):
        unpack_positions(data + b"\x00", len(positions))


@pytest.mark.parametrize("bad", [[2**48], [-1], [0.5]])
def test_positions_out_of_range_are_not_packed(bad: list[object]) -> None:
    """Positions are below 2⁴⁸."""
    with pytest.raises(SchemaError, match="positions are"):
        pack_positions(np.array(bad))
