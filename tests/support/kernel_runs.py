"""The kernels that go over records, each as a function of the number of rows."""

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tests.support.counting import wrapped
from veiltab.core import group
from veiltab.core.noise import NoiseSource
from veiltab.core.plan import plan
from veiltab.core.schema import count_cells, mix, unmix
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.pads import StreamPad, one_time_pad
from veiltab.wire.packing import CHUNK_ROWS, pack, pack_positions, unpack, unpack_positions

SPAN = 1 << 18
"""Rows that the kernels are to work on at once, but for those that name another number."""

Codes = NDArray[np.unsignedinteger]


@cache
def codes(size: int, rows: int) -> Codes:
    """Return some codes, in the narrowest type: made once, so that they do not count."""
    return (np.arange(rows) * 7919 % size).astype(np.min_scalar_type(size - 1))


def pad(size: int) -> Callable[[int], object]:
    """Return what makes the pads of consecutive rows."""
    return lambda rows: StreamPad(bytes(32), size).rows(0, rows)


def scattered(size: int) -> Callable[[int], object]:
    """Return what makes the pads of rows anywhere."""

    def run(rows: int) -> object:
        positions = np.arange(rows, dtype=np.int64) * 7919 % 1_000_003
        return StreamPad(bytes(32), size).at(wrapped(positions))

    return run


def one_time(size: int) -> Callable[[int], object]:
    """Return what draws one-time pads."""
    return lambda rows: one_time_pad(size, rows, CipherEntropy(bytes(32)))


def noise(cells: int) -> Callable[[int], object]:
    """Return what draws noise, where ε is 1 and everybody is sampled."""
    people = 45_222
    channel = plan(
        anyway=True, population_size=people, domain_size=cells, epsilon=1.0, sample_size=people
    ).ranked.channel

    def run(rows: int) -> None:
        source = NoiseSource(channel, rows, CipherEntropy(bytes(32)))
        out = wrapped(np.empty(SPAN, dtype=source.dtype))
        for start in range(0, rows, SPAN):
            source.draw(out[: rows - start])

    return run


def adding(size: int) -> Callable[[int], object]:
    """Return what adds one column to another, in place."""

    def run(rows: int) -> None:
        left, right = wrapped(codes(size, SPAN)), wrapped(codes(size, SPAN))
        for start in range(0, rows, SPAN):
            part = slice(0, rows - start)
            group.add(left[part], right[part], size, out=left[part])

    return run


def subtracting(size: int) -> Callable[[int], object]:
    """Return what takes one column away from another, in place."""

    def run(rows: int) -> None:
        left, right = wrapped(codes(size, SPAN)), wrapped(codes(size, SPAN))
        for start in range(0, rows, SPAN):
            part = slice(0, rows - start)
            group.subtract(left[part], right[part], size, out=left[part])

    return run


def mixing(*sizes: int) -> Callable[[int], object]:
    """Return what joins codes to cells."""
    return lambda rows: mix(sizes, [wrapped(codes(size, rows)) for size in sizes])


def unmixing(*sizes: int) -> Callable[[int], object]:
    """Return what takes cells apart."""
    cells = int(np.prod(sizes))
    return lambda rows: unmix(sizes, wrapped(codes(cells, rows)))


def counting(cells: int) -> Callable[[int], object]:
    """Return what counts cells."""
    return lambda rows: count_cells(wrapped(codes(cells, rows)), cells)


def packing_of(size: int) -> Callable[[int], object]:
    """Return what packs chunks of codes."""

    def run(rows: int) -> None:
        chunk = wrapped(codes(size, CHUNK_ROWS))
        for start in range(0, rows, CHUNK_ROWS):
            pack(chunk[: rows - start], size)

    return run


def unpacking_of(size: int) -> Callable[[int], object]:
    """Return what unpacks chunks of codes."""
    packed = {n: pack(codes(size, n), size) for n in (CHUNK_ROWS, CHUNK_ROWS // 2)}

    def run(rows: int) -> None:
        for start in range(0, rows, CHUNK_ROWS):
            count = min(rows - start, CHUNK_ROWS)
            unpack(packed[count], size, count)

    return run


def positions(rows: int) -> None:
    """Pack and unpack chunks of row numbers."""
    for start in range(0, rows, CHUNK_ROWS):
        chunk = wrapped(np.arange(min(rows - start, CHUNK_ROWS), dtype=np.int64))
        unpack_positions(pack_positions(chunk), chunk.size)
