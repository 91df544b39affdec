"""Whether the service can work: asked by anybody, so answered from what was found a moment ago."""

import time
from threading import Lock

from veiltab.errors import VeiltabError
from veiltab.server.context import ServiceContext
from veiltab.server.quotas import has_room
from veiltab.server.worker import Worker


class Readiness:
    """Asks the database, the disk and the worker, but not more often than the worker looks."""

    def __init__(self, context: ServiceContext, worker: Worker) -> None:
        """Start without knowing."""
        self._context, self._worker = context, worker
        self._lock = Lock()
        self._asked = -float("inf")
        self._trouble: VeiltabError | None = None
        self._has_room = True

    def check(self) -> bool:
        """Raise what is wrong, as of a moment ago; return whether the disk takes uploads.

        While it takes none, the service still answers, and takes aborts: so it is ready.
        """
        with self._lock:
            if time.monotonic() - self._asked > self._context.settings.poll_seconds:
                self._trouble = self._ask()
                self._asked = time.monotonic()
            trouble, has_room = self._trouble, self._has_room
        if trouble is not None:
            raise trouble.with_traceback(None)
        return has_room

    def _ask(self) -> VeiltabError | None:
        try:
            self._context.database.ping()
            self._context.folders.check_writable()
            self._worker.check_alive()
            self._has_room = has_room(self._context)
        except VeiltabError as error:
            return error
        return None
