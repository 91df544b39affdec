"""The data directory: what is where, who may open it, and how studies are forgotten."""

import errno
import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from veiltab.errors import DigestError, ParameterError, StateError, UnavailableError
from veiltab.server.db.database import Database
from veiltab.server.directory import DataDirectory

STUDY, OTHER = b"\x01" * 32, b"\x02" * 32
ALICE, BOB = b"a" * 32, b"b" * 32
JOINED = b"joined"


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    """Return a new data directory."""
    return DataDirectory(tmp_path / "data")


def fill(data: DataDirectory, study: bytes = STUDY) -> None:
    """Put a chunk in every folder of a study."""
    data.joined(study).put(JOINED)
    for store, chunk in (
        (data.received(study, ALICE), b"from Alice"),
        (data.received(study, BOB), b"from Bob"),
        (data.released(study), b"released"),
    ):
        store.put(chunk)
        store.sync()


def files(data: DataDirectory) -> list[str]:
    """Return the folders of all chunks, and what else there is below ``studies``."""
    paths = (path for path in (data.path / "studies").rglob("*") if path.is_file())
    return sorted(str(path.parent.relative_to(data.path / "studies")) for path in paths)


def test_the_directory_is_private(tmp_path: Path) -> None:
    """It is made with mode 0700 whatever the umask, with what is missing above it."""
    before = os.umask(0)
    try:
        data = DataDirectory(tmp_path / "above" / "data")
        fill(data)
    finally:
        os.umask(before)
    folders = [tmp_path / "above", *(p for p in (tmp_path / "above").rglob("*") if p.is_dir())]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}


def test_an_existing_directory_is_used_again(data: DataDirectory) -> None:
    """What is in it stays."""
    fill(data)
    assert len(DataDirectory(data.path).released(STUDY)) == 1


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_directory_that_others_can_open_is_refused(tmp_path: Path, mode: int) -> None:
    """It is not changed either: it may be somebody's /srv."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    with pytest.raises(ParameterError, match=f"{mode:04o}") as caught:
        DataDirectory(tmp_path / "open")
    assert "chmod 700" in caught.value.hint
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == mode


def test_a_directory_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    """Such as one below a file."""
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError):
        DataDirectory(tmp_path / "file" / "data")


@pytest.mark.parametrize("name", ["data", "with space", "50%20off?a=b#c&d", "Größe:1"])
def test_the_database_is_in_the_directory(tmp_path: Path, name: str) -> None:
    """Its address holds whatever the path's name is, and the file is private."""
    data = DataDirectory(tmp_path / name)
    with Database(data.database_url) as database:
        database.migrate()
        database.ping()
    assert stat.S_IMODE((data.path / "veiltab.db").stat().st_mode) == 0o600
    assert data.key_file == data.path / "server.key"


def test_each_kind_of_chunk_has_its_place(data: DataDirectory) -> None:
    """One folder per curator: nobody's chunk is found among another's."""
    fill(data)
    study = STUDY.hex()
    assert files(data) == [
        f"{study}/joined",
        f"{study}/received/{ALICE.hex()}",
        f"{study}/received/{BOB.hex()}",
        f"{study}/released",
    ]
    [digest] = data.received(STUDY, ALICE).digests()
    assert not data.received(STUDY, BOB).has(digest)
    assert not data.received(OTHER, ALICE).has(digest)


def test_all_received_chunks_are_seen_together(data: DataDirectory) -> None:
    """And what is put there goes to the joined chunks; what is released is not seen."""
    fill(data)
    together = data.received_all(STUDY, [ALICE, BOB])
    for store in (data.received(STUDY, ALICE), data.received(STUDY, BOB)):
        [digest] = store.digests()
        assert together.get(digest) == store.get(digest)
    assert together.get(hashlib.sha256(JOINED).digest()) == JOINED
    assert data.joined(STUDY).has(together.put(b"new"))
    [released] = data.released(STUDY).digests()
    with pytest.raises(DigestError):
        together.get(released)


def test_studies_are_listed(data: DataDirectory) -> None:
    """In order, and nothing else that lies in the folder."""
    assert list(data.studies()) == []
    fill(data, OTHER)
    fill(data, STUDY)
    (data.path / "studies" / ".deleted-0123").mkdir()
    (data.path / "studies" / "notes").mkdir()
    assert list(data.studies()) == [STUDY, OTHER]


def test_received_chunks_are_forgotten(data: DataDirectory) -> None:
    """What was released, and other studies, stay; a second time is no error."""
    fill(data)
    fill(data, OTHER)
    for _ in range(2):
        data.forget_received(STUDY)
        assert files(data)[:2] == [f"{STUDY.hex()}/released", f"{OTHER.hex()}/joined"]
        assert len(files(data)) == 5
    data.forget_received(b"\x09" * 32)
    assert list(data.studies()) == [STUDY, OTHER]


def test_a_study_is_forgotten(data: DataDirectory) -> None:
    """With everything; a second time, and a study that never was, are no error."""
    data.forget_study(STUDY)
    fill(data)
    fill(data, OTHER)
    for _ in range(2):
        data.forget_study(STUDY)
        assert list(data.studies()) == [OTHER]
        assert len(files(data)) == 4


