"""Logs: lines for people on a terminal, JSON objects anywhere else."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",  # uvicorn's own line once more, with colours
}
_NOISY = ("uvicorn.access", "httpx", "httpcore", "alembic")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, event, and whatever else the event has."""

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
    """Send everything to one stream, in the form that its reader wants."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter() if stream.isatty() else JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).handlers.clear()
