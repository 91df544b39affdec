"""The groups Z_k in which pads and noise are added, one for each attribute."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core.entropy import Entropy, random_words
from veiltab.core.schema import Codes

_BLOCK_ROWS = 1 << 17
_LARGEST_THAT_COUNTS = (1 << 25) - (1 << 16)


def keep_freed_memory() -> None:
    """Make the C library keep freed memory, so that new arrays cost no page faults.

    The GNU C library gives memory at the end of its heap back to the system as soon as a few
    hundred kilobytes are free there, and takes it again for the next array; the page faults then
    cost as much as all the arithmetic.  It raises that limit to twice the largest block that was
    mapped and freed, up to 32 MiB.  So this maps and frees one such block, which nobody writes to
    and which takes no memory.  A second call and other C libraries are not affected.
    """
    np.empty(_LARGEST_THAT_COUNTS, dtype=np.uint8)


keep_freed_memory()  # whoever adds columns makes and frees arrays of their size


def add(left: Codes, right: Codes, size: int, out: Codes | None = None) -> Codes:
    """Add two columns in Z_size; the result is ``out``, or new and of the first column's type.

    Where the sum is below k, the sum less k wraps around: the smaller of the two is right, and
    no division is needed.  The second column may hold k itself, which is 0 in Z_k.
    """
    narrow, total = _total(left, size, out)
    for block in _blocks(left.size):
        part = np.add(left[block], right[block], out=total[block], dtype=narrow)
        np.minimum(part, np.subtract(part, narrow(size)), out=part)
    return _result(total, left, out)


def subtract(left: Codes, right: Codes, size: int, out: Codes | None = None) -> Codes:
    """Subtract the second column from the first in Z_size; ``out`` is as for :func:`add`.

    The paper writes decryption with ⊕ too, but adding twice undoes an addition only where every
    element is its own inverse, as in Z_2 and not in Z_3.
    """
    narrow, total = _total(left, size, out)
    for block in _blocks(left.size):
        part = np.subtract(left[block], right[block], out=total[block], dtype=narrow)
        np.minimum(part, np.add(part, narrow(size)), out=part)
    return _result(total, left, out)


def draw_uniform(size: int, count: int, entropy: Entropy) -> NDArray[np.uint16]:
    """Draw ``count`` elements of Z_size, exactly uniform, by rejection of 32-bit words."""
    limit = np.uint32((2**32 // size) * size - 1)  # the largest word that may be used
    elements = np.empty(count, dtype=np.uint16)
    filled = 0
    while filled < count:
        words = random_words(count - filled, 32, entropy)
        accepted = words[words <= limit] % np.uint32(size)
        elements[filled : filled + accepted.size] = accepted
        filled += accepted.size
    return elements


def _blocks(count: int) -> Iterator[slice]:
    """Yield blocks of rows that are small enough for the processor's cache."""
    for start in range(0, count, _BLOCK_ROWS):
        yield slice(start, start + _BLOCK_ROWS)


def _total(left: Codes, size: int, out: Codes | None) -> tuple[Any, NDArray[Any]]:
    """Return a type in which sums do not wrap around, and an array of it for the sums."""
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
