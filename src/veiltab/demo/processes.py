"""Runs the parties' commands as processes, none of which outlives the demonstration."""

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

VEILTAB = (sys.executable, "-m", "veiltab.demo.ends_with_parent")
SERVER = (sys.executable, "-m", "veiltab.demo.curious_server")
COMMAND_SECONDS = 180.0
"""After this time a command is considered hanging."""

SHUTDOWN_SECONDS = 5.0
"""How long a process may take to end by itself when the demonstration is over."""

POLL_SECONDS = 0.1
"""A delay that somebody who presses Ctrl-C does not notice."""

THREADS = 24
USERS_VARIABLES = ("VEILTAB_DATABASE", "VEILTAB_HOME", "VEILTAB_TABLE_URL")


@dataclass(frozen=True, slots=True)
class DemoParty:
    """One of the parties: a name, and a folder with its home."""

    name: str
    folder: Path

    @property
    def home(self) -> Path:
        """Where the party keeps its keys."""
        return self.folder / "home"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the party's commands: the party's own home, and UTF-8."""
        inherited = {k: v for k, v in os.environ.items() if k not in USERS_VARIABLES}
        return inherited | {"VEILTAB_HOME": str(self.home), "PYTHONUTF8": "1"}


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended, and what it printed."""

    command: str
    code: int
    out: str
    err: str

    @property
    def values(self) -> Any:  # noqa: ANN401 - each command has its own JSON
        """What ``--json`` printed."""
        return json.loads(self.out)


class Processes:
    """Runs commands at the same time; at the end, or on any failure, stops those that still run.

    Every process has one end of a pipe as its stdin, and ends when the other end is closed.
    ``history`` lists the commands that were started, each with its party.
    """

    def __init__(self, tell: Callable[[str], None] = lambda _: None) -> None:
        """Start no process yet; ``tell`` is called with every command as it starts."""
        self._tell = tell
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stdin, self._other_end = os.pipe()
        self._over = False
        self._pool = ThreadPoolExecutor(THREADS)
        self.history: list[tuple[str, str]] = []

    def __enter__(self) -> Self:
        """Return the processes, of which there are none yet."""
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
        """Close the other end of the pipe, and wait until every process has ended."""
        with self._lock:
            if self._over:
                return
            self._over = True
            os.close(self._other_end)
            running = list(self._running)
        for process in running:
            try:
                process.wait(SHUTDOWN_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._pool.shutdown(cancel_futures=True)
        os.close(self._stdin)

    def later(self, call: Callable[[], Result]) -> Future[Result]:
        """Start a call in a thread of its own."""
        return self._pool.submit(call)

    def wait_for(self, call: Callable[[], Result]) -> Result:
        """Make a call in a thread, and wait for it in such a way that Ctrl-C ends it at once.

        The system may give the signal to any thread; the main one has to wake up to see it.
        """
        future = self.later(call)
        while not wait([future], timeout=POLL_SECONDS).done:
            pass
        return future.result()

    def together(self, *calls: Callable[[], Result]) -> list[Result]:
        """Make calls at the same time, and return what they return; the first failure ends it."""
        futures = [self.later(call) for call in calls]
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
        return [future.result() for future in futures]

    def run(self, party: DemoParty, *arguments: object) -> CommandResult:
        """Run a party's command, which must succeed."""
        done = self.attempt(party, *arguments)
        if done.code:
            raise _failed(party, done)
        return done

    def attempt(self, party: DemoParty, *arguments: object) -> CommandResult:
        """Run a party's command, which may fail."""
        process, command = self._start(party, arguments, subprocess.PIPE, subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            err += f"it was stopped after {COMMAND_SECONDS:.0f} seconds\n"
        finally:
            with self._lock:
                self._running.discard(process)
        return CommandResult(command, process.returncode, out, err)

    def serve(self, party: DemoParty, *arguments: object) -> dict[str, str]:
        """Start a server that runs until the end; return what it prints once it listens.

        Its operator is curious, and keeps a copy of what the curators upload.
        """
        log = party.folder / "server.log"
        with log.open("w", encoding="utf-8") as errors:
            process, command = self._start(party, arguments, subprocess.PIPE, errors, SERVER)
        with process.stdout or log.open(encoding="utf-8") as output:
            line = output.readline()
        if not line:
            done = CommandResult(command, process.wait(), "", log.read_text("utf-8"))
            raise _failed(party, done)
        listening: dict[str, str] = json.loads(line)
        return listening

    def watch(self, party: DemoParty, *arguments: object) -> None:
        """Start a command that runs until the end; what it prints goes to a file."""
        with (party.folder / "watching.log").open("w", encoding="utf-8") as log:
            self._start(party, arguments, log, log)

    def _start(
        self,
        party: DemoParty,
        arguments: Sequence[object],
        output: int | IO[str],
        errors: int | IO[str],
        program: Sequence[str] = VEILTAB,
    ) -> tuple[subprocess.Popen[str], str]:
        texts = [str(argument) for argument in arguments]
        command = shlex.join(["veiltab", *texts])
        with self._lock:
            if self._over:
                raise VeiltabError("the demonstration is over", hint="start another one")
            process = subprocess.Popen(  # noqa: S603 - it is our own command
                [*program, *texts],
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


def _failed(party: DemoParty, done: CommandResult) -> VeiltabError:
    said = "\n".join(f"  {line}" for line in done.err.strip().splitlines()) or "  (nothing)"
    return VeiltabError(
        f"{party.name}: `{done.command}` ended with exit code {done.code} and printed:\n{said}",
        hint=f"the parties' folders are still in {party.folder.parent}",
    )
