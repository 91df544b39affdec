"""Writing and removing files so that a crash, a full disk or a second writer leaves no half.

:func:`write_whole` writes every file.  It raises ``OSError``; callers turn that into an error for
whoever can act on it: the server's operator (:func:`disk_errors`), a user who named an output
(:func:`write_output`), or the owner of a home (:mod:`veiltab.files.private`).
"""

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from errno import ENOSYS, ENOTDIR, ENOTSUP, EOPNOTSUPP, EPERM
from os import PathLike
from pathlib import Path

from veiltab.errors import OutputError, UnavailableError

FILE_MODE = 0o600
FOLDER_MODE = 0o700
OUTPUT_MODE = 0o644
"""Outputs are for sharing: everybody may read them, whatever the umask."""

DELETED = ".deleted-"
"""How the name of a folder begins that is being removed; nothing looks into such a folder."""

UNFINISHED = ".unfinished-"
"""How the name of a file begins that is being written; nothing reads such a file."""

_NO_LINKS = {ENOSYS, ENOTSUP, EOPNOTSUPP, EPERM}
"""How file systems without hard links answer."""


def write_whole(
    path: Path,
    *content: bytes,
    mode: int = FILE_MODE,
    durable: bool = True,
    replace: bool = True,
) -> None:
    """Write a file beside its place and move it there: it is there whole or not at all.

    With ``durable`` the bytes and the name are on the disk when this returns.  Without ``replace``
    an existing file, or a link that leads nowhere, is a ``FileExistsError`` and stays as it is.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=UNFINISHED)  # of mode 0600
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask took away
            for piece in content:
                _write_all(file.fileno(), piece)
            if durable:
                os.fsync(file.fileno())
        if replace:
            temporary.replace(path)
        else:
            _name_new(temporary, path)
    finally:  # also when it is stopped from the keyboard; after a move nothing is left to remove
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    if durable:
        try:
            sync_folder(path.parent)
        except OSError:
            if not replace:  # whoever asked for a new file is told that there is none
                path.unlink(missing_ok=True)
            raise


def write_output(path: Path, data: bytes, mode: int = OUTPUT_MODE) -> None:
    """Write a file that the user asked for, whole or not at all.

    It can be made again, and some folders that people write to cannot be waited for.
    """
    with _output_errors(path):
        write_whole(path, data, mode=mode, durable=False)


class NewFile:
    """A new file for its owner alone, written piece by piece: it is there whole or not at all."""

    def __init__(self, path: Path) -> None:
        """Refuse a name that is taken; nothing is written before the first piece comes."""
        check_new(path)
        self._path = path
        self._unfinished: tuple[int, Path] | None = None

    def write(self, piece: bytes) -> None:
        """Add bytes to the end."""
        with _output_errors(self._path):
            if self._unfinished is None:
                descriptor, name = tempfile.mkstemp(dir=self._path.parent, prefix=UNFINISHED)
                self._unfinished = descriptor, Path(name)  # of mode 0600
            _write_all(self._unfinished[0], piece)

    def finish(self) -> Path:
        """Give the file its name, which nobody may have taken in the meantime."""
        try:
            with _output_errors(self._path):
                self.write(b"")
                assert self._unfinished is not None  # noqa: S101 - written to in the line above
                _name_new(self._unfinished[1], self._path)
        finally:
            self.discard()
        return self._path

    def discard(self) -> None:
        """Remove what has no name yet."""
        if self._unfinished is not None:
            descriptor, temporary = self._unfinished
            self._unfinished = None
            with contextlib.suppress(OSError):
                os.close(descriptor)
                temporary.unlink(missing_ok=True)


def make_output_folder(path: Path) -> None:
    """Create a folder that the user asked for, and its parents, unless it exists."""
    with _output_errors(path):
        path.mkdir(parents=True, exist_ok=True)


def check_new(path: Path) -> None:
    """Refuse a name for a new file that is taken, or whose folder does not exist."""
    with _output_errors(path):  # such as of a name that is too long
        taken, folder = path.exists() or path.is_symlink(), path.parent.is_dir()
    if taken:
        raise OutputError(f"{path} exists already", hint="name a new file; nothing is overwritten")
    if not folder:
        raise OutputError(
            f"cannot write {path}: there is no such folder",
            hint="choose a place that you may write to",
        )


def is_file(name: str | PathLike[str]) -> bool:
    """Tell whether there is a file of this name; what can be no name of a file is none."""
    try:
        return Path(name).is_file()
    except OSError:  # of thousands of characters, for example
        return False


def check_empty(folder: Path) -> None:
    """Refuse a folder for new files that holds any."""
    with _output_errors(folder):
        taken = folder.is_dir() and any(folder.iterdir())
    if taken:
        raise OutputError(
            f"{folder} is not empty", hint="name a new folder; nothing is overwritten"
        )


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
    if folder.parent != folder:
        make_folder(folder.parent)
    try:
        folder.mkdir(mode=FOLDER_MODE)
    except FileExistsError:  # another process was faster, unless it is a file
        if not folder.is_dir():
            raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), str(folder)) from None
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Wait until an existing file is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def holds(path: Path, *content: bytes) -> bool:
    """Say whether a file has exactly this content; one that cannot be read has not."""
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
    """Remove the folders that were set aside here, also by a process that died before the end."""
    with contextlib.suppress(FileNotFoundError):
        for entry in list(folder.iterdir()):
            if entry.name.startswith(DELETED):
                remove_folder(entry)
        sync_folder(folder)


def drop_unfinished(folder: Path) -> None:
    """Remove the files of writers that died before the end; nobody may be writing now."""
    with contextlib.suppress(FileNotFoundError):
        for entry in list(folder.iterdir()):
            if entry.name.startswith(UNFINISHED):
                entry.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder with everything in it; parts that are gone already are no error."""
    with contextlib.suppress(FileNotFoundError):
        with os.scandir(folder) as entries:
            listed = list(entries)
        for entry in listed:
            if entry.is_dir(follow_symlinks=False):
                remove_folder(folder / entry.name)
            else:
                (folder / entry.name).unlink(missing_ok=True)
        folder.rmdir()


@contextlib.contextmanager
def _output_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror}", hint="choose a place that you may write to"
        ) from error


def _name_new(temporary: Path, path: Path) -> None:
    """Give a finished file a name that is not in use, or raise ``FileExistsError``."""
    try:
        path.hardlink_to(temporary)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        path.touch(mode=FILE_MODE, exist_ok=False)  # reserves the name
        try:
            temporary.replace(path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _write_all(descriptor: int, content: bytes) -> None:
    """Write everything: one call may write only a part of it."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
