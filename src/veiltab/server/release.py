"""The release of a study: once, whatever happens to the process while it runs.

Everything that the release depends on is durable before it starts: the uploads, and the key that
decides the sample and the noise.  So it can be broken off at any instruction and begun again, and
the bytes come out the same.  They are on the disk before the one transaction that makes the
release visible; what is not perturbed is deleted only after it.
"""

import logging

from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import (
    AlignmentError,
    DigestError,
    InputError,
    MismatchError,
    StateError,
    VeiltabError,
)
from veiltab.protocol.server.study import ServerStudy
from veiltab.server.context import ServiceContext
from veiltab.server.study import StoredStudy
from veiltab.wire.messages import Release
from veiltab.wire.signed import Signed
from veiltab.wire.states import AuditEvent, State

_log = logging.getLogger("veiltab.service")


def release_study(context: ServiceContext, study: bytes) -> str:
    """Release a study whose uploads are complete; return the outcome."""
    outcome = _release(context, study)
    if outcome in ("done", "damaged"):
        _forget_aborted(context, study)
    return outcome


def _release(context: ServiceContext, study: bytes) -> str:
    released = context.folders.released(study)
    with context.database.reading() as records:
        stored = StoredStudy.find(context, records, study)
        if stored.state is not State.UPLOADED:
            return "done"
        server_study = stored.resume(entropy=_fixed_entropy(stored), released=released)
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
        aborted = set(records.studies_in([State.ABORTED]))
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


def _fixed_entropy(stored: StoredStudy) -> CipherEntropy:
    """Return the randomness that was fixed when the study's uploads were complete."""
    key = stored.record.noise_key
    if key is None:
        raise StateError(
            "the study is complete and has no noise key",
            hint="restore the database from a copy; the study cannot be released without it",
        )
    return CipherEntropy(key)


def _commit(
    context: ServiceContext, study: bytes, server_study: ServerStudy, release: Signed[Release]
) -> str:
    """Make the release visible, erase its key, and only then delete what is not perturbed."""
    with context.database.transaction() as records:
        stored = StoredStudy.find(context, records, study)
        if stored.state is not State.UPLOADED:
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
        if stored.state is not State.UPLOADED:
            return "done"
        stored.save_end(server_study, reason=error.message)
        stored.log(AuditEvent.ABORTED, context.identity.party_id)
    context.folders.forget_study(study)
    context.database.scrub()
    return "aborted"


def _damaged(context: ServiceContext, study: bytes, error: DigestError) -> str:
    """Wait until the curator of a damaged chunk has sent it again, by pushing once more."""
    _log.error("a received chunk is damaged", extra={"study": study.hex(), "why": error.message})
    with context.database.transaction() as records:
        stored = StoredStudy.find(context, records, study)
        if stored.state is State.UPLOADED and stored.record.reason is None:
            stored.save_reason("the server's disk has damaged a chunk; push again")
    _drop_damaged(context, study)
    return "damaged"


def _drop_damaged(context: ServiceContext, study: bytes) -> None:
    """Delete the damaged chunks, so that their curators see that they are missing."""
    with context.database.reading() as records:
        contract = StoredStudy.find(context, records, study).contract.body
    for terms in contract.curators:
        context.folders.received(study, terms.party_id).drop_damaged()
