"""The steps after a release: curators grant and revoke, and researchers publish."""

from veiltab.errors import MismatchError, QuotaError
from veiltab.server import steps
from veiltab.server.context import ServiceContext
from veiltab.server.db.lists import HIDDEN, INBOX
from veiltab.server.db.records import RESEARCHER, MessageRecord
from veiltab.server.db.usage import GrantLine
from veiltab.server.http.auth import Sender
from veiltab.server.quotas import check_space
from veiltab.server.stored_study import StoredStudy
from veiltab.wire.messages import (
    PAD_KEY_BYTES,
    SEAL_BYTES,
    Grant,
    GrantRevocation,
    Publication,
    SignedGrant,
)
from veiltab.wire.states import AuditEvent


def grant(context: ServiceContext, sender: Sender, study: bytes) -> bool:
    """Take a curator's grant: from now on its researcher is served what the grant covers."""
    check_space(context)
    sent = SignedGrant.loads(sender.body)
    body, digest = sent.body, sent.signed.digest
    steps.check_sender(sent.signed, sender, body.curator, body.study, study)
    with context.database.transaction() as records:
        stored = StoredStudy.of_curator(context, records, study, sender.party)
        stored.resume(about=body.grant_id).accept_grant(sent, context.now)
        if sent.sealed is not None:
            steps.check_sealed(sent.sealed, SEAL_BYTES + PAD_KEY_BYTES * len(body.attributes))
        new = stored.keep(body.kind, sender.party, digest, sender.body, reference=body.grant_id)
        if new:
            _add_grant(stored, body)
            stored.log(AuditEvent.GRANTED, sender.party, digest)
        return new


def _add_grant(stored: StoredStudy, body: Grant) -> None:
    """Note what a new grant covers, and for whom; refuse too many."""
    records, limits, study = stored.records, stored.context.settings, stored.study
    names = stored.contract.body.schema.names
    covered = [(names.index(name), name) for name in body.attributes]
    line = GrantLine(body.grant_id, body.curator, body.researcher, covered, body.expires)
    if not records.add_granted(study, line):
        raise MismatchError("another grant has this id", hint="draw a fresh id for each grant")
    if (
        records.grant_count(study, body.curator) > limits.study_grants
        or records.grant_count(study, body.curator, body.researcher) > limits.researcher_grants
    ):
        raise QuotaError(
            f"you have given {limits.study_grants:,} grants in this study, or"
            f" {limits.researcher_grants} of them to this researcher",
            hint="give grants for longer, and for several attributes at once",
        )
    blocked = records.has_blocked(body.researcher, body.curator)
    place, now = HIDDEN if blocked else INBOX, stored.context.now
    records.add_member(study, body.researcher, RESEARCHER, place=place, now=now)


def revoke(context: ServiceContext, sender: Sender, study: bytes) -> bool:
    """Take a curator's word that a grant of its own is no longer good; erase its sealed part.

    Neither a full disk nor a used-up quota stands in the way: like an abort, it only takes access
    away.  The same word again changes nothing, also when the study is archived.
    """
    signed = GrantRevocation.loads(sender.body)
    body, digest = signed.body, signed.digest
    steps.check_sender(signed, sender, body.curator, body.study, study)
    with context.database.transaction() as records:
        stored = StoredStudy.of_curator(context, records, study, sender.party)
        if records.message(study, body.kind, sender.party, body.grant_id) is not None:
            return False
        stored.resume(about=body.grant_id).accept_revocation(signed)
        _add_revocation(stored, body.grant_id, digest, sender)
        for content in records.about_grant(study, Grant.kind, body.grant_id):
            header = SignedGrant.loads(content).header().dumps()
            records.revoke_grant(study, body.grant_id, header, context.now)
        stored.log(AuditEvent.REVOKED, sender.party, digest)
        return True


def _add_revocation(stored: StoredStudy, grant_id: bytes, digest: bytes, sender: Sender) -> None:
    """Keep a revocation; refuse more of them than there can be grants."""
    records, study, now = stored.records, stored.study, stored.context.now
    kind, most = GrantRevocation.kind, stored.context.settings.study_grants
    records.add_message(
        MessageRecord(study, kind, sender.party, grant_id, digest, sender.body, now)
    )
    records.change_study(study, updated=now)
    if records.message_count(study, kind, sender.party) > most:
        raise QuotaError(
            f"you have revoked {most:,} grants in this study",
            hint="there cannot be as many; ask the operator",
        )


def publish(context: ServiceContext, sender: Sender, study: bytes) -> bool:
    """Take a researcher's word which copy of its counts is the published one: once, for good.

    The same word again is always right, also when the grant has expired or the study is archived:
    whoever has published a copy may read it for ever.
    """
    signed = Publication.loads(sender.body)
    body, digest = signed.body, signed.digest
    steps.check_sender(signed, sender, body.researcher, body.study, study)
    with context.database.reading() as records:
        StoredStudy.of(context, records, study, sender.party)
        earlier = records.message(study, body.kind, sender.party)
    if earlier is not None and earlier.digest == digest:
        return False
    check_space(context)
    with context.database.transaction() as records:
        stored = StoredStudy.of(context, records, study, sender.party)
        stored.resume(reader=sender.party).accept_publication(signed, context.now)
        new = stored.keep(body.kind, sender.party, digest, sender.body)
        if new:
            stored.log(AuditEvent.PUBLISHED, sender.party, digest)
        return new
