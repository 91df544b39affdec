"""Chunks in bundles: each bundle is one file, there as a whole or not at all."""

import hashlib
import os
import re
from collections.abc import Container, Iterator, Sequence
from operator import attrgetter
from pathlib import Path

from veiltab.errors import DigestError
from veiltab.files.disk import (
    disk_errors,
    holds,
    make_folder,
    remove_folder,
    sync_file,
    sync_folder,
    write_whole,
)
from veiltab.wire.bundles import (
    BUNDLE_BYTES,
    COUNT_BYTES,
    ENTRY_BYTES,
    MAX_ASKED,
    Place,
    bundle_pieces,
    check_bundle,
    index_bytes,
    read_index,
)

Copy = tuple[str, Place]
"""A file that has a chunk, and where; a chunk that came in two bundles has two copies."""

_NAME = re.compile(r"[0-9a-f]{64}\.chunks")


class BundledChunks:
    """Chunks in bundles in one folder, which is made when the first of them comes.

    A bundle that somebody has sent is kept at once, as it is.  Single chunks are gathered in
    memory until they fill a bundle, and are all on the disk after :meth:`sync`.

    Bundles that another process writes after the first look are not seen: the server makes a new
    object for every request.
    """

    def __init__(self, folder: Path) -> None:
        """Name the folder; nothing is created or read yet."""
        self._folder = folder
        self._copies: dict[bytes, list[Copy]] | None = None
        self._gathered: dict[bytes, bytes] = {}
        self._size = COUNT_BYTES

    def __len__(self) -> int:
        """Return how many different chunks there are."""
        return len(self._index().keys() | self._gathered.keys())

    def digests(self) -> Iterator[bytes]:
        """Yield the digests of all chunks in ascending order, without reading the chunks.

        Where each of them is would take ten times the memory, and is not remembered for it.
        """
        digests = set(self._gathered)
        if self._copies is None:
            for name in self._files():
                digests.update(place.digest for place in read_places(self._folder / name))
        else:
            digests.update(self._copies)
        yield from sorted(digests)

    def has(self, digest: bytes) -> bool:
        """Say whether there is a chunk with this digest, without reading it."""
        return digest in self._gathered or digest in self._index()

    def has_whole(self, digest: bytes) -> bool:
        """Say whether there is a chunk with this digest that is not damaged."""
        try:
            self.get(digest)
        except DigestError:
            return False
        return True

    def put(self, chunk: bytes) -> bytes:
        """Keep a single chunk and return its digest; :meth:`sync` makes it durable.

        A chunk that is there already, and whole, is not kept a second time.
        """
        digest = hashlib.sha256(chunk).digest()
        if not self.has_whole(digest):
            self._gather(digest, chunk)
        return digest

    def has_bundle(self, name: bytes, pieces: Sequence[bytes]) -> bool:
        """Say whether this very bundle is on the disk already."""
        return holds(self._folder / _file_name(name), *pieces)

    def put_bundle(self, name: bytes, pieces: Sequence[bytes]) -> bool:
        """Keep a bundle under its SHA-256, durably; say whether anything was written."""
        path = self._folder / _file_name(name)
        with disk_errors("writing chunks"):
            make_folder(self._folder)
            new = not holds(path, *pieces)
            if new:
                write_whole(path, *pieces)
            else:  # its writer may not have waited for the disk, but our caller relies on it
                sync_file(path)
                sync_folder(self._folder)
        self._copies = None
        return new

    def sync(self) -> None:
        """Write what is gathered, and wait until all that was put is on the disk."""
        if self._gathered:
            self._write_gathered()
            return
        # An earlier process may have been killed before it waited for a file's name; its content
        # is on the disk before it has one.
        with disk_errors("waiting for the disk"):
            if self._folder.is_dir():
                sync_folder(self._folder)

    def get(self, digest: bytes) -> bytes:
        """Return the chunk with this digest, checked, or raise :class:`DigestError`."""
        if digest in self._gathered:
            return self._gathered[digest]
        copies = self._index().get(digest)
        if not copies:
            raise missing(digest)
        return bytes(self.read(copies[:1])[0])

    def find(self, digests: Sequence[bytes]) -> list[Copy]:
        """Return where in files chunks are, or raise :class:`DigestError` if one is missing.

        Nothing is remembered about the other chunks, which may be many more.
        """
        copies: dict[bytes, Copy] = {}
        left = set(digests)
        for name in self._files():
            if not left:
                break
            for place in read_places(self._folder / name, left):
                copies[place.digest] = name, place
            left.difference_update(copies)
        for digest in left:
            raise missing(digest)
        return [copies[digest] for digest in digests]

    def read(self, copies: Sequence[Copy]) -> list[memoryview]:
        """Return the chunks of these copies, each checked, and open each file only once.

        If a copy is damaged, another one is read instead, if there is one.
        """
        files: dict[str, list[Place]] = {}
        for name, place in copies:
            files.setdefault(name, []).append(place)
        chunks = {name: read_chunks(self._folder / name, files[name]) for name in files}
        return [self._checked(copy, chunks[copy[0]][copy[1]]) for copy in copies]

    def drop_damaged(self) -> int:
        """Delete the bundles that are not what they should be; return how many there were.

        The chunks in them are missing from then on, and are sent again.
        """
        bad = [name for name in self._files() if not is_whole(self._folder / name)]
        for name in bad:
            with disk_errors("deleting damaged chunks"):
                (self._folder / name).unlink(missing_ok=True)
        self._copies = None
        return len(bad)

    def clear(self) -> None:
        """Delete every chunk and the folder; after an interruption, call it again."""
        self._drop_gathered()
        self._copies = None
        with disk_errors("deleting chunks"):
            remove_folder(self._folder)
            if self._folder.parent.is_dir():
                sync_folder(self._folder.parent)

    def _gather(self, digest: bytes, chunk: bytes) -> None:
        """Add a chunk to those in memory, which are written first if the bundle is full."""
        added = ENTRY_BYTES + len(chunk)
        full = len(self._gathered) == MAX_ASKED or self._size + added > BUNDLE_BYTES
        if full and self._gathered:
            self._write_gathered()
        self._gathered[digest] = chunk
        self._size += added

    def _write_gathered(self) -> None:
        """Write one bundle, and remember what is in it instead of the chunks."""
        copies, pieces = self._index(), list(bundle_pieces(self._gathered.items()))
        hashed = hashlib.sha256()
        for piece in pieces:
            hashed.update(piece)
        self.put_bundle(hashed.digest(), pieces)
        for place in check_bundle(pieces):  # first: any other copies are damaged
            copies.setdefault(place.digest, []).insert(0, (_file_name(hashed.digest()), place))
        self._copies = copies
        self._drop_gathered()

    def _drop_gathered(self) -> None:
        self._gathered.clear()
        self._size = COUNT_BYTES

    def _index(self) -> dict[bytes, list[Copy]]:
        if self._copies is None:
            self._copies = {}
            for name in self._files():
                for place in read_places(self._folder / name):
                    self._copies.setdefault(place.digest, []).append((name, place))
        return self._copies

    def _files(self) -> list[str]:
        with disk_errors("listing chunks"):
            try:
                names = sorted(entry.name for entry in self._folder.iterdir())
            except FileNotFoundError:
                return []
        return [name for name in names if _NAME.fullmatch(name)]

    def _checked(self, copy: Copy, chunk: memoryview) -> memoryview:
        """Return a copy's chunk as it was read, or that of another copy if this one is damaged."""
        digest = copy[1].digest
        if hashlib.sha256(chunk).digest() == digest:
            return chunk
        for name, place in self._index().get(digest, []):
            other = read_chunks(self._folder / name, [place])[place]
            if hashlib.sha256(other).digest() == digest:
                return other
        raise damaged(digest)


