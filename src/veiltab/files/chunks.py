"""Chunks as files: each is named by its digest, and is there as a whole or not at all."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from veiltab.errors import DigestError
from veiltab.files.bundles import damaged, missing
from veiltab.files.disk import (
    broken,
    disk_errors,
    holds,
    make_folder,
    remove_folder,
    sync_file,
    sync_folder,
    write_whole,
)

DIGEST_BYTES = hashlib.sha256().digest_size

_AT_ONCE = 2**15
"""Bytes that most chunks do not exceed; of longer ones the length is looked up."""


class FolderChunks:
    """Chunks in one folder, which is made when the first of them comes.

    With ``durable`` a chunk is on the disk when ``put`` returns.  Without it a power cut may damage
    the chunk, which ``get`` notices: enough for what can be computed again.
    """

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        """Name the folder; nothing is created yet."""
        self._folder, self._prefix = folder, f"{folder}/"
        self._durable = durable

    def has(self, digest: bytes) -> bool:
        """Say whether there is a chunk with this digest, without reading it."""
        with disk_errors("looking for a chunk"):
            return len(digest) == DIGEST_BYTES and self._path(digest).is_file()

    def size(self, digests: Iterable[bytes]) -> int:
        """Return how many bytes these chunks have; one that is not there has none."""
        total = 0
        with disk_errors("measuring chunks"):
            for digest in digests:
                with suppress(FileNotFoundError):
                    total += self._path(digest).stat().st_size
        return total

    def put(self, chunk: bytes) -> bytes:
        """Keep a chunk and return its digest."""
        digest = hashlib.sha256(chunk).digest()
        self._keep(self._path(digest), chunk)
        return digest

    def get(self, digest: bytes) -> bytes:
        """Return the chunk with this digest, checked, or raise :class:`DigestError`."""
        chunk = self.read(digest)
        if hashlib.sha256(chunk).digest() != digest:
            raise damaged(digest)
        return chunk

    def read(self, digest: bytes) -> bytes:
        """Return the chunk with this digest as it is on the disk; the caller checks it."""
        if len(digest) != DIGEST_BYTES:
            raise missing(digest)
        try:  # without disk_errors: there may be a hundred thousand small chunks
            return _read_file(f"{self._prefix}{digest.hex()}")
        except FileNotFoundError:
            raise missing(digest) from None
        except OSError as error:
            raise broken("reading a chunk", error) from error

    def clear(self) -> None:
        """Delete every chunk and the folder; after an interruption, call it again."""
        with disk_errors("deleting chunks"):
            remove_folder(self._folder)
            if self._folder.parent.is_dir():
                sync_folder(self._folder.parent)

    def _path(self, digest: bytes) -> Path:
        return self._folder / digest.hex()

    def _keep(self, path: Path, chunk: bytes) -> None:
        with disk_errors("writing a chunk"):
            make_folder(self._folder)
            if not holds(path, chunk):
                write_whole(path, chunk, durable=self._durable)
            elif self._durable:
                # Its writer may not have waited for the disk yet, but our caller relies on it.
                sync_file(path)
                sync_folder(self._folder)


class SearchedChunks(Protocol):
    """Chunks that can be looked for before they are read."""

    def has(self, digest: bytes) -> bool:
        """Say whether there is a chunk with this digest, without reading it."""

    def get(self, digest: bytes) -> bytes:
        """Return the chunk with this digest, checked, or raise :class:`DigestError`."""

    def clear(self) -> None:
        """Delete every chunk."""


class JoinedChunks:
    """One view of several folders: new chunks go to ``target``, and all folders are searched."""

    def __init__(self, target: FolderChunks, others: Sequence[SearchedChunks]) -> None:
        """Name the folder to write to, and the folders that are read too."""
        self._target = target
        self._stores: tuple[SearchedChunks, ...] = (target, *others)

    def put(self, chunk: bytes) -> bytes:
        """Keep a chunk in the target folder and return its digest."""
        return self._target.put(chunk)

    def get(self, digest: bytes) -> bytes:
        """Return the chunk from the first folder that has it undamaged."""
        problem: DigestError | None = None
        for store in self._stores:
            if store.has(digest):
                try:
                    return store.get(digest)
                except DigestError as error:
                    problem = error
        if problem is not None:
            raise problem
        return self._target.get(digest)

    def clear(self) -> None:
        """Delete every chunk in all of the folders."""
        for store in self._stores:
            store.clear()


def _read_file(path: str) -> bytes:
    """Read a file in as few calls as possible: each lets another thread of the server go first."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        content = os.read(descriptor, _AT_ONCE)
        if len(content) == _AT_ONCE:
            size = os.fstat(descriptor).st_size
            while len(content) < size and (more := os.read(descriptor, size - len(content))):
                content += more
        return content
    finally:
        os.close(descriptor)
