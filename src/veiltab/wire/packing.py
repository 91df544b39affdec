"""Columns as bytes: codes in close to the fewest bits, tokens, positions (spec 7)."""

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core.schema import MAX_CATEGORIES, Codes, check_range
from veiltab.errors import MalformedError, ParameterError

CHUNK_ROWS = 65_536
"""Rows of a chunk; only the last chunk of a column may have fewer (spec 7)."""

TOKEN_BYTES = 16
POSITION_BYTES = 6
MAX_POSITION = 2**48 - 1

_WORD_BYTES = 8
_WORD_RANGE = 2**64
_MAX_LOW_BITS = 16
_HINT = "the chunk was changed on its way, or belongs to another column; ask for it again"


def chunk_count(rows: int) -> int:
    """Return how many chunks a column has."""
    return -(-rows // CHUNK_ROWS)


def chunk_slices(rows: int) -> Iterator[slice]:
    """Yield the rows of each chunk, in order."""
    for start in range(0, rows, CHUNK_ROWS):
        yield slice(start, min(start + CHUNK_ROWS, rows))


def packed_length(size: int, count: int) -> int:
    """Return the bytes of a chunk of ``count`` codes below ``size``."""
    _, low, high = _planes(size)
    return _plane_length(low, count) + _plane_length(high, count)


def pack(codes: Codes, size: int) -> bytes:
    """Pack one chunk of codes below ``size``: the low plane, then the high one (spec 7)."""
    low_bits, low, high = _planes(size)
    check_range(codes, size, "codes")
    _check_count(codes.size)
    digits = codes.astype(np.uint16, copy=False)
    low_digits, high_digits = digits & np.uint16(low - 1), digits >> np.uint16(low_bits)
    return _pack_plane(low_digits, low) + _pack_plane(high_digits, high)


def unpack(data: bytes, size: int, count: int) -> Codes:
    """Read one chunk of ``count`` codes, in the narrowest type; refuse any other form (spec 7)."""
    low_bits, low, high = _planes(size)
    _check_count(count)
    _check_length(data, packed_length(size, count), f"{count:,} codes below {size:,}")
    border = _plane_length(low, count)
    codes = _unpack_plane(data[border:], high, count).astype(np.uint32) << np.uint32(low_bits)
    codes |= _unpack_plane(data[:border], low, count)
    if (codes >= size).any():
        raise MalformedError(f"a packed code is {size:,} or more", hint=_HINT)
    return codes.astype(np.uint8 if size <= 1 << 8 else np.uint16)


def pack_tokens(tokens: NDArray[np.uint8]) -> bytes:
    """Write one chunk of tokens, an array of 16 bytes per row (spec 7)."""
    if tokens.dtype != np.uint8 or tokens.shape[1:] != (TOKEN_BYTES,):
        raise ParameterError(
            f"tokens are an array of {tokens.dtype} of shape {tokens.shape}",
            hint=f"give one row of {TOKEN_BYTES} bytes (uint8) for each token",
        )
    _check_count(len(tokens))
    return tokens.tobytes()


def unpack_tokens(data: bytes, count: int) -> NDArray[np.uint8]:
    """Read one chunk of ``count`` tokens: a read-only array of 16 bytes per row (spec 7)."""
    _check_count(count)
    _check_length(data, TOKEN_BYTES * count, f"{count:,} tokens")
    return np.frombuffer(data, dtype=np.uint8).reshape(count, TOKEN_BYTES)


def pack_positions(positions: NDArray[np.integer[Any]]) -> bytes:
    """Write one chunk of row numbers below 2⁴⁸ as 6-byte integers (spec 7)."""
    check_range(positions, MAX_POSITION + 1, "positions")
    _check_count(positions.size)
    wide = np.ascontiguousarray(positions, dtype="<u8").view(np.uint8)
    return wide.reshape(-1, _WORD_BYTES)[:, :POSITION_BYTES].tobytes()


def unpack_positions(data: bytes, count: int) -> NDArray[np.int64]:
    """Read one chunk of ``count`` row numbers (spec 7)."""
    _check_count(count)
    _check_length(data, POSITION_BYTES * count, f"{count:,} positions")
    wide = np.zeros((count, _WORD_BYTES), dtype=np.uint8)
    wide[:, :POSITION_BYTES] = np.frombuffer(data, dtype=np.uint8).reshape(count, POSITION_BYTES)
    return wide.reshape(-1).view("<u8").astype(np.int64)


@cache
def _digits_per_word(base: int) -> int:
    """Return g, the largest number with base^g ≤ 2⁶⁴."""
    count = 0
    while base ** (count + 1) <= _WORD_RANGE:
        count += 1
    return count


@cache
def _planes(size: int) -> tuple[int, int, int]:
    """Return s and the bases of the low and the high plane, by the least cost (spec 7)."""
    if not 1 <= size <= MAX_CATEGORIES:
        raise ParameterError(
            f"a column cannot have {size:,} categories",
            hint=f"an attribute has 1 to {MAX_CATEGORIES:,}",
        )
    fitting = [bits for bits in range(_MAX_LOW_BITS + 1) if 1 << bits <= size]
    splits = [(bits, 1 << bits, -(-size >> bits)) for bits in fitting]
    return min(splits, key=lambda split: _cost(split[1]) + _cost(split[2]))  # the first of equals


def _cost(base: int) -> Fraction:
    """Return the bits of a digit: exact, so that equal costs compare equal."""
    return Fraction(0) if base == 1 else Fraction(64, _digits_per_word(base))


def _plane_length(base: int, count: int) -> int:
    if base == 1:
        return 0
    words, rest = divmod(count, _digits_per_word(base))
    return _WORD_BYTES * words + (int(base**rest - 1).bit_length() + 7) // 8


def _pack_plane(digits: NDArray[np.uint16], base: int) -> bytes:
    if base == 1:
        return b""
    per_word = _digits_per_word(base)
    table = np.zeros((-(-digits.size // per_word), per_word), dtype=np.uint16)
    table.reshape(-1)[: digits.size] = digits
    words = np.zeros(len(table), dtype=np.uint64)
    for row in np.ascontiguousarray(table.T)[::-1]:  # Horner; the result is at most base^g − 1
        words *= np.uint64(base)
        words += row
    return words.astype("<u8").tobytes()[: _plane_length(base, digits.size)]


def _unpack_plane(data: bytes, base: int, count: int) -> NDArray[np.uint16]:
    if base == 1:
        return np.zeros(count, dtype=np.uint16)
    per_word = _digits_per_word(base)
    padded = data + bytes(-len(data) % _WORD_BYTES)
    words = np.frombuffer(padded, dtype="<u8").astype(np.uint64)
    table = np.empty((per_word, words.size), dtype=np.uint16)
    for row in table:
        quotients = words // np.uint64(base)
        row[:] = words - quotients * np.uint64(base)
        words = quotients
    digits = table.T.reshape(-1)
    if words.any() or digits[count:].any():
        raise MalformedError(f"a packed word is too large for base {base:,}", hint=_HINT)
    return digits[:count]


def _check_count(count: int) -> None:
    if not 0 <= count <= CHUNK_ROWS:
        raise ParameterError(
            f"a chunk cannot have {count:,} rows",
            hint=f"cut the column into chunks of {CHUNK_ROWS:,} rows",
        )


def _check_length(data: bytes, expected: int, what: str) -> None:
    if len(data) != expected:
        raise MalformedError(
            f"a chunk of {what} has {len(data):,} bytes, not {expected:,}", hint=_HINT
        )
