"""Several threads for work on chunks, with results in the order of the work.

NumPy, polars and the ciphers release the interpreter's lock, so threads are enough.  The results
never depend on how many there are: whatever draws from a source of entropy, or decides an order,
stays in the caller's own thread.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST_THREADS = 8
"""On most machines the bandwidth of memory feeds no more."""


def available_threads() -> int:
    """Return how many threads are worth starting here; ``VEILTAB_THREADS`` sets another number."""
    wanted = os.environ.get("VEILTAB_THREADS", "")
    if wanted.isdecimal() and int(wanted):
        return int(wanted)
    return min(MOST_THREADS, len(os.sched_getaffinity(0)))


def ordered_map(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int | None = None
) -> Iterator[Result]:
    """Yield what ``work`` returns for each item, in the order of the items.

    A few items are read ahead, in the caller's thread, so that memory holds only those.  The first
    error is raised where its result would have come, and nothing further is begun.
    """
    count = available_threads() if threads is None else threads
    if count == 1:
        yield from map(work, items)
        return
    pending: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(count, thread_name_prefix="veiltab-work") as pool:
        try:
            for item in items:
                pending.append(pool.submit(work, item))
                if len(pending) > count:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
