"""The audit log as parties read it, page by page, and the ends of it that they leave for others.

A head that a party leaves is no entry of the log: nobody can make the log longer by it.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from veiltab.errors import MismatchError
from veiltab.protocol.verify import sign, verify
from veiltab.server.context import ServiceContext
from veiltab.server.db.records import MessageRecord, Records
from veiltab.server.http.auth import Gate, Sender
from veiltab.server.http.models import (
    PROBLEMS,
    AuditLog,
    Heads,
    Nothing,
    ThreadRoute,
    body,
    repeated,
)
from veiltab.server.http.routes import StudyId, created
from veiltab.server.quotas import check_space, check_usage
from veiltab.server.stored_study import StoredStudy
from veiltab.server.vaults.routes import VaultId
from veiltab.server.vaults.stored_vault import StoredVault
from veiltab.wire.audit import MAX_ENTRIES, AuditHead, Witness
from veiltab.wire.codec import load

PAGE_ENTRIES = 1000
"""Entries of a log in one answer."""

After = Annotated[int, Query(ge=0, lt=MAX_ENTRIES, description="How many entries to leave out.")]


def witness_routes(context: ServiceContext, gate: Gate) -> APIRouter:
    """Return the routes of audit logs, and of what parties say that they were shown of them."""
    router = APIRouter(tags=["logs"], responses=PROBLEMS, route_class=ThreadRoute)
    small = Annotated[Sender, Depends(gate.sender(context.settings.small_bytes))]

    @router.get("/v1/studies/{study}/audit", summary="The study's audit log")
    def audit_of_study(study: StudyId, sender: small, after: After = 0) -> AuditLog:
        return study_audit(context, sender, bytes.fromhex(study), after)

    @router.get("/v1/vaults/{vault}/audit", summary="The vault's audit log")
    def audit_of_vault(vault: VaultId, sender: small, after: After = 0) -> AuditLog:
        return vault_audit(context, sender, bytes.fromhex(vault), after)

    @router.post(
        "/v1/studies/{study}/heads",
        summary="Leave the end of the log that you were shown",
        status_code=201,
        responses=repeated(Nothing),
        openapi_extra=body("a witness, with a head of this server (spec 7.5)"),
    )
    def leave(response: Response, study: StudyId, sender: small) -> Nothing:
        created(response, new=leave_head(context, sender, bytes.fromhex(study)))
        return Nothing()

    @router.get("/v1/studies/{study}/heads", summary="The ends of the log that parties were shown")
    def heads(study: StudyId, sender: small) -> Heads:
        messages: Any = left_heads(context, sender, bytes.fromhex(study))
        return Heads(heads=messages)

    return router


def study_audit(context: ServiceContext, sender: Sender, study: bytes, after: int = 0) -> AuditLog:
    """Return a study's audit log from an entry on, to everybody in it."""
    with context.database.reading() as records:
        StoredStudy.of(context, records, study, sender.party)
        return _page(context, records, study, after)


def vault_audit(context: ServiceContext, sender: Sender, vault: bytes, after: int = 0) -> AuditLog:
    """Return a vault's audit log from an entry on, to its curators."""
    with context.database.reading() as records:
        StoredVault.of_curator(context, records, vault, sender.party)
        return _page(context, records, vault, after)


def _page(context: ServiceContext, records: Records, scope: bytes, after: int) -> AuditLog:
    """Return some entries of a log, with the server's signature on the end of all of it."""
    entries = records.audit(scope, after, PAGE_ENTRIES)
    length, last = records.audit_head(scope) or (0, scope)
    head = AuditHead(at=context.now, hash=last, length=length, study=scope)
    signed = sign(head, context.key)
    return AuditLog(entries=[load(entry) for entry in entries], head=signed.to_json())


def leave_head(context: ServiceContext, sender: Sender, study: bytes) -> bool:
    """Keep what a party says that it was shown: one head of each, replaced by longer ones alone."""
    check_space(context)
    signed = Witness.loads(sender.body)
    head = signed.body.head
    with context.database.transaction() as records:
        StoredStudy.of(context, records, study, sender.party)
        if signed.body.party != sender.party or head.body.study != study:
            raise MismatchError(
                "the witness is of another party or of another study",
                hint="leave the end of the log that you were shown yourself",
            )
        verify(signed, [sender.identity.signing_key])
        sender.check_newest(signed)
        verify(head, [context.identity.signing_key])  # what it has not signed proves nothing
        earlier = records.message(study, Witness.kind, sender.party)
        if earlier is not None and earlier.content and _length(earlier) >= head.body.length:
            return False
        record = MessageRecord(
            study=study,
            kind=Witness.kind,
            sender=sender.party,
            reference=b"",
            digest=signed.digest,
            content=sender.body,
            at=context.now,
        )
        records.replace_message(record)
        check_usage(context, records, sender.party)
    return True


def _length(record: MessageRecord) -> int:
    return Witness.loads(record.content).body.head.body.length


def left_heads(context: ServiceContext, sender: Sender, study: bytes) -> list[object]:
    """Return what parties say that they were shown, to everybody in the study."""
    with context.database.reading() as records:
        StoredStudy.of(context, records, study, sender.party)
        messages = records.messages(study, Witness.kind)
    return [Witness.loads(message.content).to_json() for message in messages if message.content]
