"""The worker behind the service: it releases complete studies, and deletes what is left over."""

import logging
from threading import Event, Thread

from veiltab.errors import UnavailableError, VeiltabError
from veiltab.server.context import ServiceContext
from veiltab.server.release import release_study, tidy
from veiltab.wire.requests import MAX_SKEW_SECONDS
from veiltab.wire.states import State

_log = logging.getLogger("veiltab.service")
_NONCE_SECONDS = 4 * MAX_SKEW_SECONDS
"""How long a nonce is remembered: longer than any request with it could be accepted."""

LONGEST_PAUSE = 60.0


class Worker:
    """A thread that releases studies one after the other, the oldest first."""

    def __init__(self, context: ServiceContext) -> None:
        """Prepare the thread; nothing runs yet."""
        self._context = context
        self._wake, self._stop = Event(), Event()
        self._thread = Thread(target=self._run, name="veiltab-worker", daemon=True)
        self._pauses: dict[bytes, tuple[float, float]] = {}
        self._tidied = False

    def check_alive(self) -> None:
        """Refuse to call a service ready that takes uploads and releases nothing."""
        if not self._thread.is_alive():
            raise UnavailableError(
                "the worker that releases studies does not run", hint="restart the server"
            )

    def start(self) -> None:
        """Start the thread; it begins with what an earlier process has left."""
        self._thread.start()

    def wake(self) -> None:
        """Look for work now."""
        self._wake.set()

    def stop(self, seconds: float) -> None:
        """Ask the thread to end, and wait; the next start repeats a release that is cut off."""
        self._stop.set()
        self._wake.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if not self._tidied:
                    tidy(self._context)
                    self._tidied = True
                self._forget_nonces()
                self._release_all()
            except Exception as error:  # noqa: BLE001 - the thread must outlive any failure
                _report(error)
            self._wake.wait(self._context.settings.poll_seconds)
            self._wake.clear()

    def _release_all(self) -> None:
        with self._context.database.reading() as records:
            waiting = records.studies_in([State.UPLOADED])
        self._context.metrics.waiting.set(len(waiting))
        self._pauses = {study: self._pauses[study] for study in waiting if study in self._pauses}
        for study in waiting:
            if self._stop.is_set():
                return
            if self._pauses.get(study, (0.0, 0.0))[0] <= self._context.clock():
                self._release(study)

    def _release(self, study: bytes) -> None:
        """Try to release a study; after a failure, wait before the next try, longer each time.

        A failure, such as one after the commit, can leave chunks on the disk: the worker tidies up
        again.
        """
        outcome = "failed"
        try:
            outcome = release_study(self._context, study)
        except Exception as error:  # noqa: BLE001 - other studies must not suffer
            self._tidied = False
            _report(error, study)
        self._context.metrics.releases.labels(outcome).inc()
        _log.info("release", extra={"study": study.hex(), "outcome": outcome})
        if outcome in ("failed", "damaged"):
            before = self._pauses.get(study, (0.0, 0.25))[1]
            pause = min(LONGEST_PAUSE, 2 * before)
            self._pauses[study] = (self._context.clock() + pause, pause)

    def _forget_nonces(self) -> None:
        with self._context.database.transaction() as records:
            records.forget_nonces(self._context.now - _NONCE_SECONDS)


def _report(error: Exception, study: bytes | None = None) -> None:
    """Log what went wrong: an expected error in one line, any other with its trace."""
    extra = {"study": study.hex()} if study else {}
    if isinstance(error, VeiltabError):
        _log.error(error.message, extra=extra)
    else:
        _log.error("the worker has failed", exc_info=error, extra=extra)
