"""Pushing a table to a vault: the whole of it is read, encrypted and sent; resume where it stopped.

Whatever is broken off can be done again: what was sent is not sent twice.
"""

from collections.abc import Callable

from veiltab.errors import (
    DigestError,
    ParameterError,
    StateError,
)
from veiltab.files.chunks import FolderChunks
from veiltab.files.private import locked
from veiltab.files.spool import FolderSpool
from veiltab.party.checking import Source, read_table
from veiltab.party.context import PartyContext
from veiltab.party.evidence import read_log
from veiltab.party.progress import OnProgress, Progress
from veiltab.party.sending import LOCK_WAIT, ChunkSending, chunk_digests
from veiltab.party.vaults.remote import VaultStatus
from veiltab.party.vaults.steps import secret_of
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.curator.upload import CuratorContext, Prepared, prepare_table
from veiltab.protocol.logged import check_upload
from veiltab.protocol.verify import renew, verify_agreement
from veiltab.remedies import Remedy
from veiltab.wire.contract import Vault
from veiltab.wire.messages import Upload
from veiltab.wire.signed import Signed
from veiltab.wire.states import VaultState


def push_vault(
    context: PartyContext,
    signed: Signed[Vault],
    source: Callable[[], Source] | None,
    progress: OnProgress,
) -> VaultStatus:
    """Push a table to a vault, or go on with a push that was interrupted.

    To go on, the table need not be named again; if it is, it must be the same as before.
    """
    vault = verify_agreement(signed)
    context.check_parties(vault)
    me, folder = context.identity.party_id, context.home.vault(vault.vault_id)
    schema = vault.schema_of(me)
    with locked(folder.path / "lock", LOCK_WAIT):
        outgoing = FolderChunks(folder.outgoing)
        prepared = folder.prepared(schema, FolderChunks(folder.private))
        if prepared is None:
            _check_open(context.server.vaults.status(vault.vault_id))
            prepared = _prepare(context, signed, _named(source), outgoing, progress)
            folder.save_prepared(prepared)
        elif source is not None:
            with _read(context, vault, source(), progress) as intake:
                folder.check_table(intake.table_digest)
        status = _send(context, prepared, outgoing, progress)
        check_upload(read_log(context, vault), prepared.message)
    return status


def _named(source: Callable[[], Source] | None) -> Source:
    if source is None:
        raise ParameterError(
            "no table is named, and none was prepared for this vault before",
            hint=Remedy.TABLE,
        )
    return source()


def _check_open(status: VaultStatus) -> None:
    if status.state != VaultState.OPEN:
        reason = f": {status.reason}" if status.reason else ""
        raise StateError(
            f"the vault is {status.state}{reason}",
            hint="tables are pushed while a vault is open: when everybody has signed it",
        )


def _read(context: PartyContext, vault: Vault, source: Source, progress: OnProgress) -> Intake:
    scratch = context.home.vault(vault.vault_id).path / "scratch"
    me, secret = context.identity.party_id, secret_of(context, vault)
    return read_table(vault, me, secret, source, scratch=scratch, progress=progress)


def _prepare(
    context: PartyContext,
    signed: Signed[Vault],
    source: Source,
    outgoing: FolderChunks,
    progress: OnProgress,
) -> Prepared[Upload]:
    """Read and encrypt the whole table; its pads are new, and come from keys."""
    folder = context.home.vault(signed.body.vault_id)
    private = FolderChunks(folder.private)
    outgoing.clear()  # of a preparation that was interrupted; its pads are lost with it
    with _read(context, signed.body, source, progress) as intake:
        folder.pin_table(intake.table_digest)  # before anything leaves
        progress(Progress("encrypting"))
        curator = CuratorContext(context.identity, context.entropy, outgoing, private)
        return prepare_table(curator, signed, intake, FolderSpool(folder.path / "scratch-2"))


def _send(
    context: PartyContext, prepared: Prepared[Upload], outgoing: FolderChunks, progress: OnProgress
) -> VaultStatus:
    """Send what the server does not have yet, and then the message that refers to all of it.

    The chunks are kept until the vault is closed: the server's disk may damage the table, and
    nobody could make the same bytes again.
    """
    vaults, vault = context.server.vaults, prepared.message.body.scope
    status = vaults.status(vault)
    if status.state == VaultState.CLOSED:
        outgoing.clear()
    if status.state == VaultState.STORED and status.reason is None:
        return status
    if status.state != VaultState.STORED:  # there, a reason says that the table is damaged
        _check_open(status)
    digests = chunk_digests(prepared.message.body)
    received = vaults.sent_chunks(vault, outgoing.size(digests))
    sending = ChunkSending(digests, received, outgoing, progress)
    vaults.send_chunks(vault, sending.missing(), sending.count)
    try:
        return vaults.upload(vault, renew(prepared.message, context.identity.signing))
    except DigestError:
        sending.look_for_damage()
        raise
