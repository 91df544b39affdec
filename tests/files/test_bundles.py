"""Bundles of chunks in files: one wait for the disk, and nothing lost, halved or mixed up."""

import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.support.storage import watch_disk
from veiltab.errors import DigestError, UnavailableError
from veiltab.files.bundles import BundledChunks
from veiltab.wire.bundles import bundle

CHUNKS = [bytes([number]) * (10 + number) for number in range(5)]
DIGESTS = [hashlib.sha256(chunk).digest() for chunk in CHUNKS]
BODY = bundle(list(zip(DIGESTS, CHUNKS, strict=True)))
INDEX_BYTES = 4 + 36 * len(CHUNKS)
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "within the index": lambda content: content[:50],
    "truncated": lambda content: content[:-1],
    "longer": lambda content: content + b"\x00",
    "a chunk": lambda content: content[:INDEX_BYTES] + b"\xff" + content[INDEX_BYTES + 1 :],
    "a digest": lambda content: content[:4] + b"\xff" + content[5:],
    "a length": lambda content: content[:39] + b"\xff" + content[40:],
    "the count": lambda content: b"\xff" + content[1:],
    "a count of none": lambda content: bytes(4) + content[4:],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the path of a folder that is not there yet."""
    return tmp_path / "studies" / "received"


def put(folder: Path, *places: int) -> bool:
    """Keep some of the chunks in one bundle, as a request does."""
    body = bundle([(DIGESTS[place], CHUNKS[place]) for place in places])
    return BundledChunks(folder).put_bundle(hashlib.sha256(body).digest(), [body[:50], body[50:]])


def files(folder: Path) -> list[Path]:
    """Return everything in a folder."""
    return sorted(folder.iterdir())


def failing(code: int) -> Callable[..., NoReturn]:
    """Return a function that fails as the operating system does."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(code, os.strerror(code), "/srv/private/path")

    return fail


def test_looking_creates_nothing(folder: Path) -> None:
    """Only a bundle makes the folder."""
    chunks = BundledChunks(folder)
    assert (len(chunks), list(chunks.digests()), chunks.has(DIGESTS[0])) == (0, [], False)
    assert chunks.drop_damaged() == 0
    chunks.clear()
    assert not folder.parent.exists()


def test_a_bundle_is_one_private_file(folder: Path) -> None:
    """However many chunks it has; each of them is found by its digest."""
    assert put(folder, *range(5))
    (file,) = files(folder)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (file.name, file.read_bytes()) == (f"{hashlib.sha256(BODY).hexdigest()}.chunks", BODY)
    chunks = BundledChunks(folder)
    assert list(chunks.digests()) == sorted(DIGESTS)
    assert [chunks.get(digest) for digest in DIGESTS] == CHUNKS


def test_the_same_bundle_again_changes_nothing(folder: Path) -> None:
    """Another one with the same chunks in it is new, and each chunk is counted once."""
    assert [put(folder, 0, 1), put(folder, 0, 1)] == [True, False]
    (before,) = files(folder)
    assert [put(folder, 1, 2), put(folder, 1, 2), put(folder, 0, 1)] == [True, False, False]
    assert before in files(folder)
    assert (len(files(folder)), len(BundledChunks(folder))) == (2, 3)


def test_what_an_object_writes_it_sees(folder: Path) -> None:
    """Though it has looked before."""
    chunks = BundledChunks(folder)
    assert not chunks.has(DIGESTS[0])
    assert chunks.put(CHUNKS[0]) == DIGESTS[0]
    assert chunks.get(DIGESTS[0]) == CHUNKS[0]


def test_other_files_are_no_bundles(folder: Path) -> None:
    """Those of a writer that was killed, for instance."""
    put(folder, 0)
    for stray in (".tmpabcdef", "notes.txt", "a" * 64, f"{'A' * 64}.chunks"):
        (folder / stray).write_bytes(b"\x00\x00\x00\x01")
    assert list(BundledChunks(folder).digests()) == [DIGESTS[0]]


