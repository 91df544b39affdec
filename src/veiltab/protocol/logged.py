"""What a study's log says of its messages, and whether what a server sends is what it has logged.

A log that is only a chain binds nobody: a server could show one release in the log and send
another.  So every digest in the log is compared with the message that it stands for.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from veiltab.errors import AuditError
from veiltab.protocol.audit_log import Seen
from veiltab.wire.audit import AuditEntry
from veiltab.wire.contract import Agreement, Contract, Vault
from veiltab.wire.messages import (
    Overlap,
    Release,
    Repad,
    RepadRequest,
    SignedGrant,
    Upload,
)
from veiltab.wire.signed import Signed
from veiltab.wire.states import AuditEvent

_HINT = (
    "use nothing of it; keep what you have, and compare logs with the other parties"
    " (veiltab audit STUDY)"
)
_OF_THE_CONTRACT = (AuditEvent.PROPOSED, AuditEvent.SIGNED, AuditEvent.OPENED)
_OF_UPLOADS = (AuditEvent.UPLOADED, AuditEvent.REPADDED)
_BY_CURATORS = (
    AuditEvent.PROPOSED,
    AuditEvent.SIGNED,
    AuditEvent.SECRET,
    AuditEvent.ALIGNED,
    *_OF_UPLOADS,
    AuditEvent.GRANTED,
    AuditEvent.REVOKED,
)
_BY_THE_SERVER = (
    AuditEvent.OPENED,
    AuditEvent.COMPLETE,
    AuditEvent.SAMPLED,
    AuditEvent.RELEASED,
    AuditEvent.ARCHIVED,
)


@dataclass(frozen=True, slots=True)
class Logged:
    """How far a log goes, and the digests of the messages in it that bind everybody.

    ``uploads`` has each curator's upload, or its new pads for stored rows; ``requests`` are the
    server's requests for those.  ``grants`` are the digests of all grants with their curators, and
    ``revoked`` those of their revocations with the time.
    """

    seen: Seen
    contract: bytes | None = None
    signers: frozenset[bytes] = frozenset()
    uploads: Mapping[bytes, bytes] = field(default_factory=dict)
    requests: frozenset[bytes] = frozenset()
    release: bytes | None = None
    grants: Mapping[bytes, bytes] = field(default_factory=dict)
    revoked: Mapping[bytes, int] = field(default_factory=dict)

    def followed_by(self, entries: Iterable[AuditEntry], seen: Seen) -> "Logged":
        """Return what is logged after further entries, which were verified up to ``seen``.

        Entries that contradict each other are refused: a study has one contract, one upload of
        each curator and one release.
        """
        logged, grants, revoked = self, dict(self.grants), dict(self.revoked)
        for entry in entries:
            logged = logged._with(entry)
            if entry.event == AuditEvent.GRANTED:
                grants[_once(entry, None)] = entry.actor
            elif entry.event == AuditEvent.REVOKED:
                revoked.setdefault(_once(entry, None), entry.at)
        return replace(logged, seen=seen, grants=grants, revoked=revoked)

    def _with(self, entry: AuditEntry) -> "Logged":
        event, digest = entry.event, entry.message
        if event in _OF_THE_CONTRACT:
            new = _once(entry, self.contract)
            added = {entry.actor} if event == AuditEvent.SIGNED else set()
            return replace(self, contract=new, signers=self.signers | added)
        if event in _OF_UPLOADS:
            new = _once(entry, self.uploads.get(entry.actor))
            return replace(self, uploads={**self.uploads, entry.actor: new})
        if event == AuditEvent.SAMPLED and digest is not None:
            return replace(self, requests=self.requests | {digest})
        if event == AuditEvent.RELEASED:
            if self.release is not None:
                raise _contradiction(entry, "a second release")
            return replace(self, release=_once(entry, None))
        return self


def check_actors(agreement: Agreement, entries: Iterable[AuditEntry]) -> None:
    """Refuse entries whose author is not who could have done that by the contract.

    Names that are shown come from the contract, and from no registration: so whoever acts must be
    in it.
    """
    curators = {terms.party_id for terms in agreement.curators}
    server = {agreement.server.party_id}
    named = agreement.researchers if isinstance(agreement, Contract) else None
    for entry in entries:
        if entry.event == AuditEvent.PUBLISHED and named is None:
            known = entry.actor not in curators | server
        elif entry.event == AuditEvent.PUBLISHED:
            known = entry.actor in {researcher.party_id for researcher in named or ()}
        elif entry.event in _BY_CURATORS:
            known = entry.actor in curators
        elif entry.event in _BY_THE_SERVER:
            known = entry.actor in server
        else:
            known = entry.actor in curators | server
        if not known:
            raise _contradiction(entry, f"an author, {entry.actor.hex()}, who has no such part")


def check_contract(
    before: Logged | None, logged: Logged, signed: Signed[Contract] | Signed[Vault]
) -> None:
    """Refuse a contract or vault that is not the logged one, or has other signatures than the log.

    Between the two looks at the log, ``before`` and ``logged``, further curators may have signed.
    """
    check_digest(signed.body.kind, logged.contract, signed.digest)
    keys = {signature.root for signature in signed.signatures}
    on_it = {t.party_id for t in signed.body.curators if t.identity.signing_key in keys}
    hidden = frozenset() if before is None else before.signers - on_it
    if not on_it <= logged.signers or hidden:
        raise AuditError(
            f"the {signed.body.kind} has {len(on_it)} signatures where the audit log has"
            f" {len(logged.signers)}, and not the same ones",
            hint=_HINT,
        )


def check_release(contract: Contract, logged: Logged, signed: Signed[Release]) -> None:
    """Refuse a release that is not the logged one, or that is made from other uploads."""
    check_digest("release", logged.release, signed.digest)
    names = {terms.party_id: terms.identity.name for terms in contract.curators}
    for upload in signed.body.uploads:
        what = f"upload of {names.get(upload.curator, upload.curator.hex())!r}"
        check_digest(what, logged.uploads.get(upload.curator), upload.digest)


def check_overlap(contract: Contract, logged: Logged, signed: Signed[Overlap]) -> None:
    """Refuse a number that is not the logged one, or that is made from other uploads."""
    check_digest("number", logged.release, signed.digest)
    for terms, digest in zip(contract.curators, signed.body.uploads, strict=False):
        what = f"upload of {terms.identity.name!r}"
        check_digest(what, logged.uploads.get(terms.party_id), digest)


def check_upload(logged: Logged, own: Signed[Upload] | Signed[Repad]) -> None:
    """Refuse a log with another upload, or none, where a curator's own must be."""
    check_digest(f"{own.body.kind} of yours", logged.uploads.get(own.body.curator), own.digest)


