"""Asking again when the server does not answer: a restart must not end anybody's work."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from veiltab.errors import ConnectionFailedError, ParameterError

T = TypeVar("T")
Jitter = Callable[[], float]
OnWait = Callable[[str, float], None]

MAX_RETRY_AFTER = 60.0
"""The server may ask for patience, but not for more than this at a time, in seconds."""

_MAX_DOUBLINGS = 60


class TryAgainError(Exception):
    """A try failed in a way that may pass; ``after`` is the wait that the server asked for."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        """Keep the reason in a few words, as people see it while they wait."""
        super().__init__(reason)
        self.reason = reason
        self.after = after


def _say_nothing(_reason: str, _seconds: float) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often and how long to try: exponential backoff with full jitter.

    Waits are drawn between nothing and ``base`` times a power of two, at most ``cap``: clients
    that lost the server together do not come back together.  After ``total`` seconds or
    ``attempts`` tries it ends.  ``on_wait`` is told before every wait, from any thread.
    """

    total: float = 300.0
    attempts: int = 1_000
    base: float = 0.5
    cap: float = 15.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    jitter: Jitter = field(default_factory=lambda: secrets.SystemRandom().random)
    on_wait: OnWait = _say_nothing

    def __post_init__(self) -> None:
        """Refuse a policy that would never try, or wait for a negative time."""
        if self.attempts < 1 or min(self.total, self.base, self.cap) < 0:
            raise ParameterError(
                "a retry policy needs at least one attempt, and no negative time",
                hint="use attempts=1 to try once",
            )

    def run(self, attempt: Callable[[], T]) -> T:
        """Call ``attempt`` until it raises no :class:`TryAgainError`, or patience ends."""
        start = self.clock()
        for number in range(self.attempts):
            try:
                return attempt()
            except TryAgainError as error:
                failure = error
            left = self.total - (self.clock() - start)
            if left <= 0 or number == self.attempts - 1:
                break
            wait = min(self._wait(number, failure.after), left)
            self.on_wait(failure.reason, wait)
            self.sleep(wait)
        raise ConnectionFailedError(
            f"the server did not answer ({failure.reason}); tried {number + 1:,} times",
            hint="check the network, the server's URL and whether it runs; then run this again:"
            " nothing that was sent is lost, and nothing is sent twice",
        ) from failure

    def _wait(self, number: int, after: float | None) -> float:
        """Return the seconds before the next try; ``after`` is spread out too."""
        longest = min(self.cap, self.base * 2.0 ** min(number, _MAX_DOUBLINGS))
        asked = 0.0 if after is None else min(max(after, 0.0), MAX_RETRY_AFTER)
        return asked + self.jitter() * (longest if after is None else self.base)
