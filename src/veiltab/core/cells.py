"""Joint cells: mixed from the codes of attributes, taken apart again, and counted."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core.digits import join_neighbours

if TYPE_CHECKING:
    from veiltab.core.schema import Codes

BLOCK_RECORDS = 1 << 16
"""Records that are counted at a time: few enough for the processor's cache."""

_PAIRED_CELLS = 256
_FOURFOLD_CELLS = 8

Cells = NDArray[np.unsignedinteger[Any]]


def mix(sizes: Sequence[int], columns: Sequence[NDArray[np.integer[Any]]]) -> Cells:
    """Return the cell of each record, the first attribute most significant, in the least type."""
    narrow = np.min_scalar_type(math.prod(sizes) - 1)
    cells = columns[0].astype(narrow)
    for size, column in zip(sizes[1:], columns[1:], strict=True):
        factor = size & int(np.iinfo(narrow).max)  # 2^8 in a byte: what it multiplies is 0 then
        np.multiply(cells, narrow.type(factor), out=cells)
        np.add(cells, column, out=cells, dtype=narrow, casting="unsafe")
    return cells


def unmix(sizes: Sequence[int], cells: NDArray[np.integer[Any]]) -> "list[Codes]":
    """Return the codes of each attribute, in the least type: the inverse of :func:`mix`.

    Of a cell N, which is none and stands for cell 0 in the group of the cells, the codes are all 0
    but for the first, which is k or 0: to add either is to add nothing.
    """
    left = math.prod(sizes)
    rest: Cells = cells.astype(np.min_scalar_type(left - 1))
    codes = []
    for size in reversed(sizes):
        left //= size
        code, rest = _last_code(rest, size) if left > 1 else (rest, np.zeros_like(rest))
        codes.append(code.astype(np.min_scalar_type(size - 1), copy=False))
    return codes[::-1]


def _last_code(cells: Cells, size: int) -> tuple[Cells, Cells]:
    """Return the code of the least significant attribute, and the cells of the others."""
    narrow = cells.dtype.type
    quotients: Cells = cells // narrow(size)
    cells -= quotients * narrow(size)
    return cells, quotients


def count_cells(cells: Cells, domain_size: int) -> NDArray[np.int64]:
    """Return how many of the cells, all below ``domain_size``, are of each kind.

    Up to 256 cells, two neighbours are counted as one number, and up to 8 cells four of them: a
    table of all their combinations still fits into the cache, and adding it up takes next to
    nothing.
    """
    if domain_size > _PAIRED_CELLS:
        return np.bincount(cells, minlength=domain_size)
    fold = 1 if domain_size > _FOURFOLD_CELLS else 2
    body = cells.size - cells.size % (1 << fold)
    counts = np.bincount(cells[body:], minlength=domain_size)
    bins = np.zeros(domain_size ** (1 << fold), dtype=np.int64)
    for start in range(0, body, BLOCK_RECORDS):
        joined = cells[start : min(start + BLOCK_RECORDS, body)]
        for step in range(fold):
            joined = join_neighbours(joined, domain_size ** (1 << step))
        bins += np.bincount(joined, minlength=bins.size)
    table = bins.reshape((domain_size,) * (1 << fold))
    for axis in range(table.ndim):
        counts += table.sum(axis=tuple(set(range(table.ndim)) - {axis}))
    return counts
