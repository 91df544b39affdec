"""The groups Z_k in which pads and noise are added, one for each attribute."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core.entropy import Entropy, random_words
from veiltab.core.schema import Codes

_LARGEST_THAT_COUNTS = (1 << 25) - (1 << 16)


def keep_freed_memory() -> None:
    """Raise the limit, once in a process; again does no harm."""
    np.empty(_LARGEST_THAT_COUNTS, dtype=np.uint8)


_BLOCK_ROWS = 1 << 17

keep_freed_memory()  # whoever adds columns makes and frees arrays of their size


def add(left: Codes, right: Codes, size: int, out: Codes | None = None) -> Codes:
    """Add two columns in Z_size; the result is ``out``, or new and of the first column's type.

    Where the sum is below k, the sum less k wraps around: the smaller of the two is right, and
    no division is needed.  The second column may have k itself, which is 0.
    """
    narrow, total = _total(left, size, out)
    for block in _blocks(left.size):
        part = np.add(left[block], right[block], out=total[block], dtype=narrow)
        np.minimum(part, np.subtract(part, narrow(size)), out=part)
    return _result(total, left, out)


def subtract(left: Codes, right: Codes, size: int, out: Codes | None = None) -> Codes:
    """Take the second column from the first in Z_size; ``out`` as above.

    The paper writes decryption with ⊕ as well; only subtraction undoes an addition once a group
    has an element that is not its own inverse, as in Z_3.
    """
    narrow, total = _total(left, size, out)
    for block in _blocks(left.size):
        part = np.subtract(left[block], right[block], out=total[block], dtype=narrow)
        np.minimum(part, np.add(part, narrow(size)), out=part)
    return _result(total, left, out)


def draw_uniform(size: int, count: int, entropy: Entropy) -> NDArray[np.uint16]:
    """Draw ``count`` elements of Z_size, exactly uniform, by rejection of 32-bit words."""
    limit = np.uint32((2**32 // size) * size - 1)  # the largest word that may be used
    found = np.empty(count, dtype=np.uint16)
    filled = 0
    while filled < count:
        words = random_words(count - filled, 32, entropy)
        accepted = words[words <= limit] % np.uint32(size)
        found[filled : filled + accepted.size] = accepted
        filled += accepted.size
    return found


def _blocks(count: int) -> Iterator[slice]:
    """Yield rows that are worked on at a time: few enough for the processor's cache."""
    for start in range(0, count, _BLOCK_ROWS):
        yield slice(start, start + _BLOCK_ROWS)


def _total(left: Codes, size: int, out: Codes | None) -> tuple[Any, NDArray[Any]]:
    """Return a type in which only differences wrap around, and an array of it for the sums."""
    narrow = np.min_scalar_type(2 * size - 1)
    if out is not None and out.dtype == narrow:
        return narrow.type, out
    return narrow.type, np.empty(left.size, dtype=narrow)


def _result(total: NDArray[Any], left: Codes, out: Codes | None) -> Codes:
    if out is None:
        return total.astype(left.dtype, copy=False)
    if out is not total:
        out[:] = total
    return out
