"""A full disk, a disk that cannot be written, damaged chunks, a database that goes away."""

import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import httpx
import pytest

from tests.support.http_simulator import HttpStudy, held_releases, http_study
from tests.support.servers import make_context, running, wait_for
from tests.support.simulator import Simulator, Stage
from tests.support.storage import LocalPostgreSQL
from veiltab.errors import DamagedError, MismatchError, StateError, UnavailableError
from veiltab.party.researcher import estimate_study
from veiltab.protocol.in_process import Terms
from veiltab.server import steps, worker
from veiltab.server.context import ServiceContext
from veiltab.server.directory import DataDirectory
from veiltab.server.stored_study import StoredStudy
from veiltab.server.worker import Worker, _reason, release_study, tidy

WORKER = "veiltab-worker"
TERMS = Terms(epsilon=2.0, sample_size=20)


@contextmanager
def failing_disk(number: int, after: int = 0) -> Iterator[None]:
    """Let every wait for the disk fail with an error of the system, after some that succeed."""
    real, calls = os.fsync, iter(range(10**9))

    def fail(descriptor: int) -> None:
        if next(calls) < after:
            real(descriptor)
            return
        raise OSError(number, os.strerror(number))

    with mock.patch("os.fsync", fail):
        yield


def context_of(path: Path) -> ServiceContext:
    """Return the server of the ordinary two curators."""
    return make_context(path / "data", identity=Simulator().server)


def state(context: ServiceContext, study: bytes) -> str:
    """Return where a study stands."""
    with context.database.reading() as records:
        return str(StoredStudy.find(context, records, study).state)


