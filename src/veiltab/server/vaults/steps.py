"""The steps that curators take with a vault: each is one transaction, with its entry in the log."""

from veiltab.errors import DigestError, MismatchError, SignatureError
from veiltab.files.bundles import BundledChunks
from veiltab.protocol.server.accept import check_repad
from veiltab.protocol.server.study import ServerStudy
from veiltab.protocol.server.vault import expect_vault
from veiltab.protocol.verify import verify_some
from veiltab.server import steps
from veiltab.server.context import ServiceContext
from veiltab.server.db.records import VAULT
from veiltab.server.http.auth import Sender
from veiltab.server.parsed import PARSED
from veiltab.server.party_steps import check_new_signatures
from veiltab.server.proposals import add_agreement, note_signatures
from veiltab.server.quotas import check_space, parse_in_turn, upload_bytes
from veiltab.server.stored_study import StoredStudy
from veiltab.server.vaults.drawing import check_tables, end_study
from veiltab.server.vaults.stored_vault import StoredVault
from veiltab.wire.contract import Vault
from veiltab.wire.messages import Repad, Secret, Upload
from veiltab.wire.signed import Signed
from veiltab.wire.states import AuditEvent, State, VaultState


def propose(context: ServiceContext, sender: Sender) -> tuple[bytes, bool]:
    """Take the terms of a vault from one of its curators; return its id, and whether it is new."""
    signed = parse_in_turn(context, sender, Vault.loads, context.settings.contract_bytes)
    terms = signed.body
    _check_proposal(context, sender, signed)
    with context.database.transaction() as records:
        new = records.study(terms.vault_id) is None
        if new:
            add_agreement(context, records, terms, sender.party, kind=VAULT)
        stored = StoredVault.find(context, records, terms.vault_id)
        if new:
            stored.log(AuditEvent.PROPOSED, sender.party, signed.digest)
        _add_signatures(stored, sender, signed)
    return terms.vault_id, new


def sign(context: ServiceContext, sender: Sender, vault: bytes) -> None:
    """Take a curator's signature; the vault opens when every curator has signed."""
    signed = parse_in_turn(context, sender, Vault.loads, context.settings.contract_bytes)
    with context.database.transaction() as records:
        stored = StoredVault.of_curator(context, records, vault, sender.party)
        _add_signatures(stored, sender, signed)


def send_secret(context: ServiceContext, sender: Sender, vault: bytes) -> bool:
    """Take the vault's secret, sealed by one curator to another; the server cannot open it."""
    check_space(context)
    signed = Secret.loads(sender.body)
    body = signed.body
    steps.check_sender(signed, sender, body.sender, body.scope, vault)
    with context.database.transaction() as records:
        stored = StoredVault.of_curator(context, records, vault, sender.party)
        steps.check_receiver(records, sender, body)
        new = stored.keep(
            body.kind, sender.party, signed.digest, sender.body, reference=body.receiver
        )
        if new:
            expect_vault(stored.state, VaultState.PROPOSED, VaultState.OPEN)
            stored.log(AuditEvent.SECRET, sender.party, signed.digest)
        return new


def put_chunks(context: ServiceContext, sender: Sender, vault: bytes) -> bool:
    """Take a bundle of chunks of a table; the same again mends what the disk has damaged."""
    check_space(context)
    digests = steps.bundle_digests(context, sender)
    with context.database.reading() as records:
        stored = StoredVault.of_curator(context, records, vault, sender.party)
        complete = _check_chunks(stored, sender, digests)
    new = steps.keep_bundle(context, sender, vault, digests, complete=complete)
    with context.database.reading() as records:
        after = StoredVault.of_curator(context, records, vault, sender.party).state
    if after is VaultState.CLOSED:  # it was closed meanwhile
        context.folders.forget_study(vault)
    expect_vault(after, VaultState.OPEN, VaultState.STORED)
    return new


def _check_chunks(stored: StoredVault, sender: Sender, digests: list[bytes]) -> bool:
    """Refuse chunks that no table can refer to; return whether the sender's table is complete."""
    expect_vault(stored.state, VaultState.OPEN, VaultState.STORED)
    message = stored.records.message(stored.study, Upload.kind, sender.party)
    if message is None:
        return False
    body = PARSED.load(Upload.loads, message.content).body
    steps.check_listed(digests, [*body.columns], body.tokens or ())
    return True


def upload(context: ServiceContext, sender: Sender, vault: bytes) -> None:
    """Check a curator's table, and take it; with the last one, studies can read the vault.

    The same table again mends one that the disk has damaged, once its chunks were sent again.
    """
    most = upload_bytes(context, vault, sender.party)
    signed = parse_in_turn(context, sender, Upload.loads, most)
    steps.check_sender(signed, sender, signed.body.curator, signed.body.scope, vault)
    store = context.folders.received(vault, sender.party)
    with context.database.reading() as records:
        stored = StoredVault.of_curator(context, records, vault, sender.party)
        terms, server_vault = stored.terms.body, stored.resume(tables=True)
        damaged = stored.state is VaultState.STORED and stored.record.reason is not None
        earlier = records.message(vault, Upload.kind, sender.party)
    repeated = earlier is not None and earlier.digest == signed.digest
    if repeated and not damaged:
        return
    if not repeated:
        server_vault.has_upload(signed)  # refuses one that cannot be taken now
    with context.lane.turn(sender.party):
        steps.check_received(terms, signed, store)
        if repeated:
            check_tables(context, vault, [sender.party])
    if not repeated:
        _take_upload(context, sender, vault, signed)


