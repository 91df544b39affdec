"""The steps after a release: grants by curators, and what researchers publish."""

from veiltab.errors import MismatchError, QuotaError
from veiltab.server import steps
from veiltab.server.context import ServiceContext
from veiltab.server.db.lists import HIDDEN, INBOX
from veiltab.server.db.records import RESEARCHER
from veiltab.server.db.usage import GrantLine
from veiltab.server.http.auth import Sender
from veiltab.server.quotas import check_space
from veiltab.server.stored_study import StoredStudy
from veiltab.wire.messages import PAD_KEY_BYTES, SEAL_BYTES, Grant, Publication, SignedGrant
from veiltab.wire.states import AuditEvent


def grant(context: ServiceContext, sender: Sender, study: bytes) -> bool:
    """Take a curator's grant: from now on its researcher is served what the grant covers."""
    check_space(context)
    sent = SignedGrant.loads(sender.body)
    body, digest = sent.body, sent.signed.digest
    steps.check_sender(sent.signed, sender, body.curator, body.study, study)
    with context.database.transaction() as records:
        stored = StoredStudy.of_curator(context, records, study, sender.party)
        stored.resume().accept_grant(sent, context.now)
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
