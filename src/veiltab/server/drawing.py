"""Drawing rows of stored tables for a study: once, whatever is interrupted.

The key that decides which rows are drawn is durable before the draw, with the last signature.  So
a draw that is stopped at any instruction is begun again, and draws the same rows in the same order.
They are on the disk before the one transaction that asks the curators for new pads.
"""

import logging

from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import AlignmentError, DigestError, InputError, MismatchError, StateError
from veiltab.files.bundles import BundledChunks
from veiltab.protocol.server.release import Drawn
from veiltab.protocol.server.study import ServerStudy
from veiltab.protocol.verify import plan_for
from veiltab.server.context import ServiceContext
from veiltab.server.stored_study import DRAWN, StoredStudy
from veiltab.server.stored_vault import StoredVault
from veiltab.wire.codec import dump, exact_fields, items, load
from veiltab.wire.contract import DIGEST
from veiltab.wire.messages import RepadRequest
from veiltab.wire.states import AuditEvent, State, VaultState

_log = logging.getLogger("veiltab.service")
_COLUMNS = items(items(DIGEST))


def draw_study(context: ServiceContext, study: bytes) -> str:
    """Draw the rows of a study on stored tables; return the outcome.

    A study that has no rows to draw, or not yet, or not any more, is "done".
    """
    drawn = context.folders.drawn(study)
    with context.database.reading() as records:
        stored = StoredStudy.find(context, records, study)
        if stored.state is not State.OPEN or stored.record.vault is None:
            return "done"
        vault = StoredVault.find(context, records, stored.record.vault)
        server_study = stored.resume(entropy=_fixed_entropy(stored, "draw"), received=drawn)
        terms, uploads = vault.terms, vault.resume().uploads
    curators = [curator.party_id for curator in terms.body.curators]
    if len(uploads) < len(curators):
        return _abort(context, study, "the vault that it reads was closed")
    tables = context.folders.received_all(vault.study, curators)
    try:
        with context.metrics.draw_seconds.time():
            server_study.draw_from(terms, [uploads[party] for party in curators], tables)
    except DigestError as error:
        return _damaged(context, study, vault.study, error)
    except (AlignmentError, InputError, MismatchError) as error:
        return _abort(context, study, error.message)
    drawn.sync()
    return _commit(context, study, server_study)


def _commit(context: ServiceContext, study: bytes, server_study: ServerStudy) -> str:
    """Ask the curators for new pads: from now on the rows are drawn for good."""
    rows, server = server_study.drawn, context.identity.party_id
    with context.database.transaction() as records:
        stored = StoredStudy.find(context, records, study)
        if stored.state is not State.OPEN or rows is None:
            return "done"
        note = dump({"columns": _COLUMNS.write(rows.columns, "columns")})
        stored.keep(DRAWN, server, study, note)
        stored.save(server_study)
        for curator, request in server_study.requests.items():
            content = request.dumps()
            stored.keep(RepadRequest.kind, server, request.digest, content, reference=curator)
            stored.log(AuditEvent.SAMPLED, server, request.digest)
    return "sampled"


def resume_release(stored: StoredStudy, released: BundledChunks) -> ServerStudy:
    """Return a complete study with the randomness that was fixed for its release.

    Rows of stored tables are drawn long before their noise.  If both came from one stream, the
    noise would repeat the bytes that have decided the sample.
    """
    if stored.record.vault is None:
        return stored.resume(entropy=_fixed_entropy(stored), released=released)
    entropy = _fixed_entropy(stored, "release")
    return stored.resume(entropy=entropy, released=released, drawn=_read_drawn(stored))


def _read_drawn(stored: StoredStudy) -> Drawn:
    """Return what was drawn for a study on stored tables."""
    contract = stored.contract.body
    requests = {request.body.curator: request.body for request in stored.requests()}
    first = requests[contract.curators[0].party_id]
    (note,) = stored.records.messages(stored.study, DRAWN)
    fields = exact_fields(load(note.content), ("columns",), "")
    return Drawn(
        plan=plan_for(contract, first.population),
        row_count=first.sample_size,
        positions=tuple(requests[terms.party_id].positions for terms in contract.curators),
        columns=_COLUMNS.read(fields["columns"], "columns"),
    )


def _fixed_entropy(stored: StoredStudy, purpose: str | None = None) -> CipherEntropy:
    """Return the randomness that was fixed when the study was complete, or opened."""
    key = stored.record.noise_key
    if key is None:
        raise StateError(
            "the study is complete and has no noise key",
            hint="restore the database from a copy; the study cannot be released without it",
        )
    return CipherEntropy(key) if purpose is None else CipherEntropy.from_key(key, purpose)


def _abort(context: ServiceContext, study: bytes, reason: str) -> str:
    """Write the end of a study whose rows cannot be drawn, with the reason for its parties."""
    with context.database.transaction() as records:
        stored = StoredStudy.find(context, records, study)
        if stored.state is not State.OPEN:
            return "done"
        server_study = stored.resume()
        server_study.abort()
        stored.save_end(server_study, reason=reason)
        stored.log(AuditEvent.ABORTED, context.identity.party_id)
    context.folders.forget_study(study)
    context.database.scrub()
    return "aborted"


def _damaged(context: ServiceContext, study: bytes, vault: bytes, error: DigestError) -> str:
    """Wait until the curators of damaged tables have pushed them again; say whose they are."""
    _log.error("a stored table is damaged", extra={"study": study.hex(), "why": error.message})
    names = drop_damaged_tables(context, vault)
    with context.database.transaction() as records:
        stored = StoredStudy.find(context, records, study)
        if stored.state is State.OPEN:
            whose = ", ".join(names) or "a curator"
            stored.save_reason(f"the stored table of {whose} is damaged; push it again")
    return "damaged"


def drop_damaged_tables(context: ServiceContext, vault: bytes) -> list[str]:
    """Delete the damaged chunks of a vault, and return the names of the curators who miss some."""
    with context.database.reading() as records:
        stored = StoredVault.find(context, records, vault)
        uploads = {upload.body.curator: upload.body for upload in stored.uploads()}
        curators = stored.terms.body.curators
    names = []
    for terms in curators:
        store, upload = context.folders.received(vault, terms.party_id), uploads.get(terms.party_id)
        store.drop_damaged()
        listed = [c.chunks for c in upload.columns] + [upload.tokens or ()] if upload else []
        if not all(store.has(digest) for digests in listed for digest in digests):
            names.append(terms.identity.name)
    with context.database.transaction() as records:
        stored = StoredVault.find(context, records, vault)
        if names and stored.state is VaultState.STORED:
            stored.save_reason(f"the stored table of {', '.join(names)} is damaged; push it again")
    return names
