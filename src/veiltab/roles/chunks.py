"""Where chunks of columns live: named by their digest, so that nothing can be swapped unseen."""

import hashlib
from typing import Protocol

from veiltab.errors import DigestError


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
    """Refuse a chunk whose bytes are not what its digest says."""
    if hashlib.sha256(chunk).digest() != digest:
        raise DigestError(
            f"a chunk does not have the digest {digest.hex()}",
            hint="it was damaged or changed on its way; fetch it again",
        )
