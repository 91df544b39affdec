"""Single chunks are gathered to bundles: few files, bounded memory, and nothing kept twice."""

import errno
import hashlib
import os
import stat
import tracemalloc
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.support.storage import watch_disk
from veiltab.errors import DigestError, UnavailableError
from veiltab.files.bundles import BundledChunks
from veiltab.wire.bundles import BUNDLE_BYTES, MAX_ASKED, unbundle

SMALL = [number.to_bytes(4, "big") for number in range(2 * MAX_ASKED + 1)]
"""Chunks of which as many fit into a bundle as may be asked for at once."""

LARGE = [bytes([number]) * 2**20 for number in range(17)]
"""Chunks of which seven fit into a bundle, by their bytes."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the path of a folder that is not there yet."""
    return tmp_path / "studies" / "released"


def files(folder: Path) -> list[Path]:
    """Return everything in a folder, if it is there."""
    return sorted(folder.iterdir()) if folder.exists() else []


def counts(folder: Path) -> list[int]:
    """Return how many chunks each file has, the fullest first."""
    found = (len(unbundle(path.read_bytes())) for path in files(folder))
    return sorted(found, reverse=True)


def put_all(folder: Path, chunks: list[bytes]) -> BundledChunks:
    """Put chunks as a release does, to the end."""
    store = BundledChunks(folder)
    for chunk in chunks:
        store.put(chunk)
    store.sync()
    return store


