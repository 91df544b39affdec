"""The worker behind the service: releases what is complete, and keeps the house clean."""

import logging
from threading import Event, Thread

from veiltab.errors import UnavailableError, VeiltabError
from veiltab.protocol.server.states import State
from veiltab.server.context import Context
from veiltab.server.release import release_study, tidy
from veiltab.wire.requests import MAX_SKEW_SECONDS

_log = logging.getLogger("veiltab.service")
_NONCE_SECONDS = 4 * MAX_SKEW_SECONDS
"""How long a nonce is remembered: longer than any request with it could be accepted."""

LONGEST_PAUSE = 60.0


class Worker:
    """One thread; studies are released one after the other, the oldest first."""

    def __init__(self, context: Context) -> None:
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
        """Start with what an earlier process has left."""
        self._thread.start()

    def wake(self) -> None:
        """Look for work now."""
        self._wake.set()

    def stop(self, seconds: float) -> None:
        """Ask the thread to end, and wait a while; a release that it leaves is begun again."""
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
        """Try one study; if it fails, leave it alone for a while, a longer one each time.

        What it leaves on the disk when it fails, such as after its commit, must be found again.
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
    """Log what went wrong: our own errors in a line, anything else with its trace."""
    extra = {"study": study.hex()} if study else {}
    if isinstance(error, VeiltabError):
        _log.error(error.message, extra=extra)
    else:
        _log.error("the worker has failed", exc_info=error, extra=extra)
