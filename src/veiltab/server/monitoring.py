"""What the operator can see: logs and metrics, which say nothing about a study's data."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",  # uvicorn's own line once more, with colours
}
_NOISY = ("uvicorn.access", "httpx", "httpcore", "alembic")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, event, and the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record; the fields of ``extra`` stand beside the event."""
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        fields |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


class LineFormatter(logging.Formatter):
    """A line for people, with the event's fields at its end."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        extra = [f"{k}={v}" for k, v in vars(record).items() if k not in _STANDARD]
        line = " ".join([time, record.levelname.lower(), record.getMessage(), *extra])
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def set_up_logs(stream: TextIO = sys.stderr, level: int = logging.INFO) -> None:
    """Send everything to one stream: as lines to a terminal, as JSON to anything else."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter() if stream.isatty() else JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).handlers.clear()


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The metrics of one server, in a registry of its own.

    They are the operator's.  Still nothing is counted that grows with the rows of a study: a
    curator who sees them knows its decoys, and would learn how many people the others hold.
    """

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
        self.releases = Counter(
            "veiltab_releases",
            "Attempts at a release or a draw: released, sampled, aborted, damaged, failed, done.",
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
            "Studies that wait to be drawn or released.",
            registry=self._registry,
        )

        self.takes_uploads = Gauge(
            "veiltab_takes_uploads",
            "Whether the disk has room for uploads: 1, or 0 while it is nearly full.",
            registry=self._registry,
        )
        self.takes_uploads.set(1)
        self.connections = Gauge(
            "veiltab_connections", "Connections that are open.", registry=self._registry
        )
        self.ended = Counter(
            "veiltab_connections_ended",
            "Connections that the service has ended: too_many, too_slow, unusable.",
            ["reason"],
            registry=self._registry,
        )

    def expose(self) -> bytes:
        """Return all metrics in the text form of Prometheus."""
        return generate_latest(self._registry)
