"""What a curator does with a vault over the network: propose, sign, push, and check studies on it.

A vault's secret is the proposer's alone, and is on its disk before anything refers to it.  Whatever
is broken off can be done again: what was sent is not sent twice.
"""

from collections.abc import Callable

from veiltab.errors import (
    ConnectionFailedError,
    HomeError,
    MessageError,
    MismatchError,
    NotFoundError,
    StateError,
    VeiltabError,
)
from veiltab.files.chunks import FolderChunks
from veiltab.party.context import PartyContext
from veiltab.party.evidence import read_log, read_whole_log
from veiltab.party.home import Home
from veiltab.party.proposal import VaultDraft
from veiltab.party.remote import is_unknown
from veiltab.party.vaults.remote import VaultStatus
from veiltab.protocol.audit_log import Seen
from veiltab.protocol.curator import agreement
from veiltab.protocol.curator.agreement import new_secret, receive_secret, share_secret, unsigned
from veiltab.protocol.curator.upload import Prepared
from veiltab.protocol.logged import check_contract
from veiltab.protocol.verify import check_vault, verify_agreement
from veiltab.wire.audit import AuditEntry
from veiltab.wire.contract import Contract, Vault
from veiltab.wire.messages import Upload
from veiltab.wire.signed import Signed
from veiltab.wire.states import AuditEvent, VaultState


def fetch_terms(context: PartyContext, vault: bytes) -> Signed[Vault]:
    """Fetch a vault with its signatures so far, compare it with its log, and save it.

    The vault id is a hash of the terms, so the server cannot change them; but they must be for the
    server that this home has pinned, and the server must not have gone back to an earlier state.
    """
    folder = context.home.vault(vault)
    before = folder.log.read()
    signed = context.server.vaults.terms(vault)
    if signed.body.server.party_id != context.server.pinned.party_id:
        raise MismatchError(
            "the vault names another server than the one you registered with",
            hint="compare the server's fingerprint with whoever proposed the vault",
        )
    check_contract(before, read_log(context, signed.body), signed)
    folder.save_terms(signed)
    return signed


def audit_vault(context: PartyContext, vault: bytes) -> tuple[list[AuditEntry], Seen]:
    """Fetch and verify a vault's audit log against everything that was seen of it before."""
    entries, _, logged = read_whole_log(context, fetch_terms(context, vault).body)
    return entries, logged.seen


def propose_vault(context: PartyContext, draft: VaultDraft) -> Vault:
    """Propose a vault, sign it, and seal its secret to the other curators.

    A proposal that was broken off is taken up: the same terms again, while the other curators have
    not all signed, are the same vault.
    """
    context.check_identities(terms.identity for terms in draft.curators)
    proposal = _unfinished(context, draft)
    if proposal is None:
        for earlier in context.home.vaults():
            context.home.vault(earlier).forget_if_unused("secret.json")
        secret, commitment, nonce = new_secret(context.entropy)
        vault = draft.vault(server=context.server.pinned, secret_commitment=commitment, nonce=nonce)
        context.home.vault(vault.vault_id).save_secret(secret)
        proposal = unsigned(vault)
    signed = agreement.sign_vault(proposal, context.identity)
    context.home.vault(signed.body.vault_id).save_terms(signed)
    _send_proposal(context, signed)
    _share_secret(context, signed.body)
    return signed.body


def _send_proposal(context: PartyContext, signed: Signed[Vault]) -> None:
    """Send a proposal; if the server refuses it, nothing is left of it.

    A connection that breaks is no refusal: the proposal may have arrived, and is taken up by the
    next one with the same terms.
    """
    vault = signed.body.vault_id
    try:
        context.server.vaults.propose(signed)
    except ConnectionFailedError:
        raise
    except VeiltabError:
        if is_unknown(context.server.vaults.status, vault):
            context.home.vault(vault).forget()
        raise


def sign_vault(context: PartyContext, signed: Signed[Vault]) -> VaultStatus:
    """Sign a vault that somebody has proposed; it costs no privacy until a study reads it."""
    context.check_parties(signed.body)
    cosigned = agreement.sign_vault(signed, context.identity)
    context.home.vault(signed.body.vault_id).save_terms(cosigned)
    return context.server.vaults.sign(cosigned)


def _unfinished(context: PartyContext, draft: VaultDraft) -> Signed[Vault] | None:
    """Find a proposal with the same terms that not everybody has signed yet."""
    for vault in context.home.vaults():
        folder = context.home.vault(vault)
        signed, secret = folder.terms(), folder.secret()
        if signed is None or secret is None:
            continue
        terms = signed.body
        same = draft.vault(
            server=context.server.pinned,
            secret_commitment=terms.secret_commitment,
            nonce=terms.nonce,
        )
        if same == terms and _still_proposed(context, vault):
            return signed
    return None


