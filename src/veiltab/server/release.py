"""The release of a study: once, whatever happens to the process while it runs.

Everything that the release depends on is durable before it starts: the uploads, and the key that
decides the sample and the noise.  So it can be broken off at any instruction and begun again, and
the bytes come out the same.  They are on the disk before the one transaction that makes the
release visible; what is not perturbed is deleted only after it.
"""

import logging
from dataclasses import dataclass, field, replace

from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import (
    AlignmentError,
    DigestError,
    InputError,
    MismatchError,
    StateError,
    VeiltabError,
)
from veiltab.protocol.server.states import State
from veiltab.protocol.server.study import ServerStudy
from veiltab.protocol.stores import ChunkStore
from veiltab.server.context import Context
from veiltab.server.study import RELEASE, Case
from veiltab.wire.messages import Release
from veiltab.wire.signed import Signed

_log = logging.getLogger("veiltab.service")


@dataclass(frozen=True, slots=True)
class Kept:
    """Received chunks that stay until the release is committed, and are deleted then."""

    store: ChunkStore = field(repr=False)

    def put(self, chunk: bytes) -> bytes:
        """Keep a chunk of joined rows."""
        return self.store.put(chunk)

    def get(self, digest: bytes) -> bytes:
        """Return a chunk."""
        return self.store.get(digest)

    def clear(self) -> None:
        """Delete nothing yet."""


def release_study(context: Context, study: bytes) -> str:
    """Release a study whose uploads are complete; return how it went."""
    outcome = _release(context, study)
    if outcome in ("done", "damaged"):
        _forget_aborted(context, study)
    return outcome


def _release(context: Context, study: bytes) -> str:
    released = context.folders.released(study)
    with context.database.reading() as records:
        case = Case.find(context, records, study)
        if case.state is not State.UPLOADED:
            return "done"
        taken = _resume(case, released)
    try:
        with context.metrics.release_seconds.time():
            release = taken.release()
    except DigestError as error:
        return _damaged(context, study, error)
    except (AlignmentError, InputError, MismatchError) as error:
        return _abort(context, study, taken, error)
    released.sync()
    return _commit(context, study, taken, release)


def tidy(context: Context) -> None:
    """Delete what a crash has left behind: scratch, and ciphertext of studies whose life is over.

    A study that the records do not know is left alone: they may be those of another server, or an
    old copy.
    """
    context.folders.sweep()
    with context.database.reading() as records:
        released = set(records.studies_in([State.RELEASED]))
        aborted = set(records.studies_in([State.ABORTED]))
    for study in context.folders.studies():
        if study in released:
            context.folders.forget_received(study)
        elif study in aborted:
            context.folders.forget_study(study)
    context.database.scrub()


def _forget_aborted(context: Context, study: bytes) -> None:
    """Delete what was still written for a study that was aborted in the meantime."""
    with context.database.reading() as records:
        aborted = Case.find(context, records, study).state is State.ABORTED
    if aborted:
        context.folders.forget_study(study)


def _resume(case: Case, released: ChunkStore) -> ServerStudy:
    """Take the study up with the randomness that was fixed when its uploads were complete."""
    key = case.record.noise_key
    if key is None:
        raise StateError(
            "the study is complete and has no noise key",
            hint="restore the database from a copy; the study cannot be released without it",
        )
    taken, bench = case.resume(), case.bench()
    bench = replace(
        bench, entropy=CipherEntropy(key), received=Kept(bench.received), released=released
    )
    return ServerStudy.resume(bench, taken.contract, taken.state, taken.uploads.values())


def _commit(context: Context, study: bytes, taken: ServerStudy, release: Signed[Release]) -> str:
    """Make the release visible, erase its key, and only then delete what is not perturbed."""
    with context.database.transaction() as records:
        case = Case.find(context, records, study)
        if case.state is not State.UPLOADED:
            return "done"
        case.keep(RELEASE, context.identity.party_id, release.digest, release.dumps())
        case.end(taken)
        case.log("released", context.identity.party_id, release.digest)
    context.folders.forget_received(study)
    context.database.scrub()
    return "released"


def _abort(context: Context, study: bytes, taken: ServerStudy, error: VeiltabError) -> str:
    """End a study that cannot be joined, and say why to its parties."""
    with context.database.transaction() as records:
        case = Case.find(context, records, study)
        if case.state is not State.UPLOADED:
            return "done"
        case.end(taken, reason=error.message)
        case.log("aborted", context.identity.party_id)
    context.folders.forget_study(study)
    context.database.scrub()
    return "aborted"


def _damaged(context: Context, study: bytes, error: DigestError) -> str:
    """Wait for a curator to send a damaged chunk again: pushing once more mends it."""
    _log.error("a received chunk is damaged", extra={"study": study.hex(), "why": error.message})
    with context.database.transaction() as records:
        case = Case.find(context, records, study)
        if case.state is State.UPLOADED and case.record.reason is None:
            case.save(case.resume(), reason="the server's disk has damaged a chunk; push again")
    _drop_damaged(context, study)
    return "damaged"


def _drop_damaged(context: Context, study: bytes) -> None:
    """Delete the damaged chunks, so that their curators see that they are missing."""
    with context.database.reading() as records:
        contract = Case.find(context, records, study).contract.body
    for terms in contract.curators:
        context.folders.received(study, terms.party_id).drop_damaged()
