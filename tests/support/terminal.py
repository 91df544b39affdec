"""Doing what a page of the documentation says, in a terminal, as its reader would.

Every command runs in a shell on a pseudo-terminal of 80 columns without colours, so that it prints
what a person sees, and asks what a person is asked.  Answers are taken from the page: whatever it
shows behind ``[y/N]: ``, or behind a question for a fingerprint.  Fingerprints are different each
time; the reader types those that the commands have shown in the place of the page's.
"""

import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.documents import agrees, tidy

SECONDS = 60.0
_QUESTION = re.compile(r"^.*(?:\[y/N\]|Fingerprint of '[^']*'(?: \[Enter: not verified\])?): ?")
_FINGERPRINT = re.compile(r"\b\d{5}(?: \d{5}){5}\b")
_SHARE = re.compile(r"(-?\d+\.\d\d)% +(?:[\d.]+–[\d.]+ +)?(\d+\.\d\d)(?:%|(?: +\d+\.\d\d){2})$")
_STANDARD_ERRORS = 6

VOLATILE = (
    (re.compile(r"\b[0-9a-f]{16,64}\b"), "(hex)"),
    (_FINGERPRINT, "(fingerprint)"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d UTC\b"), "(time)"),
    (re.compile(r"^\d\d:\d\d:\d\d "), "(clock) "),
    (_SHARE, "(share) (error)"),
    (re.compile(r"  +"), "  "),  # columns are as wide as what stands in them
)
"""What is different each time: ids and digests, fingerprints, times, and noisy shares."""

_PASSING = re.compile(r"^the study is \w+[;.] ")
"""Printed while a command waits, if it has to."""


class PlayError(AssertionError):
    """A page does not say what happens."""


def same_words(line: str) -> str:
    """Return a line with a name in the place of everything that is different each time."""
    for pattern, name in VOLATILE:
        line = pattern.sub(name, line)
    return line


def compare(command: str, shown: list[str], real: list[str]) -> None:
    """Refuse words that differ, and shares that differ by more than noise explains."""
    kept = [line for line in real if not _PASSING.match(line)]
    if not agrees([same_words(line) for line in shown], [same_words(line) for line in kept]):
        raise PlayError(f"{command}\nprints:\n" + "\n".join(kept))
    pairs = zip(_shares(shown), _shares(kept), strict=True) if "..." not in shown else ()
    for (there, error), (here, other) in pairs:
        if abs(there - here) > _STANDARD_ERRORS * (error + other):
            raise PlayError(f"{command}\nprints {here}%, and the page says {there}%")


def _shares(lines: list[str]) -> list[tuple[float, float]]:
    return [(float(found[1]), float(found[2])) for found in map(_SHARE.search, lines) if found]


@dataclass(slots=True)
class Terminal:
    """One terminal of the reader's, in one folder; ``swaps`` are words of the page to replace."""

    folder: Path
    swaps: dict[str, str]
    _running: list[tuple[subprocess.Popen[bytes], int]] = field(default_factory=list)

    def play(self, command: str, shown: list[str]) -> None:
        """Run a command to its end, and compare what it prints and how it ends."""
        process, master = self._start(command)
        text = _read(process, master, self.answers(shown), until=None)
        code = process.wait(SECONDS)
        os.close(master)
        real = self._real(text)
        compare(command, shown, real)
        self.learn(shown, real)
        fails = any(line.startswith("error: ") for line in shown)
        if fails != (code != 0):
            raise PlayError(f"{command}\nends with {code}")

    def answers(self, shown: list[str]) -> list[str]:
        """Return what the page answers to questions, with the fingerprints of this time."""
        asked = [(line, _QUESTION.match(line)) for line in shown]
        return [self._swapped(line[found.end() :]) for line, found in asked if found]

    def learn(self, shown: list[str], real: list[str]) -> None:
        """Remember which fingerprint stands for which of the page's."""
        pages, ours = (_FINGERPRINT.findall("\n".join(lines)) for lines in (shown, real))
        if len(pages) == len(ours):
            self.swaps |= {page: our for page, our in zip(pages, ours, strict=True) if page != our}

    def leave_running(self, command: str, shown: list[str]) -> None:
        """Start a command, and go on as soon as it has printed what is shown."""
        process, master = self._start(f"exec {command}")
        self._running.append((process, master))
        text = _read(process, master, [], until=self._swapped(shown[-1]))
        compare(command, shown, self._real(text))

    def stop(self) -> None:
        """Press Ctrl-C wherever something runs; it must end well."""
        codes = []
        for process, master in self._running:
            process.send_signal(signal.SIGINT)
            _read(process, master, [], until=None)
            codes.append(process.wait(SECONDS))
            os.close(master)
        self._running.clear()
        if any(codes):
            raise PlayError(f"after Ctrl-C: {codes}")

    def _start(self, command: str) -> tuple[subprocess.Popen[bytes], int]:
        master, slave = pty.openpty()
        environment = os.environ | {"TERM": "dumb", "COLUMNS": "80", "PYTHONUTF8": "1"}
        for name in ("FORCE_COLOR", "VEILTAB_HOME", "VEILTAB_DATABASE", "VEILTAB_TABLE_URL"):
            environment.pop(name, None)
        environment["PATH"] = f"{_programs(self.folder)}{os.pathsep}{environment['PATH']}"
        process = subprocess.Popen(  # noqa: S603 - our own documents
            ["/bin/sh", "-c", self._swapped(command)],
            cwd=self.folder,
            env=environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        return process, master

    def _swapped(self, text: str) -> str:
        for word, other in self.swaps.items():
            text = text.replace(word, other)
        return text

    def _real(self, text: str) -> list[str]:
        """Return what was printed, as the page would have it."""
        for word, other in self.swaps.items():
            text = text.replace(other, word)
        return tidy(text.splitlines())


def _programs(folder: Path) -> Path:
    """Return a folder with ``veiltab`` in it: this one, wherever Python keeps its scripts."""
    program = folder.with_name(f"{folder.name}-bin") / "veiltab"
    if not program.exists():
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m veiltab "$@"\n')
        program.chmod(0o755)
    return program.parent


def _read(
    process: subprocess.Popen[bytes], master: int, answers: list[str], until: str | None
) -> str:
    """Read what is printed, to the end or to a line, and answer what is asked."""
    data, end = b"", time.monotonic() + SECONDS
    while time.monotonic() < end:
        if until is not None and f"{until}\n" in _text(data):
            return _text(data)
        if not select.select([master], [], [], 0.2)[0]:
            continue
        try:
            found = os.read(master, 1 << 16)
        except OSError:  # how Linux says that the other end is closed
            found = b""
        if not found:
            return _text(data)
        data += found
        last = _text(data).rpartition("\n")[2]
        if answers and (asked := _QUESTION.match(last)) and asked.end() == len(last):
            os.write(master, answers.pop(0).encode() + b"\n")
    process.kill()
    raise PlayError(f"nothing more after {SECONDS:g} seconds:\n{_text(data)}")


def _text(data: bytes) -> str:
    return data.decode(errors="replace").replace("\r\n", "\n")
