"""Forms that are carried out once, however often a browser sends them: a double click, a reload."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from threading import Lock
from typing import Any, TypeVar

from veiltab.errors import StateError

REPEATED_SECONDS = 10.0
"""How long the same form gets the same answer: two clicks are one."""

LONGEST = 32


Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Sent:
    """A form that was sent: whether it was carried out, when, and what came of it."""

    lock: Lock = field(default_factory=Lock)
    done: bool = False
    at: float = 0.0
    answer: Any = None


class Once:
    """The numbers of forms, and what came of those that were sent."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with none."""
        self._clock, self._numbers = clock, count(1)
        self._sent: dict[str, _Sent] = {}
        self._lock = Lock()

    def new(self) -> str:
        """Return the number of another form; it is no secret."""
        return str(next(self._numbers))

    def run(self, number: str, work: Callable[[], Answer]) -> Answer:
        """Carry out a form, and return its answer; one that fails may be sent again."""
        if not number.isdecimal() or len(number) > LONGEST:
            raise StateError("this form is incomplete", hint="load the page again")
        with self._lock:
            self._forget_answers()
            sent = self._sent.setdefault(number, _Sent())
        with sent.lock:
            if not sent.done:
                answer = work()
                sent.done, sent.at, sent.answer = True, self._clock(), answer
                return answer
            if self._clock() < sent.at + REPEATED_SECONDS:
                repeated: Answer = sent.answer
                return repeated
        raise StateError(
            "this form was sent before, and nothing was done again",
            hint="look at what is there now; to do it once more, load the page again",
        )

    def is_done(self, number: str) -> bool:
        """Tell whether a form was carried out."""
        sent = self._sent.get(number)
        return sent is not None and sent.done

    def _forget_answers(self) -> None:
        """Forget old answers: there may be a code among them, which is shown once."""
        for sent in self._sent.values():
            if sent.done and self._clock() >= sent.at + REPEATED_SECONDS:
                sent.answer = None
