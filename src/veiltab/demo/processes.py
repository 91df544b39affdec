"""The processes of a demonstration: commands of parties, none of which outlives it."""

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar

from veiltab.errors import VeiltabError

Result = TypeVar("Result")

LEASH = (sys.executable, "-m", "veiltab.demo.child")
LONGEST = 180.0
"""Seconds after which a command is taken to hang."""

PATIENCE = 5.0
"""Seconds that a process has to end by itself when the demonstration is over."""

BLINK = 0.1
"""Seconds that somebody who presses Ctrl-C does not notice."""

THREADS = 24
OTHERS_VARIABLES = ("VEILTAB_DATABASE", "VEILTAB_HOME", "VEILTAB_TABLE_URL")


@dataclass(frozen=True, slots=True)
class Party:
    """Somebody with a folder, and a home in it."""

    name: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """What the party's commands find around them: the party's own home, and UTF-8."""
        inherited = {k: v for k, v in os.environ.items() if k not in OTHERS_VARIABLES}
        return inherited | {"VEILTAB_HOME": str(self.folder / "home"), "PYTHONUTF8": "1"}


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended, and what it printed."""

    command: str
    code: int
    out: str
    err: str

    @property
    def values(self) -> Any:  # noqa: ANN401 - each command has its own JSON
        """What ``--json`` printed."""
        return json.loads(self.out)


class Crew:
    """Runs commands at the same time; at the end, and on any failure, stops all that still run.

    Every process holds one end of a pipe as its stdin, and ends when the other end is closed.
    ``history`` is who has started what.
    """

    def __init__(self, tell: Callable[[str], None] = lambda _: None) -> None:
        """Start with nobody; ``tell`` hears of every command as it starts."""
        self._tell = tell
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stdin, self._leash = os.pipe()
        self._over = False
        self._pool = ThreadPoolExecutor(THREADS)
        self.history: list[tuple[str, str]] = []

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop every process and wait for it; also when somebody presses Ctrl-C."""
        self.stop()

    def stop(self) -> None:
        """Let go of the leash, and wait until everybody has gone."""
        with self._lock:
            if self._over:
                return
            self._over = True
            os.close(self._leash)
            running = list(self._running)
        for process in running:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._pool.shutdown(cancel_futures=True)
        os.close(self._stdin)

    def later(self, call: Callable[[], Result]) -> Future[Result]:
        """Start something in a thread of its own."""
        return self._pool.submit(call)

    def wait_for(self, call: Callable[[], Result]) -> Result:
        """Do something in a thread, and wait so that Ctrl-C ends it at once.

        The system may give the signal to any thread; the main one has to wake up to see it.
        """
        future = self.later(call)
        while not wait([future], timeout=BLINK).done:
            pass
        return future.result()

    def together(self, *calls: Callable[[], Result]) -> list[Result]:
        """Do things at the same time, and return what they return; the first failure ends it."""
        futures = [self.later(call) for call in calls]
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
        return [future.result() for future in futures]

    def run(self, party: Party, *arguments: object) -> Done:
        """Run a command of a party that must succeed."""
        done = self.attempt(party, *arguments)
        if done.code:
            raise _failed(party, done)
        return done

    def attempt(self, party: Party, *arguments: object) -> Done:
        """Run a command of a party, whatever comes of it."""
        process, command = self._start(party, arguments, subprocess.PIPE, subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            err += f"it was stopped after {LONGEST:.0f} seconds\n"
        finally:
            with self._lock:
                self._running.discard(process)
        return Done(command, process.returncode, out, err)

    def serve(self, party: Party, *arguments: object) -> dict[str, str]:
        """Start a server that runs until the end; return what it says when it listens."""
        log = party.folder / "server.log"
        with log.open("w", encoding="utf-8") as errors:
            process, command = self._start(party, arguments, subprocess.PIPE, errors)
        with process.stdout or log.open(encoding="utf-8") as output:
            line = output.readline()
        if not line:
            done = Done(command, process.wait(), "", log.read_text("utf-8"))
            raise _failed(party, done)
        found: dict[str, str] = json.loads(line)
        return found

    def _start(
        self,
        party: Party,
        arguments: Sequence[object],
        output: int,
        errors: int | IO[str],
    ) -> tuple[subprocess.Popen[str], str]:
        texts = [str(each) for each in arguments]
        command = shlex.join(["veiltab", *texts])
        with self._lock:
            if self._over:
                raise VeiltabError("the demonstration is over", hint="start another one")
            process = subprocess.Popen(  # noqa: S603 - it is our own command
                [*LEASH, *texts],
                stdin=self._stdin,
                stdout=output,
                stderr=errors,
                cwd=party.folder,
                env=party.environment,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C is for the demonstration, which ends the others
            )
            self._running.add(process)
            self.history.append((party.name, command))
        self._tell(f"{party.name}: {command}")
        return process, command


def _failed(party: Party, done: Done) -> VeiltabError:
    said = "\n".join(f"  {line}" for line in done.err.strip().splitlines()) or "  (nothing)"
    return VeiltabError(
        f"{party.name}: `{done.command}` ended with exit code {done.code}, and said:\n{said}",
        hint=f"what the parties had is still in {party.folder.parent}",
    )
