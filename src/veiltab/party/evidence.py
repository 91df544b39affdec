"""What a server sends of a study, compared with the log that it signs and with what was seen.

Every contract and every release that this home fetches goes through here.  The log is fetched and
verified from where it was last seen, and the digests in it are kept in the study's folder: a server
that shows one thing in the log and sends another, or that goes back on either, is refused.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from veiltab.core.overlap import OverlapEstimate
from veiltab.core.plan import Plan
from veiltab.errors import MismatchError, NotGrantedError
from veiltab.party.answers import Log
from veiltab.party.study_folder import PinnedLog
from veiltab.protocol import logged as log
from veiltab.protocol.audit_log import verify_log, verify_more
from veiltab.protocol.logged import Logged
from veiltab.protocol.verify import may_see_release, verify_overlap, verify_release
from veiltab.wire.audit import AuditEntry, AuditHead
from veiltab.wire.contract import Agreement, Contract, Vault
from veiltab.wire.messages import Release, Repad, RepadRequest, Upload
from veiltab.wire.signed import Signed
from veiltab.wire.states import AuditEvent

if TYPE_CHECKING:
    from veiltab.party.context import PartyContext


@dataclass(frozen=True, slots=True)
class Examined:
    """A study's whole log, verified, with its signed end and what it is about."""

    contract: Contract
    entries: list[AuditEntry]
    head: Signed[AuditHead]
    logged: Logged


def fetch_contract(context: "PartyContext", study: bytes) -> Signed[Contract]:
    """Fetch the contract with its signatures so far, compare it with the log, and save it.

    The study id is a hash of the contract, so the server cannot change it; but it must be for the
    server that this home has pinned.  And the server must not have gone back to an earlier state:
    restored from an old copy, it could perturb a sample twice.
    """
    folder = context.home.study(study)
    before = folder.log.read()
    signed = context.server.contract(study)
    if signed.body.server.party_id != context.server.pinned.party_id:
        raise MismatchError(
            "the contract names another server than the one you registered with",
            hint="compare the server's fingerprint with whoever proposed the study",
        )
    log.check_contract(before, read_log(context, signed.body), signed)
    folder.save_contract(signed)
    return signed


def fetch_release(context: "PartyContext", contract: Contract) -> tuple[Signed[Release], Plan]:
    """Fetch the release, compare it with the log, and verify its promise."""
    signed = context.server.release(contract.study_id)
    log.check_release(contract, read_log(context, contract), signed)
    _, plan = verify_release(contract, signed)
    return signed, plan


def fetch_overlap(context: "PartyContext", contract: Contract) -> OverlapEstimate:
    """Fetch the number of an overlap count, compare it with the log, and verify it."""
    signed = context.server.overlap(contract.study_id)
    estimate = verify_overlap(contract, signed)
    log.check_overlap(contract, read_log(context, contract), signed)
    return estimate


def check_uploaded(
    context: "PartyContext", contract: Contract, own: Signed[Upload] | Signed[Repad]
) -> None:
    """Refuse a server that has logged another upload of this curator, or none."""
    log.check_upload(read_log(context, contract), own)


def check_requested(
    context: "PartyContext", contract: Contract, request: Signed[RepadRequest]
) -> None:
    """Refuse a request for new pads that the server has not logged."""
    log.check_request(read_log(context, contract), request)


def read_log(context: "PartyContext", agreement: Agreement) -> Logged:
    """Fetch and verify what is new in the log of a study or vault, and remember it."""
    pinned, fetch = _log_of(context, agreement)
    start = Logged((0, agreement.scope))
    before = pinned.read() or start
    entries, head = fetch(agreement.scope, before.seen[0])
    with context.home.lock():
        now = pinned.read() or start
        if now != before:  # another command of this home has seen more in the meantime
            entries, head = fetch(agreement.scope, now.seen[0])
        key = context.server.pinned.signing_key
        end = verify_more(agreement.scope, entries, head, key, now.seen)
        log.check_actors(agreement, entries)
        after = now.followed_by(entries, end)
        # First: what somebody with an old key of the server has signed must not be remembered.
        context.home.follow_server(head.signatures[0].rotations)
        pinned.save(after)
    return after


def read_whole_log(
    context: "PartyContext", agreement: Agreement
) -> tuple[list[AuditEntry], Signed[AuditHead], Logged]:
    """Fetch and verify the whole log of a study or vault, against what was seen before."""
    pinned, fetch = _log_of(context, agreement)
    start = Logged((0, agreement.scope))
    with context.home.lock():
        entries, head = fetch(agreement.scope, 0)
        before = pinned.read() or start
        key = context.server.pinned.signing_key
        end = verify_log(agreement.scope, entries, head, key, before.seen)
        log.check_actors(agreement, entries)
        logged = start.followed_by(entries, end)
        context.home.follow_server(head.signatures[0].rotations)
        pinned.save(logged)
    return entries, head, logged


def _log_of(
    context: "PartyContext", agreement: Agreement
) -> tuple[PinnedLog, Callable[[bytes, int], Log]]:
    """Return where a log is remembered, and how it is fetched from an entry on."""
    if isinstance(agreement, Vault):
        return context.home.vault(agreement.scope).log, context.server.vaults.audit
    return context.home.study(agreement.scope).log, context.server.audit


def examine(context: "PartyContext", study: bytes) -> Examined:
    """Fetch and verify a study's whole log, and compare contract and release with it."""
    contract = fetch_contract(context, study).body
    entries, head, logged = read_whole_log(context, contract)
    archived = any(entry.event == AuditEvent.ARCHIVED for entry in entries)
    me = context.identity.party_id
    if logged.release is not None and not archived and may_see_release(contract, me):
        # A researcher without a grant is shown no release, and has nothing to compare.
        with contextlib.suppress(NotGrantedError):
            fetch = fetch_release if contract.overlap is None else fetch_overlap
            fetch(context, contract)
    return Examined(contract, entries, head, logged)
