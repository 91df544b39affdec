"""The files of a home: private, written whole, and on the disk when a call returns."""

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from veiltab.errors import DamagedFileError, HomeError, VeiltabError, VersionError
from veiltab.files.disk import FILE_MODE, make_folder, write_whole
from veiltab.remedies import Remedy
from veiltab.wire.codec import MAX_MESSAGE_BYTES

UNSAFE_MODE = stat.S_IRWXG | stat.S_IRWXO
"""Any right of the group or of others."""

_POLL = 0.05

T = TypeVar("T")


def write_private(path: Path, data: bytes) -> None:
    """Write a file for its owner alone; after a crash the old or the new one is there, whole."""
    try:
        write_whole(path, data)
    except OSError as error:
        raise _cannot_write(path, error) from error


def read_private(path: Path) -> bytes | None:
    """Return the bytes of a file, or ``None`` if there is none."""
    try:
        with path.open("rb") as file:
            check_private_file(file.fileno(), path)
            return file.read(MAX_MESSAGE_BYTES + 1)  # one more: the parser refuses it by length
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HomeError(
            f"cannot read {path}: {error.strerror}", hint="check who owns it and its mode"
        ) from error


def check_private_file(descriptor: int, path: Path) -> None:
    """Refuse an open file that others can open too, or that somebody else but root owns."""
    status = os.fstat(descriptor)
    mode = stat.S_IMODE(status.st_mode)
    if mode & (stat.S_IRWXO if _is_credential(path) else UNSAFE_MODE):
        raise HomeError(
            f"others can open {path} (mode {mode:04o})",
            hint=f"run: chmod 600 {path}; if others may have read it, replace what is secret in it",
        )
    if status.st_uid not in (os.geteuid(), 0):
        raise HomeError(
            f"{path} belongs to another user of this computer, who can read and change it",
            hint="copy it to a file of your own, of mode 600",
        )


def _is_credential(path: Path) -> bool:
    """Tell whether systemd hands this file to this process, in a folder that nobody else can enter.

    Such a file may be root's, with an access list for one user; its mask is shown as the group's
    rights.
    """
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if not folder or path.parent != Path(folder):
        return False
    status = path.parent.stat()
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & stat.S_IRWXO


def parse_file(path: Path, parse: Callable[[bytes], T]) -> T | None:
    """Read a file and parse it; ``None`` if there is none.

    The error of a damaged file names the file and nothing in it, not even in the chain of its
    causes: many of these files hold secrets, and errors end up in logs.
    """
    data = read_private(path)
    if data is None:
        return None
    other_version = False
    try:
        return parse(data)
    except VersionError:
        other_version = True
    except VeiltabError:
        pass
    if other_version:
        raise HomeError(
            f"{path} was written by another version of veiltab",
            hint="use the version that wrote it, or a newer one",
        )
    raise damaged(path)


def damaged(path: Path) -> DamagedFileError:
    """Build the error of a file that is not what veiltab wrote there."""
    return DamagedFileError(
        f"{path} is damaged: it is not what veiltab wrote there",
        hint="restore it from a copy of the home; these files must not be edited",
    )


def make_private_folder(path: Path) -> None:
    """Create a folder for its owner alone, and its parents, unless it is there."""
    try:
        make_folder(path)
    except OSError as error:
        raise _cannot_write(path, error) from error


def check_private_folder(path: Path) -> None:
    """Refuse a folder that is not there, or that its group or others can enter or list."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise HomeError(
            f"there is no home in {path}: {error.strerror}",
            hint=f"make an identity: veiltab id new; or {Remedy.ITS_HOME}",
        ) from error
    if not stat.S_ISDIR(mode):
        raise HomeError(f"{path} is not a folder", hint="name another place for the home")
    if mode & UNSAFE_MODE:
        raise HomeError(
            f"others can enter the home {path} (mode {stat.S_IMODE(mode):04o})",
            hint=f"run: chmod 700 {path}; if others may have read it, make a new identity",
        )


@contextmanager
def locked(path: Path, wait: float) -> Iterator[None]:
    """Hold a lock file; wait up to ``wait`` seconds for another process that holds it.

    The system ends the lock when the process dies, however it does.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        _acquire(descriptor, path, wait)
        with contextlib.suppress(OSError):  # only for the other process's error message
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _cannot_write(path: Path, error: OSError) -> HomeError:
    """Build the error of a file or folder that the system does not let be written."""
    return HomeError(
        f"cannot write {path}: {error.strerror}",
        hint="check the disk's free space, and who owns the home",
    )


def _acquire(descriptor: int, path: Path, wait: float) -> None:
    end = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= end:
                holder = os.pread(descriptor, 20, 0).decode("ascii", "replace")
                raise HomeError(
                    f"another command is at work in {path.parent} (process {holder or 'unknown'})",
                    hint="wait until it has finished, and try again; an agent has to be stopped",
                ) from error
            time.sleep(_POLL)
        except OSError as error:
            raise _cannot_write(path, error) from error
        else:
            return
