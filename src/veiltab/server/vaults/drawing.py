"""Drawing rows of stored tables for a study: once, whatever is interrupted.

The key that decides which rows are drawn is durable before the draw, with the last signature.  So
a draw that is stopped at any instruction is begun again, and draws the same rows in the same order.
They are on the disk before the one transaction that asks the curators for new pads.  If the disk
damages them later, they are drawn again, and must come out the same.
"""

import logging
from collections.abc import Iterable

from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import AlignmentError, DigestError, InputError, MismatchError, StateError
from veiltab.files.bundles import BundledChunks
from veiltab.protocol.server.release import Drawn
from veiltab.protocol.server.study import ServerStudy
from veiltab.protocol.verify import plan_for
from veiltab.server.context import ServiceContext
from veiltab.server.stored_study import DRAWN, StoredStudy
from veiltab.server.vaults.stored_vault import StoredVault, table_chunks
from veiltab.wire.codec import dump, exact_fields, items, load
from veiltab.wire.contract import DIGEST
from veiltab.wire.messages import RepadRequest
from veiltab.wire.states import AuditEvent, State, VaultState

_log = logging.getLogger("veiltab.service")
_COLUMNS = items(items(DIGEST))
_WAITING = (State.OPEN, State.SAMPLED, State.JOINED)
"""The states of a study on stored tables that may need its drawn rows."""


def draw_study(context: ServiceContext, study: bytes) -> str:
    """Draw the rows of a study on stored tables; return the outcome.

    A study that has no rows to draw, or has them already, is "done".
    """
    store = context.folders.drawn(study)
    with context.database.reading() as records:
        drawn_before = _rows_in_doubt(StoredStudy.find(context, records, study))
    if drawn_before is None:
        return "done"
    if drawn_before:
        store.drop_damaged()
        if all(map(store.has, drawn_before)):
            return _keep_rows(context, study)
    return _draw(context, study, store)


def _rows_in_doubt(stored: StoredStudy) -> set[bytes] | None:
    """Return the chunks of rows that may be damaged: none of them if no rows were drawn yet.

    Without a reason to draw it is ``None``.
    """
    if stored.record.vault is None or stored.state not in _WAITING:
        return None
    if stored.state is State.OPEN:
        return set()
    if stored.record.reason is None:
        return None
    drawn = _read_drawn(stored)
    return {digest for chunks in (*drawn.positions, *drawn.columns) for digest in chunks}


def _keep_rows(context: ServiceContext, study: bytes) -> str:
    """Go on with rows that somebody has found damaged, and that are whole."""
    with context.database.transaction() as records:
        stored = StoredStudy.find(context, records, study)
        if stored.state is State.SAMPLED:
            stored.save_reason(None)
    return "done"


def _draw(context: ServiceContext, study: bytes, store: BundledChunks) -> str:
    """Match the tables of the vault, draw the rows that the key decides, and keep them."""
    with context.database.reading() as records:
        stored = StoredStudy.find(context, records, study)
        if stored.state not in _WAITING:  # its vault was closed after it was found to wait
            return "done"
        vault = StoredVault.find(context, records, stored.record.vault or b"")
        entropy = _fixed_entropy(stored, "draw")
        undrawn = stored.resume(entropy=entropy, received=store, state=State.OPEN)
        terms, uploads = vault.terms, vault.resume(tables=True).uploads
    curators = [curator.party_id for curator in terms.body.curators]
    if vault.state is not VaultState.STORED:
        return _abort(context, study, "the vault that it reads was closed")
    tables = context.folders.received_all(vault.study, curators)
    try:
        undrawn.draw_from(terms, [uploads[party] for party in curators], tables)
    except DigestError as error:
        return _damaged(context, study, vault.study, error)
    except (AlignmentError, InputError, MismatchError) as error:
        return _abort(context, study, error.message)
    store.sync()
    outcome = _commit(context, study, undrawn)
    if outcome == "aborted":
        _forget(context, study)
    return outcome


def _commit(context: ServiceContext, study: bytes, server_study: ServerStudy) -> str:
    """Ask the curators for new pads: from now on the rows are drawn for good."""
    rows, server = server_study.drawn, context.identity.party_id
    if rows is None:
        raise StateError("no rows are drawn", hint="draw them first")
    with context.database.transaction() as records:
        stored = StoredStudy.find(context, records, study)
        if stored.state is not State.OPEN:
            return _commit_again(stored, rows)
        note = dump({"columns": _COLUMNS.write(rows.columns, "columns")})
        stored.keep(DRAWN, server, study, note)
        stored.save(server_study)
        for curator, request in server_study.requests.items():
            content = request.dumps()
            stored.keep(RepadRequest.kind, server, request.digest, content, reference=curator)
            stored.log(AuditEvent.SAMPLED, server, request.digest)
    return "sampled"


def _commit_again(stored: StoredStudy, rows: Drawn) -> str:
    """Go on with rows that were drawn again, if they are the same and still wanted."""
    if stored.state not in _WAITING:
        return "done"
    before = _read_drawn(stored)
    if (before.positions, before.columns) != (rows.positions, rows.columns):
        # Curators answer for the rows of the first draw alone.
        return end_study(stored, "the drawn rows were damaged, and cannot be drawn again")
    stored.save_reason(None)
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
        if stored.state not in _WAITING:
            return "done"
        outcome = end_study(stored, reason)
    _forget(context, study)
    return outcome


def _forget(context: ServiceContext, study: bytes) -> None:
    context.folders.forget_study(study)
    context.database.scrub_soon()


def end_study(stored: StoredStudy, reason: str, actor: bytes | None = None) -> str:
    """Abort a study on behalf of the server, or of whoever has closed its vault."""
    stored.save_aborted(reason)
    stored.log(AuditEvent.ABORTED, actor or stored.context.identity.party_id)
    return "aborted"


def _damaged(context: ServiceContext, study: bytes, vault: bytes, error: DigestError) -> str:
    """Wait until the curators of damaged tables have pushed them again; say whose they are."""
    _log.error("a stored table is damaged", extra={"study": study.hex(), "why": error.message})
    reason = check_tables(context, vault)
    with context.database.transaction() as records:
        stored = StoredStudy.find(context, records, study)
        if stored.state in _WAITING and reason is not None:
            stored.save_reason(reason)
    return "damaged"


def check_tables(
    context: ServiceContext, vault: bytes, suspects: Iterable[bytes] | None = None
) -> str | None:
    """Delete damaged chunks of stored tables, and write down whose tables are not whole.

    The tables of the suspects are read as a whole, or all of them; of the others only what is
    missing is found out.
    """
    with context.database.reading() as records:
        stored = StoredVault.find(context, records, vault)
        uploads = {upload.body.curator: upload.body for upload in stored.uploads()}
        curators = stored.terms.body.curators
    checked = set(uploads if suspects is None else suspects)
    names = []
    for terms in curators:
        store = context.folders.received(vault, terms.party_id)
        if terms.party_id in checked:
            store.drop_damaged()
        if terms.party_id in uploads and not all(
            map(store.has, table_chunks(uploads[terms.party_id]))
        ):
            names.append(terms.identity.name)
    whose = ", ".join(names)
    reason = f"the stored table of {whose} is damaged; push it again" if names else None
    with context.database.transaction() as records:
        stored = StoredVault.find(context, records, vault)
        if stored.state is VaultState.STORED:
            stored.save_reason(reason)
    return reason
