"""Writing and removing files so that a crash, a full disk or a second writer leaves no half."""

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from veiltab.errors import UnavailableError

FILE_MODE = 0o600
FOLDER_MODE = 0o700
DELETED = ".deleted-"
"""How the name of a folder begins that is being removed; nothing looks into such a folder."""

UNFINISHED = ".unfinished-"
"""How the name of a file begins that is being written; nothing reads such a file."""


@contextlib.contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Turn what the operating system refuses into an error for the operator, without a path."""
    try:
        yield
    except OSError as error:
        raise broken(doing, error) from error


def broken(doing: str, error: OSError) -> UnavailableError:
    """Return the error for what the operating system refuses, without a path."""
    return UnavailableError(
        f"the disk does not work: {doing} failed: {error.strerror or type(error).__name__}",
        hint="the operator should look at the data directory: free space, rights, mounts",
    )


def make_folder(folder: Path) -> None:
    """Create a folder and what is missing above it, for the owner only, and wait for the disk."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):  # somebody else was faster
        folder.mkdir(mode=FOLDER_MODE)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Wait until a file that is there already is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_private(path: Path, *content: bytes, durable: bool) -> None:
    """Write a file of mode 0600 beside its place and move it there: whole or not at all."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=UNFINISHED)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            os.fchmod(file.fileno(), FILE_MODE)  # whatever the umask took away
            for part in content:
                _write_all(file.fileno(), part)
            if durable:
                os.fsync(file.fileno())
        Path(temporary).replace(path)
    finally:  # after the move there is nothing left to remove
        with contextlib.suppress(OSError):
            Path(temporary).unlink(missing_ok=True)
    if durable:
        sync_folder(path.parent)


def holds(path: Path, *content: bytes) -> bool:
    """Compare with what is there; a file that cannot be read is as good as a damaged one."""
    try:
        if path.stat().st_size != sum(map(len, content)):
            return False
        with path.open("rb") as file:
            return all(file.read(len(piece)) == piece for piece in content)
    except OSError:
        return False


def set_aside(folder: Path, beside: Path) -> None:
    """Make a folder unreachable in one step: from now on it only waits for its removal."""
    with contextlib.suppress(FileNotFoundError):
        folder.rename(beside / f"{DELETED}{secrets.token_hex(8)}")


def sweep(folder: Path) -> None:
    """Remove what was set aside in a folder, also by somebody who was stopped before the end."""
    with contextlib.suppress(FileNotFoundError):
        for entry in list(folder.iterdir()):
            if entry.name.startswith(DELETED):
                remove_folder(entry)
        sync_folder(folder)


def drop_unfinished(folder: Path) -> None:
    """Remove the files whose writers were stopped before the end; nobody may be writing now."""
    with contextlib.suppress(FileNotFoundError):
        for entry in list(folder.iterdir()):
            if entry.name.startswith(UNFINISHED):
                entry.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder with everything in it; parts that are gone already are fine."""
    with contextlib.suppress(FileNotFoundError):
        with os.scandir(folder) as entries:
            found = list(entries)
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                remove_folder(folder / entry.name)
            else:
                (folder / entry.name).unlink(missing_ok=True)
        folder.rmdir()


def _write_all(descriptor: int, content: bytes) -> None:
    """Write everything: one call may take only a part of it."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
