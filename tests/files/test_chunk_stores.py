"""What every chunk store does: in memory, in a folder, in scratch, and joined from several."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from veiltab.errors import DigestError
from veiltab.files.bundles import BundledChunks
from veiltab.files.chunks import FolderChunks, JoinedChunks
from veiltab.protocol.stores import ChunkStore, MemoryChunks

STORES: dict[str, Callable[[Path], ChunkStore]] = {
    "memory": lambda _: MemoryChunks(),
    "folder": lambda path: FolderChunks(path / "deep" / "chunks"),
    "scratch": lambda path: FolderChunks(path / "chunks", durable=False),
    "bundled": lambda path: BundledChunks(path / "deep" / "chunks"),
    "joined": lambda path: JoinedChunks(
        FolderChunks(path / "own"), [BundledChunks(path / "a"), FolderChunks(path / "b")]
    ),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ChunkStore:
    """Return an empty store of each kind in turn."""
    made: ChunkStore = STORES[request.param](tmp_path)
    return made


@pytest.mark.parametrize("chunk", [b"", b"\x00", b"chunk", bytes(range(256)) * 4097])
def test_a_chunk_comes_back_by_its_digest(store: ChunkStore, chunk: bytes) -> None:
    """Of any length, also an empty one; its name is its SHA-256."""
    digest = store.put(chunk)
    assert digest == hashlib.sha256(chunk).digest()
    assert store.get(digest) == chunk


def test_a_chunk_may_be_put_again(store: ChunkStore) -> None:
    """The same chunk has one place."""
    assert store.put(b"twice") == store.put(b"twice")
    assert store.get(store.put(b"twice")) == b"twice"


@pytest.mark.parametrize("digest", [b"\x00" * 32, b"", b"short", b"\x00" * 33, b"../secret"])
def test_a_missing_chunk_is_refused(store: ChunkStore, digest: bytes) -> None:
    """Also by something that is no digest at all."""
    for _ in range(2):  # before there is anything, and after
        with pytest.raises(DigestError, match="there is no chunk") as caught:
            store.get(digest)
        assert digest.hex() in caught.value.message
        store.put(b"other")


def test_a_cleared_store_is_empty_and_works_again(store: ChunkStore) -> None:
    """Clearing twice, or before anything was put, is no error."""
    store.clear()
    digest = store.put(b"before")
    store.clear()
    store.clear()
    with pytest.raises(DigestError):
        store.get(digest)
    assert store.get(store.put(b"after")) == b"after"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(chunks=st.lists(st.binary(max_size=2_000), max_size=8))
def test_chunks_do_not_mix(store: ChunkStore, chunks: list[bytes]) -> None:
    """However many there are, each comes back as itself."""
    digests = [store.put(chunk) for chunk in chunks]
    assert [store.get(digest) for digest in digests] == chunks


def test_joined_chunks_are_searched_in_order(tmp_path: Path) -> None:
    """New chunks go to the own folder; those of others are found, and a damaged copy skipped."""
    own, first, second = (FolderChunks(tmp_path / name) for name in ("own", "first", "second"))
    joined = JoinedChunks(own, [first, second])
    digest = second.put(b"chunk")
    assert joined.get(digest) == b"chunk"
    first.put(b"chunk")
    (tmp_path / "first" / digest.hex()).write_bytes(b"damaged")
    assert joined.get(digest) == b"chunk"
    (tmp_path / "second" / digest.hex()).unlink()
    with pytest.raises(DigestError, match="damaged"):
        joined.get(digest)
    new = joined.put(b"new")
    assert [store.has(new) for store in (own, first, second)] == [True, False, False]
    joined.clear()
    assert list(tmp_path.iterdir()) == []
