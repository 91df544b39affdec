"""What a running server counts, read from its metrics on this computer."""

from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from veiltab.errors import InputError

SECONDS = 2.0
LARGEST = 1 << 22
LABELS = {"method", "route", "status"}


@dataclass(frozen=True, slots=True)
class Requests:
    """How often a route was asked, with one outcome."""

    method: str
    route: str
    status: str
    count: int


@dataclass(frozen=True, slots=True)
class ServerMetrics:
    """What a server has counted since it started."""

    requests: list[Requests]
    releases: dict[str, int]
    connections: int
    waiting: int
    takes_uploads: bool


def fetch_metrics(port: int) -> ServerMetrics:
    """Ask the server on this computer for its metrics."""
    try:
        with httpx.Client(timeout=SECONDS, trust_env=False) as client:
            answer = client.get(f"http://127.0.0.1:{port}/metrics")
        text = answer.text if answer.status_code == httpx.codes.OK else ""
        if not text or len(text) > LARGEST:
            raise _unreadable(port)
        return _read(text)
    except (httpx.HTTPError, ValueError) as error:
        raise _unreadable(port) from error


def _read(text: str) -> ServerMetrics:
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    values = {sample.name: int(sample.value) for sample in samples if not sample.labels}
    return ServerMetrics(
        requests=sorted(
            (
                Requests(s.labels["method"], s.labels["route"], s.labels["status"], int(s.value))
                for s in samples
                if s.name == "veiltab_requests_total" and s.labels.keys() >= LABELS
            ),
            key=lambda one: -one.count,
        ),
        releases={
            s.labels.get("outcome", ""): int(s.value)
            for s in samples
            if s.name == "veiltab_releases_total"
        },
        connections=values.get("veiltab_connections", 0),
        waiting=values.get("veiltab_studies_waiting", 0),
        takes_uploads=values.get("veiltab_takes_uploads", 1) == 1,
    )


def _unreadable(port: int) -> InputError:
    return InputError(
        f"no server answers for its metrics on port {port} of this computer",
        hint="start it, or start the console with its port for metrics",
    )
