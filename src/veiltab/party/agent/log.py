"""The log of an agent: a line of JSON for every answer and refusal, on the disk before it is sent.

The log is also the agent's memory: what was answered is counted against the policy's budget, and no
researcher is granted the same study twice.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from veiltab.errors import HomeError
from veiltab.files.disk import FILE_MODE, sync_folder
from veiltab.files.private import damaged
from veiltab.party.agent.policy import exact

NEW_PADS, GRANT, REFUSED, STARTED, STOPPED = "new pads", "grant", "refused", "started", "stopped"
ANSWERS = (NEW_PADS, GRANT)
LONGEST_LINE = 1 << 23
"""More than any grant takes: it names attributes, and a contract has at most a few megabytes."""


class AgentLog:
    """The log of one agent.  ``broken`` tells that a line could not be written."""

    def __init__(self, path: Path, *, writing: bool = True) -> None:
        """Read what the agent has done so far, and open the log for more.

        Without ``writing`` nothing is touched: an agent may be at work in the same home.
        """
        self.path = path
        self.broken = False
        self.answered: dict[str, Fraction] = {}
        self.granted: set[tuple[str, str]] = set()
        self._refused: dict[str, str] = {}
        self._file = -1
        if writing:
            self._open()
        for entry in self._entries():
            self._remember(entry)

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)

    def write(self, event: str, at: float, **details: object) -> dict[str, Any]:
        """Add a line, and return it when it is on the disk; nothing may be sent before."""
        moment = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        entry = {"at": moment, "event": event, **details}
        line = json.dumps(entry, allow_nan=False).encode() + b"\n"
        with self._writing():
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        self._remember(entry)
        return entry

    def is_news(self, study: str, reason: str) -> bool:
        """Tell whether a refusal differs from the last one of the study: each is written once."""
        return self._refused.get(study) != reason

    def _open(self) -> None:
        with self._writing():
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(self.path, flags, FILE_MODE)
            sync_folder(self.path.parent)
            self._drop_unfinished()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.broken = True
            raise HomeError(
                f"cannot write the agent's log {self.path}: {error.strerror}",
                hint="check the disk's free space, and who owns the home; the agent answers nothing"
                " that it cannot log",
            ) from error

    def _drop_unfinished(self) -> None:
        """Cut off a line that was never whole: nothing was answered on its account."""
        size = os.fstat(self._file).st_size
        tail = os.pread(self._file, LONGEST_LINE, max(0, size - LONGEST_LINE))
        kept = size - (len(tail) - (tail.rfind(b"\n") + 1))
        if kept != size:
            os.ftruncate(self._file, kept)
            os.fsync(self._file)

    def _entries(self) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return
        with self.path.open("rb") as lines:
            while line := lines.readline(LONGEST_LINE + 1):
                if self._file < 0 and not line.endswith(b"\n"):
                    return  # an agent is writing it
                try:
                    entry = json.loads(line)
                except ValueError:
                    entry = None
                if not isinstance(entry, dict):
                    raise damaged(self.path)
                yield entry

    def _remember(self, entry: dict[str, Any]) -> None:
        event, study = entry.get("event"), entry.get("study")
        try:
            if event in ANSWERS:
                self.answered[str(study)] = exact(entry["epsilon"])
                self._refused.pop(str(study), None)
            if event == GRANT:
                self.granted.add((str(study), str(entry["to"]["party"])))
        except (KeyError, TypeError, ValueError):
            raise damaged(self.path) from None
        if event == REFUSED and study is not None:
            self._refused[str(study)] = str(entry.get("reason"))
