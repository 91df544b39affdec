"""What the operator can see from outside: counts and durations, nothing about any study's data."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The metrics of one server, in a registry of its own."""

    def __init__(self) -> None:
        """Start all counts at zero."""
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "veiltab_requests",
            "Requests, by route and outcome.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self.seconds = Histogram(
            "veiltab_request_seconds",
            "How long requests took.",
            ["method", "route"],
            registry=self._registry,
        )
        self.received = Counter(
            "veiltab_chunk_received_bytes",
            "Bytes of chunks taken from curators.",
            registry=self._registry,
        )
        self.served = Counter(
            "veiltab_chunk_served_bytes",
            "Bytes of released chunks handed to researchers.",
            registry=self._registry,
        )
        self.releases = Counter(
            "veiltab_releases",
            "Attempts at a release, by outcome: released, aborted, damaged, failed, done.",
            ["outcome"],
            registry=self._registry,
        )
        self.release_seconds = Histogram(
            "veiltab_release_seconds",
            "How long joining and perturbing took.",
            registry=self._registry,
            buckets=(0.1, 0.5, 1, 5, 10, 60, 300, 1800, 7200),
        )
        self.waiting = Gauge(
            "veiltab_studies_waiting",
            "Studies whose uploads are complete and that are not released yet.",
            registry=self._registry,
        )

    def expose(self) -> bytes:
        """Return all metrics in the text form of Prometheus."""
        return generate_latest(self._registry)
