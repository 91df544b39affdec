"""Scratch files for sorting a table that does not fit into memory.

They hold the tokens and codes of every respondent, unencrypted: personal data.  Use a folder on
the curator's own machine, on a disk that the table itself might be on.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from veiltab.errors import OutputError

_NAME = re.compile(r"partition-\d{5}")
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderSpool:
    """Partitions as files of one folder, which only the owner can read.

    Each intake needs a folder of its own.  What a crash left there goes with the next ``clear``,
    which every intake begins with; nothing else in the folder is touched.
    """

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is made when something is written."""
        self._folder = folder

    def append(self, partition: int, data: memoryview) -> None:
        """Add bytes to the end of a partition."""
        with _scratch_errors():
            try:
                descriptor = os.open(self._path(partition), _FLAGS, 0o600)
            except FileNotFoundError:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor = os.open(self._path(partition), _FLAGS, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)

    def read(self, partition: int) -> bytes:
        """Return a whole partition."""
        with _scratch_errors():
            try:
                return self._path(partition).read_bytes()
            except FileNotFoundError:
                return b""

    def clear(self) -> None:
        """Delete every partition, and the folder unless something else is in it."""
        with _scratch_errors(), contextlib.suppress(FileNotFoundError):
            for path in list(self._folder.iterdir()):
                if _NAME.fullmatch(path.name):
                    path.unlink(missing_ok=True)
            if not any(self._folder.iterdir()):
                self._folder.rmdir()

    def _path(self, partition: int) -> Path:
        return self._folder / f"partition-{partition:05}"


@contextlib.contextmanager
def _scratch_errors() -> Iterator[None]:
    """Turn what the operating system refuses into an error for the curator."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"the scratch folder cannot be used: {error.strerror or type(error).__name__}",
            hint="give a private folder on a disk with room for about 30 bytes for each row of the"
            " table, twice that where the server samples",
        ) from error
