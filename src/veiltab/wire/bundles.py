"""Many chunks in one body: an index of digests and lengths, then the chunks (service 5.4).

Nothing here compares a chunk with its digest: the reader of the chunk does.
"""

import struct
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from veiltab.errors import MalformedError

CHUNK_BYTES = 2**20
"""The longest possible chunk: one of tokens."""

BUNDLE_BYTES = 8 * 2**20
"""The longest bundle that every server takes, and the longest that it answers with."""

PIECE_BYTES = 2**18
"""How much of a bundle is handled at a time: with less, many small chunks would take long."""

MAX_ASKED = 900
"""Chunks asked for at once: their digests fit into a small body, and the chunks fill a bundle."""

_COUNT = struct.Struct(">I")
_ENTRY = struct.Struct(">32sI")
COUNT_BYTES, ENTRY_BYTES = _COUNT.size, _ENTRY.size

NamedChunk = tuple[bytes, bytes]
"""A digest, and the chunk that has it."""


class Place(NamedTuple):
    """Where in a bundle a chunk is, and the digest that it should have."""

    digest: bytes
    start: int
    length: int


def bundle(chunks: Sequence[NamedChunk]) -> bytes:
    """Return chunks as one body."""
    index = write_index((digest, len(chunk)) for digest, chunk in chunks)
    return b"".join([index, *(chunk for _, chunk in chunks)])


def unbundle(body: bytes) -> list[tuple[bytes, memoryview]]:
    """Return the digests and the chunks of a body, without copying the chunks."""
    view = memoryview(body)
    return [(p.digest, view[p.start : p.start + p.length]) for p in check_bundle([body])]


def check_bundle(pieces: Sequence[bytes]) -> list[Place]:
    """Return where the chunks are in a bundle that is given in pieces; refuse what is no bundle."""
    beginning = b""
    for piece in pieces:
        beginning += piece
        if len(beginning) >= max(COUNT_BYTES, index_bytes(beginning)):
            break
    places = read_index(beginning)
    if not places or places[-1].start + places[-1].length != sum(map(len, pieces)):
        raise MalformedError(
            "the bundle has no chunks, or other chunks than its index lists",
            hint="write the number of chunks, the digest and the length of each, and the chunks",
        )
    return places


def write_index(entries: Iterable[tuple[bytes, int]]) -> bytes:
    """Return the index of a bundle whose chunks have these digests and lengths."""
    lines = [_ENTRY.pack(digest, length) for digest, length in entries]
    return _COUNT.pack(len(lines)) + b"".join(lines)


def read_index(body: bytes, wanted: Container[bytes] | None = None) -> list[Place]:
    """Return the places that the index of a bundle lists; the rest of the bundle may be missing.

    With ``wanted``, only chunks with these digests.  An index that is cut off lists nothing.
    """
    size = index_bytes(body)
    if len(body) < max(size, COUNT_BYTES):
        return []
    places, start = [], size
    for digest, length in _ENTRY.iter_unpack(memoryview(body)[COUNT_BYTES:size]):
        if wanted is None or digest in wanted:
            places.append(Place(digest, start, length))
        start += length
    return places


def index_bytes(beginning: bytes) -> int:
    """Return the length of the index of a bundle that begins like this."""
    return COUNT_BYTES + ENTRY_BYTES * int.from_bytes(beginning[:COUNT_BYTES], "big")


def bundled_bytes(lengths: Iterable[int]) -> int:
    """Return the length of a bundle whose chunks have these lengths."""
    return COUNT_BYTES + sum(ENTRY_BYTES + length for length in lengths)


def filled(chunks: Iterable[NamedChunk], most: int) -> Iterator[list[NamedChunk]]:
    """Divide chunks into bundles of at most ``most`` bytes, reading no further than needed."""
    gathered: list[NamedChunk] = []
    size = COUNT_BYTES
    for named in chunks:
        added = ENTRY_BYTES + len(named[1])
        if gathered and size + added > most:
            yield gathered
            gathered, size = [], COUNT_BYTES
        gathered.append(named)
        size += added
    if gathered:
        yield gathered


def bundle_pieces(chunks: Iterable[NamedChunk]) -> Iterator[bytes]:
    """Yield a bundle in pieces that are neither small nor much larger than a chunk."""
    named = list(chunks)
    index = write_index((digest, len(chunk)) for digest, chunk in named)
    return in_pieces([index, *(chunk for _, chunk in named)])


def in_pieces(parts: Iterable[bytes | memoryview], least: int = PIECE_BYTES) -> Iterator[bytes]:
    """Join parts into pieces of at least ``least`` bytes, except for the last."""
    gathered: list[bytes | memoryview] = []
    size = 0
    for part in parts:
        gathered.append(part)
        size += len(part)
        if size >= least:
            yield b"".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)
