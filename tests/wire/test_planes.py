"""Digits as 64-bit words: bytes as plain integers give them, and back, for every base."""

import numpy as np
import pytest

from tests.support.cases import for_each
from veiltab.errors import MalformedError
from veiltab.wire.packing import Digits, digits_per_word, pack_plane, plane_length, unpack_plane

WIDE_BASES = [512, 1000, 4096, 6561, 32_767, 32_768, 32_769, 40_000, 65_535, 65_536]
BASES = [*range(1, 301), *WIDE_BASES]


def digits_below(base: int, count: int) -> Digits:
    """Draw repeatable digits, the last and the first of them the largest."""
    dtype = np.uint8 if base <= 256 else np.uint16
    digits: Digits = np.random.default_rng([base, count]).integers(0, base, count).astype(dtype)
    digits[:1] = digits[-1:] = base - 1
    return digits


def plain(digits: list[int], base: int) -> bytes:
    """Pack with Python's integers, word by word."""
    if base == 1:
        return b""
    per_word, packed = digits_per_word(base), b""
    for start in range(0, len(digits), per_word):
        part = digits[start : start + per_word]
        word = sum(digit * base**place for place, digit in enumerate(part))
        short = ((base ** len(part) - 1).bit_length() + 7) // 8
        packed += word.to_bytes(8 if len(part) == per_word else short, "little")
    return packed


def counts_for(base: int) -> list[int]:
    """Return numbers of digits: none, one, odd ones, and around whole words."""
    per_word = digits_per_word(base) if base > 1 else 1
    around = [words * per_word + step for words in (1, 2, 7) for step in (-1, 0, 1)]
    return sorted({0, 1, 2, 3, 13, 101, *around})


@pytest.mark.slow
@for_each("base", BASES)
def test_digits_are_joined_and_split_again(base: int) -> None:
    """The bytes are the plain ones; the digits come back, in the narrowest type."""
    for count in counts_for(base):
        digits = digits_below(base, count)
        data = pack_plane(digits, base)
        assert data == plain(digits.tolist(), base)
        assert len(data) == plane_length(base, count)
        found = unpack_plane(data, base, count)
        assert found.dtype == (np.uint8 if base <= 256 else np.uint16)
        assert found.tolist() == digits.tolist()


@pytest.mark.slow
@for_each("base", BASES)
def test_the_largest_and_the_smallest_digits(base: int) -> None:
    """Words of b^g − 1, and of one digit at each place, do not overflow into one another."""
    count = 3 * digits_per_word(base) if base > 1 else 3
    largest = np.full(count, base - 1, dtype=np.uint16)
    for digits in (largest, np.zeros(count, dtype=np.uint16)):
        assert unpack_plane(pack_plane(digits, base), base, count).tolist() == digits.tolist()
    for place in range(count):
        digits = np.zeros(count, dtype=np.uint16)
        digits[place] = base - 1
        data = pack_plane(digits, base)
        assert data == plain(digits.tolist(), base)
        assert unpack_plane(data, base, count).tolist() == digits.tolist()


@for_each("base", BASES[1:])
def test_words_that_no_digits_make_are_refused(base: int) -> None:
    """b^g itself and 2⁶⁴ − 1, in any word; and one digit too many in a last, short word."""
    per_word = digits_per_word(base)
    good = pack_plane(digits_below(base, 2 * per_word), base)
    if base**per_word < 2**64:
        for bad in (base**per_word, 2**64 - 1):
            word = bad.to_bytes(8, "little")
            for data in (word + good[8:], good[:8] + word):
                with pytest.raises(MalformedError, match="too large"):
                    unpack_plane(data, base, 2 * per_word)
    length = plane_length(base, 1)
    if base < 256**length:
        with pytest.raises(MalformedError, match="too large"):
            unpack_plane(good[:8] + base.to_bytes(length, "little"), base, per_word + 1)


def test_packing_leaves_the_digits_alone() -> None:
    """A caller's digits are read, never written; a view with gaps is as good as a whole array."""
    for base in (2, 3, 100, 257):
        digits = digits_below(base, 400)
        kept = digits.copy()
        assert pack_plane(digits[::2], base) == plain(kept[::2].tolist(), base)
        assert (digits == kept).all()
