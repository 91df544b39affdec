"""Columns as bytes: codes in close to the fewest bits, tokens, positions (spec 7)."""

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core.schema import (
    MAX_CATEGORIES,
    Codes,
    check_range,
    join_neighbours,
    split_neighbours,
)
from veiltab.errors import MalformedError, ParameterError

CHUNK_ROWS = 65_536
"""Rows of a chunk; only the last chunk of a column may have fewer (spec 7)."""

SPAN_ROWS = 4 * CHUNK_ROWS
"""Rows that are worked on at once: enough that the calls between them cost next to nothing."""

TOKEN_BYTES = 16
POSITION_BYTES = 6
MAX_POSITION = 2**48 - 1
BLINDING_BYTES = 16
"""Random bytes at the start of a released chunk, so that nobody can test a guess by its digest."""

_WORD_BYTES = 8
_WORD_RANGE = 2**64
_BYTE_BASE = 256
_TWO_BASE = 2
_MAX_LOW_BITS = 16
_HINT = "the chunk was changed on its way, or belongs to another column; ask for it again"

Digits = NDArray[np.unsignedinteger[Any]]


def chunk_count(rows: int) -> int:
    """Return how many chunks a column has."""
    return -(-rows // CHUNK_ROWS)


def chunk_slices(rows: int) -> Iterator[slice]:
    """Yield the rows of each chunk, in order."""
    for start in range(0, rows, CHUNK_ROWS):
        yield slice(start, min(start + CHUNK_ROWS, rows))


def span_slices(rows: int) -> Iterator[slice]:
    """Yield the rows of a few chunks at a time, in order: as much as is worked on at once."""
    for start in range(0, rows, SPAN_ROWS):
        yield slice(start, min(start + SPAN_ROWS, rows))


def packed_length(size: int, count: int) -> int:
    """Return the bytes of a chunk of ``count`` codes below ``size``."""
    _, low, high = _planes(size)
    return plane_length(low, count) + plane_length(high, count)


def pack(codes: Codes, size: int) -> bytes:
    """Pack one chunk of codes below ``size``: the low plane, then the high one (spec 7)."""
    low_bits, low, high = _planes(size)
    check_range(codes, size, "codes")
    _check_count(codes.size)
    digits = codes.astype(_narrow_type(size), copy=False)
    narrow: Any = digits.dtype.type
    low_digits = digits & narrow(low - 1) if high > 1 else digits
    high_digits = digits >> narrow(low_bits) if low > 1 else digits
    return pack_plane(low_digits, low) + pack_plane(high_digits, high)


def unpack(data: bytes, size: int, count: int) -> Codes:
    """Read one chunk of ``count`` codes, in the narrowest type; refuse any other form (spec 7)."""
    low_bits, low, high = _planes(size)
    _check_count(count)
    _check_length(data, packed_length(size, count), f"{count:,} codes below {size:,}")
    border = plane_length(low, count)
    narrow = _narrow_type(size)
    codes: Codes = unpack_plane(data[border:], high, count).astype(narrow, copy=False)
    if low > 1:
        codes <<= narrow(low_bits)
        codes |= unpack_plane(data[:border], low, count)
    if codes.size and int(codes.max()) >= size:
        raise MalformedError(f"a packed code is {size:,} or more", hint=_HINT)
    return codes


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


def blind(chunk: bytes, blinding: bytes) -> bytes:
    """Put random bytes before a packed chunk that is to be released (spec 7.1)."""
    if len(blinding) != BLINDING_BYTES:
        raise ParameterError(
            f"a blinding has {len(blinding)} bytes", hint=f"draw {BLINDING_BYTES} for each chunk"
        )
    return blinding + chunk


def unblind(data: bytes) -> bytes:
    """Return the packed chunk behind its blinding (spec 7.1)."""
    if len(data) < BLINDING_BYTES:
        raise MalformedError(
            f"a released chunk has {len(data):,} bytes, fewer than its blinding", hint=_HINT
        )
    return data[BLINDING_BYTES:]


@cache
def digits_per_word(base: int) -> int:
    """Return g, the largest number with base^g ≤ 2⁶⁴."""
    count = 0
    while base ** (count + 1) <= _WORD_RANGE:
        count += 1
    return count


def plane_length(base: int, count: int) -> int:
    """Return the bytes of ``count`` digits."""
    if base == 1:
        return 0
    words, rest = divmod(count, digits_per_word(base))
    return _WORD_BYTES * words + (int(base**rest - 1).bit_length() + 7) // 8


def pack_plane(digits: Digits, base: int) -> bytes:
    """Write digits below ``base``; a base of 1 takes no bytes."""
    if base == 1:
        return b""
    if base == _TWO_BASE:
        return np.packbits(digits, bitorder="little").tobytes()
    per_word, narrow = digits_per_word(base), _narrow_type(base)
    steps, per_part, parts = _shape(base)
    table = np.zeros((-(-digits.size // per_word), parts * per_part), dtype=narrow)
    full = digits.size // per_word
    table[:full, :per_word] = digits[: full * per_word].reshape(full, per_word)
    if full < len(table):
        table[full, : digits.size - full * per_word] = digits[full * per_word :]
    values = table.reshape(-1)
    for step in range(steps):
        values = join_neighbours(values, base ** (1 << step))
    columns = values.reshape(-1, parts).T
    words = columns[-1].copy()
    for column in columns[-2::-1]:  # Horner; the result is at most base^g − 1
        words *= np.uint64(base**per_part)
        words += column
    packed: bytes = words.tobytes()
    return packed[: plane_length(base, digits.size)]


def unpack_plane(data: bytes, base: int, count: int) -> Digits:
    """Read ``count`` digits, in the narrowest type; refuse words that are too large."""
    if base == 1:
        return np.zeros(count, dtype=np.uint8)
    if base == _TWO_BASE:
        bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
        _refuse(base, bad=bool(bits[count:].any()))
        return bits[:count]
    per_word = digits_per_word(base)
    steps, per_part, parts = _shape(base)
    words = np.frombuffer(data + bytes(-len(data) % _WORD_BYTES), dtype="<u8")
    table = np.empty((words.size, parts), dtype=np.uint64)
    for column in table.T[:-1]:
        quotients = words // np.uint64(base**per_part)
        np.subtract(words, quotients * np.uint64(base**per_part), out=column)
        words = quotients
    last = base ** (per_word - per_part * (parts - 1))
    _refuse(base, bad=bool(words.size) and int(words.max()) >= last)
    table[:, -1] = words
    values: Digits = table.reshape(-1)
    for step in reversed(range(steps)):
        split_neighbours(values, base ** (1 << step))
        values = values.view(f"<u{values.dtype.itemsize // 2}")
    digits: Digits = values.reshape(-1, parts * per_part)[:, :per_word].reshape(-1)
    _refuse(base, bad=bool(digits[count:].any()))
    return digits[:count]


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
    return Fraction(0) if base == 1 else Fraction(64, digits_per_word(base))


@cache
def _shape(base: int) -> tuple[int, int, int]:
    """Return the steps from a digit to 8 bytes; the digits of 8 bytes; and how many of those."""
    steps = 3 if base <= _BYTE_BASE else 2
    return steps, 1 << steps, -(-digits_per_word(base) >> steps)


def _narrow_type(count: int) -> Any:  # noqa: ANN401 - a scalar type of NumPy
    """Return the narrowest type that holds the numbers below ``count``."""
    return np.uint8 if count <= _BYTE_BASE else np.uint16


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


def _refuse(base: int, *, bad: bool) -> None:
    if bad:
        raise MalformedError(f"a packed word is too large for base {base:,}", hint=_HINT)
