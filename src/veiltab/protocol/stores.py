"""Columns as chunks (spec 7), and stores of chunks, which are named by their digests."""

import hashlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from veiltab.core.entropy import Entropy, random_bytes
from veiltab.core.schema import Attribute, Codes, Schema
from veiltab.errors import DigestError, MismatchError
from veiltab.wire.messages import ColumnChunks
from veiltab.wire.packing import (
    BLINDING_BYTES,
    CHUNK_ROWS,
    blind,
    chunk_count,
    chunk_slices,
    pack,
    pack_tokens,
    unblind,
    unpack,
    unpack_positions,
    unpack_tokens,
)

Digests = tuple[bytes, ...]


class ChunkStore(Protocol):
    """A place for the chunks of one study; messages refer to them by SHA-256."""

    def put(self, chunk: bytes) -> bytes:
        """Keep a chunk and return its digest."""

    def get(self, digest: bytes) -> bytes:
        """Return the chunk with this digest, checked, or raise :class:`DigestError`."""

    def clear(self) -> None:
        """Forget every chunk."""


class MemoryChunks:
    """Chunks in memory: for tests, simulations and small studies."""

    def __init__(self) -> None:
        """Start empty."""
        self._chunks: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        """Return how many chunks there are."""
        return len(self._chunks)

    def put(self, chunk: bytes) -> bytes:
        """Keep a chunk and return its digest."""
        digest = hashlib.sha256(chunk).digest()
        self._chunks[digest] = chunk
        return digest

    def get(self, digest: bytes) -> bytes:
        """Return the chunk with this digest."""
        chunk = self._chunks.get(digest)
        if chunk is None:
            raise DigestError(
                f"there is no chunk {digest.hex()}", hint="send it, or ask its sender for it again"
            )
        check_digest(chunk, digest)
        return chunk

    def clear(self) -> None:
        """Forget every chunk."""
        self._chunks.clear()


def check_digest(chunk: bytes, digest: bytes) -> None:
    """Refuse a chunk that does not have this digest."""
    if hashlib.sha256(chunk).digest() != digest:
        raise DigestError(
            f"a chunk does not have the digest {digest.hex()}",
            hint="it was damaged or changed on its way; fetch it again",
        )


def write_rows(codes: Codes, attribute: Attribute, store: ChunkStore) -> list[bytes]:
    """Pack and store some rows of a column, from the start of a chunk on."""
    return [store.put(pack(codes[part], attribute.size)) for part in chunk_slices(codes.size)]


def write_released(
    codes: Codes, attribute: Attribute, store: ChunkStore, entropy: Entropy
) -> list[bytes]:
    """Pack, blind and store some rows of a released column, from the start of a chunk on."""
    return [
        put_blinded(pack(codes[part], attribute.size), store, entropy)
        for part in chunk_slices(codes.size)
    ]


def put_blinded(chunk: bytes, store: ChunkStore, entropy: Entropy) -> bytes:
    """Store a chunk with a fresh blinding: those who know its content cannot know its digest."""
    return store.put(blind(chunk, random_bytes(BLINDING_BYTES, entropy)))


def read_rows(
    digests: Sequence[bytes], attribute: Attribute, where: slice, store: ChunkStore
) -> Codes:
    """Read some rows of a column, strictly: whole chunks, of which the last may be short."""
    numbers = range(where.start // CHUNK_ROWS, chunk_count(where.stop))
    packed = [store.get(digests[number]) for number in numbers]
    return unpack_all(packed, attribute, where.stop - where.start)


def read_chunk(
    digests: Sequence[bytes], attribute: Attribute, number: int, where: slice, store: ChunkStore
) -> Codes:
    """Read one chunk of a column, strictly."""
    return unpack(store.get(digests[number]), attribute.size, where.stop - where.start)


def unpack_released(blinded: Sequence[bytes], attribute: Attribute, rows: int) -> Codes:
    """Unpack released chunks that follow each other, strictly."""
    return unpack_all([unblind(chunk) for chunk in blinded], attribute, rows)


def unpack_all(packed: Sequence[bytes], attribute: Attribute, rows: int) -> Codes:
    """Unpack chunks that follow each other, strictly."""
    codes = np.empty(rows, dtype=attribute.dtype)
    for chunk, part in zip(packed, chunk_slices(rows), strict=True):
        codes[part] = unpack(chunk, attribute.size, part.stop - part.start)
    return codes


def check_column(
    digests: Sequence[bytes], attribute: Attribute, rows: int, store: ChunkStore
) -> None:
    """Refuse a column with a missing, damaged or ill-formed chunk."""
    for number, where in enumerate(chunk_slices(rows)):
        read_chunk(digests, attribute, number, where, store)


def check_column_names(columns: Sequence[ColumnChunks], schema: Schema) -> None:
    """Refuse columns that are not the schema's attributes in their order."""
    names = tuple(column.attribute for column in columns)
    if names != schema.names:
        raise MismatchError(
            f"the columns are {', '.join(map(repr, names))}, not"
            f" {', '.join(map(repr, schema.names))}",
            hint="columns come in the order of the contract's attributes",
        )


def write_tokens(tokens: NDArray[np.uint8], store: ChunkStore) -> Digests:
    """Store a column of tokens."""
    return tuple(store.put(pack_tokens(tokens[where])) for where in chunk_slices(len(tokens)))


def read_token_chunk(
    digests: Sequence[bytes], number: int, where: slice, store: ChunkStore
) -> NDArray[np.uint8]:
    """Read one chunk of a column of tokens, a row of 16 bytes each, strictly."""
    return unpack_tokens(store.get(digests[number]), where.stop - where.start)


def check_tokens(
    digests: Sequence[bytes], rows: int, store: ChunkStore, below: int | None = None
) -> None:
    """Refuse a missing, damaged or ill-formed chunk of tokens, one at a time.

    ``below`` is the coin's threshold, if there is one: whose token is not below it takes no part.
    """
    for digest, where in zip(digests, chunk_slices(rows), strict=False):
        tokens = unpack_tokens(store.get(digest), where.stop - where.start)
        if below is not None and int(tokens.view(">u8")[:, 0].max()) >= below:
            raise MismatchError(
                "the upload has a row of somebody who takes no part",
                hint="prepare the table with the contract's coin: uploading everybody breaks the"
                " promise",
            )


def read_position_chunk(
    digests: Sequence[bytes], number: int, where: slice, store: ChunkStore
) -> NDArray[np.int64]:
    """Read one chunk of a column of row numbers, strictly."""
    return unpack_positions(unblind(store.get(digests[number])), where.stop - where.start)


def unpack_all_positions(blinded: Sequence[bytes], rows: int) -> NDArray[np.int64]:
    """Unpack chunks of row numbers that follow each other, strictly."""
    parts = zip(map(unblind, blinded), chunk_slices(rows), strict=True)
    return np.concatenate([unpack_positions(c, part.stop - part.start) for c, part in parts])
