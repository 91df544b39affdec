"""Many chunks to and from a server: a few at a time, and never more than a few in memory."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Protocol, Self

from veiltab.errors import StateError
from veiltab.wire.contract import Contract
from veiltab.wire.release import Release

WORKERS = 4
"""Requests under way at the same time: enough to hide a long way to the server."""

WINDOW = 2 * WORKERS
"""Chunks in memory at the same time."""

Send = Callable[[bytes, bytes], None]


class ChunkServer(Protocol):
    """The part of a server that hands out released chunks."""

    def release_chunk(self, study: bytes, digest: bytes) -> bytes:
        """Return a chunk of the release, checked."""


def send_all(
    send: Send, chunks: Iterable[tuple[bytes, bytes]], on_sent: Callable[[bytes], None]
) -> int:
    """Send every (digest, chunk), and return how many; the first failure ends it.

    ``on_sent`` is told each digest once the server has it, in order, in the caller's thread.
    """
    count = 0
    pending: deque[tuple[bytes, Future[None]]] = deque()
    pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="veiltab-send")
    try:
        for digest, chunk in chunks:
            if len(pending) == WINDOW:
                count += _finish(pending, on_sent)
            pending.append((digest, pool.submit(send, digest, chunk)))
        while pending:
            count += _finish(pending, on_sent)
    finally:
        # Nobody waits for what is still on its way when one has failed, or somebody pressed ^C.
        pool.shutdown(wait=False, cancel_futures=True)
    return count


def _finish(pending: deque[tuple[bytes, Future[None]]], on_sent: Callable[[bytes], None]) -> int:
    digest, future = pending.popleft()
    future.result()
    on_sent(digest)
    return 1


def reading_order(
    contract: Contract, release: Release, attributes: Sequence[str]
) -> Iterator[bytes]:
    """Yield the digests of all chunks that estimating these attributes reads, in its order."""
    columns = {column.attribute: column.chunks for column in release.columns}
    positions = {upload.curator: upload.positions for upload in release.uploads}
    owner = {each.name: t.party_id for t in contract.curators for each in t.attributes}
    for name in attributes:
        yield from positions[owner[name]] or ()
    for row in zip(*(columns[name] for name in attributes), strict=True):
        yield from row


class ReleasedChunks:
    """A release's chunks, fetched when they are read; a ChunkStore that nobody can write to.

    If it is told which chunks will be read, the next few are fetched ahead.  What it is told is
    advice: any chunk can be read at any time.
    """

    def __init__(self, server: ChunkServer, study: bytes, upcoming: Iterable[bytes] = ()) -> None:
        """Fetch nothing yet."""
        self._server, self._study = server, study
        self._upcoming = deque(upcoming)
        self._pending: dict[bytes, Future[bytes]] = {}
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="veiltab-fetch")

    def __enter__(self) -> Self:
        """Use the store in a ``with`` statement, which ends its threads."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the threads."""
        self.close()

    def close(self) -> None:
        """Forget what was fetched ahead, and end the threads."""
        self._pending.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def get(self, digest: bytes) -> bytes:
        """Return the chunk with this digest, checked."""
        self._fetch_ahead()
        future = self._pending.pop(digest, None)
        if future is None:
            return self._server.release_chunk(self._study, digest)
        chunk = future.result()
        self._fetch_ahead()
        return chunk

    def put(self, chunk: bytes) -> bytes:
        """Refuse: a release is written by the server, once."""
        raise _read_only(f"a chunk of {len(chunk):,} bytes cannot be added to")

    def clear(self) -> None:
        """Refuse: a release stays as it is."""
        raise _read_only("nothing can be deleted from")

    def _fetch_ahead(self) -> None:
        # A chunk that is read twice is fetched twice: the second time when the first is read.
        while self._upcoming and self._upcoming[0] not in self._pending:
            if len(self._pending) == WINDOW:
                return
            digest = self._upcoming.popleft()
            future = self._pool.submit(self._server.release_chunk, self._study, digest)
            self._pending[digest] = future


def _read_only(problem: str) -> StateError:
    return StateError(
        f"{problem} a release on the server", hint="keep chunks of your own in a store of your own"
    )
