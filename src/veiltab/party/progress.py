"""Reports on how far a long step has come, and waiting for other parties."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Step = Literal["reading rows", "dropping repeated rows", "encrypting", "sending", "waiting"]

SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 3.0
"""Seconds between two requests to the server, while others have to act first."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One report: the step, how much of it is done, and who is being waited for.

    Reading and dropping are counted in rows, sending in percent.  ``difference`` says what
    curators have to correct before a push goes on.
    """

    step: Step
    done: int = 0
    total: int | None = None
    waiting_for: tuple[str, ...] = ()
    state: str = ""
    difference: str | None = None


OnProgress = Callable[[Progress], None]


def ignore_progress(_: Progress) -> None:
    """Report to nobody."""


class Patience:
    """Waits a little longer each time, and tells when the time is up."""

    def __init__(self, timeout: float | None) -> None:
        """Start the clock; without a timeout it never runs out."""
        self.timeout = timeout
        self._end = None if timeout is None else time.monotonic() + timeout
        self._pause = SHORTEST_PAUSE

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self._end is not None and time.monotonic() >= self._end

    def wait(self) -> None:
        """Sleep, at most until the time is up."""
        left = self._pause if self._end is None else self._end - time.monotonic()
        time.sleep(max(0.0, min(self._pause, left)))
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
