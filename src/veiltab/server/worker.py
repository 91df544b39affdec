"""The worker behind the service: it releases what is complete, once, and deletes what is left over.

Everything that a release depends on is durable before it starts: the uploads, and the key that
decides the sample and the noise.  So it can be stopped at any instruction and begun again, and the
bytes come out the same.  They are on the disk before the one transaction that makes the release
visible; what is not perturbed is deleted only after it.
"""

import logging
import time
from collections.abc import Collection
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
from veiltab.server.db.usage import Waiting
from veiltab.server.housekeeping import count_disk, keep_house
from veiltab.server.queue import FairQueue
from veiltab.server.quotas import reserve_bytes
from veiltab.server.stored_study import StoredStudy
from veiltab.server.vaults.drawing import draw_study, resume_release
from veiltab.wire.messages import Overlap, Release
from veiltab.wire.requests import MAX_SKEW_SECONDS
from veiltab.wire.signed import Signed
from veiltab.wire.states import AuditEvent, State, VaultState

_log = logging.getLogger("veiltab.service")
_NONCE_SECONDS = 4 * MAX_SKEW_SECONDS
"""How long a nonce is remembered: longer than any request with it could be accepted."""

LONGEST_PAUSE = 60.0
HOUSE_SECONDS = 3600.0
THREADS = ("veiltab-worker", "veiltab-worker-large")

LARGE_BYTES = 256 * 2**20
"""From how many bytes of chunks on a study is large."""

RELEASE_FACTOR = 3
"""How much room a release takes at most, in terms of what was sent for it."""

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
            release = server_study.finish()
    except DigestError as error:
        return _damaged(context, study, error)
    except (AlignmentError, InputError, MismatchError) as error:
        return _abort(context, study, server_study, error)
    released.sync()
    return _commit(context, study, server_study, release)


def tidy(context: ServiceContext, busy: Collection[bytes] = ()) -> None:
    """Delete what a crash has left behind: scratch, and ciphertext of studies that have ended.

    A study that the records do not know is left alone: they may be those of another server, or an
    old copy.  So is one that is being released.
    """
    context.folders.sweep(busy)
    with context.database.reading() as records:
        released = set(records.studies_in([State.RELEASED]))
        aborted = set(records.studies_in([State.ABORTED, VaultState.CLOSED]))
    for study in context.folders.studies():
        if study in released:
            context.folders.forget_received(study)
        elif study in aborted:
            context.folders.forget_study(study)
    count_disk(context)
    context.database.scrub()


def _forget_aborted(context: ServiceContext, study: bytes) -> None:
    """Delete what was still written for a study that was aborted in the meantime."""
    with context.database.reading() as records:
        aborted = StoredStudy.find(context, records, study).state is State.ABORTED
    if aborted:
        context.folders.forget_study(study)


def _commit(
    context: ServiceContext,
    study: bytes,
    server_study: ServerStudy,
    release: Signed[Release] | Signed[Overlap],
) -> str:
    """Make the release visible, erase its key, and only then delete what is not perturbed."""
    with context.database.transaction() as records:
        stored = StoredStudy.find(context, records, study)
        if stored.state not in COMPLETE:
            return "done"
        kind, content = release.body.kind, release.dumps()
        stored.keep(kind, context.identity.party_id, release.digest, content)
        stored.save_end(server_study)
        size = context.folders.released_bytes(study)
        records.set_held(study, stored.record.proposer, size, 0)
        stored.log(AuditEvent.RELEASED, context.identity.party_id, release.digest)
    context.folders.forget_received(study)
    context.database.scrub_soon()
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
    context.database.scrub_soon()
    return "aborted"