@pytest.mark.parametrize("method", ["forget_received", "forget_study"])
def test_an_interrupted_deletion_is_finished(
    data: DataDirectory, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """The chunks are out of reach at once, and the next call or a sweep removes the rest."""
    for finish in (getattr(data, method), lambda _: data.sweep()):
        fill(data)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", _broken_disk)
            with pytest.raises(UnavailableError):
                getattr(data, method)(STUDY)
        assert len(data.received(STUDY, ALICE)) == 0
        assert not data.joined(STUDY).has(hashlib.sha256(JOINED).digest())
        assert any(".deleted-" in path for path in files(data))
        finish(STUDY)
        assert not any(".deleted-" in path for path in files(data))


def test_a_sweep_leaves_studies_alone(data: DataDirectory) -> None:
    """It removes only what somebody else has set aside."""
    data.sweep()
    fill(data)
    before = files(data)
    data.sweep()
    assert files(data) == before


def test_a_sweep_removes_a_release_that_was_being_written(
    data: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was killed neither moves its file nor removes it; nothing else goes."""
    fill(data)
    before = files(data)
    released = data.released(STUDY)
    released.put(b"more")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", _broken_disk)
        patch.setattr(Path, "unlink", _broken_disk)
        with pytest.raises(UnavailableError):
            released.sync()
    assert len(files(data)) == len(before) + 1
    assert len(data.released(STUDY)) == 1
    data.sweep()
    assert files(data) == before
    assert len(data.released(STUDY)) == 1


@pytest.mark.parametrize("method", ["forget_received", "forget_study", "sweep"])
def test_scratch_space_is_forgotten(data: DataDirectory, method: str) -> None:
    """With what was received, with the study, and after a crash."""
    fill(data)
    data.scratch(STUDY, "table-0").append(0, memoryview(b"tokens"))
    data.scratch(STUDY, "sample").append(7, memoryview(b"rows"))
    assert files(data).count(f"{STUDY.hex()}/scratch") == 2
    if method == "sweep":
        data.sweep()
        assert len(files(data)) == 4
    else:
        getattr(data, method)(STUDY)
    assert data.scratch(STUDY, "sample").read(7) == b""
    assert not any("scratch" in path or ".deleted" in path for path in files(data))


def test_scratch_space_is_private_and_in_parts(data: DataDirectory) -> None:
    """Each name is on its own; clearing one leaves the other, and the last takes the folder."""
    fill(data)
    one, two = data.scratch(STUDY, "table-1"), data.scratch(STUDY, "table-10")
    one.append(3, memoryview(b"one"))
    two.append(3, memoryview(b"two"))
    folder = data.path / "studies" / STUDY.hex() / "scratch"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    one.clear()
    assert (one.read(3), two.read(3)) == (b"", b"two")
    two.clear()
    assert not folder.exists()


def test_a_full_disk_is_the_operators_to_mend(
    data: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scratch space on the server is no curator's folder: the error says where to look."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(UnavailableError, match=r"sorting .* No space left") as caught:
        data.scratch(STUDY, "sample").append(0, memoryview(b"rows"))
    assert "data directory: free space" in caught.value.hint


@pytest.mark.parametrize("identifier", [b"", b"\x01" * 31, b"\x01" * 33])
def test_ids_have_one_length(data: DataDirectory, identifier: bytes) -> None:
    """An empty one would stand for all studies at once."""
    fill(data)
    for refused in (data.forget_study, data.forget_received, data.released):
        with pytest.raises(ParameterError):
            refused(identifier)
    with pytest.raises(ParameterError):
        data.received(STUDY, identifier)
    assert len(files(data)) == 4


def test_writing_is_checked(data: DataDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check leaves nothing behind, and says what is wrong."""
    data.check_writable()
    assert list(data.path.iterdir()) == []
    monkeypatch.setattr(os, "fsync", _broken_disk)
    with pytest.raises(UnavailableError, match="Input/output error"):
        data.check_writable()
    assert list(data.path.iterdir()) == []


def test_a_directory_that_is_gone_is_not_writable(data: DataDirectory) -> None:
    """Such as that of a disk that is no longer mounted."""
    data.path.rmdir()
    with pytest.raises(UnavailableError):
        data.check_writable()


@pytest.mark.slow
def test_one_server_at_a_time(data: DataDirectory) -> None:
    """A second one is refused, in this process too; after the first it may start."""
    with data.lock():
        with pytest.raises(StateError, match="another server"), DataDirectory(data.path).lock():
            pass
        assert _lock_elsewhere(data) == "refused"
    assert _lock_elsewhere(data) == "locked"
    with data.lock():
        pass


@pytest.mark.slow
def test_the_lock_ends_with_its_process(data: DataDirectory) -> None:
    """A server that was killed does not keep the next one out."""
    assert _lock_elsewhere(data, end="os.kill(os.getpid(), 9)") == "locked"
    with data.lock():
        pass


def _lock_elsewhere(data: DataDirectory, end: str = "") -> str:
    """Try to lock the directory in another process."""
    script = f"""
import os, sys
from pathlib import Path
from veiltab.errors import StateError
from veiltab.server.directory import DataDirectory
try:
    with DataDirectory(Path(sys.argv[1])).lock():
        print("locked", end="", flush=True)
        {end}
except StateError:
    print("refused", end="")
"""
    command = [sys.executable, "-c", script, str(data.path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert ended.stderr == ""
    return ended.stdout


def _broken_disk(*_: object, **__: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_second_name_of_the_key_does_not_stay(tmp_path: Path) -> None:
    """What a server that was killed has left beside its key goes when the next one starts."""
    folders = DataDirectory(tmp_path / "data")
    (folders.path / ".unfinished-abc").write_bytes(b"a private key")
    with folders.lock():
        assert list(folders.path.glob(".unfinished-*")) == []
