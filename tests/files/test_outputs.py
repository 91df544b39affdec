"""Writing results: whole or not at all, and an error that names the place."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from veiltab.errors import OutputError
from veiltab.files.disk import make_output_folder, write_output

NO_ROOM = """
import resource, signal, sys
from pathlib import Path
from veiltab.errors import OutputError
from veiltab.files.disk import write_output
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    write_output(Path(sys.argv[1]), bytes(1_000_000))
except OutputError as error:
    print(error.message)
"""
"""A process that may write files of 100 kB at most: a disk that is full half-way."""


def names(folder: Path) -> list[str]:
    """List a folder, hidden files too."""
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("data", [b"", b"result\n", bytes(range(256)) * 5000])
def test_bytes_are_written_as_they_are(tmp_path: Path, data: bytes) -> None:
    """With nothing left beside them."""
    write_output(tmp_path / "result", data)
    assert (tmp_path / "result").read_bytes() == data
    assert names(tmp_path) == ["result"]


def test_a_file_is_replaced(tmp_path: Path) -> None:
    """The old content is gone, however long it was."""
    path = tmp_path / "result.csv"
    path.write_text("old and long")
    write_output(path, b"new")
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["result.csv"]


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_results_are_for_sharing(tmp_path: Path, mask: int) -> None:
    """Everybody may read them and only the owner may write them, whatever the umask."""
    before = os.umask(mask)
    try:
        write_output(tmp_path / "result", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "result").stat().st_mode & 0o777 == 0o644


def test_a_reader_of_the_old_file_keeps_it(tmp_path: Path) -> None:
    """The new file takes the name; who has the old one open reads it to its end."""
    path = tmp_path / "result"
    path.write_text("old")
    with path.open() as reader:
        write_output(path, b"new")
        assert reader.read() == "old"


def test_a_disk_that_runs_full_leaves_the_old_file(tmp_path: Path) -> None:
    """Half of the bytes were written; they are removed, and the old file stays."""
    path = tmp_path / "result"
    path.write_text("old")
    command = [sys.executable, "-c", NO_ROOM, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == f"cannot write {path}: File too large\n"
    assert path.read_text() == "old"
    assert names(tmp_path) == ["result"]


def test_a_write_that_is_stopped_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between writing and moving: the old file stays, without a temporary one."""
    path = tmp_path / "result"
    path.write_text("old")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write_output(path, b"new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["result"]


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    """It is not replaced, and no temporary file stays beside it."""
    (tmp_path / "result").mkdir()
    with pytest.raises(OutputError, match="Is a directory"):
        write_output(tmp_path / "result", b"x")
    assert names(tmp_path) == ["result"]
    assert names(tmp_path / "result") == []


@pytest.mark.parametrize(
    ("place", "reason"),
    [("missing/result", "No such file or directory"), ("file/result", "Not a directory")],
)
def test_places_that_cannot_be_written_to(tmp_path: Path, place: str, reason: str) -> None:
    """The error names the place and the system's reason, and has a hint."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputError) as caught:
        write_output(tmp_path / place, b"x")
    assert caught.value.message == f"cannot write {tmp_path / place}: {reason}"
    assert caught.value.hint
    assert names(tmp_path) == ["file"]


def test_folders_are_made_with_their_parents(tmp_path: Path) -> None:
    """A second time is fine too."""
    for _ in range(2):
        make_output_folder(tmp_path / "a" / "b")
        assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize(
    ("place", "reason"), [("file", "File exists"), ("file/folder", "Not a directory")]
)
def test_folders_that_cannot_be_made(tmp_path: Path, place: str, reason: str) -> None:
    """A file in the way is an error, and stays."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputError, match=f"cannot write .*: {reason}"):
        make_output_folder(tmp_path / place)
    assert (tmp_path / "file").read_text() == "mine"
