"""Chunks as files: each is named by its digest, and is there as a whole or not at all."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from veiltab.errors import DigestError
from veiltab.roles.chunks import check_digest
from veiltab.storage.disk import (
    disk_errors,
    make_folder,
    remove_folder,
    sync_file,
    sync_folder,
    write_private,
)

DIGEST_BYTES = hashlib.sha256().digest_size

_NAME = re.compile(f"[0-9a-f]{{{2 * DIGEST_BYTES}}}")


class FolderChunks:
    """Chunks in one folder, which is made when the first of them comes.

    With ``durable`` a chunk is on the disk when ``put`` returns.  Without, a power cut may damage
    it, which ``get`` notices: enough for what can be computed again.
    """

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        """Name the folder; nothing is created yet."""
        self._folder = folder
        self._durable = durable

    def __len__(self) -> int:
        """Return how many chunks there are."""
        return sum(1 for _ in self.digests())

    def digests(self) -> Iterator[bytes]:
        """Yield the digests of all chunks in ascending order, without reading the chunks."""
        with disk_errors("listing chunks"):
            try:
                names = sorted(entry.name for entry in self._folder.iterdir())
            except FileNotFoundError:
                names = []
        yield from (bytes.fromhex(name) for name in names if _NAME.fullmatch(name))

    def has(self, digest: bytes) -> bool:
        """Say whether there is a chunk with this digest, without reading it."""
        with disk_errors("looking for a chunk"):
            return len(digest) == DIGEST_BYTES and self._path(digest).is_file()

    def put(self, chunk: bytes) -> bytes:
        """Keep a chunk and return its digest."""
        digest = hashlib.sha256(chunk).digest()
        self._keep(digest, chunk)
        return digest

    def put_as(self, digest: bytes, chunk: bytes) -> bool:
        """Keep a chunk that must have this digest; say whether it was new or mended a damage."""
        check_digest(chunk, digest)
        return self._keep(digest, chunk)

    def get(self, digest: bytes) -> bytes:
        """Return the chunk with this digest, checked, or raise :class:`DigestError`."""
        chunk = self._read(digest) if len(digest) == DIGEST_BYTES else None
        if chunk is None:
            raise DigestError(
                f"there is no chunk {digest.hex()}", hint="send it, or ask its sender for it again"
            )
        if hashlib.sha256(chunk).digest() != digest:
            raise DigestError(
                f"the stored chunk {digest.hex()} is damaged",
                hint="send it again, which mends it; the operator should look at the disk",
            )
        return chunk

    def drop_damaged(self) -> int:
        """Delete the chunks that are not what their names say; return how many there were."""
        dropped = 0
        for digest in list(self.digests()):
            try:
                self.get(digest)
            except DigestError:
                with disk_errors("deleting a damaged chunk"):
                    self._path(digest).unlink(missing_ok=True)
                dropped += 1
        return dropped

    def sync(self) -> None:
        """Wait until the names of all chunks are on the disk."""
        with disk_errors("waiting for the disk"):
            if self._folder.is_dir():
                sync_folder(self._folder)

    def clear(self) -> None:
        """Delete every chunk and the folder; after an interruption, call it again."""
        with disk_errors("deleting chunks"):
            remove_folder(self._folder)
            if self._folder.parent.is_dir():
                sync_folder(self._folder.parent)

    def _path(self, digest: bytes) -> Path:
        return self._folder / digest.hex()

    def _read(self, digest: bytes) -> bytes | None:
        with disk_errors("reading a chunk"):
            try:
                return self._path(digest).read_bytes()
            except FileNotFoundError:
                return None

    def _keep(self, digest: bytes, chunk: bytes) -> bool:
        path = self._path(digest)
        with disk_errors("writing a chunk"):
            make_folder(self._folder)
            if _holds(path, chunk):
                # Whoever wrote it may not have waited for the disk yet, but our caller relies on it
                if self._durable:
                    sync_file(path)
                    sync_folder(self._folder)
                return False
            write_private(path, chunk, durable=self._durable)
            return True


class JoinedChunks:
    """One view of several folders: what is new goes to ``own``, and all of them are searched."""

    def __init__(self, own: FolderChunks, others: Sequence[FolderChunks]) -> None:
        """Take the folder to write to and the folders to read besides."""
        self._own = own
        self._stores = (own, *others)

    def put(self, chunk: bytes) -> bytes:
        """Keep a chunk in the own folder and return its digest."""
        return self._own.put(chunk)

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
        return self._own.get(digest)

    def clear(self) -> None:
        """Delete every chunk in all of the folders."""
        for store in self._stores:
            store.clear()


def _holds(path: Path, chunk: bytes) -> bool:
    """Compare with what is there; a file that cannot be read is as good as a damaged one."""
    try:
        return path.stat().st_size == len(chunk) and path.read_bytes() == chunk
    except OSError:
        return False
