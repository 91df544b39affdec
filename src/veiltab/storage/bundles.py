"""Chunks as they come in: a bundle is kept as it is, one file, there as a whole or not at all.

A file is named by the SHA-256 of the bundle.  So a thousand small chunks take one file and one wait
for the disk, and the same bundle sent again finds the file that is there.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from veiltab.errors import DigestError
from veiltab.storage.disk import (
    disk_errors,
    holds,
    make_folder,
    remove_folder,
    sync_file,
    sync_folder,
    write_private,
)
from veiltab.wire.bundles import COUNT_BYTES, Place, bundle, index_bytes, read_index

_NAME = re.compile(r"[0-9a-f]{64}\.chunks")


class BundledChunks:
    """Chunks in bundles in one folder, which is made when the first of them comes.

    What somebody else writes after the first look is not seen: these objects are made anew for
    every request.
    """

    def __init__(self, folder: Path) -> None:
        """Name the folder; nothing is created or read yet."""
        self._folder = folder
        self._known: dict[bytes, list[tuple[str, Place]]] | None = None

    def __len__(self) -> int:
        """Return how many different chunks there are."""
        return len(self._index())

    def digests(self) -> Iterator[bytes]:
        """Yield the digests of all chunks in ascending order, without reading the chunks."""
        yield from sorted(self._index())

    def has(self, digest: bytes) -> bool:
        """Say whether there is a chunk with this digest, without reading it."""
        return digest in self._index()

    def put(self, chunk: bytes) -> bytes:
        """Keep a single chunk and return its digest."""
        digest = hashlib.sha256(chunk).digest()
        body = bundle([(digest, chunk)])
        self.put_bundle(hashlib.sha256(body).digest(), [body])
        return digest

    def put_bundle(self, name: bytes, pieces: Sequence[bytes]) -> bool:
        """Keep a bundle under its SHA-256, durably; say whether it was new or mended a damage."""
        path = self._folder / f"{name.hex()}.chunks"
        with disk_errors("writing chunks"):
            make_folder(self._folder)
            new = not holds(path, *pieces)
            if new:
                write_private(path, *pieces, durable=True)
            else:  # whoever wrote it may not have waited for the disk, but our caller relies on it
                sync_file(path)
                sync_folder(self._folder)
        self._known = None
        return new

    def get(self, digest: bytes) -> bytes:
        """Return the chunk with this digest, checked, or raise :class:`DigestError`."""
        places = self._index().get(digest, [])
        for name, place in places:
            chunk = self._read(name, place)
            if hashlib.sha256(chunk).digest() == digest:
                return chunk
        raise damaged(digest) if places else missing(digest)

    def drop_damaged(self) -> int:
        """Delete the bundles that are not what they should be; return how many there were.

        The chunks in them are missing from then on, and are sent again.
        """
        bad = [name for name in self._files() if not self._is_whole(name)]
        for name in bad:
            with disk_errors("deleting damaged chunks"):
                (self._folder / name).unlink(missing_ok=True)
        self._known = None
        return len(bad)

    def clear(self) -> None:
        """Delete every chunk and the folder; after an interruption, call it again."""
        with disk_errors("deleting chunks"):
            remove_folder(self._folder)
            if self._folder.parent.is_dir():
                sync_folder(self._folder.parent)
        self._known = None

    def _index(self) -> dict[bytes, list[tuple[str, Place]]]:
        if self._known is None:
            known: dict[bytes, list[tuple[str, Place]]] = {}
            for name in self._files():
                for place in self._places(name):
                    known.setdefault(place.digest, []).append((name, place))
            self._known = known
        return self._known

    def _files(self) -> list[str]:
        with disk_errors("listing chunks"):
            try:
                names = sorted(entry.name for entry in self._folder.iterdir())
            except FileNotFoundError:
                return []
        return [name for name in names if _NAME.fullmatch(name)]

    def _places(self, name: str) -> list[Place]:
        """Read a file's index; of a damaged one, nothing, or what will be found to be damaged."""
        with disk_errors("reading chunks"):
            try:
                with (self._folder / name).open("rb") as file:
                    beginning = file.read(COUNT_BYTES)
                    size = index_bytes(beginning)
                    if size > os.fstat(file.fileno()).st_size:
                        return []
                    return read_index(beginning + file.read(size - COUNT_BYTES))
            except FileNotFoundError:
                return []

    def _read(self, name: str, place: Place) -> bytes:
        with disk_errors("reading a chunk"):
            try:
                descriptor = os.open(f"{self._folder}/{name}", os.O_RDONLY)
            except FileNotFoundError:
                return b""
            try:
                return os.pread(descriptor, place.length, place.start)
            finally:
                os.close(descriptor)

    def _is_whole(self, name: str) -> bool:
        """Say whether a bundle is what its name says, and its chunks what its index says."""
        with disk_errors("reading chunks"), (self._folder / name).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        return f"{found}.chunks" == name and all(
            hashlib.sha256(self._read(name, place)).digest() == place.digest
            for place in self._places(name)
        )


def missing(digest: bytes) -> DigestError:
    """Return the error for a chunk that is not there."""
    return DigestError(
        f"there is no chunk {digest.hex()}", hint="send it, or ask its sender for it again"
    )


def damaged(digest: bytes) -> DigestError:
    """Return the error for a chunk that is not what its name says."""
    return DigestError(
        f"the stored chunk {digest.hex()} is damaged",
        hint="send it again, which mends it; the operator should look at the disk",
    )
