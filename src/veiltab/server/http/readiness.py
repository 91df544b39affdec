"""Whether the service can work: asked by anybody, so answered from what was found a moment ago."""

import time
from threading import Lock

from veiltab.errors import VeiltabError
from veiltab.server.context import ServiceContext
from veiltab.server.worker import Worker


class Readiness:
    """Asks the database, the disk and the worker, but not more often than the worker looks."""

    def __init__(self, context: ServiceContext, worker: Worker) -> None:
        """Start without knowing."""
        self._context, self._worker = context, worker
        self._lock = Lock()
        self._asked = -float("inf")
        self._trouble: VeiltabError | None = None

    def check(self) -> None:
        """Raise what is wrong, as of a moment ago."""
        with self._lock:
            if time.monotonic() - self._asked > self._context.settings.poll_seconds:
                self._trouble = self._ask()
                self._asked = time.monotonic()
            trouble = self._trouble
        if trouble is not None:
            raise trouble.with_traceback(None)

    def _ask(self) -> VeiltabError | None:
        try:
            self._context.database.ping()
            self._context.folders.check_writable()
            self._worker.check_alive()
        except VeiltabError as error:
            return error
        return None
