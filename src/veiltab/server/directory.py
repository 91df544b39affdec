"""The server's data directory: where the database, the key file and the chunks of studies are."""

import fcntl
import os
import re
import stat
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from sqlalchemy import URL

from veiltab.errors import ParameterError, StateError
from veiltab.files.bundles import BundledChunks
from veiltab.files.chunks import FolderChunks, JoinedChunks
from veiltab.files.disk import (
    disk_errors,
    drop_unfinished,
    make_folder,
    set_aside,
    sweep,
    sync_folder,
)
from veiltab.files.spool import FolderSpool

ID_BYTES = 32
"""Ids of studies and of parties."""

LEAST_BUNDLE = 64 * 1024
"""What a bundle counts at least, because many small files are as bad as large ones."""

_ID = re.compile(f"[0-9a-f]{{{2 * ID_BYTES}}}")
_SCRATCH = "scratch"
_RELEASED = "released"
_DRAWN = "drawn"
_PROBE = ".writable"
_LOCK = ".lock"
_LOCK_SECONDS = 0.2
"""How long a lock is tried: `veiltab server status` holds it for an instant."""

_BALLAST = ".ballast"
_UNSAFE_MODE = stat.S_IRWXG | stat.S_IRWXO


class DataDirectory:
    """A folder that only its owner can open; no other module knows how it is laid out."""

    def __init__(self, path: Path) -> None:
        """Create the directory with mode 0700; one that others can open is refused."""
        self._path = path.absolute()
        with disk_errors("making the data directory"):
            missing = [folder for folder in self._path.parents if not folder.exists()]
            self._made = [] if self._path.exists() else [self._path, *missing]
            make_folder(self._path)
            mode = stat.S_IMODE(self._path.stat().st_mode)
        if mode & _UNSAFE_MODE:
            raise ParameterError(
                f"the data directory {path} can be opened by others (mode {mode:04o})",
                hint=f"make it private with: chmod 700 {path}; or name a directory of its own",
            )

    @property
    def path(self) -> Path:
        """Where the directory is, as an absolute path."""
        return self._path

    @property
    def database_url(self) -> str:
        """The address of the SQLite database that a server uses unless it is told otherwise."""
        url = URL.create("sqlite", database=str(self._path / "veiltab.db"))
        return url.render_as_string(hide_password=False)

    @property
    def key_file(self) -> Path:
        """Where the server's own identity is."""
        return self._path / "server.key"

    def undo_start(self) -> None:
        """Remove what a failed first start has made; the caller has the lock.

        A folder stays in which there is anything else.
        """
        for name in (self.key_file.name, _LOCK):
            (self._path / name).unlink(missing_ok=True)
        with suppress(OSError):
            for folder in self._made:
                folder.rmdir()

    def received(self, study: bytes, curator: bytes) -> BundledChunks:
        """Return the chunks that one curator has sent for a study."""
        return BundledChunks(self._study(study) / "received" / _hex(curator))

    def joined(self, study: bytes) -> FolderChunks:
        """Return the chunks of the joined rows, which the server can compute again."""
        return FolderChunks(self._study(study) / "joined", durable=False)

    def received_all(self, study: bytes, curators: Iterable[bytes]) -> JoinedChunks:
        """Return the chunks of all curators in one view; what is new goes to the joined ones."""
        return JoinedChunks(
            self.joined(study),
            [self.drawn(study), *(self.received(study, curator) for curator in curators)],
        )

    def drawn(self, study: bytes) -> BundledChunks:
        """Return the rows that were drawn of stored tables, and their positions."""
        return BundledChunks(self._study(study) / _DRAWN)

    def scratch(self, study: bytes, name: str) -> FolderSpool:
        """Return scratch space of a release, for tokens and ciphertext that is not perturbed."""
        errors = partial(disk_errors, "sorting a study's rows")
        return FolderSpool(self._study(study) / _SCRATCH, name, errors)

    def released(self, study: bytes) -> BundledChunks:
        """Return the perturbed chunks of a study."""
        return BundledChunks(self._study(study) / _RELEASED)

    def studies(self) -> Iterator[bytes]:
        """Yield the ids of the studies that have chunks here, in ascending order."""
        with disk_errors("listing studies"):
            try:
                names = sorted(entry.name for entry in self._studies.iterdir())
            except FileNotFoundError:
                names = []
        yield from (bytes.fromhex(name) for name in names if _ID.fullmatch(name))

    def forget_received(self, study: bytes) -> None:
        """Delete what curators have sent and what was joined: at once, and for good."""
        folder = self._study(study)
        with disk_errors("deleting received chunks"):
            if not folder.is_dir():
                return
            set_aside(folder / "received", folder)
            set_aside(folder / "joined", folder)
            set_aside(folder / _DRAWN, folder)
            set_aside(folder / _SCRATCH, folder)
            sync_folder(folder)
            sweep(folder)

    def forget_study(self, study: bytes) -> None:
        """Delete every chunk of a study."""
        folder = self._study(study)
        with disk_errors("deleting a study's chunks"):
            if not self._studies.is_dir():
                return
            set_aside(folder, self._studies)
            sync_folder(self._studies)
            sweep(self._studies)

    def sweep(self, busy: Collection[bytes] = ()) -> None:
        """Finish deletions that were interrupted, but in studies that are being released now.

        A release that was interrupted begins anew, and needs nothing of its scratch space, nor
        the bundle that it was writing.
        """
        for study in self.studies():
            if study in busy:
                continue
            with disk_errors("finishing a deletion"):
                set_aside(self._study(study) / _SCRATCH, self._study(study))
                drop_unfinished(self._study(study) / _RELEASED)
                drop_unfinished(self._study(study) / _DRAWN)
                sweep(self._study(study))
        with disk_errors("finishing a deletion"):
            sweep(self._studies)

    def received_bytes(self, study: bytes) -> dict[bytes, int]:
        """Return how much of a study each curator has sent, by the files on the disk."""
        with disk_errors("measuring chunks"):
            try:
                entries = list((self._study(study) / "received").iterdir())
            except FileNotFoundError:
                return {}
            found = [entry for entry in entries if _ID.fullmatch(entry.name)]
            return {bytes.fromhex(entry.name): _file_bytes(entry) for entry in found}

    def released_bytes(self, study: bytes) -> int:
        """Return how much of a study is released, by the files on the disk."""
        with disk_errors("measuring chunks"):
            return _file_bytes(self._study(study) / _RELEASED)

    def keep_ballast(self, size: int, reserve: int) -> None:
        """Keep a file that can be given up, unless the disk is nearly full."""
        path = self._path / _BALLAST
        if path.exists() or self.free_bytes() < reserve + size:
            return
        with disk_errors("reserving space"):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, size)
            except OSError:
                path.unlink(missing_ok=True)
                raise
            finally:
                os.close(descriptor)

    def has_ballast(self) -> bool:
        """Tell whether there is a file that can be given up."""
        return (self._path / _BALLAST).exists()

    def drop_ballast(self) -> bool:
        """Give the reserved file up; ``False`` if there is none any more."""
        with disk_errors("freeing space"):
            try:
                (self._path / _BALLAST).unlink()
            except FileNotFoundError:
                return False
        return True

    def free_bytes(self) -> int:
        """Return how much the server could still write to the disk."""
        with disk_errors("measuring the disk"):
            disk = os.statvfs(self._path)
        return disk.f_bavail * disk.f_frsize

    def total_bytes(self) -> int:
        """Return the size of the disk."""
        with disk_errors("measuring the disk"):
            disk = os.statvfs(self._path)
        return disk.f_blocks * disk.f_frsize

    def check_writable(self) -> None:
        """Write and delete a file on the disk, or raise :class:`UnavailableError`."""
        with disk_errors("a test of writing"):
            descriptor = os.open(self._path / _PROBE, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, b"writable")
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
                (self._path / _PROBE).unlink(missing_ok=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other servers out of this directory for as long as the block runs.

        The operating system releases the lock when the process ends, also after a crash.
        """
        with disk_errors("locking the data directory"):
            descriptor = os.open(self._path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._seize(descriptor)
            with disk_errors("removing what an earlier server left"):
                drop_unfinished(self._path)  # such as a second name of the server's key
            yield
        finally:
            os.close(descriptor)

    def is_served(self) -> bool:
        """Tell whether a server runs here; one that starts at this moment waits for the answer."""
        try:
            descriptor = os.open(self._path / _LOCK, os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _seize(self, descriptor: int) -> None:
        end = time.monotonic() + _LOCK_SECONDS
        with disk_errors("locking the data directory"):
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() >= end:
                        raise self._in_use() from None
                    time.sleep(_LOCK_SECONDS / 10)
                else:
                    break
            if not os.path.samestat(os.fstat(descriptor), (self._path / _LOCK).stat()):
                raise self._in_use()  # whoever had it has removed it meanwhile

    def _in_use(self) -> StateError:
        return StateError(
            f"another server is using the data directory {self._path}",
            hint="stop it first, or give this server a data directory of its own",
        )

    @property
    def _studies(self) -> Path:
        return self._path / "studies"

    def _study(self, study: bytes) -> Path:
        return self._studies / _hex(study)


def bundle_size(size: int) -> int:
    """Return what a bundle of this many bytes counts."""
    return max(size, LEAST_BUNDLE)


def _file_bytes(folder: Path) -> int:
    """Return the sizes of the bundles in a folder, each as it is counted."""
    if not folder.is_dir():
        return 0
    return sum(bundle_size(entry.stat().st_size) for entry in folder.iterdir())


def _hex(identifier: bytes) -> str:
    """Return the name of a folder; an empty id would name all of them together."""
    if len(identifier) != ID_BYTES:
        raise ParameterError(
            f"an id has {ID_BYTES} bytes, not {len(identifier)}",
            hint="take the ids of studies and parties from their messages",
        )
    return identifier.hex()
