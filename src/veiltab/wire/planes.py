"""Digits of one base as 64-bit words, and back (spec 7).

Eight digits of a byte each are joined to one number of 64 bits in three steps, all of the chunk at
a time; digit by digit would take ten times as long.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core.digits import join_neighbours, split_neighbours
from veiltab.errors import MalformedError

HINT = "the chunk was changed on its way, or belongs to another column; ask for it again"

WORD_BYTES = 8
_WORD_RANGE = 2**64
_BYTE_BASE = 256
_TWO_BASE = 2

Digits = NDArray[np.unsignedinteger[Any]]


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
    return WORD_BYTES * words + (int(base**rest - 1).bit_length() + 7) // 8


def pack_plane(digits: Digits, base: int) -> bytes:
    """Write digits below ``base``; a base of 1 takes no bytes."""
    if base == 1:
        return b""
    if base == _TWO_BASE:
        return np.packbits(digits, bitorder="little").tobytes()
    per_word, narrow = digits_per_word(base), _digit_type(base)
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
    words = np.frombuffer(data + bytes(-len(data) % WORD_BYTES), dtype="<u8")
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
def _shape(base: int) -> tuple[int, int, int]:
    """Return the steps from a digit to 8 bytes; the digits of 8 bytes; and how many of those."""
    steps = 3 if base <= _BYTE_BASE else 2
    return steps, 1 << steps, -(-digits_per_word(base) >> steps)


def _digit_type(base: int) -> Any:  # noqa: ANN401 - a scalar type of NumPy
    return np.uint8 if base <= _BYTE_BASE else np.uint16


def _refuse(base: int, *, bad: bool) -> None:
    if bad:
        raise MalformedError(f"a packed word is too large for base {base:,}", hint=HINT)
