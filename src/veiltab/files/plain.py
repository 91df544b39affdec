"""Writing results so that a reader never finds half of one."""

import csv
import io
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from veiltab.errors import OutputError

PLAIN_FILE_MODE = 0o644
"""Results are for sharing, unlike the private files that a temporary file starts as."""


def write_whole(path: Path, data: bytes) -> None:
    """Write a file beside its place and move it there: it is there as a whole or not at all."""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(temporary).chmod(PLAIN_FILE_MODE)
        Path(temporary).replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:  # also when it is stopped from the keyboard; after the move there is nothing left
        Path(temporary).unlink(missing_ok=True)


def csv_bytes(rows: Sequence[Mapping[str, object]]) -> bytes:
    """Return rows of the same keys as a CSV file with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def make_folder(path: Path) -> None:
    """Create a folder for results, and its parents, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def check_new(path: Path) -> None:
    """Refuse a name for a new file that is taken, or whose folder does not exist."""
    if path.exists() or path.is_symlink():
        raise OutputError(f"{path} exists already", hint="name a new file; nothing is overwritten")
    if not path.parent.is_dir():
        raise OutputError(
            f"cannot write {path}: there is no such folder",
            hint="choose a place that you may write to",
        )


def check_empty(folder: Path) -> None:
    """Refuse a folder for new files that holds any."""
    if folder.is_dir() and any(folder.iterdir()):
        raise OutputError(
            f"{folder} is not empty", hint="name a new folder; nothing is overwritten"
        )


def cannot_write(path: Path, error: OSError) -> OutputError:
    """Return the error for a file that the operating system refuses to write."""
    return OutputError(
        f"cannot write {path}: {error.strerror}", hint="choose a place that you may write to"
    )