def _take_upload(
    context: ServiceContext, sender: Sender, vault: bytes, signed: Signed[Upload]
) -> None:
    with context.database.transaction() as records:
        stored = StoredVault.of_curator(context, records, vault, sender.party)
        server_vault = stored.resume(tables=True)
        server_vault.take_upload(signed)
        if not stored.keep(Upload.kind, sender.party, signed.digest, sender.body):
            return
        stored.save(server_vault)
        stored.log(AuditEvent.UPLOADED, sender.party, signed.digest)
        if server_vault.state is VaultState.STORED:
            stored.log(AuditEvent.COMPLETE, context.identity.party_id)


def close(context: ServiceContext, sender: Sender, vault: bytes, reason: str) -> None:
    """Let a curator close a vault; its tables are deleted for good."""
    with context.database.reading() as records:
        stored = StoredVault.of_curator(context, records, vault, sender.party)
        name = stored.terms.body.curator(sender.party).identity.name
    close_vault(context, vault, sender.party, f"{name}: {reason}")


def close_vault(
    context: ServiceContext, vault: bytes, actor: bytes, reason: str, *, unsigned: bool = False
) -> None:
    """Close a vault, abort the studies whose rows are not drawn yet, and delete its tables.

    Studies whose rows are drawn have all that they need, and go on.  With ``unsigned``, only a
    vault that still waits for a signature is closed.
    """
    with context.database.transaction() as records:
        stored = StoredVault.find(context, records, vault)
        if unsigned and stored.state is not VaultState.PROPOSED:
            return
        if stored.state is not VaultState.CLOSED:
            server_vault = stored.resume()
            server_vault.close()
            stored.save_end(server_vault, reason)
            stored.log(AuditEvent.CLOSED, actor)
        for study in records.studies_on(vault, [State.PROPOSED, State.OPEN]):
            undrawn = StoredStudy.find(context, records, study)  # from here on it stays undrawn
            if undrawn.state in (State.PROPOSED, State.OPEN):
                end_study(undrawn, "the vault that it reads was closed", actor)
    context.folders.forget_study(vault)
    context.database.scrub_soon()


def repad(context: ServiceContext, sender: Sender, study: bytes) -> None:
    """Check a curator's new pads of drawn rows, and take them; the last ones start the release."""
    most = upload_bytes(context, study, sender.party)
    signed = parse_in_turn(context, sender, Repad.loads, most)
    steps.check_sender(signed, sender, signed.body.curator, signed.body.study, study)
    with context.database.reading() as records:
        stored = StoredStudy.of_curator(context, records, study, sender.party)
        earlier = records.message(study, Repad.kind, sender.party)
        if earlier is not None and earlier.digest == signed.digest:
            return
        server_study = stored.resume()
        server_study.has_repad(signed)  # refuses pads that cannot be taken now
    with context.lane.turn(sender.party):
        _check_repad(server_study, signed, context.folders.received(study, sender.party))
    with context.database.transaction() as records:
        stored = StoredStudy.of_curator(context, records, study, sender.party)
        server_study = stored.resume()
        server_study.take_repad(signed)
        if not stored.keep(Repad.kind, sender.party, signed.digest, sender.body):
            return
        stored.save(server_study)
        stored.log(AuditEvent.REPADDED, sender.party, signed.digest)
        if server_study.state is State.JOINED:
            stored.log(AuditEvent.COMPLETE, context.identity.party_id)


def _check_repad(server_study: ServerStudy, signed: Signed[Repad], store: BundledChunks) -> None:
    """Read every chunk; damaged ones are deleted, so that their curator sees what is missing."""
    request = server_study.requests[signed.body.curator]
    steps.check_present(store, [*signed.body.columns], ())
    try:
        check_repad(server_study.contract.body, request, signed, store)
    except DigestError:
        store.drop_damaged()
        raise


def _check_proposal(context: ServiceContext, sender: Sender, signed: Signed[Vault]) -> None:
    terms = signed.body
    if terms.server != context.identity:
        raise MismatchError(
            "the vault names another server", hint="propose it with this server's identity"
        )
    terms.curator(sender.party)
    verify_some(signed, [curator.identity.signing_key for curator in terms.curators])
    if sender.identity.signing_key not in {signature.root for signature in signed.signatures}:
        raise SignatureError("the proposer has not signed the vault", hint="sign what you propose")


def _add_signatures(stored: StoredVault, sender: Sender, signed: Signed[Vault]) -> None:
    server_vault = stored.resume()
    before = server_vault.terms
    server_vault.sign(signed)
    if server_vault.terms == before:
        return
    check_new_signatures(stored.records, before, server_vault.terms)
    expect_vault(stored.state, VaultState.PROPOSED)
    stored.save(server_vault)
    note_signatures(stored.records, server_vault.terms)
    stored.records.look(stored.study, sender.party)
    for terms in steps.new_signers(signed.body, before, server_vault.terms):
        stored.log(AuditEvent.SIGNED, terms.party_id, signed.digest)
    if server_vault.state is VaultState.OPEN:
        stored.log(AuditEvent.OPENED, stored.context.identity.party_id, signed.digest)
