"""Scratch files: private, and gone when they are no longer needed."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from tests.support.simulator import Simulator, holding
from veiltab.core.schema import Schema
from veiltab.errors import OutputError
from veiltab.files.spool import FolderSpool
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.in_process import Terms
from veiltab.protocol.sorting import MemorySpool, Spool


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the path of a folder that is not there yet."""
    return tmp_path / "home" / "scratch"


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_partitions_are_what_was_added(kind: str, folder: Path) -> None:
    """In order, each on its own; nothing where nothing was added, and nothing after clearing."""
    spool: Spool = MemorySpool() if kind == "memory" else FolderSpool(folder)
    spool.clear()
    for partition, data in ((0, b"a"), (65_535, b"xyz"), (0, b""), (0, b"bc")):
        spool.append(partition, memoryview(data))
    assert spool.read(0) == b"abc"
    assert spool.read(65_535) == b"xyz"
    assert spool.read(1) == b""
    spool.clear()
    assert spool.read(0) == b""
    spool.append(0, memoryview(b"new"))
    assert spool.read(0) == b"new"


def test_only_the_owner_can_read(folder: Path) -> None:
    """Whatever the umask is: the files hold everybody's data."""
    before = os.umask(0)
    try:
        FolderSpool(folder).append(3, memoryview(b"data"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o600]


def test_clearing_takes_leftovers_and_nothing_else(folder: Path) -> None:
    """What a crash left goes, though another spool wrote it; somebody's own file stays."""
    FolderSpool(folder).append(9, memoryview(b"left by a crash"))
    spool = FolderSpool(folder)
    spool.clear()
    assert not folder.exists()
    folder.mkdir()
    mine = folder / "partition-of-mine.csv"
    mine.write_text("a,b")
    spool.append(0, memoryview(b"data"))
    spool.clear()
    assert list(folder.iterdir()) == [mine]


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    """Somebody else's file is not written to."""
    folder.mkdir(parents=True)
    target = tmp_path / "target"
    target.write_bytes(b"")
    (folder / "partition-00000").symlink_to(target)
    with pytest.raises(OutputError, match="scratch folder"):
        FolderSpool(folder).append(0, memoryview(b"data"))
    assert target.read_bytes() == b""


def test_a_disk_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file where the folder should be, and a full disk: an error that says what to do."""
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    with pytest.raises(OutputError, match="cannot be used") as caught:
        FolderSpool(blocked).append(0, memoryview(b"data"))
    assert "30 bytes for each row" in caught.value.hint

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(OutputError, match="No space left on device"):
        FolderSpool(tmp_path / "scratch").append(0, memoryview(b"data"))


def test_an_intake_in_a_folder_is_that_in_memory(folder: Path) -> None:
    """The same rows, and an empty disk afterwards."""
    own = holding({"colour": 300}, range(500))
    rehearsal = Simulator()
    rehearsal.holdings, rehearsal.curators = [own], rehearsal.curators[:1]
    staged = rehearsal.study(Terms(epsilon=1.0, sample_size=10))
    schema = Schema(own.attributes)
    found = []
    for spool in (MemorySpool(), FolderSpool(folder)):
        me = staged.contract.curators[0].party_id
        contract, secret = staged.contract, staged.secret
        with Intake(contract, secret, schema, spool, curator=me, partitions=8) as intake:
            intake.add(own.ids, own.codes)
            intake.close()
            ((tokens, (codes,)),) = intake.rows()
            found.append((intake.alignment_digest, tokens.tolist(), codes.tolist()))
            shuffled = list(intake.shuffled(bytes(32), FolderSpool(folder / "second")))
            assert not (folder / "second").exists()
            assert not np.array_equal(shuffled[0][0], tokens)
    assert found[0] == found[1]
    assert not folder.exists()