def damage(path: Path, place: int = -1) -> None:
    """Change one bit of a file, as a disk does that is going to die."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_fails_while_chunks_come_in(tmp_path: Path, number: int) -> None:
    """The sender is told to try again later; when it does, the study is as if nothing had been."""
    context = context_of(tmp_path)
    uploaded = Simulator().on_server(context, TERMS, Stage.PREPARED)
    with failing_disk(number), pytest.raises(UnavailableError):
        uploaded.upload(0)
    assert state(context, uploaded.study) == "open"
    for curator in range(2):
        uploaded.upload(curator)
    assert release_study(context, uploaded.study) == "released"


@pytest.mark.slow
@pytest.mark.parametrize("after", range(5))
def test_a_disk_that_is_full_during_a_release(tmp_path: Path, after: int) -> None:
    """At any of its writes: nothing is visible, nothing is lost, and later it is released."""
    context = context_of(tmp_path)
    uploaded = Simulator().on_server(context, TERMS)
    try:
        with failing_disk(errno.ENOSPC, after):
            outcome = release_study(context, uploaded.study)
    except UnavailableError:
        outcome = "failed"
    if state(context, uploaded.study) != "released":
        assert outcome == "failed"
        assert (
            len(context.folders.received(uploaded.study, uploaded.rehearsal.curators[0].party_id))
            > 0
        )
        assert release_study(context, uploaded.study) == "released"
    tidy(context)
    folder = tmp_path / "data" / "studies" / uploaded.study.hex()
    assert [path.name for path in folder.iterdir()] == ["released"]


def test_a_damaged_chunk_is_mended_by_pushing_again(tmp_path: Path) -> None:
    """The release waits, says so, and goes on when the curator has sent the chunk again."""
    context = context_of(tmp_path)
    uploaded = Simulator().on_server(context, TERMS)
    folder = tmp_path / "data" / "studies" / uploaded.study.hex() / "received"
    victim = min(folder.glob("*/*"))
    damage(victim)
    assert release_study(context, uploaded.study) == "damaged"
    assert state(context, uploaded.study) == "uploaded"
    assert not victim.exists()
    assert release_study(context, uploaded.study) == "damaged"
    with context.database.reading() as records:
        assert "push again" in str(StoredStudy.find(context, records, uploaded.study).record.reason)
    for curator in range(2):
        uploaded.upload(curator)
    assert release_study(context, uploaded.study) == "released"
    with context.database.reading() as records:
        assert StoredStudy.find(context, records, uploaded.study).record.reason is None


PLACES = {"count": 0, "digest": 4, "length": 39, "chunk": -1}
"""Where in a bundle a byte is damaged."""


@pytest.mark.slow
def test_a_damaged_release_is_not_served(tmp_path: Path) -> None:
    """Whoever asks is told; with the bundle restored from a copy everything is as before."""
    with running(make_context(tmp_path / "data")) as service:
        study = http_study(service, tmp_path, Stage.GRANTED)
        before = estimate_study(study.researcher, study.researcher.contract(study.study))
        [bundle] = (tmp_path / "data" / "studies").glob("*/released/*")
        copy = bundle.read_bytes()
        for name, place in PLACES.items():
            damage(bundle, place)
            with pytest.raises(DamagedError, match="damaged"):
                estimate_study(study.researcher, study.researcher.contract(study.study))
            bundle.write_bytes(copy)
            after = estimate_study(study.researcher, study.researcher.contract(study.study))
            assert (before.counts == after.counts).all(), name


def test_a_study_without_its_noise_key_is_not_released(tmp_path: Path) -> None:
    """A database that was restored wrongly must not lead to a second draw of the noise."""
    context = context_of(tmp_path)
    uploaded = Simulator().on_server(context, TERMS)
    with context.database.transaction() as records:
        stored = StoredStudy.find(context, records, uploaded.study)
        stored.save(stored.resume(), noise_key=None)
    with pytest.raises(StateError, match="no noise key"):
        release_study(context, uploaded.study)
    assert state(context, uploaded.study) == "uploaded"


def test_the_noise_key_is_gone_after_the_release(tmp_path: Path) -> None:
    """Neither a row nor a byte of any file of the data directory holds it any more."""
    context = context_of(tmp_path)
    uploaded = Simulator().on_server(context, TERMS)
    with context.database.reading() as records:
        key = StoredStudy.find(context, records, uploaded.study).record.noise_key
    assert key is not None
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert any(key in path.read_bytes() for path in files)
    release_study(context, uploaded.study)
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert files
    assert not any(key in path.read_bytes() for path in files)


def test_the_key_that_a_crash_leaves_in_the_log_is_gone_after_the_next_start(
    tmp_path: Path,
) -> None:
    """Between the release and the last step, which empties the database's log of changes."""
    context = context_of(tmp_path)
    uploaded = Simulator().on_server(context, TERMS)
    with context.database.reading() as records:
        key = StoredStudy.find(context, records, uploaded.study).record.noise_key or b""
    with (
        mock.patch.object(type(context.database), "scrub", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        release_study(context, uploaded.study)
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert any(key in path.read_bytes() for path in files)
    tidy(context_of(tmp_path))
    assert not any(key in path.read_bytes() for path in files if path.exists())


def test_digests_of_unperturbed_chunks_are_erased_with_them(tmp_path: Path) -> None:
    """With a researcher's pads, guesses at a small sample could be tried against them."""
    context = context_of(tmp_path)
    uploaded = Simulator().on_server(context, TERMS)
    bodies = [prepared.message.body for prepared in uploaded.prepared]
    digests = [digest for body in bodies for c in body.columns for digest in c.chunks]
    assert release_study(context, uploaded.study) == "released"
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    for digest in digests:
        assert not any(digest.hex().encode() in path.read_bytes() for path in files)
    send = uploaded.prepared[0].message.dumps()
    steps.upload(context, uploaded.sender(0, send), uploaded.study)  # repeated: nothing happens
    assert state(context, uploaded.study) == "released"


def test_ciphertext_left_by_a_crash_is_deleted_at_the_next_start(tmp_path: Path) -> None:
    """A crash right after the release became visible leaves chunks; the next start does not."""
    context = context_of(tmp_path)
    uploaded = Simulator().on_server(context, TERMS)
    with (
        mock.patch.object(type(context.folders), "forget_received", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        release_study(context, uploaded.study)
    folder = tmp_path / "data" / "studies" / uploaded.study.hex()
    assert list(folder.glob("received/*/*"))
    assert state(context, uploaded.study) == "released"
    tidy(context_of(tmp_path))
    assert not list(folder.glob("received/*/*"))
    assert list(folder.glob("released/*"))


def test_ciphertext_left_by_a_fault_is_deleted_without_a_restart(tmp_path: Path) -> None:
    """A disk that fails right after the release became visible: the worker comes back to it."""
    context = context_of(tmp_path)
    uploaded = Simulator().on_server(context, TERMS)
    received = tmp_path / "data" / "studies" / uploaded.study.hex() / "received"
    real, calls = type(context.folders).forget_received, iter(range(10**9))

    def fail_once(folders: DataDirectory, study: bytes) -> None:
        if next(calls) == 0:
            raise UnavailableError("the disk is away", hint="wait")
        real(folders, study)

    worker = Worker(context)
    with mock.patch.object(DataDirectory, "forget_received", fail_once):
        worker.start()
        end = time.monotonic() + 20
        while received.exists() and time.monotonic() < end:
            worker.wake()
            time.sleep(0.02)
        worker.stop(20)
    assert state(context, uploaded.study) == "released"
    assert not received.exists()


def test_chunks_of_studies_that_the_records_do_not_know_stay(tmp_path: Path) -> None:
    """A server that is started with another database by mistake must not empty the disk."""
    context = context_of(tmp_path)
    uploaded = Simulator().on_server(context, TERMS)
    assert release_study(context, uploaded.study) == "released"
    other = f"sqlite:///{tmp_path}/other.db"
    tidy(make_context(tmp_path / "data", identity=Simulator().server, database=other))
    assert len(context.folders.released(uploaded.study)) > 0


def test_an_abort_during_a_release_wins_or_comes_too_late(tmp_path: Path) -> None:
    """If the study is aborted while it is perturbed, nothing of it becomes visible."""
    context = context_of(tmp_path)
    uploaded = Simulator().on_server(context, TERMS)
    real = worker._commit

    def abort_first(*arguments: object) -> str:
        steps.abort(context, uploaded.sender(0, b""), uploaded.study, "changed our minds")
        return real(*arguments)  # type: ignore[arg-type]

    with mock.patch.object(worker, "_commit", abort_first):
        assert release_study(context, uploaded.study) == "done"
    assert state(context, uploaded.study) == "aborted"
    assert not (tmp_path / "data" / "studies" / uploaded.study.hex()).exists()
    later = uploaded.rehearsal.on_server(context, TERMS)
    assert release_study(context, later.study) == "released"
    with pytest.raises(StateError, match="released"):
        steps.abort(context, later.sender(0, b""), later.study, "too late")


@pytest.mark.slow
@pytest.mark.parametrize("address", ["postgresql"], indirect=True)
def test_a_database_that_goes_away_and_comes_back(
    tmp_path: Path, address: str, postgresql: LocalPostgreSQL
) -> None:
    """The service says that it is not ready; clients wait, and finish when it is back."""
    with running(make_context(tmp_path / "data", database=address)) as service:
        with held_releases():
            study = http_study(service, tmp_path, Stage.ONE_UPLOADED)
        postgresql.stop()
        answer = httpx.get(f"{service.url}/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert "Retry-After" in answer.headers
        assert httpx.get(f"{service.url}/healthz").status_code == 200
        postgresql.start()
        finish(study)


def finish(study: HttpStudy) -> None:
    """Go on to the end, and look at the result."""
    study.go_to(Stage.GRANTED)
    uploaded = estimate_study(study.researcher, study.researcher.contract(study.study))
    assert uploaded.counts.sum() == uploaded.plan.sample_size
    wait_for(study.curators[0], study.study, "released")


@pytest.mark.slow
def test_a_database_that_goes_away_while_a_client_works(tmp_path: Path) -> None:
    """Requests fail for a while in the middle of a study; the client tries until they do not."""
    context = make_context(tmp_path / "data")
    with running(context) as service:
        study = http_study(service, tmp_path, Stage.OPEN)
        real, calls = type(context.database).transaction, iter(range(10**9))

        def flaky(database: object) -> object:
            if threading.current_thread().name != WORKER and next(calls) % 7 == 3:
                raise UnavailableError("the database is away", hint="wait")
            return real(database)  # type: ignore[arg-type]

        with mock.patch.object(type(context.database), "transaction", flaky):
            study.go_to(Stage.UPLOADED)
        finish(study)


def test_no_second_key_is_drawn_where_something_was_released(tmp_path: Path) -> None:
    """A database restored from an old copy knows of no release; the chunks on the disk do."""
    context = context_of(tmp_path)
    uploaded = Simulator().on_server(context, TERMS, Stage.PREPARED)
    uploaded.upload(0)
    released = context.folders.released(uploaded.study)
    released.put(b"of a release that the records have forgotten")
    released.sync()
    with pytest.raises(StateError, match="know nothing of them"):
        uploaded.upload(1)
    assert state(context, uploaded.study) == "open"
    with context.database.reading() as records:
        assert StoredStudy.find(context, records, uploaded.study).record.noise_key is None
    released.clear()
    uploaded.upload(1)
    assert state(context, uploaded.study) == "uploaded"


def test_a_reason_has_no_numbers_where_there_are_decoys() -> None:
    """How many rows an upload has would tell how many respondents take part."""
    for decoys, shown in ((None, "the rows are 17"), (mock.Mock(), "do not belong together")):
        stored = mock.Mock()
        stored.contract.body.coin_terms = decoys
        assert shown in _reason(stored, MismatchError("the rows are 17", hint="look"))
        assert _reason(stored, MismatchError("a token twice", hint="look")) == "a token twice"