def _still_proposed(context: PartyContext, vault: bytes) -> bool:
    try:
        return context.server.vaults.status(vault).state == VaultState.PROPOSED
    except NotFoundError:  # it never reached the server
        return True


def _share_secret(context: PartyContext, vault: Vault) -> None:
    """Seal the vault's secret to each of the other curators who does not have it yet."""
    me, vaults = context.identity.party_id, context.server.vaults
    secret = context.home.vault(vault.vault_id).secret()
    reached = {m.body.receiver for m in vaults.secrets(vault.vault_id) if m.body.sender == me}
    for terms in vault.curators:
        if secret is not None and terms.party_id not in {me, *reached}:
            sealing_key = context.sealing_key(terms.identity)
            message = share_secret(vault, context.identity, secret, terms.party_id, sealing_key)
            vaults.send_secret(vault.vault_id, message)


def secret_of(context: PartyContext, vault: Vault) -> bytes:
    """Return the vault's secret: from the home, or as the proposer has sealed it to this party.

    Any curator can seal something to this one, and so keep nobody from the right secret.
    """
    folder, me = context.home.vault(vault.vault_id), context.identity.party_id
    saved = folder.secret()
    if saved is not None:
        return saved
    refusal: MessageError | None = None
    for message in context.server.vaults.secrets(vault.vault_id):
        if message.body.receiver != me:
            continue
        try:
            secret = receive_secret(vault, context.identity, message)
        except MessageError as error:
            refusal = error
            continue
        folder.save_secret(secret)
        return secret
    if refusal is not None:
        raise refusal
    raise StateError(
        "the vault's secret has not come yet",
        hint="whoever proposed the vault runs `veiltab vault propose` with the same file again,"
        " which sends what is missing",
    )


def close_vault(context: PartyContext, vault: bytes, reason: str) -> VaultStatus:
    """Close a vault; what was kept to be sent again is not needed any more."""
    status = context.server.vaults.close(vault, reason)
    FolderChunks(context.home.vault(vault).outgoing).clear()
    return status


# Studies on a vault


def known_vault(home: Home) -> Callable[[str], Vault]:
    """Return how to find a vault of a home by its title or the first digits of its id."""

    def find(name: str) -> Vault:
        signed = home.vault(home.find_vault(name)).terms()
        if signed is None:
            raise _unknown()
        return signed.body

    return find


def stored_uploads(context: PartyContext, vault: Vault) -> tuple[bytes, ...]:
    """Return the digests of all stored tables, in the order of the curators.

    They are those of the vault's audit log, whose end was seen before and is signed; this curator's
    is the one that it has prepared.
    """
    entries, _ = audit_vault(context, vault.vault_id)
    logged = {e.actor: e.message for e in entries if e.event == AuditEvent.UPLOADED}
    digests = [logged.get(terms.party_id) for terms in vault.curators]
    uploads = tuple(digest for digest in digests if digest is not None)
    closed = any(entry.state == VaultState.CLOSED for entry in entries)
    if closed or len(uploads) != len(vault.curators):
        missing = [t.identity.name for t in vault.curators if t.party_id not in logged]
        raise StateError(
            "the vault is closed" if closed else "not every table is stored yet",
            hint="propose a new vault" if closed else f"wait for: {', '.join(map(repr, missing))}",
        )
    return uploads


def check_stored_study(context: PartyContext, contract: Contract) -> None:
    """Refuse a study on a vault that this curator has not signed, or on other tables than its.

    Before it is signed, and before it is answered.
    """
    vault, prepared = own_table(context, contract)
    check_vault(contract, vault)
    place = vault.curators.index(vault.curator(context.identity.party_id))
    if contract.stored is None or contract.stored.uploads[place] != prepared.message.digest:
        raise MismatchError(
            "the contract is not about the table that you have stored in this vault",
            hint="do not sign it; ask whoever has proposed it which tables it means",
        )


def own_table(context: PartyContext, contract: Contract) -> tuple[Vault, Prepared[Upload]]:
    """Return the vault of a study and this curator's table in it, as this home keeps them."""
    vault_id = b"" if contract.stored is None else contract.stored.vault
    folder = context.home.vault(vault_id)
    signed = folder.terms() if vault_id else None
    if signed is None:
        raise _unknown()
    vault = verify_agreement(signed)
    schema = vault.schema_of(context.identity.party_id)
    prepared = folder.prepared(schema, FolderChunks(folder.path / "private"))
    if prepared is None:
        raise StateError(
            "nothing was pushed to this vault from this home",
            hint="work from the home that has pushed the table; its pads are kept there alone",
        )
    return vault, prepared


def _unknown() -> HomeError:
    return HomeError(
        "this home does not know the vault that the study reads",
        hint="work from the home that has signed the vault and pushed a table to it",
    )
