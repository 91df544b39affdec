"""How often each sender may ask: a bucket of tokens that fills at a steady rate."""

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock

from veiltab.errors import RateLimitError

MAX_SENDERS = 10_000
"""Buckets that are kept; the sender that was quiet for longest is forgotten first."""


class Buckets:
    """One bucket for each sender; safe for use by several threads."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float]) -> None:
        """Allow ``burst`` requests at once, and ``rate`` a second in the long run."""
        self._rate, self._burst, self._clock = rate, float(burst), clock
        self._lock = Lock()
        self._levels: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, sender: Hashable) -> None:
        """Take a token of the sender's, or raise :class:`RateLimitError`."""
        now = self._clock()
        with self._lock:
            level, then = self._levels.pop(sender, (self._burst, now))
            level = min(self._burst, level + max(0.0, now - then) * self._rate)
            allowed = level >= 1
            self._levels[sender] = (level - 1 if allowed else level, now)
            if len(self._levels) > MAX_SENDERS:
                self._levels.popitem(last=False)
        if not allowed:
            seconds = math.ceil((1 - level) / self._rate)
            raise RateLimitError(
                "you are asking too often", hint=f"ask again in {seconds} s, and less often"
            )