def read_places(path: Path, wanted: Container[bytes] | None = None) -> list[Place]:
    """Read where in a file the chunks are: all, or those with the wanted digests.

    For a damaged file this is nothing, or places within it, whose digests will not match.
    """
    with disk_errors("reading chunks"):
        try:
            with path.open("rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                beginning = file.read(COUNT_BYTES)
                length = index_bytes(beginning)
                if length > size:
                    return []
                places = read_index(beginning + file.read(length - COUNT_BYTES), wanted)
        except FileNotFoundError:
            return []
    return [place for place in places if place.start + place.length <= size]


def read_chunks(path: Path, places: Sequence[Place]) -> dict[Place, memoryview]:
    """Read chunks as they are: one open, and one read for chunks that follow each other.

    Each system call lets another thread of the server go first.  If the file has become shorter,
    or is gone, chunks are short or empty.
    """
    chunks: dict[Place, memoryview] = {}
    with disk_errors("reading a chunk"):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return dict.fromkeys(places, memoryview(b""))
        try:
            for run in _runs(places):
                start, end = run[0].start, run[-1].start + run[-1].length
                view = memoryview(os.pread(descriptor, end - start, start))
                for place in run:
                    begin = place.start - start
                    chunks[place] = view[begin : begin + place.length]
        finally:
            os.close(descriptor)
    return chunks


def is_whole(path: Path) -> bool:
    """Say whether a bundle is what its name says, and its chunks what its index says."""
    with disk_errors("reading chunks"), path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != path.stem:
            return False
    chunks = read_chunks(path, read_places(path))
    return all(hashlib.sha256(chunk).digest() == place.digest for place, chunk in chunks.items())


def missing(digest: bytes) -> DigestError:
    """Return the error for a chunk that is not there."""
    return DigestError(
        f"there is no chunk {digest.hex()}", hint="send it, or ask its sender for it again"
    )


def damaged(digest: bytes) -> DigestError:
    """Return the error for a chunk that does not match its digest."""
    return DigestError(
        f"the stored chunk {digest.hex()} is damaged",
        hint="send it again, which repairs it; the operator should look at the disk",
    )


def _file_name(digest: bytes) -> str:
    return f"{digest.hex()}.chunks"


def _runs(places: Sequence[Place]) -> Iterator[list[Place]]:
    """Group places that follow each other without a gap."""
    run: list[Place] = []
    for place in sorted(places, key=attrgetter("start")):
        if run and place.start != run[-1].start + run[-1].length:
            yield run
            run = []
        run.append(place)
    if run:
        yield run
