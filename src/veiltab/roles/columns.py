"""Columns as chunks: written one chunk at a time, and read back with every length checked."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from veiltab.core.schema import Attribute, Codes, Schema
from veiltab.errors import MismatchError
from veiltab.roles.chunks import ChunkStore
from veiltab.wire.messages import ColumnChunks
from veiltab.wire.packing import (
    CHUNK_ROWS,
    chunk_count,
    chunk_slices,
    pack,
    pack_tokens,
    unpack,
    unpack_positions,
    unpack_tokens,
)

Digests = tuple[bytes, ...]


def read_chunk(
    digests: Sequence[bytes], attribute: Attribute, number: int, where: slice, store: ChunkStore
) -> Codes:
    """Read one chunk of a column, strictly."""
    return unpack(store.get(digests[number]), attribute.size, where.stop - where.start)


def read_rows(
    digests: Sequence[bytes], attribute: Attribute, where: slice, store: ChunkStore
) -> Codes:
    """Read some rows of a column, strictly: whole chunks, of which the last may be short."""
    numbers = range(where.start // CHUNK_ROWS, chunk_count(where.stop))
    packed = [store.get(digests[number]) for number in numbers]
    return unpack_all(packed, attribute, where.stop - where.start)


def unpack_all(packed: Sequence[bytes], attribute: Attribute, rows: int) -> Codes:
    """Unpack chunks that follow each other, strictly."""
    codes = np.empty(rows, dtype=attribute.dtype)
    for chunk, part in zip(packed, chunk_slices(rows), strict=True):
        codes[part] = unpack(chunk, attribute.size, part.stop - part.start)
    return codes


def unpack_all_positions(packed: Sequence[bytes], rows: int) -> NDArray[np.int64]:
    """Unpack chunks of row numbers that follow each other, strictly."""
    parts = zip(packed, chunk_slices(rows), strict=True)
    return np.concatenate([unpack_positions(c, part.stop - part.start) for c, part in parts])


def write_rows(codes: Codes, attribute: Attribute, store: ChunkStore) -> list[bytes]:
    """Pack and store some rows of a column, from the start of a chunk on."""
    return [store.put(pack(codes[part], attribute.size)) for part in chunk_slices(codes.size)]


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


def read_position_chunk(
    digests: Sequence[bytes], number: int, where: slice, store: ChunkStore
) -> NDArray[np.int64]:
    """Read one chunk of a column of row numbers, strictly."""
    return unpack_positions(store.get(digests[number]), where.stop - where.start)


def write_tokens(tokens: NDArray[np.uint8], store: ChunkStore) -> Digests:
    """Store a column of tokens."""
    return tuple(store.put(pack_tokens(tokens[where])) for where in chunk_slices(len(tokens)))


def read_token_chunk(
    digests: Sequence[bytes], number: int, where: slice, store: ChunkStore
) -> NDArray[np.uint8]:
    """Read one chunk of a column of tokens, a row of 16 bytes each, strictly."""
    return unpack_tokens(store.get(digests[number]), where.stop - where.start)


def check_tokens(digests: Sequence[bytes], rows: int, store: ChunkStore) -> None:
    """Refuse a missing, damaged or ill-formed chunk of tokens, one at a time."""
    for digest, where in zip(digests, chunk_slices(rows), strict=False):
        unpack_tokens(store.get(digest), where.stop - where.start)
