"""The files of a home: whole or not at all, for their owner alone, and one writer at a time."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from veiltab.errors import HomeError
from veiltab.files.private import (
    check_private_folder,
    locked,
    make_private_folder,
    parse_file,
    read_private,
    write_private,
)
from veiltab.wire.codec import load

WRITER = """
import sys
from pathlib import Path
from veiltab.files.private import write_private
while True:
    for letter in b"ab":
        write_private(Path(sys.argv[1]), bytes([letter]) * 300_000)
        print("x", end="", flush=True)
"""

HOLDER = """
import sys, time
from pathlib import Path
from veiltab.files.private import locked
with locked(Path(sys.argv[1]), 5):
    print("held", flush=True)
    time.sleep(60)
"""


def python(script: str, path: Path) -> subprocess.Popen[bytes]:
    """Start a script in another process."""
    command = [sys.executable, "-c", script, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: S603 - our own script


@pytest.mark.slow
def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path) -> None:
    """Killed at any instruction: the file is all of one version."""
    path = tmp_path / "file"
    with python(WRITER, path) as writer:
        assert writer.stdout is not None
        writer.stdout.read(7)
        writer.send_signal(signal.SIGKILL)
    data = path.read_bytes()
    assert data in (b"a" * 300_000, b"b" * 300_000)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failing_disk_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The new bytes must be on the disk before the name points to them."""
    path = tmp_path / "file"
    write_private(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os if step == "fsync" else Path, step, fail)
    with pytest.raises(HomeError, match=r"file: No space left on device"):
        write_private(path, b"new")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_bytes_are_synced_before_the_move_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order that survives a power cut."""
    steps: list[str] = []
    sync, move = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        steps.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")  # noqa: PTH112
        sync(descriptor)

    def replace(self: Path, target: Path) -> Path:
        steps.append("move")
        return move(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    write_private(tmp_path / "file", b"new")
    assert steps == ["file", "move", "folder"]


def test_files_and_folders_are_private_whatever_the_umask(tmp_path: Path) -> None:
    """Also folders on the way."""
    before = os.umask(0o177)
    try:
        write_private(tmp_path / "strict", b"")
        os.umask(0)
        make_private_folder(tmp_path / "a" / "b")
        write_private(tmp_path / "a" / "b" / "loose", b"")
    finally:
        os.umask(before)
    for name, mode in (("strict", 0o600), ("a", 0o700), ("a/b", 0o700), ("a/b/loose", 0o600)):
        assert (tmp_path / name).stat().st_mode & 0o777 == mode


def test_reading_what_is_not_there_and_what_is_no_file(tmp_path: Path) -> None:
    """Nothing is ``None``; a folder is an error that names it."""
    assert read_private(tmp_path / "none") is None
    assert parse_file(tmp_path / "none", load) is None
    with pytest.raises(HomeError, match=str(tmp_path)):
        read_private(tmp_path)
    with pytest.raises(HomeError, match="cannot write"):
        write_private(tmp_path / "no" / "file", b"")
    (tmp_path / "file").touch()
    with pytest.raises(HomeError, match="cannot write"):
        make_private_folder(tmp_path / "file")


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o710, 0o701, 0o704, 0o740, 0o777, 0o720])
def test_a_folder_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    """Every bit of group and others; the hint can be pasted into a shell."""
    tmp_path.chmod(mode)
    with pytest.raises(HomeError, match=f"{mode:04o}") as caught:
        check_private_folder(tmp_path)
    assert f"chmod 700 {tmp_path}" in caught.value.hint
    tmp_path.chmod(0o700)
    check_private_folder(tmp_path)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    """Missing, or a file."""
    with pytest.raises(HomeError, match="there is no home"):
        check_private_folder(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(HomeError, match="is not a folder"):
        check_private_folder(tmp_path / "file")


@pytest.mark.slow
def test_a_lock_keeps_others_out_until_its_process_dies(tmp_path: Path) -> None:
    """The error names the process; a killed process holds nothing."""
    path = tmp_path / "lock"
    with python(HOLDER, path) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        start = time.monotonic()
        with pytest.raises(HomeError, match=f"process {holder.pid}"), locked(path, 0.2):
            pass
        assert time.monotonic() - start >= 0.2
        holder.kill()
    with locked(path, 0):
        assert path.read_text() == str(os.getpid())


@pytest.mark.slow
def test_a_lock_waits_for_the_one_before(tmp_path: Path) -> None:
    """A short command before is no error."""
    path = tmp_path / "lock"
    with python(HOLDER.replace("60", "0.3"), path) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with locked(path, 10):
            assert path.read_text() == str(os.getpid())


def test_a_lock_where_nothing_can_be_written(tmp_path: Path) -> None:
    """An ordinary error, not a traceback."""
    with pytest.raises(HomeError, match="cannot write"), locked(tmp_path / "no" / "lock", 0):
        pass


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_files_that_others_can_open_are_refused(tmp_path: Path, mode: int) -> None:
    """Ledgers, secrets, grants: everything in a home; the hint says what to run."""
    path = tmp_path / "ledger.json"
    write_private(path, b"{}")
    path.chmod(mode)
    with pytest.raises(HomeError, match="others can open") as caught:
        read_private(path)
    assert f"chmod 600 {path}" in caught.value.hint
    path.chmod(0o600)
    assert read_private(path) == b"{}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_files_of_another_user_are_refused(tmp_path: Path) -> None:
    """Whoever owns a file can change its mode."""
    path = tmp_path / "ledger.json"
    write_private(path, b"{}")
    os.chown(path, 12345, -1)
    with pytest.raises(HomeError, match="another user"):
        read_private(path)
