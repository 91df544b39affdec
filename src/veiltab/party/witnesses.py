"""Comparing what a server has shown to different parties: through the server, or by files."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Literal

from veiltab.errors import AuditError, InputError, MessageError, OutOfSpaceError, QuotaError
from veiltab.files.disk import check_new
from veiltab.files.private import write_private
from veiltab.party.context import PartyContext
from veiltab.party.evidence import Examined, examine
from veiltab.party.grants import GrantStatus, list_grants
from veiltab.protocol.witness import (
    check_head,
    compare,
    equivocation_error,
    leave_witness,
    verify_witness,
)
from veiltab.wire.audit import AuditEntry, AuditHead, Equivocation, Witness
from veiltab.wire.messages import GrantRevocation
from veiltab.wire.signed import Signed, digest
from veiltab.wire.states import AuditEvent

MAX_HEAD_BYTES = 2**16
Verdict = Literal["same", "behind", "invalid"]


@dataclass(frozen=True, slots=True)
class Witnessed:
    """What somebody says that the server has shown of a log.

    ``verdict`` is ``same`` if it is the log as it is now, ``behind`` if it is the beginning of it,
    and ``invalid`` if it is no head that the server has signed: anybody can make up such a thing,
    and it says nothing about the server.
    """

    who: str
    verdict: Verdict
    length: int
    at: int


@dataclass(frozen=True, slots=True)
class Audit:
    """A verified log, its signed end, and who else was shown the same one."""

    examined: Examined = field(repr=False)
    witnesses: tuple[Witnessed, ...]
    grants: tuple[GrantStatus, ...] = ()
    """The grants in the log that this party may see; none once the study is archived."""

    @property
    def entries(self) -> list[AuditEntry]:
        """What has happened, in order."""
        return self.examined.entries

    @property
    def head(self) -> Signed[AuditHead]:
        """The end of the log, as the server has signed it."""
        return self.examined.head

    @property
    def length(self) -> int:
        """How many entries there are."""
        return self.head.body.length

    @property
    def hash(self) -> bytes:
        """The hash of the last entry."""
        return self.head.body.hash

    def grant_of(self, entry: AuditEntry) -> GrantStatus | None:
        """Return the grant that was given or revoked, if the entry is about one to be seen."""
        for one in self.grants:
            if entry.message in (digest(one.grant), digest(GrantRevocation.of(one.grant))):
                return one
        return None

    def save_head(self, path: str | PathLike[str]) -> None:
        """Write the signed end of the log to a new file, for others to compare."""
        check_new(Path(path))
        write_private(Path(path), self.head.dumps())


class _Comparison:
    """A log that is compared with what others were shown of it."""

    def __init__(self, context: PartyContext, examined: Examined, proof: Path | None) -> None:
        self._context, self.examined, self._proof = context, examined, proof

    @property
    def server_key(self) -> bytes:
        """The server's key, as this home has pinned it."""
        return self._context.server.pinned.signing_key

    def with_head(self, head: Signed[AuditHead], who: str) -> Witnessed:
        """Compare with a head that the server has signed; raise if the two contradict each other.

        What is longer than this log is looked for in a newer one: a log only grows.
        """
        if head.body.length > len(self.examined.entries):
            self.examined = examine(self._context, head.body.study)
        examined = self.examined
        if head.body.length > len(examined.entries):
            raise AuditError(
                f"{who} was shown {head.body.length:,} entries of the audit log, and the server"
                f" shows you {len(examined.entries):,} of them now",
                hint="the server hides something from you, or has gone back to an old copy; show"
                " both heads to the other parties",
            )
        found = compare(examined.entries, examined.head, head)
        if found is not None:
            raise self._equivocation(found, who)
        same = head.body.length == len(examined.entries)
        return Witnessed(who, "same" if same else "behind", head.body.length, head.body.at)

    def _equivocation(self, found: Equivocation, who: str) -> AuditError:
        if self._proof is not None:
            write_private(self._proof, found.canonical())
        return equivocation_error(self.examined.contract.title, found, who)


def audit(
    context: PartyContext,
    study: bytes,
    files: Sequence[str | PathLike[str]] = (),
    proof: str | PathLike[str] | None = None,
) -> Audit:
    """Verify a study's log, say what was seen of it, and compare that with what others have seen.

    ``files`` are heads that other parties have handed over.  If the server has signed two logs that
    contradict each other, that is an error, and the proof of it goes to a new file ``proof``.
    """
    path = None if proof is None else Path(proof)
    if path is not None:
        check_new(path)
    comparison = _Comparison(context, examine(context, study), path)
    witnesses = [_with_file(comparison, study, Path(file)) for file in files]
    left = context.server.heads(study)
    others = [signed for signed in left if signed.body.party != context.identity.party_id]
    witnesses += [_with_witness(comparison, study, signed) for signed in others]
    with suppress(OutOfSpaceError, QuotaError):  # the log is verified, whatever the server takes
        context.server.leave_head(study, leave_witness(comparison.examined.head, context.identity))
    return Audit(comparison.examined, tuple(witnesses), _grants(context, comparison.examined))


def _grants(context: PartyContext, examined: Examined) -> tuple[GrantStatus, ...]:
    if any(entry.event == AuditEvent.ARCHIVED for entry in examined.entries):
        return ()
    return tuple(list_grants(context, examined.contract))


def _with_file(comparison: _Comparison, study: bytes, path: Path) -> Witnessed:
    try:
        with path.open("rb") as file:
            head = AuditHead.loads(file.read(MAX_HEAD_BYTES + 1))
        check_head(study, head, comparison.server_key)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", hint="check the path") from error
    except (AuditError, MessageError) as error:
        raise InputError(
            f"{path} is not an end of this study's log that its server has signed",
            hint="ask the other party for the file that `veiltab audit STUDY --head-out` wrote",
        ) from error
    return comparison.with_head(head, str(path))


def _with_witness(comparison: _Comparison, study: bytes, signed: Signed[Witness]) -> Witnessed:
    """Compare with what a party has left at the server, if both of them have signed for it."""
    parties = {
        identity.party_id: identity for _, identity in comparison.examined.contract.parties()
    }
    party = parties.get(signed.body.party)
    who = signed.body.party.hex()[:16] if party is None else party.name
    body = signed.body.head.body
    try:
        # A researcher whom the contract does not name has no key that is known here.
        keys = [signature.root for signature in signed.signatures]
        key = keys[0] if party is None else party.signing_key
        head = verify_witness(study, signed, key, comparison.server_key)
    except (AuditError, MessageError):
        return Witnessed(who, "invalid", body.length, body.at)
    return comparison.with_head(head, who)
