"""Many chunks: sent and fetched a few at a time, in bounded memory, all checked."""

import hashlib
from collections.abc import Iterator
from threading import Barrier, Lock

import httpx
import numpy as np
import pytest

from tests.support.http_scripts import Drop, FakeTime, Reply, Seen, scripted_server
from tests.support.messages import filler
from tests.support.parties import client, mocked
from tests.support.studies import pair
from veiltab.client.api import Server
from veiltab.client.api_chunks import WINDOW, WORKERS, ReleasedChunks, reading_order, send_all
from veiltab.errors import DigestError, StateError
from veiltab.roles.chunks import ChunkStore, MemoryChunks
from veiltab.roles.researcher.access import Access
from veiltab.roles.researcher.estimate import estimate
from veiltab.simulation.protocol import Outcome, Terms

STUDY = filler("study")
Chunk = tuple[bytes, bytes]


def chunks(count: int, size: int = 1_000) -> Iterator[Chunk]:
    """Make chunks with their digests, one at a time."""
    for number in range(count):
        chunk = filler(f"chunk {number}", size)
        yield hashlib.sha256(chunk).digest(), chunk


def test_all_chunks_arrive_though_connections_break() -> None:
    """Every third request is dropped; the server has every chunk, and each is told once."""
    kept: dict[str, bytes] = {}
    count, lock = [0], Lock()

    def take(seen: Seen) -> Reply | Drop:
        with lock:
            count[0] += 1
            if count[0] % 3 == 0:
                return Drop()
            kept[seen.target.rpartition("/")[2]] = seen.body
        return Reply(201)

    told: list[bytes] = []
    with scripted_server(take) as http, client(http.url, FakeTime()) as server:
        assert server.send_chunks(STUDY, chunks(50), told.append) == 50
    assert kept == {digest.hex(): chunk for digest, chunk in chunks(50)}
    assert told == [digest for digest, _ in chunks(50)]


def test_nothing_to_send() -> None:
    """A resumed upload may have nothing left."""
    assert send_all(lambda _digest, _chunk: None, (), lambda _: None) == 0


def test_chunks_are_sent_at_the_same_time() -> None:
    """As many as there are workers: this would wait for ever if they came one by one."""
    together = Barrier(WORKERS, timeout=10)

    def send(_digest: bytes, _chunk: bytes) -> None:
        together.wait()

    assert send_all(send, chunks(3 * WORKERS), lambda _: None) == 3 * WORKERS


def test_few_chunks_are_in_memory() -> None:
    """The next one is read when there is room for it."""
    made, sent = [0], [0]
    most = [0]

    def counted() -> Iterator[Chunk]:
        for each in chunks(100, 10):
            made[0] += 1
            most[0] = max(most[0], made[0] - sent[0])
            yield each

    def on_sent(_: bytes) -> None:
        sent[0] += 1

    send_all(lambda _digest, _chunk: None, counted(), on_sent)
    assert (made[0], sent[0]) == (100, 100)
    assert most[0] <= WINDOW + 1


def test_a_refusal_ends_it() -> None:
    """No more is read, what went before was told, and the error is the server's."""
    taken = [0]
    told: list[bytes] = []

    def counted() -> Iterator[Chunk]:
        for each in chunks(1_000, 10):
            taken[0] += 1
            yield each

    bad = next(digest for n, (digest, _) in enumerate(chunks(20, 10)) if n == 5)

    def send(digest: bytes, _: bytes) -> None:
        if digest == bad:
            raise StateError("the study was aborted", hint="ask why")

    with pytest.raises(StateError, match="aborted"):
        send_all(send, counted(), told.append)
    assert told == [digest for digest, _ in chunks(5, 10)]
    assert taken[0] <= 5 + WINDOW + 1


def test_a_source_that_fails_ends_it() -> None:
    """A chunk file that cannot be read is the caller's error, not swallowed."""

    def broken() -> Iterator[Chunk]:
        yield from chunks(3)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        send_all(lambda _digest, _chunk: None, broken(), lambda _: None)


def test_a_damaged_chunk_is_not_sent() -> None:
    """It is checked in the thread that sends it."""
    with scripted_server(Reply(201)) as http, client(http.url, FakeTime()) as server:
        with pytest.raises(DigestError):
            server.send_chunks(STUDY, [(filler("digest"), b"damaged")])
        assert http.seen == []


