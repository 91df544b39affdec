"""Whether the process runs, and whether it can work: two questions with two answers."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import httpx
import pytest

from tests.support.http_simulator import join_parties
from tests.support.servers import Server, make_context, running
from veiltab.party.remote import RemoteServer
from veiltab.server.directory import DataDirectory
from veiltab.server.limits import SOFTWARE_VERSION

DATA = "secret-place"
WELL = {"status": "ready", "takes_uploads": True}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Server]:
    """Return a service that is well."""
    with running(make_context(tmp_path / DATA)) as service:
        yield service


@contextmanager
def database_gone(service: Server) -> Iterator[None]:
    """Take the database away for a while."""
    path = service.context.folders.path / "veiltab.db"
    path.rename(path.with_suffix(".away"))
    service.context.database.close()  # connections that are open would still work
    yield
    path.with_suffix(".away").rename(path)


@contextmanager
def disk_unwritable(service: Server) -> Iterator[None]:
    """Make writing to the data directory fail for a while, also for root."""
    probe = service.context.folders.path / ".writable"
    probe.mkdir()
    yield
    probe.rmdir()


def readiness(service: Server) -> httpx.Response:
    """Ask whether a service can work, after what was found before is forgotten."""
    time.sleep(1.1 * service.context.settings.poll_seconds)
    return httpx.get(f"{service.url}/readyz")


def test_a_service_that_is_well(service: Server) -> None:
    """It runs, and it is ready."""
    assert httpx.get(f"{service.url}/healthz").json() == {"status": "ok"}
    assert readiness(service).json() == WELL
    assert list(service.context.folders.path.glob(".writable")) == []


@pytest.mark.slow
@pytest.mark.parametrize("trouble", [database_gone, disk_unwritable])
def test_a_service_that_cannot_work(service: Server, trouble: object) -> None:
    """It runs, and is not ready; as soon as the trouble is over, it is."""
    assert callable(trouble)
    with trouble(service):
        answer = readiness(service)
        assert httpx.get(f"{service.url}/healthz").status_code == 200
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["content-type"] == "application/problem+json"
    assert DATA not in answer.text
    assert readiness(service).json() == WELL


def test_a_disk_that_is_nearly_full_is_told(
    service: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """To whoever asks, in the metrics and once in the log; reading goes on, so it is ready."""
    caplog.set_level(logging.INFO, "veiltab.service")
    with monkeypatch.context() as full:
        full.setattr(DataDirectory, "free_bytes", lambda _: 10)
        assert readiness(service).json() == {"status": "ready", "takes_uploads": False}
        assert "veiltab_takes_uploads 0.0" in service.metrics()
        time.sleep(3 * service.context.settings.poll_seconds)
    assert readiness(service).json() == WELL
    time.sleep(2 * service.context.settings.poll_seconds)
    assert "veiltab_takes_uploads 1.0" in service.metrics()
    told = [line.message for line in caplog.records if "the disk" in line.message]
    assert [line.partition(":")[0] for line in told] == [
        "the disk is nearly full",
        "the disk has room again",
    ]


def test_parties_are_asked_to_come_back(service: Server, tmp_path: Path) -> None:
    """A client that finds the database away tries again, and notices no more than a delay."""
    (session,) = join_parties(service, tmp_path, ("Süd",))
    answers: list[int] = []
    with httpx.Client(base_url=service.url) as client, database_gone(service):
        answers.append(readiness(service).status_code)
        answers.append(client.get("/v1/server").status_code)
    assert answers == [503, 200]
    assert session.server.studies() == []


def test_the_server_says_who_it_is(service: Server) -> None:
    """To anybody: its identity, its version and its time."""
    answer = httpx.get(f"{service.url}/v1/server").json()
    assert answer.keys() == {"identity", "rotations", "software", "time", "versions"}
    assert answer["identity"] == service.context.identity.to_json()
    assert answer["software"] == f"veiltab {SOFTWARE_VERSION}"
    assert answer["versions"] == [1]
    assert abs(answer["time"] - service.context.now) < 60
    assert RemoteServer.discover(service.url) == service.context.identity


def test_the_documentation_is_there(service: Server) -> None:
    """As data; a page with somebody else's scripts is not."""
    answer = httpx.get(f"{service.url}/openapi.json").json()
    assert answer["info"]["title"] == "veiltab"
    assert answer["info"]["version"] == SOFTWARE_VERSION
    assert httpx.get(f"{service.url}/docs").status_code == 404


def test_a_service_whose_worker_has_died(service: Server) -> None:
    """It would take uploads and never release them: it is not ready."""
    with mock.patch("veiltab.server.worker.Thread.is_alive", return_value=False):
        answer = readiness(service)
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert "worker" in answer.json()["detail"]


def test_strangers_do_not_wear_the_disk_out(service: Server) -> None:
    """However often they ask, the disk is written as often as the worker looks, and no oftener."""
    write, started = DataDirectory.check_writable, time.monotonic()
    with (
        mock.patch.object(DataDirectory, "check_writable", autospec=True, side_effect=write) as w,
        httpx.Client(base_url=service.url) as client,
    ):
        answers = [client.get("/readyz").status_code for _ in range(100)]
        periods = (time.monotonic() - started) / service.context.settings.poll_seconds
    assert set(answers) == {200}
    assert w.call_count <= 1 + periods
