"""Many chunks of bundles at once: few calls, each chunk checked, and whatever the disk has done."""

import errno
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from veiltab.errors import DigestError, UnavailableError
from veiltab.files.bundles import BundledChunks
from veiltab.wire.bundles import MAX_ASKED

CHUNKS = [number.to_bytes(4, "big") for number in range(2 * MAX_ASKED + 1)]
DIGESTS = [hashlib.sha256(chunk).digest() for chunk in CHUNKS]

Count = Callable[[str], int]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with all of the chunks, in three files."""
    place = tmp_path / "released"
    put(place, CHUNKS)
    return place


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Count:
    """Return a function that says how often files were opened for chunks, or read."""
    calls: list[str] = []
    opening, reading = os.open, os.pread

    def noting_open(path: Path, flags: int) -> int:
        calls.append("open")
        return opening(path, flags)

    def noting_pread(descriptor: int, length: int, start: int) -> bytes:
        calls.append("pread")
        return reading(descriptor, length, start)

    monkeypatch.setattr(os, "open", noting_open)
    monkeypatch.setattr(os, "pread", noting_pread)
    return calls.count


def put(folder: Path, chunks: Sequence[bytes]) -> None:
    """Keep chunks in as few bundles as possible."""
    store = BundledChunks(folder)
    for chunk in chunks:
        store.put(chunk)
    store.sync()


def read(folder: Path, digests: Sequence[bytes]) -> list[bytes]:
    """Return chunks as they are read for an answer."""
    store = BundledChunks(folder)
    return [bytes(chunk) for chunk in store.read(store.find(digests))]


def test_one_open_of_each_file(folder: Path, count: Count) -> None:
    """And one read of chunks side by side, whatever the order in which they are asked for."""
    assert len(list(folder.iterdir())) == 3
    assert read(folder, DIGESTS[::-1]) == CHUNKS[::-1]
    assert (count("open"), count("pread")) == (3, 3)


def test_no_more_is_read_than_is_asked_for(folder: Path, count: Count) -> None:
    """Chunks with others between them are read one by one; the same may be asked for twice."""
    some = [7, 3, 4, MAX_ASKED + 5, 2, 7]
    assert read(folder, [DIGESTS[number] for number in some]) == [CHUNKS[n] for n in some]
    assert count("open") == 2
    assert count("pread") <= 4
    assert read(folder, []) == []
    assert count("open") == 2


def test_empty_chunks_are_read(tmp_path: Path) -> None:
    """Though such a chunk and the next one begin at the same place."""
    chunks = [b"one", b"", b"two"]
    put(tmp_path / "few", chunks)
    digests = [hashlib.sha256(chunk).digest() for chunk in chunks]
    for order in ([0, 1, 2], [2, 1, 0], [1], [1, 2], [2, 1]):
        asked = [digests[number] for number in order]
        assert read(tmp_path / "few", asked) == [chunks[number] for number in order]


def test_a_chunk_that_is_nowhere(folder: Path) -> None:
    """Is told before any is read; also where there is no folder."""
    with pytest.raises(DigestError, match=f"there is no chunk {'00' * 32}"):
        BundledChunks(folder).find([DIGESTS[0], bytes(32), DIGESTS[1]])
    with pytest.raises(DigestError, match="there is no chunk"):
        BundledChunks(folder / "none").find(DIGESTS[:1])


def test_no_byte_can_change_unseen(tmp_path: Path) -> None:
    """Of an index, of a length, of a chunk: what is read is right, or it is an error."""
    put(tmp_path, CHUNKS[:3])
    [file] = tmp_path.iterdir()
    whole = file.read_bytes()
    for place in range(len(whole)):
        for change in (1, 0x80):
            content = bytearray(whole)
            content[place] ^= change
            file.write_bytes(content)
            seen = 0
            for digest, chunk in zip(DIGESTS[:3], CHUNKS[:3], strict=True):
                try:
                    assert read(tmp_path, [digest]) == [chunk]
                except DigestError:
                    seen += 1
            assert seen, f"nobody has noticed byte {place}"


def test_what_is_cut_off_is_an_error(tmp_path: Path) -> None:
    """Wherever; chunks before the cut can still be read."""
    put(tmp_path, CHUNKS[:3])
    [file] = tmp_path.iterdir()
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(DigestError):
            read(tmp_path, DIGESTS[:3])
    assert read(tmp_path, DIGESTS[:2]) == CHUNKS[:2]


def test_a_damaged_copy_is_passed_over(tmp_path: Path) -> None:
    """Whichever of the two files is looked at first."""
    for first in CHUNKS[10:20]:
        folder = tmp_path / first.hex()
        put(folder, [first, CHUNKS[0]])
        [file] = folder.iterdir()
        content = file.read_bytes()
        file.write_bytes(content[:-1] + b"\xff")
        put(folder, [CHUNKS[0]])
        assert read(folder, [DIGESTS[0]]) == [CHUNKS[0]]
        assert BundledChunks(folder).get(DIGESTS[0]) == CHUNKS[0]


def test_a_file_that_vanishes_is_a_damage(folder: Path) -> None:
    """Somebody deletes it between the look and the reading."""
    store = BundledChunks(folder)
    found = store.find(DIGESTS[:1])
    for path in folder.iterdir():
        path.unlink()
    with pytest.raises(DigestError, match=f"stored chunk {DIGESTS[0].hex()} is damaged"):
        store.read(found)


def test_a_disk_that_cannot_be_read_is_unavailable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is no damage: asking again later may help."""

    def fail(*_: object) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(UnavailableError, match="reading a chunk"):
        read(folder, DIGESTS[:1])
