"""Joining and splitting digits that lie side by side in memory.

Two digits of a byte each are one number of two bytes, low + 256·high.  Taking away (256 − b)·high
leaves low + b·high, and the same step again joins numbers of two digits to numbers of four, and of
eight.  Each step goes over a whole array in a few instructions of the processor's vector unit.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.unsignedinteger[Any]]


def join_neighbours(values: Numbers, factor: int) -> Numbers:
    """Return low + factor·high for each two neighbours, in numbers of twice the width."""
    bits = 8 * values.dtype.itemsize
    pairs = values.view(f"<u{2 * values.dtype.itemsize}")
    wide: Any = pairs.dtype.type
    high: Numbers = pairs >> wide(bits)
    high *= wide((1 << bits) - factor)
    np.subtract(pairs, high, out=high)
    return high


def split_neighbours(values: Numbers, factor: int) -> Numbers:
    """Undo :func:`join_neighbours` in place; the values keep their width, to be viewed as half."""
    bits = 4 * values.dtype.itemsize
    wide: Any = values.dtype.type
    high = values // wide(factor)
    high *= wide((1 << bits) - factor)
    values += high
    return values
