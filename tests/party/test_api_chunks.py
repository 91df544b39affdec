"""Many chunks: sent and fetched a few at a time, in bounded memory, all checked."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from threading import Barrier, Lock

import httpx
import numpy as np
import pytest

from tests.support.answers import client, mocked
from tests.support.http_wire import Drop, FakeTime, Reply, Seen, scripted_server
from tests.support.messages import filler
from tests.support.simulator import Simulator
from veiltab.errors import DigestError, StateError
from veiltab.party import transfer
from veiltab.party.remote import RemoteServer
from veiltab.party.transfer import WORKERS, ReleasedChunks, reading_order, released_sizes, send_all
from veiltab.protocol.in_process import Outcome, Terms
from veiltab.protocol.researcher import Access, count_records
from veiltab.protocol.stores import ChunkStore, MemoryChunks
from veiltab.server.limits import Settings
from veiltab.wire.bundles import BUNDLE_BYTES, MAX_ASKED, NamedChunk, bundle, unbundle
from veiltab.wire.codec import dump

STUDY = filler("study")
SIZE, IN_ONE = 1_000, 4
"""How long the chunks here are, and how many of them fit into a bundle."""

MOST = (WORKERS + 1) * IN_ONE
"""Chunks in memory at the same time: bundles on their way, and one that is being filled."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let bundles be small."""
    monkeypatch.setattr(transfer, "BUNDLE_BYTES", IN_ONE * (SIZE + 36) + 4)


def chunks(count: int) -> Iterator[NamedChunk]:
    """Make chunks with their digests, one at a time."""
    for number in range(count):
        chunk = filler(f"chunk {number}", SIZE)
        yield hashlib.sha256(chunk).digest(), chunk


def test_all_chunks_arrive_though_connections_break() -> None:
    """Every third request is dropped; the server has every chunk, and each is told once."""
    kept: list[NamedChunk] = []
    count, lock = [0], Lock()

    def take(seen: Seen) -> Reply | Drop:
        with lock:
            count[0] += 1
            if count[0] % 3 == 0:
                return Drop()
            kept.extend((digest, bytes(chunk)) for digest, chunk in unbundle(seen.body))
        return Reply(201)

    told: list[int] = []
    with scripted_server(take) as http, client(http.url, FakeTime()) as server:
        assert server.send_chunks(STUDY, chunks(50), told.append) == 50
    assert sorted(kept) == sorted(chunks(50))
    assert told == [IN_ONE] * 12 + [2]


def test_nothing_to_send() -> None:
    """A resumed upload may have nothing left."""
    assert send_all(lambda _: None, (), lambda _: None) == 0


def test_chunks_are_sent_at_the_same_time() -> None:
    """As many as there are workers: this would wait for ever if they came one by one."""
    together = Barrier(WORKERS, timeout=10)

    def send(_: Sequence[NamedChunk]) -> None:
        together.wait()

    count = 3 * WORKERS * IN_ONE
    assert send_all(send, chunks(count), lambda _: None) == count


def test_few_chunks_are_in_memory() -> None:
    """The next one is read when there is room for it."""
    made, sent = [0], [0]
    most = [0]

    def counted() -> Iterator[NamedChunk]:
        for each in chunks(100):
            made[0] += 1
            most[0] = max(most[0], made[0] - sent[0])
            yield each

    def on_sent(more: int) -> None:
        sent[0] += more

    send_all(lambda _: None, counted(), on_sent)
    assert (made[0], sent[0]) == (100, 100)
    assert most[0] <= MOST + 1


def test_a_refusal_ends_it() -> None:
    """No more is read, what went before was told, and the error is the server's."""
    taken = [0]
    told: list[int] = []

    def counted() -> Iterator[NamedChunk]:
        for each in chunks(1_000):
            taken[0] += 1
            yield each

    bad = list(chunks(20))[5]

    def send(some: Sequence[NamedChunk]) -> None:
        if bad in some:
            raise StateError("the study was aborted", hint="ask why")

    with pytest.raises(StateError, match="aborted"):
        send_all(send, counted(), told.append)
    assert told == [IN_ONE]
    assert taken[0] <= IN_ONE + MOST + 1


def test_a_source_that_fails_ends_it() -> None:
    """A chunk file that cannot be read is the caller's error, not swallowed."""

    def broken() -> Iterator[NamedChunk]:
        yield from chunks(3)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        send_all(lambda _: None, broken(), lambda _: None)


def test_a_chunk_that_fills_more_than_a_bundle_is_sent_alone() -> None:
    """The server says what it thinks of it."""
    sent: list[list[int]] = []
    long = [(bytes(32), bytes(size)) for size in (SIZE, 9 * SIZE, SIZE, SIZE)]

    def send(some: Sequence[NamedChunk]) -> None:
        sent.append([len(chunk) for _, chunk in some])

    assert send_all(send, long, lambda _: None) == 4
    assert sorted(sent) == [[SIZE], [SIZE, SIZE], [9 * SIZE]]


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

    def release_chunks(self, study: bytes, digests: Sequence[bytes]) -> list[bytes]:
        """Act as a server."""
        assert study == STUDY
        return [self.get(digest) for digest in digests]


@pytest.fixture(scope="module")
def study() -> tuple[Outcome, Access]:
    """Go through a study of a few chunks per column, with positions."""
    rehearsal = Simulator(population=70_000)
    outcome = rehearsal.run(Terms(epsilon=1.0, linkage="matched", sample_size=68_000))
    return outcome, rehearsal.access(outcome)


NAMES = ("region", "smoker", "age")