def check_grant(logged: Logged, grant: SignedGrant) -> None:
    """Refuse a grant that is not in the log, or that the log says another curator gave."""
    if logged.grants.get(grant.signed.digest) != grant.body.curator:
        raise _other_message("grant", None, grant.signed.digest)


def check_request(logged: Logged, request: Signed[RepadRequest]) -> None:
    """Refuse a request for new pads that the server has not logged."""
    if request.digest not in logged.requests:
        raise _other_message("request for new pads", None, request.digest)


def check_digest(what: str, logged: bytes | None, sent: bytes) -> None:
    """Refuse a message that has another digest than the log says."""
    if logged != sent:
        raise _other_message(what, logged, sent)


def _other_message(what: str, logged: bytes | None, sent: bytes) -> AuditError:
    has = "none" if logged is None else logged.hex()
    return AuditError(
        f"the {what} is not the one in the study's audit log: its digest is {sent.hex()}, and the"
        f" log has {has}",
        hint=_HINT,
    )


def _once(entry: AuditEntry, earlier: bytes | None) -> bytes:
    """Return the digest of an entry's message; refuse another one than before, and none."""
    if entry.message is None or earlier not in (None, entry.message):
        raise _contradiction(entry, "no message" if entry.message is None else "another message")
    return entry.message


def _contradiction(entry: AuditEntry, problem: str) -> AuditError:
    return AuditError(
        f"the audit log contradicts itself or the contract: entry {entry.sequence:,},"
        f" {entry.event!r}, has {problem}",
        hint=_HINT,
    )
