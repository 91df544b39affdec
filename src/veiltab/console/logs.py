"""The last lines of a server's log, as its operator reads them."""

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from veiltab.errors import InputError

MOST_LINES = 200
MOST_BYTES = 1 << 18
"""How much is read from the end of the file."""

LONGEST_LINE = 4_000


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line: when, how bad, what, and the rest of it."""

    time: str
    level: str
    event: str
    rest: str


def last_lines(path: Path) -> list[LogLine]:
    """Return the last lines of a log, the newest first."""
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise InputError(f"{path} is not a file", hint="name the file that the log goes to")
            start = max(0, about.st_size - MOST_BYTES)
            file.seek(start)
            data = file.read(MOST_BYTES)
    except OSError as error:
        raise InputError(
            f"the log {path} cannot be read: {error.strerror}",
            hint="start the console with the file that the log goes to, and let yourself read it",
        ) from error
    lines = data.decode("utf-8", "replace").splitlines()
    whole = lines[1:] if start else lines
    return [_parse(line[:LONGEST_LINE]) for line in whole[-MOST_LINES:][::-1] if line.strip()]


def _parse(line: str) -> LogLine:
    """Read a line of JSON, as `veiltab serve` writes them to a file; others stay as they are."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        return LogLine("", "", line, "")
    time, level, event = (str(fields.pop(name, "")) for name in ("time", "level", "event"))
    fields.pop("logger", None)
    rest = ", ".join(f"{name}: {value}" for name, value in fields.items())
    return LogLine(time, level, event, rest)
