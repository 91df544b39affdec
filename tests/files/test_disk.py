"""The one function that writes files: their modes, and names that must be new."""

import os
from collections.abc import Callable
from errno import EPERM
from pathlib import Path

import pytest

from veiltab.files.disk import (
    FILE_MODE,
    OUTPUT_MODE,
    make_folder,
    write_output,
    write_whole,
)


def no_links(*_: object) -> None:
    """Answer as a file system without hard links does."""
    raise OSError(EPERM, os.strerror(EPERM))


@pytest.mark.parametrize("mode", [FILE_MODE, OUTPUT_MODE])
@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("durable", [True, False])
def test_pieces_are_joined_in_a_file_of_the_given_mode(
    tmp_path: Path, mode: int, *, replace: bool, durable: bool
) -> None:
    """With nothing left beside it."""
    path = tmp_path / "file"
    write_whole(path, b"one ", b"", b"two", mode=mode, durable=durable, replace=replace)
    assert path.read_bytes() == b"one two"
    assert path.stat().st_mode & 0o777 == mode
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize(
    "occupy",
    [
        lambda path: path.write_bytes(b"old"),
        lambda path: path.symlink_to("nowhere"),
        lambda path: path.mkdir(),
    ],
    ids=["file", "link", "folder"],
)
def test_a_name_in_use_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    occupy: Callable[[Path], object],
    *,
    linked: bool,
) -> None:
    """With hard links and without: what was there stays, and nothing else appears."""
    path = tmp_path / "file"
    occupy(path)
    before = path.lstat()
    if not linked:
        monkeypatch.setattr(Path, "hardlink_to", no_links)
    with pytest.raises(FileExistsError):
        write_whole(path, b"new", replace=False)
    after = path.lstat()
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_name_needs_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory sticks and shared folders have none."""
    monkeypatch.setattr(Path, "hardlink_to", no_links)
    path = tmp_path / "file"
    write_whole(path, b"new", replace=False)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == FILE_MODE
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    """It is an error, at the end of the path and above."""
    (tmp_path / "file").write_bytes(b"in the way")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(NotADirectoryError):
            make_folder(folder)
    assert (tmp_path / "file").read_bytes() == b"in the way"


@pytest.mark.parametrize("failing", ["folder cannot be synced", "file cannot be moved"])
def test_a_new_file_that_cannot_be_finished_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Whoever is told that it failed can try again under the same name."""
    path = tmp_path / "file"
    with monkeypatch.context() as broken:
        if failing == "folder cannot be synced":
            broken.setattr("veiltab.files.disk.sync_folder", no_links)
        else:
            broken.setattr(Path, "hardlink_to", no_links)
            broken.setattr(Path, "replace", no_links)
        with pytest.raises(OSError, match="not permitted"):
            write_whole(path, b"new", replace=False)
    assert list(tmp_path.iterdir()) == []
    write_whole(path, b"new", replace=False)
    assert path.read_bytes() == b"new"


def test_outputs_do_not_wait_for_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some that people write to cannot be synced: shared ones, or those that may not be listed."""
    monkeypatch.setattr("veiltab.files.disk.sync_folder", no_links)
    write_output(tmp_path / "report.html", b"<html>")
    assert (tmp_path / "report.html").read_bytes() == b"<html>"