def test_a_release_is_estimated_from_the_server(study: tuple[Outcome, Access]) -> None:
    """The same table as from the chunks themselves, over HTTP; advice makes no difference."""
    outcome, access = study
    expected = count_records(access, outcome.released, NAMES).counts

    def handler(request: httpx.Request) -> httpx.Response:
        digests = map(bytes.fromhex, json.loads(request.content)["chunks"])
        found = [(digest, outcome.released.get(digest)) for digest in digests]
        return httpx.Response(200, content=bundle(found))

    server: RemoteServer = mocked(handler)
    order = reading_order(access.contract, access.release, NAMES)
    sizes = released_sizes(access.contract, access.release)
    for upcoming in ((), order, [filler("never read")] * 3):
        with ReleasedChunks(server, STUDY, upcoming, sizes) as store:
            np.testing.assert_array_equal(count_records(access, store, NAMES).counts, expected)


@pytest.mark.parametrize("names", [NAMES, ("age",), ("smoker", "age", "income", "region")])
def test_the_reading_order_is_the_estimates_own(
    study: tuple[Outcome, Access], names: tuple[str, ...]
) -> None:
    """Every chunk that is read, in that order; and with it, nothing is fetched that is not read."""
    outcome, access = study
    direct = Recorder(outcome.released)
    count_records(access, direct, names)
    order = list(reading_order(access.contract, access.release, names))
    assert order == direct.read
    ahead = Recorder(outcome.released)
    with ReleasedChunks(ahead, STUDY, order) as store:
        count_records(access, store, names)
    assert sorted(ahead.read) == sorted(order)


def test_the_next_chunks_are_fetched_ahead() -> None:
    """A few of them, at the same time; and no more than a few."""
    memory = MemoryChunks()
    digests = [memory.put(chunk) for _, chunk in chunks(100)]
    sizes = dict.fromkeys(digests, SIZE)
    recorder = Recorder(memory)
    with ReleasedChunks(recorder, STUDY, digests, sizes) as store:
        for number, digest in enumerate(digests):
            assert hashlib.sha256(store.get(digest)).digest() == digest
            assert len(recorder.read) <= number + 1 + MOST
        assert sorted(recorder.read) == sorted(digests)
    together = Barrier(WORKERS, timeout=10)

    class Slow(Recorder):
        def release_chunks(self, study: bytes, digests: Sequence[bytes]) -> list[bytes]:
            together.wait()
            return super().release_chunks(study, digests)

    with ReleasedChunks(Slow(memory), STUDY, digests[: WORKERS * IN_ONE], sizes) as store:
        assert store.get(digests[2])


def test_chunks_of_unknown_size_are_taken_for_large() -> None:
    """Of those, few come at a time; a server would refuse more."""
    memory = MemoryChunks()
    digests = [memory.put(chunk) for _, chunk in chunks(10)]
    asked: list[int] = []

    class Noting(Recorder):
        def release_chunks(self, study: bytes, digests: Sequence[bytes]) -> list[bytes]:
            asked.append(len(digests))
            return super().release_chunks(study, digests)

    with ReleasedChunks(Noting(memory), STUDY, digests) as store:
        assert [store.get(digest) for digest in digests] == [chunk for _, chunk in chunks(10)]
    assert asked == [1] * 10


def test_no_question_is_longer_than_servers_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the chunks are."""
    monkeypatch.setattr(transfer, "BUNDLE_BYTES", BUNDLE_BYTES)
    memory = MemoryChunks()
    digests = [memory.put(number.to_bytes(2, "big")) for number in range(2_000)]
    asked: list[int] = []

    class Noting(Recorder):
        def release_chunks(self, study: bytes, digests: Sequence[bytes]) -> list[bytes]:
            asked.append(len(digests))
            return super().release_chunks(study, digests)

    with ReleasedChunks(Noting(memory), STUDY, digests, dict.fromkeys(digests, 0)) as store:
        assert store.get(digests[0]) == bytes(2)
        assert store.get(digests[1_999])
    assert max(asked) == MAX_ASKED
    assert len(dump({"chunks": ["0" * 64] * MAX_ASKED})) <= Settings().small_bytes


def test_the_sizes_of_a_release_are_its_chunks_own(study: tuple[Outcome, Access]) -> None:
    """Of columns and of positions, the last and shorter ones too."""
    outcome, access = study
    sizes = released_sizes(access.contract, access.release)
    positions = [digest for upload in access.release.uploads for digest in upload.positions or ()]
    columns = [digest for column in access.release.columns for digest in column.chunks]
    assert sizes == {d: len(outcome.released.get(d)) for d in (*positions, *columns)}
    assert positions


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


@pytest.mark.parametrize("ahead", [True, False])
def test_wrong_chunks_are_refused_where_they_are_read(ahead: bool) -> None:  # noqa: FBT001
    """Fetched ahead or not: the server may send anything."""
    digests = [digest for digest, _ in chunks(3)]
    asked = digests if ahead else digests[:1]
    answer = bundle([(digest, b"anything") for digest in asked])
    server = mocked(lambda _: httpx.Response(200, content=answer))
    upcoming, sizes = (digests, dict.fromkeys(digests, SIZE)) if ahead else ((), {})
    with ReleasedChunks(server, STUDY, upcoming, sizes) as store, pytest.raises(DigestError):
        store.get(digests[0])


def test_a_release_cannot_be_written_to() -> None:
    """It is the server's, and drawn once."""
    with ReleasedChunks(Recorder(MemoryChunks()), STUDY) as store:
        with pytest.raises(StateError, match="cannot be added"):
            store.put(b"chunk")
        with pytest.raises(StateError, match="nothing can be deleted"):
            store.clear()