def _reason(stored: StoredStudy, error: VeiltabError) -> str:
    """Return what the parties are told; with decoys, no number of rows."""
    told = error.message
    if stored.contract.body.coin_terms is not None and any(map(str.isdigit, told)):
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
    """Two threads that release studies, each one after the other, in turn by proposer.

    The second one releases the large studies: so nobody's small study waits for hours for somebody
    else's large one.
    """

    def __init__(self, context: ServiceContext) -> None:
        """Prepare the threads; nothing runs yet."""
        self._context = context
        self._stop = Event()
        self._lanes = (Lane(context, large=False), Lane(context, large=True))
        self._threads = [
            Thread(target=self._run, args=(lane,), name=name, daemon=True)
            for lane, name in zip(self._lanes, THREADS, strict=True)
        ]
        self._kept_house: float | None = None
        self._had_room = True

    @property
    def is_running(self) -> bool:
        """Whether a thread runs; a release can outlast :meth:`stop`."""
        return any(thread.is_alive() for thread in self._threads)

    def check_alive(self) -> None:
        """Refuse to call a service ready that takes uploads and releases nothing."""
        if not all(thread.is_alive() for thread in self._threads):
            raise UnavailableError(
                "the worker that releases studies does not run", hint="restart the server"
            )

    def start(self) -> None:
        """Start the threads; they begin with what an earlier process has left."""
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """Look for work now."""
        for lane in self._lanes:
            lane.wake.set()

    def stop(self, seconds: float) -> None:
        """Ask the threads to end, and wait; the next start repeats a release that is cut off."""
        self._stop.set()
        self.wake()
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _run(self, lane: "Lane") -> None:
        while not self._stop.is_set():
            try:
                if not lane.large:
                    self._keep_house()
                self._release_all(lane)
                if not lane.large:
                    self._context.database.scrub_again()
            except Exception as error:  # noqa: BLE001 - the thread must outlive any failure
                _report(error)
            lane.wake.wait(self._context.settings.poll_seconds)
            lane.wake.clear()

    def _release_all(self, lane: "Lane") -> None:
        while not self._stop.is_set() and lane.release_next():
            pass

    def _keep_house(self) -> None:
        """Delete what is left over after a start and after failures, and hourly what is old.

        What was given up on a full disk is reserved again as soon as there is room.
        """
        context = self._context
        if not all(lane.tidied for lane in self._lanes):
            for lane in self._lanes:
                lane.tidied = True
            try:
                tidy(context, {lane.releasing for lane in self._lanes if lane.releasing})
            except BaseException:
                self._lanes[0].tidied = False
                raise
        self._watch_disk()
        context.folders.keep_ballast(context.settings.ballast_bytes, reserve_bytes(context))
        with context.database.transaction() as records:
            records.forget_nonces(context.now - _NONCE_SECONDS)
        if self._kept_house is None or context.clock() >= self._kept_house + HOUSE_SECONDS:
            self._kept_house = context.clock()
            keep_house(context)

    def _watch_disk(self) -> None:
        """Log when the disk is nearly full, and when it is not any more."""
        context = self._context
        free, reserve = context.folders.free_bytes(), reserve_bytes(context)
        room = free >= reserve
        context.metrics.takes_uploads.set(room)
        if room == self._had_room:
            return
        self._had_room = room
        extra = {"free_bytes": free, "reserve_bytes": reserve}
        if room:
            _log.info("the disk has room again: uploads are taken", extra=extra)
        else:
            _log.warning("the disk is nearly full: only reading and aborts work", extra=extra)


class Lane:
    """The studies of one thread: the large ones, or all others."""

    def __init__(self, context: ServiceContext, *, large: bool) -> None:
        """Start with nothing to do."""
        self._context, self.large = context, large
        self._queue = FairQueue()
        self._pauses: dict[bytes, tuple[float, float]] = {}
        self.wake, self.tidied = Event(), large
        self.releasing: bytes | None = None

    def release_next(self) -> bool:
        """Release the study whose turn it is; ``False`` if there is none."""
        waiting = self._waiting()
        now = self._context.clock()
        paused = {study for study, (until, _) in self._pauses.items() if until > now}
        chosen = self._queue.choose(waiting, paused)
        if chosen is not None:
            self.releasing = chosen.study
            try:
                self._release(chosen)
            finally:
                self.releasing = None
        return chosen is not None

    def _waiting(self) -> list[Waiting]:
        with self._context.database.reading() as records:
            studies = [*records.studies_to_draw(), *records.studies_in(COMPLETE)]
            everything = records.waiting(studies)
        self._context.metrics.waiting.set(len(everything))
        waiting = [each for each in everything if (each.size >= LARGE_BYTES) == self.large]
        known = {each.study for each in waiting}
        self._pauses = {study: self._pauses[study] for study in self._pauses if study in known}
        return waiting

    def _release(self, waiting: Waiting) -> None:
        """Try to release a study; after a failure, wait before the next try, longer each time.

        A failure, such as one after the commit, can leave chunks on the disk: the worker tidies up
        again.
        """
        study, outcome = waiting.study, "failed"
        try:
            outcome = self._try(waiting)
        except Exception as error:  # noqa: BLE001 - other studies must not suffer
            self.tidied = False
            _report(error, study)
        self._context.metrics.releases.labels(outcome).inc()
        _log.info("release", extra={"study": study.hex(), "outcome": outcome})
        if outcome in ("failed", "damaged", "no_room"):
            before = self._pauses.get(study, (0.0, 0.25))[1]
            pause = min(LONGEST_PAUSE, 2 * before)
            self._pauses[study] = (self._context.clock() + pause, pause)

    def _try(self, waiting: Waiting) -> str:
        context = self._context
        needed = reserve_bytes(context) + RELEASE_FACTOR * waiting.size
        if context.folders.free_bytes() >= needed:
            return release_study(context, waiting.study)
        with context.database.transaction() as records:
            stored = StoredStudy.find(context, records, waiting.study)
            if stored.record.reason is None:
                stored.save_reason("the server's disk has too little room for the release")
        return "no_room"


def _report(error: Exception, study: bytes | None = None) -> None:
    """Log what went wrong: an expected error in one line, any other with its trace."""
    extra = {"study": study.hex()} if study else {}
    if isinstance(error, VeiltabError):
        _log.error(error.message, extra=extra)
    else:
        _log.error("the worker has failed", exc_info=error, extra=extra)
