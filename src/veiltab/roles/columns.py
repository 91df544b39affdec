"""Columns as chunks: written one chunk at a time, and read back with every length checked."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from veiltab.core.schema import Attribute, Codes, Schema
from veiltab.errors import MismatchError
from veiltab.roles.chunks import ChunkStore
from veiltab.wire.packing import (
    chunk_slices,
    pack,
    pack_positions,
    pack_tokens,
    unpack,
    unpack_positions,
    unpack_tokens,
)
from veiltab.wire.upload import ColumnChunks

Digests = tuple[bytes, ...]

ChunkMaker = Callable[[int, slice], Codes]
"""Given a chunk's number and its rows, returns its codes."""


def write_column(attribute: Attribute, rows: int, make: ChunkMaker, store: ChunkStore) -> Digests:
    """Pack and store a column chunk by chunk."""
    return tuple(
        store.put(pack(make(number, where), attribute.size))
        for number, where in enumerate(chunk_slices(rows))
    )


def read_chunk(
    digests: Sequence[bytes], attribute: Attribute, number: int, where: slice, store: ChunkStore
) -> Codes:
    """Read one chunk of a column, strictly."""
    return unpack(store.get(digests[number]), attribute.size, where.stop - where.start)


def check_column_names(columns: Sequence[ColumnChunks], schema: Schema) -> None:
    """Refuse columns that are not the schema's attributes in their order."""
    names = tuple(column.attribute for column in columns)
    if names != schema.names:
        raise MismatchError(
            f"the columns are {', '.join(map(repr, names))}, not"
            f" {', '.join(map(repr, schema.names))}",
            hint="columns come in the order of the contract's attributes",
        )


def check_column(
    digests: Sequence[bytes], attribute: Attribute, rows: int, store: ChunkStore
) -> None:
    """Refuse a column with a missing, damaged or ill-formed chunk."""
    for number, where in enumerate(chunk_slices(rows)):
        read_chunk(digests, attribute, number, where, store)


def gather(
    digests: Sequence[bytes],
    attribute: Attribute,
    rows: int,
    positions: NDArray[np.int64],
    store: ChunkStore,
) -> Codes:
    """Read the given rows of a column in the given order, visiting each chunk once."""
    found = np.empty(positions.size, dtype=attribute.dtype)
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    for number, where in enumerate(chunk_slices(rows)):
        first, last = np.searchsorted(ordered, (where.start, where.stop))
        if first < last:
            chunk = read_chunk(digests, attribute, number, where, store)
            found[order[first:last]] = chunk[ordered[first:last] - where.start]
    return found


def write_positions(positions: NDArray[np.int64], store: ChunkStore) -> Digests:
    """Store a column of row numbers."""
    return tuple(
        store.put(pack_positions(positions[where])) for where in chunk_slices(positions.size)
    )


def read_positions(digests: Sequence[bytes], rows: int, store: ChunkStore) -> NDArray[np.int64]:
    """Read a whole column of row numbers."""
    return np.concatenate(
        [
            unpack_positions(store.get(digest), where.stop - where.start)
            for digest, where in zip(digests, chunk_slices(rows), strict=True)
        ]
    )


def write_tokens(tokens: NDArray[np.uint8], store: ChunkStore) -> Digests:
    """Store a column of tokens."""
    return tuple(store.put(pack_tokens(tokens[where])) for where in chunk_slices(len(tokens)))


def check_tokens(digests: Sequence[bytes], rows: int, store: ChunkStore) -> None:
    """Refuse a missing, damaged or ill-formed chunk of tokens, one at a time."""
    for digest, where in zip(digests, chunk_slices(rows), strict=False):
        unpack_tokens(store.get(digest), where.stop - where.start)


def read_tokens(digests: Sequence[bytes], rows: int, store: ChunkStore) -> NDArray[np.uint8]:
    """Read a whole column of tokens, a row of 16 bytes each."""
    return np.concatenate(
        [
            unpack_tokens(store.get(digest), where.stop - where.start)
            for digest, where in zip(digests, chunk_slices(rows), strict=True)
        ]
    )