def damage(path: Path, place: int = -1) -> None:
    """Change one byte of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_chunk_is_there_before_it_is_written(folder: Path) -> None:
    """In memory for the one who put it; for everybody else when it is on the disk."""
    store = BundledChunks(folder)
    digest = store.put(b"chunk")
    seen = (store.get(digest), store.has(digest), store.has_whole(digest), len(store))
    assert seen == (b"chunk", True, True, 1)
    assert list(store.digests()) == [digest]
    assert not folder.exists()
    assert not BundledChunks(folder).has(digest)
    store.sync()
    for each in (store, BundledChunks(folder)):
        seen = (each.get(digest), each.has(digest), each.has_whole(digest), len(each))
        assert seen == (b"chunk", True, True, 1)
    [file] = files(folder)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.name == f"{hashlib.sha256(file.read_bytes()).hexdigest()}.chunks"


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [(SMALL, [MAX_ASKED, MAX_ASKED, 1]), (LARGE, [7, 7, 3])],
    ids=["by their number", "by their bytes"],
)
def test_a_full_bundle_is_written(folder: Path, chunks: list[bytes], expected: list[int]) -> None:
    """As soon as the next chunk has no room in it; each chunk is found at every time."""
    store, digests = BundledChunks(folder), []
    for number, chunk in enumerate(chunks):
        digests.append(store.put(chunk))
        assert len(files(folder)) == number // expected[0]
        assert store.get(digests[number // 2]) == chunks[number // 2]
    store.sync()
    assert counts(folder) == expected
    assert all(path.stat().st_size <= BUNDLE_BYTES for path in files(folder))
    for each in (store, BundledChunks(folder)):
        assert [each.get(digest) for digest in digests] == chunks
        assert len(each) == len(chunks)


def test_a_chunk_longer_than_a_bundle_has_one_of_its_own(folder: Path) -> None:
    """Nothing is refused, and nothing empty is written."""
    chunks = [bytes(BUNDLE_BYTES), b"before", bytes(BUNDLE_BYTES + 1), b"after"]
    store = put_all(folder, chunks)
    assert counts(folder) == [1, 1, 1, 1]
    assert [store.get(hashlib.sha256(chunk).digest()) for chunk in chunks] == chunks


def test_memory_is_bounded(folder: Path) -> None:
    """What is gathered, and once more while it is written, whatever there is in all."""
    store = BundledChunks(folder)
    tracemalloc.start()
    try:
        for number in range(40):
            store.put(number.to_bytes(4, "big") * 2**18)
        store.sync()
        assert tracemalloc.get_traced_memory()[1] < 2.5 * BUNDLE_BYTES
        assert tracemalloc.get_traced_memory()[0] < BUNDLE_BYTES / 8
    finally:
        tracemalloc.stop()


def test_a_chunk_is_kept_once(folder: Path) -> None:
    """Put again before it is written, after it, and by another process."""
    store = BundledChunks(folder)
    for chunk in [*SMALL[:MAX_ASKED], SMALL[0], SMALL[5]]:
        store.put(chunk)
    assert files(folder) == []
    for chunk in (SMALL[-1], SMALL[0], SMALL[-1]):
        store.put(chunk)
    store.sync()
    store.put(SMALL[0])
    store.sync()
    before = [(path, path.stat()) for path in files(folder)]
    assert counts(folder) == [MAX_ASKED, 1]
    put_all(folder, [*reversed(SMALL[:MAX_ASKED]), SMALL[-1]])
    assert [(path, path.stat()) for path in files(folder)] == before


@pytest.mark.slow
@pytest.mark.parametrize("end", [1, MAX_ASKED, MAX_ASKED + 1, 2 * MAX_ASKED + 1])
def test_what_was_broken_off_comes_out_the_same(folder: Path, tmp_path: Path, end: int) -> None:
    """Begun again from the first chunk on, the same files are there, and no others."""
    broken = BundledChunks(folder)
    for chunk in SMALL[:end]:
        broken.put(chunk)
    del broken  # without a sync, as if it had been killed
    for place in (folder, tmp_path / "in one go"):
        put_all(place, SMALL)
    contents = [{path.name: path.read_bytes() for path in files(tmp_path / "in one go")}]
    contents.append({path.name: path.read_bytes() for path in files(folder)})
    assert contents[0] == contents[1]


def test_a_damaged_chunk_is_kept_anew(folder: Path) -> None:
    """What an earlier run has left is of no use if the disk has damaged it."""
    put_all(folder, SMALL[:3])
    damage(files(folder)[0])
    store = put_all(folder, SMALL[:3])
    assert counts(folder) == [3, 1]
    for each in (store, BundledChunks(folder)):
        found = [each.get(hashlib.sha256(chunk).digest()) for chunk in SMALL[:3]]
        assert found == SMALL[:3]
        assert len(each) == 3


def test_the_same_bundle_takes_the_place_of_a_damaged_one(folder: Path) -> None:
    """Of one that says nothing any more of what is in it."""
    put_all(folder, SMALL[:3])
    [file] = files(folder)
    whole = file.read_bytes()
    file.write_bytes(b"")
    store = put_all(folder, SMALL[:3])
    assert [path.read_bytes() for path in files(folder)] == [whole]
    assert store.get(hashlib.sha256(SMALL[0]).digest()) == SMALL[0]


def test_all_is_on_the_disk_after_a_sync(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Content before name, name before the end; also the name of a process that was killed."""
    store = BundledChunks(folder)
    put_all(folder, [b"makes the folder"])
    steps = watch_disk(monkeypatch)
    for chunk in SMALL[: MAX_ASKED + 1]:
        store.put(chunk)
    assert steps == ["fsync file", "replace", "fsync folder"]
    store.sync()
    assert steps == ["fsync file", "replace", "fsync folder"] * 2
    steps.clear()
    put_all(folder, SMALL[: MAX_ASKED + 1])
    assert steps == ["fsync folder"]


def test_a_sync_of_nothing_creates_nothing(folder: Path) -> None:
    """A study may have no chunks at all."""
    BundledChunks(folder).sync()
    assert not folder.parent.exists()


def test_what_is_cleared_is_not_written(folder: Path) -> None:
    """Neither now nor at the next sync."""
    store = BundledChunks(folder)
    digest = store.put(bytes(BUNDLE_BYTES - 100))
    store.clear()
    assert (len(store), store.has(digest)) == (0, False)
    store.sync()
    assert not folder.exists()
    put_all(folder, [b"one"])
    assert counts(folder) == [1]
    with pytest.raises(DigestError):
        BundledChunks(folder).get(digest)


@pytest.mark.parametrize("place", ["write", "fsync", "replace", "mkdir"])
def test_a_full_disk_leaves_nothing_and_loses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """No half of a bundle; with room again, the next sync writes it."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    owner: Any = Path if place in ("replace", "mkdir") else os
    store = BundledChunks(folder)
    digests = [store.put(chunk) for chunk in SMALL[:5]]
    with monkeypatch.context() as patch:
        patch.setattr(owner, place, fail)
        with pytest.raises(UnavailableError, match="No space left"):
            store.sync()
    assert files(folder) == []
    store.sync()
    assert [BundledChunks(folder).get(digest) for digest in digests] == SMALL[:5]
