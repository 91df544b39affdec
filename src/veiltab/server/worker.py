"""The worker behind the service: it releases what is complete, once, and deletes what is left over.

Everything that a release depends on is durable before it starts: the uploads, and the key that
decides the sample and the noise.  So it can be stopped at any instruction and begun again, and the
bytes come out the same.  They are on the disk before the one transaction that makes the release
visible; what is not perturbed is deleted only after it.
"""

import logging
from threading import Event, Thread

from veiltab.errors import (
    AlignmentError,
    DigestError,
    InputError,
    MismatchError,
    UnavailableError,
    VeiltabError,
)
from veiltab.protocol.server.study import ServerStudy
from veiltab.server.context import ServiceContext
from veiltab.server.drawing import draw_study, resume_release
from veiltab.server.stored_study import StoredStudy
from veiltab.wire.messages import Release
from veiltab.wire.requests import MAX_SKEW_SECONDS
from veiltab.wire.signed import Signed
from veiltab.wire.states import AuditEvent, State, VaultState

_log = logging.getLogger("veiltab.service")
_NONCE_SECONDS = 4 * MAX_SKEW_SECONDS
"""How long a nonce is remembered: longer than any request with it could be accepted."""

LONGEST_PAUSE = 60.0

COMPLETE = (State.UPLOADED, State.JOINED)
"""The states of studies that can be released: all uploads, or all new pads, are there."""


def release_study(context: ServiceContext, study: bytes) -> str:
    """Release a study whose uploads are complete, or draw its rows first; return the outcome."""
    outcome = draw_study(context, study)
    if outcome == "done":
        outcome = _release(context, study)
    if outcome in ("done", "damaged"):
        _forget_aborted(context, study)
    return outcome


def _release(context: ServiceContext, study: bytes) -> str:
    released = context.folders.released(study)
    with context.database.reading() as records:
        stored = StoredStudy.find(context, records, study)
        if stored.state not in COMPLETE:
            return "done"
        server_study = resume_release(stored, released)
    try:
        with context.metrics.release_seconds.time():
            release = server_study.release()
    except DigestError as error:
        return _damaged(context, study, error)
    except (AlignmentError, InputError, MismatchError) as error:
        return _abort(context, study, server_study, error)
    released.sync()
    return _commit(context, study, server_study, release)


def tidy(context: ServiceContext) -> None:
    """Delete what a crash has left behind: scratch, and ciphertext of studies that have ended.

    A study that the records do not know is left alone: they may be those of another server, or an
    old copy.
    """
    context.folders.sweep()
    with context.database.reading() as records:
        released = set(records.studies_in([State.RELEASED]))
        aborted = set(records.studies_in([State.ABORTED, VaultState.CLOSED]))
    for study in context.folders.studies():
        if study in released:
            context.folders.forget_received(study)
        elif study in aborted:
            context.folders.forget_study(study)
    context.database.scrub()


def _forget_aborted(context: ServiceContext, study: bytes) -> None:
    """Delete what was still written for a study that was aborted in the meantime."""
    with context.database.reading() as records:
        aborted = StoredStudy.find(context, records, study).state is State.ABORTED
    if aborted:
        context.folders.forget_study(study)


def _commit(
    context: ServiceContext, study: bytes, server_study: ServerStudy, release: Signed[Release]
) -> str:
    """Make the release visible, erase its key, and only then delete what is not perturbed."""
    with context.database.transaction() as records:
        stored = StoredStudy.find(context, records, study)
        if stored.state not in COMPLETE:
            return "done"
        stored.keep(Release.kind, context.identity.party_id, release.digest, release.dumps())
        stored.save_end(server_study)
        stored.log(AuditEvent.RELEASED, context.identity.party_id, release.digest)
    context.folders.forget_received(study)
    context.database.scrub()
    return "released"


def _abort(
    context: ServiceContext, study: bytes, server_study: ServerStudy, error: VeiltabError
) -> str:
    """Write the end of a study that could not be joined, with the reason for its parties."""
    with context.database.transaction() as records:
        stored = StoredStudy.find(context, records, study)
        if stored.state not in COMPLETE:
            return "done"
        stored.save_end(server_study, reason=_reason(stored, error))
        stored.log(AuditEvent.ABORTED, context.identity.party_id)
    context.folders.forget_study(study)
    context.database.scrub()
    return "aborted"


def _reason(stored: StoredStudy, error: VeiltabError) -> str:
    """Return what the parties are told; with decoys, no number of rows."""
    told = error.message
    if stored.contract.body.decoys is not None and any(map(str.isdigit, told)):
        return "the curators' uploads do not belong together"
    return told


def _damaged(context: ServiceContext, study: bytes, error: DigestError) -> str:
    """Wait until the curator of a damaged chunk has sent it again, by pushing once more."""
    _log.error("a received chunk is damaged", extra={"study": study.hex(), "why": error.message})
    with context.database.transaction() as records:
        stored = StoredStudy.find(context, records, study)
        if stored.state in COMPLETE and stored.record.reason is None:
            stored.save_reason("the server's disk has damaged a chunk; push again")
    _drop_damaged(context, study)
    return "damaged"


def _drop_damaged(context: ServiceContext, study: bytes) -> None:
    """Delete the damaged chunks, so that their curators see that they are missing."""
    with context.database.reading() as records:
        contract = StoredStudy.find(context, records, study).contract.body
    for terms in contract.curators:
        context.folders.received(study, terms.party_id).drop_damaged()


class Worker:
    """A thread that releases studies one after the other, the oldest first."""

    def __init__(self, context: ServiceContext) -> None:
        """Prepare the thread; nothing runs yet."""
        self._context = context
        self._wake, self._stop = Event(), Event()
        self._thread = Thread(target=self._run, name="veiltab-worker", daemon=True)
        self._pauses: dict[bytes, tuple[float, float]] = {}
        self._tidied = False

    @property
    def is_running(self) -> bool:
        """Whether the thread runs; a release can outlast :meth:`stop`."""
        return self._thread.is_alive()

    def check_alive(self) -> None:
        """Refuse to call a service ready that takes uploads and releases nothing."""
        if not self.is_running:
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
            waiting = [*records.studies_to_draw(), *records.studies_in(COMPLETE)]
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
