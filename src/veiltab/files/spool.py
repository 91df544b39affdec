"""Scratch files for sorting a table that does not fit into memory.

A curator's scratch files hold the tokens and codes of every respondent, unencrypted: personal data.
Keep them on the curator's own machine, on a disk that could hold the table itself.  A server's
scratch files hold tokens and ciphertext.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

from veiltab.errors import OutputError

Errors: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Turns what the operating system refuses into an error for whoever can fix it."""

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderSpool:
    """Partitions as files of one folder, which only the owner can read.

    Spools in one folder need different names.  What a crash leaves behind is deleted by the next
    ``clear``, with which every sorting begins; nothing else in the folder is touched.
    """

    def __init__(self, folder: Path, name: str = "partition", errors: Errors | None = None) -> None:
        """Name the folder, which is made when something is written, and how its files begin."""
        self._folder, self._name = folder, name
        self._errors = scratch_errors if errors is None else errors

    def append(self, partition: int, data: memoryview) -> None:
        """Add bytes to the end of a partition."""
        with self._errors():
            try:
                descriptor = os.open(self._path(partition), _FLAGS, 0o600)
            except FileNotFoundError:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor = os.open(self._path(partition), _FLAGS, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)

    def read(self, partition: int) -> bytes:
        """Return a whole partition."""
        with self._errors():
            try:
                return self._path(partition).read_bytes()
            except FileNotFoundError:
                return b""

    def clear(self) -> None:
        """Delete every partition, and the folder unless something else is in it."""
        file_name = re.compile(rf"{re.escape(self._name)}-\d{{5}}")
        with self._errors(), contextlib.suppress(FileNotFoundError):
            for path in list(self._folder.iterdir()):
                if file_name.fullmatch(path.name):
                    path.unlink(missing_ok=True)
            if not any(self._folder.iterdir()):
                self._folder.rmdir()

    def _path(self, partition: int) -> Path:
        return self._folder / f"{self._name}-{partition:05}"


@contextlib.contextmanager
def scratch_errors() -> Iterator[None]:
    """Turn what the operating system refuses into an error for the curator."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"the scratch folder cannot be used: {error.strerror or type(error).__name__}",
            hint="give a private folder on a disk with room for about 30 bytes for each row of the"
            " table, twice that where the server samples",
        ) from error
