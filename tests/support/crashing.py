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
from unittest import mock

from tests.support.servers import make_context
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.files import bundles, disk
from veiltab.server.context import ServiceContext
from veiltab.server.stored_study import StoredStudy
from veiltab.server.worker import release_study, tidy
from veiltab.wire.states import State

WRITING = (bundles.__file__, disk.__file__)
SERVER = PrivateIdentity.create("server", CipherEntropy.from_seed(9, "server"))
"""The same in every process; nothing here may use polars, whose threads do not live in a fork."""


def open_context(directory: Path) -> ServiceContext:
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


def recover(context: ServiceContext, study: bytes) -> None:
    """Do what a server does when it starts again."""
    tidy(context)
    release_study(context, study)


class Countdown:
    """A tracer that counts the lines that run, and kills the process at one of them."""

    def __init__(self, lines: int | None) -> None:
        """Kill at this line, or only count."""
        self.lines, self.left = 0, lines
        self.writing: list[int] = []

    def __call__(self, frame: FrameType, event: str, _arg: object) -> Self:
        """See one event of the interpreter."""
        if event == "line":
            self.lines += 1
            if frame.f_code.co_filename in WRITING:
                self.writing.append(self.lines)
            if self.left is not None and self.lines >= self.left:
                os.kill(os.getpid(), signal.SIGKILL)
        return self


def release_killed_at(directory: Path, study: bytes, line: int | None) -> Countdown:
    """Release in this process under a tracer; return what it has counted."""
    countdown, context = Countdown(line), open_context(directory)
    sys.settrace(countdown)
    try:
        recover(context, study)
    finally:
        sys.settrace(None)
    return countdown


def visible(directory: Path, study: bytes) -> tuple[bytes | None, dict[str, bytes], bool]:
    """Return the release that parties can see, the chunks it names, and whether any is received.

    Of a study whose rows were drawn from stored tables, the requests take the release's place.
    """
    context = open_context(directory)
    with context.database.reading() as records:
        stored = StoredStudy.find(context, records, study)
        release = stored.release()
        requests = stored.requests() if stored.state is State.SAMPLED else []
    folder = directory / "studies" / study.hex()
    if requests:
        positions = context.folders.drawn(study)
        named = {digest for request in requests for digest in request.body.positions}
        # They are kept in the order of their seconds, and a second may begin between two of them.
        asked = b"".join(sorted(request.dumps() for request in requests))
        left = any((folder / name).exists() for name in ("joined", "scratch"))
        return asked, {digest.hex(): positions.get(digest) for digest in named}, left
    received = any((folder / name).exists() for name in ("received", "joined", "scratch", "drawn"))
    if release is None:
        return None, {}, received
    store = context.folders.released(study)
    lists = [column.chunks for column in release.body.columns]
    lists += [upload.positions or () for upload in release.body.uploads]
    named = {digest for digests in lists for digest in digests}
    return release.dumps(), {digest.hex(): store.get(digest) for digest in named}, received


def released_files(directory: Path, study: bytes) -> dict[str, bytes]:
    """Return everything in the folder of what is released, or drawn to be released later."""
    folders = [directory / "studies" / study.hex() / name for name in ("released", "drawn")]
    (folder,) = filter(Path.exists, folders)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def trial(original: Path, study: bytes, lines: list[int], reference: Path) -> dict[str, bool]:
    """Kill a release at these lines one after the other, recover, and compare."""
    expected = visible(reference, study)[:2]
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
        "left": received or released_files(directory, study) != released_files(reference, study),
    }


def main(directory: Path, study: bytes, trials: int, seed: int) -> dict[str, int]:
    """Run all trials: one kill in most, two or three in some."""
    reference = directory.with_name("reference")
    for _ in range(2):  # the first time also runs what runs once in a process
        shutil.rmtree(reference, ignore_errors=True)
        shutil.copytree(directory, reference)
        counted = release_killed_at(reference, study, None)
    draw = random.Random(seed)  # noqa: S311 - chooses when to kill
    found = []
    for number in range(trials):
        kills = 1 + (number % 5 == 0) + (number % 10 == 0)
        lines = [draw.randrange(1, counted.lines) for _ in range(kills)]
        if number % 2:  # few of all lines write files
            lines[-1] = draw.choice(counted.writing)
        found.append(trial(directory, study, lines, reference))
    return {
        "lines": counted.lines,
        "bundles": len(released_files(reference, study)),
        "trials": trials,
        "killed": sum(each["killed"] for each in found),
        "wrong": sum(each["wrong"] for each in found),
        "left": sum(each["left"] for each in found),
    }


if __name__ == "__main__":
    directory, study, trials, seed = sys.argv[1:]
    with mock.patch.object(bundles, "MAX_ASKED", 2):  # a small release has several bundles too
        found = main(Path(directory), bytes.fromhex(study), int(trials), int(seed))
    print(json.dumps(found))  # noqa: T201 - the answer to the test that started this
