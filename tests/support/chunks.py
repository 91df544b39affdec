"""Chunk stores for tests, and whole columns of chunks in memory."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from veiltab.core.schema import Attribute, Codes
from veiltab.protocol.stores import (
    ChunkStore,
    Digests,
    MemoryChunks,
    read_chunk,
    read_position_chunk,
    read_token_chunk,
    unpack_released,
)
from veiltab.wire.packing import BLINDING_BYTES, blind, chunk_slices, pack_positions


class TeeChunks(MemoryChunks):
    """Keeps every chunk, and passes it on to another store as well."""

    def __init__(self, onward: ChunkStore) -> None:
        """Start empty in front of another store."""
        super().__init__()
        self._onward = onward

    def put(self, chunk: bytes) -> bytes:
        """Keep a chunk twice and return its digest."""
        self._onward.put(chunk)
        return super().put(chunk)


class NoChunks(MemoryChunks):
    """Names every chunk by its digest, and keeps none."""

    def put(self, chunk: bytes) -> bytes:
        """Return the chunk's digest."""
        return hashlib.sha256(chunk).digest()


def read_column(
    digests: Sequence[bytes], attribute: Attribute, rows: int, store: ChunkStore
) -> Codes:
    """Read a whole column of codes."""
    places = enumerate(chunk_slices(rows))
    found = [read_chunk(digests, attribute, number, where, store) for number, where in places]
    return np.concatenate(found)


def read_released(
    digests: Sequence[bytes], attribute: Attribute, rows: int, store: ChunkStore
) -> Codes:
    """Read a whole column of a release, still encrypted."""
    return unpack_released([store.get(digest) for digest in digests], attribute, rows)


def read_positions(digests: Sequence[bytes], rows: int, store: ChunkStore) -> NDArray[np.int64]:
    """Read a whole column of row numbers."""
    places = enumerate(chunk_slices(rows))
    return np.concatenate([read_position_chunk(digests, *place, store) for place in places])


def read_tokens(digests: Sequence[bytes], rows: int, store: ChunkStore) -> NDArray[np.uint8]:
    """Read a whole column of tokens, a row of 16 bytes each."""
    places = enumerate(chunk_slices(rows))
    return np.concatenate([read_token_chunk(digests, *place, store) for place in places])


def write_positions(positions: NDArray[np.int64], store: ChunkStore) -> Digests:
    """Store a column of row numbers."""
    return tuple(
        store.put(blind(pack_positions(positions[where]), bytes(BLINDING_BYTES)))
        for where in chunk_slices(positions.size)
    )