class Recorder:
    """A store that remembers what was read from it, and counts what is read at a time."""

    def __init__(self, store: ChunkStore) -> None:
        """Stand in front of another store."""
        self._store = store
        self._lock = Lock()
        self.read: list[bytes] = []

    def get(self, digest: bytes) -> bytes:
        """Return a chunk."""
        with self._lock:
            self.read.append(digest)
        return self._store.get(digest)

    def put(self, chunk: bytes) -> bytes:
        """Keep a chunk."""
        return self._store.put(chunk)

    def clear(self) -> None:
        """Forget all."""
        self._store.clear()

    def release_chunk(self, study: bytes, digest: bytes) -> bytes:
        """Act as a server."""
        assert study == STUDY
        return self.get(digest)


@pytest.fixture(scope="module")
def study() -> tuple[Outcome, Access]:
    """Go through a study of a few chunks per column, with positions."""
    rehearsal = pair(70_000)
    outcome = rehearsal.run(Terms(epsilon=1.0, sampler="server", sample_size=68_000))
    return outcome, rehearsal.access(outcome)


NAMES = ("region", "smoker", "age")


def test_a_release_is_estimated_from_the_server(study: tuple[Outcome, Access]) -> None:
    """The same table as from the chunks themselves, over HTTP; advice makes no difference."""
    outcome, access = study
    expected = estimate(access, outcome.released, NAMES).counts

    def handler(request: httpx.Request) -> httpx.Response:
        digest = bytes.fromhex(request.url.path.rpartition("/")[2])
        return httpx.Response(200, content=outcome.released.get(digest))

    server: Server = mocked(handler)
    order = reading_order(access.contract, access.release, NAMES)
    for upcoming in ((), order, [filler("never read")] * 3):
        with ReleasedChunks(server, STUDY, upcoming) as store:
            np.testing.assert_array_equal(estimate(access, store, NAMES).counts, expected)


@pytest.mark.parametrize("names", [NAMES, ("age",), ("smoker", "age", "income", "region")])
def test_the_reading_order_is_the_estimates_own(
    study: tuple[Outcome, Access], names: tuple[str, ...]
) -> None:
    """Every chunk that is read, in that order; and with it, nothing is fetched that is not read."""
    outcome, access = study
    direct = Recorder(outcome.released)
    estimate(access, direct, names)
    order = list(reading_order(access.contract, access.release, names))
    assert order == direct.read
    ahead = Recorder(outcome.released)
    with ReleasedChunks(ahead, STUDY, order) as store:
        estimate(access, store, names)
    assert sorted(ahead.read) == sorted(order)


def test_the_next_chunks_are_fetched_ahead() -> None:
    """A few of them, at the same time; and no more than a few."""
    memory = MemoryChunks()
    digests = [memory.put(chunk) for _, chunk in chunks(100)]
    recorder = Recorder(memory)
    with ReleasedChunks(recorder, STUDY, digests) as store:
        for number, digest in enumerate(digests):
            assert hashlib.sha256(store.get(digest)).digest() == digest
            assert len(recorder.read) <= number + 1 + WINDOW
        assert sorted(recorder.read) == sorted(digests)
    together = Barrier(WORKERS, timeout=10)

    class Slow(Recorder):
        def release_chunk(self, study: bytes, digest: bytes) -> bytes:
            together.wait()
            return super().release_chunk(study, digest)

    with ReleasedChunks(Slow(memory), STUDY, digests[:WORKERS]) as store:
        assert store.get(digests[2])


def test_nothing_is_fetched_before_it_is_read() -> None:
    """Opening the store costs nothing."""
    recorder = Recorder(MemoryChunks())
    with ReleasedChunks(recorder, STUDY, [filler("a chunk")]):
        pass
    assert recorder.read == []


def test_a_chunk_can_be_read_again_and_again() -> None:
    """Also one that the advice names twice, and one that it does not name."""
    memory = MemoryChunks()
    (first, second) = (memory.put(chunk) for _, chunk in chunks(2))
    with ReleasedChunks(Recorder(memory), STUDY, [first, first, second, first]) as store:
        for digest in (first, first, second, first, second, second, first):
            assert store.get(digest) == memory.get(digest)


def test_wrong_chunks_are_refused_where_they_are_read() -> None:
    """Fetched ahead or not: the server may send anything."""
    digests = [digest for digest, _ in chunks(3)]
    for upcoming in ((), digests):
        server = mocked(lambda _: httpx.Response(200, content=b"anything"))
        with ReleasedChunks(server, STUDY, upcoming) as store, pytest.raises(DigestError):
            store.get(digests[0])


def test_a_release_cannot_be_written_to() -> None:
    """It is the server's, and drawn once."""
    with ReleasedChunks(Recorder(MemoryChunks()), STUDY) as store:
        with pytest.raises(StateError, match="cannot be added"):
            store.put(b"chunk")
        with pytest.raises(StateError, match="nothing can be deleted"):
            store.clear()
