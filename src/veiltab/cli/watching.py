"""How a push shows itself on a terminal: bars while it works, names while it waits."""

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from veiltab.cli.status import LONGEST_POLL, SHORTEST_POLL
from veiltab.client.push import Watcher
from veiltab.errors import StateError


class StillWaitingError(Exception):
    """Other curators have to push first, and nobody wants to wait for them."""

    def __init__(self, names: Sequence[str]) -> None:
        """Keep who they are."""
        super().__init__(", ".join(names))
        self.names = list(names)


class ScreenWatcher(Watcher):
    """Shows progress on stderr if it is a terminal; waits for other curators if it may."""

    def __init__(self, *, wait: bool, timeout: float | None) -> None:
        """Start the clock; ``None`` waits for as long as it takes."""
        self._wait = wait
        self._timeout = timeout
        self._start = time.monotonic()
        self._pause = SHORTEST_POLL
        self._told: list[str] = []
        self._tasks: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
            transient=True,
        )

    def __enter__(self) -> Self:
        """Show the bars."""
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take them away."""
        self._progress.stop()

    def reading(self, rows: int, total: int | None) -> None:
        """Show how many rows of the table are read."""
        self._show("Reading rows", rows, total)

    def encrypting(self) -> None:
        """Say that the sample is being encrypted."""
        self._show("Encrypting", 0, None)

    def sending(self, chunks: int, total: int) -> None:
        """Show how many chunks the server has."""
        self._show("Sending chunks", chunks, total)

    def waiting(self, names: Sequence[str]) -> None:
        """Sleep a little, and say for whom; or end it."""
        if not self._wait:
            raise StillWaitingError(names)
        if self._timeout is not None and time.monotonic() - self._start >= self._timeout:
            raise StateError(
                f"waiting for {', '.join(map(repr, names))} to push too, after"
                f" {self._timeout:g} seconds",
                hint="run the same command again when they have; nothing is lost",
            )
        self._hide()
        if list(names) != self._told:
            self._told = list(names)
            if not self._progress.disable:
                self._progress.console.print(
                    f"Waiting for {', '.join(names)} to push too.  Ctrl-C is safe: run the same"
                    " command again later.",
                    markup=False,
                )
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_POLL)

    def _show(self, what: str, done: int, total: int | None) -> None:
        if what not in self._tasks:
            self._hide()
            self._tasks[what] = self._progress.add_task(what, total=total)
        self._progress.update(self._tasks[what], completed=done, total=total)

    def _hide(self) -> None:
        """Take away the bars of what is done."""
        for task in self._tasks.values():
            self._progress.update(task, visible=False)
