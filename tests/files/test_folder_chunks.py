"""Chunks in folders: crashes, damage, full disks and writers at the same time."""

import errno
import hashlib
import os
import stat
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.support.storage import watch_disk
from veiltab.errors import DigestError, UnavailableError
from veiltab.files.chunks import FolderChunks

CHUNK = b"some bytes of a column" * 100
DIGEST = hashlib.sha256(CHUNK).digest()
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "truncated": lambda chunk: chunk[:-1],
    "longer": lambda chunk: chunk + b"\x00",
    "flipped": lambda chunk: bytes([chunk[0] ^ 1]) + chunk[1:],
}
REFUSALS = (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO, errno.EDQUOT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the path of a folder that is not there yet."""
    return tmp_path / "studies" / "chunks"


@pytest.fixture
def chunks(folder: Path) -> FolderChunks:
    """Return an empty store in that folder."""
    return FolderChunks(folder)


def failing(code: int) -> Callable[..., NoReturn]:
    """Return a function that fails as the operating system does."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(code, os.strerror(code), "/srv/private/path")

    return fail


def names(folder: Path) -> list[str]:
    """Return the names of everything in a folder."""
    return sorted(entry.name for entry in folder.iterdir())


def test_looking_creates_nothing(chunks: FolderChunks, folder: Path) -> None:
    """Only a chunk makes the folder."""
    assert not chunks.has(DIGEST)
    chunks.clear()
    assert not folder.parent.exists()


def test_only_the_owner_can_read(chunks: FolderChunks, folder: Path) -> None:
    """Folders have mode 0700 and files 0600, also under a generous umask."""
    before = os.umask(0)
    try:
        chunks.put(CHUNK)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder.parent, folder)]
    assert modes == [0o700, 0o700]
    assert stat.S_IMODE((folder / DIGEST.hex()).stat().st_mode) == 0o600


def test_a_chunk_that_is_there_stays(chunks: FolderChunks, folder: Path) -> None:
    """The second time changes nothing; that it was read may show in the time of its last use."""

    def state() -> tuple[int, ...]:
        status = (folder / DIGEST.hex()).stat()
        times = (status.st_mtime_ns, status.st_ctime_ns)
        return (status.st_ino, status.st_mode, status.st_size, *times)

    chunks.put(CHUNK)
    before = state()
    chunks.put(CHUNK)
    assert state() == before
    assert names(folder) == [DIGEST.hex()]


def test_reading_as_it_is(chunks: FolderChunks, folder: Path) -> None:
    """Whoever does not want the check gets what the disk has, of any length."""
    chunks.put(CHUNK)
    for content in (b"", b"damaged", CHUNK * 1_000):
        (folder / DIGEST.hex()).write_bytes(content)
        assert chunks.read(DIGEST) == content


