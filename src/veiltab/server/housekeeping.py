"""What the server does by itself from time to time: old proposals expire, old studies are archived.

The operator's commands do the same for single studies.
"""

from veiltab.errors import StateError
from veiltab.server.context import ServiceContext
from veiltab.server.db.records import VAULT
from veiltab.server.quotas import SECONDS_A_DAY
from veiltab.server.stored_study import StoredAgreement, StoredStudy
from veiltab.server.vaults.steps import close_vault
from veiltab.server.vaults.stored_vault import StoredVault
from veiltab.wire.states import ENDED, AuditEvent, State


def keep_house(context: ServiceContext) -> None:
    """Let proposals expire, and archive what ended long ago."""
    expire_proposals(context, context.settings.proposal_days)
    archive_finished(context, context.settings.archive_days)


def expire_proposals(context: ServiceContext, days: int) -> list[bytes]:
    """End the proposals that not everybody has signed within some days; return them."""
    with context.database.reading() as records:
        old = records.unsigned_since(context.now - days * SECONDS_A_DAY)
    for study in old:
        end(context, study, f"not everybody has signed within {days} days", unsigned=True)
    return old


def archive_finished(context: ServiceContext, days: int) -> list[bytes]:
    """Delete the contents of what has ended, and has not changed for some days; return it."""
    with context.database.reading() as records:
        old = records.finished_since(context.now - days * SECONDS_A_DAY, context.now)
    for study in old:
        archive(context, study)
    return old


def end(context: ServiceContext, study: bytes, reason: str, *, unsigned: bool = False) -> None:
    """Abort a study, or close a vault, in the name of the server.

    With ``unsigned``, only if it still waits for a signature: the last one may just have come.
    """
    server = context.identity.party_id
    with context.database.reading() as records:
        record = records.study(study)
    if record is not None and record.kind == VAULT:
        close_vault(context, study, server, f"the server: {reason}", unsigned=unsigned)
        return
    with context.database.transaction() as records:
        stored = StoredStudy.find(context, records, study)
        if unsigned and stored.state is not State.PROPOSED:
            return
        if stored.state is State.RELEASED:
            raise StateError(
                "the study is released, and cannot be aborted any more",
                hint="archive it: its messages and chunks are deleted then",
            )
        if stored.state is not State.ABORTED:
            stored.save_aborted(f"the server: {reason}")
            stored.log(AuditEvent.ABORTED, server)
    context.folders.forget_study(study)
    context.database.scrub_soon()


def archive(context: ServiceContext, study: bytes) -> None:
    """Delete the messages and chunks of what has ended; contract, log and digests stay."""
    with context.database.transaction() as records:
        record = records.study(study)
        kind = StoredVault if record is not None and record.kind == VAULT else StoredStudy
        stored: StoredAgreement = kind.find(context, records, study)
        if stored.record.state not in ENDED:
            raise StateError(
                f"the {stored.kind} is {stored.record.state}, and only what has ended is archived",
                hint="abort it first",
            )
        if stored.record.archived is None:
            records.forget_messages(study)
            records.forget_held(study)
            records.change_study(study, archived=context.now)
            stored.log(AuditEvent.ARCHIVED, context.identity.party_id)
    context.folders.forget_study(study)
    context.database.scrub_soon()


def count_disk(context: ServiceContext) -> None:
    """Correct what is counted to each party by what is on the disk, such as after a crash."""
    for study in context.folders.studies():
        with context.database.transaction() as records:
            record = records.study(study)
            if record is None:  # it may be another server's, or the database an old copy
                continue
            sizes = context.folders.received_bytes(study)
            if record.state in ENDED:
                records.forget_held(study)
                sizes = {record.proposer: context.folders.released_bytes(study)}
            for party, size in sizes.items():
                chunks = records.held_chunks(study, party)
                records.set_held(study, party, size, chunks)