def test_one_wait_for_the_content_and_one_for_the_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File, then name, then folder; and again the first and the last for one that is there."""
    put(folder, 4)
    steps = watch_disk(monkeypatch)
    put(folder, 0, 1, 2, 3)
    assert steps == ["fsync file", "replace", "fsync folder"]
    steps.clear()
    put(folder, 0, 1, 2, 3)
    assert steps == ["fsync file", "fsync folder"]


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damage_is_found_dropped_and_mended(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    """Nothing damaged is returned; it is missing afterwards, and can be sent again."""
    put(folder, *range(5))
    put(folder, 0)
    file = max(files(folder), key=lambda path: path.stat().st_size)
    file.write_bytes(damage(file.read_bytes()))
    for digest, chunk in zip(DIGESTS, CHUNKS, strict=True):
        try:
            assert BundledChunks(folder).get(digest) == chunk
        except DigestError:
            assert digest != DIGESTS[0], "it is in another file, which is whole"
    chunks = BundledChunks(folder)
    assert chunks.drop_damaged() == 1
    assert list(chunks.digests()) == [DIGESTS[0]]
    assert put(folder, *range(5))
    assert [BundledChunks(folder).get(digest) for digest in DIGESTS] == CHUNKS
    assert BundledChunks(folder).drop_damaged() == 0


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_the_same_bundle_mends_a_damage_that_nobody_has_found(
    folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    """It takes the place of the damaged one."""
    put(folder, *range(5))
    (file,) = files(folder)
    file.write_bytes(damage(file.read_bytes()))
    assert put(folder, *range(5))
    assert files(folder) == [file]
    assert [BundledChunks(folder).get(digest) for digest in DIGESTS] == CHUNKS


def test_a_damaged_chunk_is_told_from_a_missing_one(folder: Path) -> None:
    """The one can be mended, the other was never here."""
    put(folder, *range(5))
    (file,) = files(folder)
    file.write_bytes(DAMAGES["a chunk"](file.read_bytes()))
    with pytest.raises(DigestError, match=f"stored chunk {DIGESTS[0].hex()} is damaged"):
        BundledChunks(folder).get(DIGESTS[0])
    with pytest.raises(DigestError, match="there is no chunk"):
        BundledChunks(folder).get(bytes(32))


def test_a_file_that_vanishes_is_a_damage(folder: Path) -> None:
    """Somebody deletes it between the look and the reading."""
    put(folder, 0)
    chunks = BundledChunks(folder)
    assert chunks.has(DIGESTS[0])
    files(folder)[0].unlink()
    with pytest.raises(DigestError):
        chunks.get(DIGESTS[0])


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("place", ["write", "fsync", "mkstemp", "replace", "mkdir"])
def test_a_disk_that_refuses_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, place: str, code: int
) -> None:
    """A full, read-only or broken disk: no half of a bundle, no path in the error, later fine."""
    owner: Any = {"mkstemp": tempfile, "replace": Path, "mkdir": Path}.get(place, os)
    with monkeypatch.context() as patch:
        patch.setattr(owner, place, failing(code))
        with pytest.raises(UnavailableError) as caught:
            put(folder, *range(5))
    assert os.strerror(code) in caught.value.message
    assert "private" not in caught.value.message
    assert not folder.exists() or files(folder) == []
    assert put(folder, *range(5))
    assert [BundledChunks(folder).get(digest) for digest in DIGESTS] == CHUNKS


def test_chunks_under_a_wrong_name_are_dropped(folder: Path) -> None:
    """A bundle that is whole, and whose index is not true, is of no use to anybody."""
    body = bundle([(DIGESTS[0], CHUNKS[0]), (DIGESTS[1], b"something else")])
    chunks = BundledChunks(folder)
    assert chunks.put_bundle(hashlib.sha256(body).digest(), [body[:50], body[50:]])
    with pytest.raises(DigestError, match="damaged"):
        chunks.get(DIGESTS[1])
    put(folder, 1)
    assert BundledChunks(folder).get(DIGESTS[1]) == CHUNKS[1]
    assert BundledChunks(folder).drop_damaged() == 1
    assert list(BundledChunks(folder).digests()) == [DIGESTS[1]]


def test_a_disk_that_cannot_be_read_is_unavailable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken disk is not a missing chunk: asking again later may help."""
    put(folder, 0)
    chunks = BundledChunks(folder)
    assert chunks.has(DIGESTS[0])
    monkeypatch.setattr(os, "pread", failing(errno.EIO))
    with pytest.raises(UnavailableError, match="reading a chunk"):
        chunks.get(DIGESTS[0])
