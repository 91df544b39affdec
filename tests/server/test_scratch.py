"""Scratch space of a release where the server samples: a full disk, a crash, and nothing left."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from tests.support.servers import make_context
from tests.support.simulator import Simulator
from veiltab.errors import UnavailableError
from veiltab.protocol.in_process import Terms
from veiltab.server.context import ServiceContext
from veiltab.server.stored_study import StoredStudy
from veiltab.server.worker import release_study, tidy

TERMS = Terms(epsilon=2.0, sample_size=20, linkage="matched")


@contextmanager
def full_scratch(after: int) -> Iterator[None]:
    """Let the disk be full for scratch files, after some that could be opened."""
    real, calls = os.open, iter(range(10**9))

    def opening(path: str, flags: int, mode: int = 0o777) -> int:
        if Path(path).parent.name == "scratch" and next(calls) >= after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, flags, mode)

    with mock.patch("os.open", opening):
        yield


def ready(path: Path) -> tuple[ServiceContext, bytes]:
    """Return a study whose uploads are complete."""
    context = make_context(path / "data", identity=Simulator().server)
    return context, Simulator().on_server(context, TERMS).study


def twins(path: Path) -> tuple[ServiceContext, ServiceContext, bytes]:
    """Return two servers that are about to make the same release."""
    context, study = ready(path)
    context.database.close()
    shutil.copytree(path / "data", path / "copy")
    one, two = (make_context(path / name, identity=Simulator().server) for name in ("data", "copy"))
    return one, two, study


def released(context: ServiceContext, study: bytes) -> bytes:
    """Return the release as all can see it."""
    with context.database.reading() as records:
        found = StoredStudy.find(context, records, study).release()
    assert found is not None
    return found.dumps()


def scratch(context: ServiceContext, study: bytes) -> Path:
    """Return where the study's scratch files are."""
    return context.folders.path / "studies" / study.hex() / "scratch"


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_disk_that_is_full_while_rows_are_sorted(tmp_path: Path, after: int) -> None:
    """The study waits, nothing is lost or left; with room again, it is the same release."""
    context, other, study = twins(tmp_path)
    assert release_study(context, study) == "released"
    with full_scratch(after), pytest.raises(UnavailableError, match="No space left on device"):
        release_study(other, study)
    with other.database.reading() as records:
        assert StoredStudy.find(other, records, study).state == "uploaded"
    assert not scratch(other, study).exists()
    assert release_study(other, study) == "released"
    assert released(other, study) == released(context, study)
    assert not scratch(other, study).exists()


def test_what_a_crash_left_is_swept_at_the_next_start(tmp_path: Path) -> None:
    """Before anything is released, and what curators have sent stays."""
    context, study = ready(tmp_path)
    for name in ("table-0", "sample"):
        context.folders.scratch(study, name).append(3, memoryview(b"left by a crash"))
    received = scratch(context, study).with_name("received")
    assert scratch(context, study).exists()
    tidy(context)
    assert not scratch(context, study).exists()
    assert received.exists()
    assert release_study(context, study) == "released"
    assert not received.exists()


def test_what_a_crash_left_does_not_get_into_a_release(tmp_path: Path) -> None:
    """Also without a sweep: every release begins with empty scratch space."""
    context, other, study = twins(tmp_path)
    context.folders.scratch(study, "table-1").append(0, memoryview(bytes(16 + 8 + 2)))
    context.folders.scratch(study, "sample").append(0, memoryview(bytes(5)))
    assert release_study(context, study) == "released"
    assert release_study(other, study) == "released"
    assert released(context, study) == released(other, study)


def test_only_a_server_that_samples_uses_scratch(tmp_path: Path) -> None:
    """Curators who sample have matched and drawn already."""
    context = make_context(tmp_path / "data", identity=Simulator().server)
    study = Simulator().on_server(context, Terms(epsilon=2.0, sample_size=20)).study
    with full_scratch(0):
        assert release_study(context, study) == "released"
