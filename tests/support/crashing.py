"""Killing a release with SIGKILL at a chosen line of Python, again and again.

Run as a module in a process of its own, because it forks:
``python -m tests.support.crashing DIRECTORY STUDY TRIALS SEED``.  The directory holds a study whose
uploads are complete; it is copied for each trial.  Prints one JSON object.
"""

import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Self

from tests.support.service import make_context
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.service.casebook import Case
from veiltab.service.context import Context
from veiltab.service.releases import release_study, tidy

SERVER = PrivateIdentity.create("server", CipherEntropy.from_seed(9, "server"))
"""The same in every process; nothing here may use polars, whose threads do not live in a fork."""


def open_context(directory: Path) -> Context:
    """Open the server of a directory, as a new process does."""
    return make_context(directory, identity=SERVER)


def in_child(work: Callable[[], object]) -> int:
    """Run something in a forked child; return the signal that ended it, or zero."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def recover(context: Context, study: bytes) -> None:
    """Do what a server does when it starts again."""
    tidy(context)
    release_study(context, study)


class Countdown:
    """A tracer that counts the lines that run, and kills the process at one of them."""

    def __init__(self, lines: int | None) -> None:
        """Kill at this line, or only count."""
        self.lines, self.left = 0, lines

    def __call__(self, _frame: FrameType, event: str, _arg: object) -> Self:
        """See one event of the interpreter."""
        if event == "line":
            self.lines += 1
            if self.left is not None and self.lines >= self.left:
                os.kill(os.getpid(), signal.SIGKILL)
        return self


def release_killed_at(directory: Path, study: bytes, line: int | None) -> int:
    """Release in this process under a tracer; return how many lines ran."""
    countdown, context = Countdown(line), open_context(directory)
    sys.settrace(countdown)
    try:
        recover(context, study)
    finally:
        sys.settrace(None)
    return countdown.lines


def visible(directory: Path, study: bytes) -> tuple[bytes | None, dict[str, bytes], bool]:
    """Return the release that parties can see, the chunks it names, and whether any is received."""
    context = open_context(directory)
    with context.database.reading() as records:
        release = Case.find(context, records, study).release()
    folder = directory / "studies" / study.hex()
    received = any((folder / name).exists() for name in ("received", "joined", "scratch"))
    if release is None:
        return None, {}, received
    store = context.folders.released(study)
    named = {digest for column in release.body.columns for digest in column.chunks}
    return release.dumps(), {digest.hex(): store.get(digest) for digest in named}, received


def trial(original: Path, study: bytes, lines: list[int], expected: object) -> dict[str, bool]:
    """Kill a release at these lines one after the other, recover, and compare."""
    directory = original.with_name("trial")
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(original, directory)
    killed, early = 0, False
    for line in lines:
        ended = in_child(partial(release_killed_at, directory, study, line))
        killed += ended == signal.SIGKILL
        found = visible(directory, study)
        early = early or (found[0] is not None and found[:2] != expected)
    in_child(lambda: recover(open_context(directory), study))
    release, chunks, received = visible(directory, study)
    return {
        "killed": killed == len(lines),
        "wrong": early or (release, chunks) != expected,
        "left": received,
    }


def main(directory: Path, study: bytes, trials: int, seed: int) -> dict[str, int]:
    """Run all trials: one kill in most, two or three in some."""
    reference = directory.with_name("reference")
    for _ in range(2):  # the first time also runs what runs once in a process
        shutil.rmtree(reference, ignore_errors=True)
        shutil.copytree(directory, reference)
        total = release_killed_at(reference, study, None)
    expected = visible(reference, study)[:2]
    draw = random.Random(seed)  # noqa: S311 - chooses when to kill
    found = []
    for number in range(trials):
        kills = 1 + (number % 5 == 0) + (number % 10 == 0)
        lines = [draw.randrange(1, total) for _ in range(kills)]
        found.append(trial(directory, study, lines, expected))
    return {
        "lines": total,
        "trials": trials,
        "killed": sum(each["killed"] for each in found),
        "wrong": sum(each["wrong"] for each in found),
        "left": sum(each["left"] for each in found),
    }


if __name__ == "__main__":
    arguments = sys.argv[1:]
    print(  # noqa: T201 - the answer to the test that started this
        json.dumps(
            main(
                Path(arguments[0]),
                bytes.fromhex(arguments[1]),
                int(arguments[2]),
                int(arguments[3]),
            )
        )
    )