def test_a_crash_before_the_move_leaves_no_chunk(
    chunks: FolderChunks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was half written has another name, does not disturb, and goes when all goes."""
    with monkeypatch.context() as patch:  # a killed process neither moves nor cleans up
        patch.setattr(Path, "replace", failing(errno.EIO))
        patch.setattr(Path, "unlink", failing(errno.EIO))
        with pytest.raises(UnavailableError):
            chunks.put(CHUNK)
    [leftover] = names(folder)
    assert leftover.startswith(".")
    assert not chunks.has(DIGEST)
    assert chunks.put(CHUNK) == DIGEST
    assert chunks.get(DIGEST) == CHUNK
    assert names(folder) == sorted([leftover, DIGEST.hex()])
    chunks.clear()
    assert not folder.exists()


def test_the_content_is_on_the_disk_before_the_name(
    chunks: FolderChunks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File, then name, then folder: after a power cut no name stands for half a chunk."""
    chunks.put(b"makes the folder")
    steps = watch_disk(monkeypatch)
    chunks.put(CHUNK)
    assert steps == ["fsync file", "replace", "fsync folder"]
    steps.clear()
    chunks.put(CHUNK)  # who else wrote it may not have got so far
    assert steps == ["fsync file", "fsync folder"]
    steps.clear()
    FolderChunks(folder, durable=False).put(b"scratch")
    assert steps == ["replace"]


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damage_is_found_and_mended_by_repetition(
    chunks: FolderChunks, folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    """A damaged file is never returned, and the same chunk sent again takes its place."""
    chunks.put(CHUNK)
    (folder / DIGEST.hex()).write_bytes(damage(CHUNK))
    with pytest.raises(DigestError, match=f"stored chunk {DIGEST.hex()} is damaged"):
        chunks.get(DIGEST)
    assert chunks.put(CHUNK) == DIGEST
    assert chunks.get(DIGEST) == CHUNK
    assert names(folder) == [DIGEST.hex()]


@pytest.mark.parametrize("code", REFUSALS, ids=errno.errorcode.get)
@pytest.mark.parametrize("place", ["write", "fsync", "mkstemp", "replace", "mkdir"])
def test_a_disk_that_refuses_leaves_nothing(
    chunks: FolderChunks, folder: Path, monkeypatch: pytest.MonkeyPatch, place: str, code: int
) -> None:
    """A full, read-only or broken disk: no half of a chunk, no path in the error, later fine."""
    owner: Any = {"mkstemp": tempfile, "replace": Path, "mkdir": Path}.get(place, os)
    with monkeypatch.context() as patch:
        patch.setattr(owner, place, failing(code))
        with pytest.raises(UnavailableError) as caught:
            chunks.put(CHUNK)
    assert os.strerror(code) in caught.value.message
    assert "private" not in caught.value.message
    assert str(folder) not in caught.value.message
    assert "data directory" in caught.value.hint
    assert not folder.exists() or names(folder) == []
    assert chunks.get(chunks.put(CHUNK)) == CHUNK


def test_a_disk_that_fills_up_halfway_leaves_nothing(
    chunks: FolderChunks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first bytes fit and the rest does not."""
    write = os.write

    def first_part_only(descriptor: int, data: memoryview) -> int:
        if len(data) < len(CHUNK):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[:100])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", first_part_only)
        with pytest.raises(UnavailableError, match="No space left"):
            chunks.put(CHUNK)
    assert names(folder) == []


def test_a_short_write_is_continued(chunks: FolderChunks, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system may take a part of the bytes at a time."""
    write = os.write

    def seven_bytes(descriptor: int, data: memoryview) -> int:
        return write(descriptor, data[:7])

    monkeypatch.setattr(os, "write", seven_bytes)
    assert chunks.get(chunks.put(CHUNK)) == CHUNK


@pytest.mark.parametrize("level", ["folder", "above"])
def test_a_file_where_a_folder_should_be_is_an_error(tmp_path: Path, level: str) -> None:
    """A real refusal by the operating system, which root gets as well."""
    (tmp_path / "file").write_bytes(b"in the way")
    place = tmp_path / "file" if level == "folder" else tmp_path / "file" / "chunks"
    with pytest.raises(UnavailableError, match="Not a directory"):
        FolderChunks(place).put(CHUNK)
    assert (tmp_path / "file").read_bytes() == b"in the way"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to a folder whatever its mode")
def test_a_folder_without_the_right_to_write_is_an_error(
    chunks: FolderChunks, folder: Path
) -> None:
    """What is there can still be read."""
    chunks.put(b"there")
    folder.chmod(0o500)
    try:
        with pytest.raises(UnavailableError, match="Permission denied"):
            chunks.put(CHUNK)
        assert chunks.get(hashlib.sha256(b"there").digest()) == b"there"
    finally:
        folder.chmod(0o700)


def test_a_file_that_cannot_be_read_is_unavailable(
    chunks: FolderChunks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken disk is not a missing chunk: asking again later may help."""
    chunks.put(CHUNK)
    monkeypatch.setattr(os, "read", failing(errno.EIO))
    with pytest.raises(UnavailableError, match="reading a chunk"):
        chunks.get(DIGEST)


def test_writers_of_the_same_chunk_do_not_disturb_each_other(folder: Path) -> None:
    """Whoever is first, the chunk is there once and whole, and nothing besides."""
    start = threading.Barrier(8)
    failures: list[BaseException] = []

    def write() -> None:
        store = FolderChunks(folder)
        start.wait()
        try:
            for number in range(20):
                assert store.get(store.put(CHUNK + bytes([number]))) == CHUNK + bytes([number])
        except BaseException as error:  # noqa: BLE001 - a thread's failure must reach the test
            failures.append(error)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert names(folder) == sorted(
        hashlib.sha256(CHUNK + bytes([number])).hexdigest() for number in range(20)
    )


def test_an_interrupted_clear_is_finished_by_the_next(
    chunks: FolderChunks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some files are gone and the disk fails, clearing again removes the rest."""
    for number in range(5):
        chunks.put(bytes([number]))
    unlink, calls = Path.unlink, iter(range(10))

    def third_fails(self: Path, *, missing_ok: bool = False) -> None:
        if next(calls) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        unlink(self, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", third_fails)
        with pytest.raises(UnavailableError, match="deleting chunks"):
            chunks.clear()
    assert len(names(folder)) == 3
    chunks.clear()
    assert not folder.exists()
