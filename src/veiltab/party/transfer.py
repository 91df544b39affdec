"""Many chunks to and from a server: in bundles, a few at a time, and never more in memory."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Protocol

from veiltab.errors import MalformedError, StateError
from veiltab.party.connection import ClosedAtEnd
from veiltab.protocol.stores import check_digest
from veiltab.protocol.verify import shares
from veiltab.wire.bundles import (
    BUNDLE_BYTES,
    CHUNK_BYTES,
    COUNT_BYTES,
    ENTRY_BYTES,
    MAX_ASKED,
    NamedChunk,
    filled,
    unbundle,
)
from veiltab.wire.contract import Contract
from veiltab.wire.messages import Release
from veiltab.wire.packing import (
    BLINDING_BYTES,
    POSITION_BYTES,
    chunk_count,
    chunk_slices,
    packed_length,
)

WORKERS = 4
"""Requests under way at the same time: enough to hide a long way to the server."""

_CHECKING = Lock()
"""Threads that hash many small chunks at the same time only get in each other's way."""

Send = Callable[[Sequence[NamedChunk]], None]


class ChunkServer(Protocol):
    """The part of a server that hands out released chunks."""

    def release_chunks(self, study: bytes, digests: Sequence[bytes]) -> list[bytes]:
        """Return chunks of the release in this order, checked."""


def send_all(send: Send, chunks: Iterable[NamedChunk], on_sent: Callable[[int], None]) -> int:
    """Send all chunks in bundles, and return how many they were; the first failure ends it.

    ``on_sent`` is told, in the caller's thread, how many more the server has.
    """
    count = 0
    pending: deque[tuple[int, Future[None]]] = deque()
    pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="veiltab-send")
    try:
        for bundle in filled(chunks, BUNDLE_BYTES):
            if len(pending) == WORKERS:
                count += _finish(pending, on_sent)
            pending.append((len(bundle), pool.submit(send, bundle)))
        while pending:
            count += _finish(pending, on_sent)
    finally:
        # Nobody waits for what is still on its way when one has failed, or somebody pressed ^C.
        pool.shutdown(wait=False, cancel_futures=True)
    return count


def _finish(pending: deque[tuple[int, Future[None]]], on_sent: Callable[[int], None]) -> int:
    count, future = pending.popleft()
    future.result()
    on_sent(count)
    return count


def reading_order(
    contract: Contract, release: Release, attributes: Sequence[str]
) -> Iterator[bytes]:
    """Yield the digests of all chunks that estimating these attributes reads, in its order."""
    held = shares(contract, release, attributes)
    for number in range(chunk_count(release.rows)):
        for share in held:
            if share.positions is not None:
                yield share.positions[number]
            yield from (digests[number] for _, digests in share.columns)


def read_bundle(body: bytes, digests: Sequence[bytes]) -> list[bytes]:
    """Return the chunks of a server's answer, if they are the ones that were asked for."""
    named = unbundle(body)
    if [digest for digest, _ in named] != list(digests):
        raise MalformedError(
            "the server's answer has other chunks than those that were asked for",
            hint="ask the server's operator; both sides need the same version of veiltab",
        )
    with _CHECKING:
        chunks = [bytes(chunk) for _, chunk in named]
        for chunk, digest in zip(chunks, digests, strict=True):
            check_digest(chunk, digest)
    return chunks


def released_sizes(contract: Contract, release: Release) -> dict[bytes, int]:
    """Return how many bytes each chunk of a release has."""
    slices = list(chunk_slices(release.rows))
    rows = [where.stop - where.start for where in slices]
    categories = {
        attribute.name: attribute.size
        for terms in contract.curators
        for attribute in terms.attributes
    }
    sizes = {
        digest: BLINDING_BYTES + packed_length(categories[column.attribute], count)
        for column in release.columns
        for digest, count in zip(column.chunks, rows, strict=False)
    }
    for upload in release.uploads:
        pairs = zip(upload.positions or (), rows, strict=False)
        sizes |= {digest: BLINDING_BYTES + POSITION_BYTES * count for digest, count in pairs}
    return sizes


class _Bundle:
    """Chunks that were asked for together; each is let go of when it is taken."""

    def __init__(self, digests: Sequence[bytes], future: Future[list[bytes]]) -> None:
        self._places = {digest: place for place, digest in enumerate(digests)}
        self._future = future

    def __len__(self) -> int:
        return len(self._places)

    def take(self, digest: bytes) -> bytes:
        """Wait for a chunk, and forget it."""
        position = self._places.pop(digest)
        chunks = self._future.result()
        chunk, chunks[position] = chunks[position], b""
        return chunk


class ReleasedChunks(ClosedAtEnd):
    """A release's chunks, fetched when they are read; a ChunkStore that nobody can write to.

    If it is told which chunks will be read, the next few bundles are fetched ahead; ``sizes`` tells
    how many chunks fit into one.  What it is told is advice: any chunk can be read at any time.
    """

    def __init__(
        self,
        server: ChunkServer,
        study: bytes,
        upcoming: Iterable[bytes] = (),
        sizes: Mapping[bytes, int] | None = None,
    ) -> None:
        """Fetch nothing yet."""
        self._server, self._study = server, study
        self._upcoming, self._sizes = deque(upcoming), sizes or {}
        self._pending: dict[bytes, _Bundle] = {}
        self._bundles: list[_Bundle] = []
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="veiltab-fetch")

    def close(self) -> None:
        """Forget what was fetched ahead, and end the threads."""
        self._pending.clear()
        self._bundles.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def get(self, digest: bytes) -> bytes:
        """Return the chunk with this digest, checked."""
        self._fetch_ahead()
        bundle = self._pending.pop(digest, None)
        if bundle is None:
            return self._server.release_chunks(self._study, [digest])[0]
        chunk = bundle.take(digest)
        if not bundle:
            self._bundles.remove(bundle)
        self._fetch_ahead()
        return chunk

    def put(self, chunk: bytes) -> bytes:
        """Refuse: a release is written by the server, once."""
        raise _read_only(f"a chunk of {len(chunk):,} bytes cannot be added to")

    def clear(self) -> None:
        """Refuse: a release stays as it is."""
        raise _read_only("nothing can be deleted from")

    def _fetch_ahead(self) -> None:
        while len(self._bundles) < WORKERS and (digests := self._next()):
            future = self._pool.submit(self._server.release_chunks, self._study, digests)
            bundle = _Bundle(digests, future)
            self._bundles.append(bundle)
            self._pending |= dict.fromkeys(digests, bundle)

    def _next(self) -> list[bytes]:
        """Return the digests of the next bundle, if there is anything more to fetch now."""
        # A chunk that is read twice is fetched twice: the second time when the first is read.
        digests: dict[bytes, None] = {}
        left = BUNDLE_BYTES - COUNT_BYTES
        while self._upcoming and len(digests) < MAX_ASKED:
            digest = self._upcoming[0]
            left -= self._sizes.get(digest, CHUNK_BYTES) + ENTRY_BYTES
            if digest in self._pending or digest in digests or (digests and left < 0):
                break
            digests[self._upcoming.popleft()] = None
        return list(digests)


def _read_only(problem: str) -> StateError:
    return StateError(
        f"{problem} a release on the server", hint="keep chunks of your own in a store of your own"
    )
