"""What an operator's tools can see: counts that are right, and no name of anything."""

from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.http_simulator import http_study, join_parties
from tests.support.requests import Request
from tests.support.servers import Server, _free_port, make_context, running
from tests.support.simulator import Stage
from veiltab.errors import NotGrantedError, ParameterError
from veiltab.party.researcher import estimate_study
from veiltab.server.http.app import _listen_for_metrics

Samples = dict[tuple[str, tuple[str, ...]], float]


def samples(service: Server) -> Samples:
    """Read all metrics, by name and the values of their labels."""
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(service.metrics())
        for sample in family.samples
    }


@pytest.mark.slow
def test_a_study_is_counted(tmp_path: Path) -> None:
    """Requests and releases; of chunks, only what was refused."""
    with running(make_context(tmp_path / "data")) as service:
        study = http_study(service, tmp_path, Stage.GRANTED)
        estimate_study(study.researcher, study.researcher.contract(study.study))
        with pytest.raises(NotGrantedError):
            study.researcher.server.release_chunks(study.study, [bytes(32)])
        metrics = samples(service)
    counted = {labels for name, labels in metrics if name == "veiltab_requests_total"}
    chunks = "/v1/studies/{study}/release/chunks"
    assert [labels for labels in counted if "chunks" in labels[1]] == [("POST", chunks, "403")]
    assert metrics["veiltab_releases_total", ("released",)] == 1
    assert metrics["veiltab_release_seconds_count", ()] == 1
    assert metrics["veiltab_studies_waiting", ()] == 0
    path = "/v1/studies/{study}/uploads"
    assert metrics["veiltab_requests_total", ("POST", path, "200")] == 2
    assert metrics["veiltab_request_seconds_count", ("POST", path)] == 2
    assert metrics["veiltab_requests_total", ("POST", "/v1/parties", "201")] == 3
    assert ("veiltab_releases_total", ("failed",)) not in metrics


def test_refusals_are_counted(tmp_path: Path) -> None:
    """By their status."""
    with (
        running(make_context(tmp_path / "data")) as service,
        httpx.Client(base_url=service.url) as client,
    ):
        for _ in range(3):
            client.get("/v1/studies")
        client.post("/v1/studies")
        metrics = samples(service)
    assert metrics["veiltab_requests_total", ("GET", "/v1/studies", "401")] == 3
    assert metrics["veiltab_requests_total", ("POST", "/v1/studies", "401")] == 1


def test_strangers_cannot_make_up_labels(tmp_path: Path) -> None:
    """Each label costs memory for ever: paths and methods that nobody has made are one."""
    with (
        running(make_context(tmp_path / "data")) as service,
        httpx.Client(base_url=service.url) as client,
    ):
        for number in range(5):
            client.get(f"/made/up/{number}")
        for method in ("PROPFIND", "SEARCH", "LOCK"):
            Request(method, "/made/up").send(client)
        metrics = samples(service)
        text = service.metrics()
    assert metrics["veiltab_requests_total", ("GET", "(none)", "404")] == 5
    assert metrics["veiltab_requests_total", ("(other)", "(none)", "404")] == 3
    assert "made" not in text
    assert "PROPFIND" not in text


@pytest.mark.slow
def test_two_services_count_apart(tmp_path: Path) -> None:
    """Each has a registry of its own."""
    with (
        running(make_context(tmp_path / "one")) as one,
        running(make_context(tmp_path / "two")) as two,
    ):
        join_parties(one, tmp_path, ("Süd",))
        assert not any("/v1/parties" in labels for _, labels in samples(two))


def test_the_metrics_are_the_operators(tmp_path: Path) -> None:
    """They are on a port of their own, and the public one does not know them."""
    with running(make_context(tmp_path / "data")) as service:
        refused = httpx.get(f"{service.url}/metrics")
        assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
        assert "veiltab_connections" in service.metrics()
        assert httpx.get(service.metrics_url.replace("metrics", "v1/server")).status_code == 404
        assert httpx.post(service.metrics_url).status_code == 404


def test_the_metrics_port_is_of_this_machine_alone() -> None:
    """Whatever the service listens on."""
    with _listen_for_metrics(_free_port()) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
        port = listening.getsockname()[1]
        with pytest.raises(ParameterError, match=f"port {port} for metrics") as caught:
            _listen_for_metrics(port)
    assert "--metrics-port" in caught.value.hint
