"""Comparing the ends of logs that a server has shown to different parties (service spec 7.5).

Each party can only see that its own log never changes.  Two logs of one study, one for each party,
show when the parties compare what the server has signed.
"""

from collections.abc import Sequence

from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import AuditError, EquivocationError, MessageError
from veiltab.protocol.audit_log import verify_log
from veiltab.protocol.verify import sign, verify
from veiltab.wire.audit import AuditEntry, AuditHead, Equivocation, Witness, entry_hash
from veiltab.wire.signed import Signed


def leave_witness(head: Signed[AuditHead], identity: PrivateIdentity) -> Signed[Witness]:
    """Say which end of a log the server has shown to this party."""
    return sign(Witness(head=head, party=identity.party_id), identity.signing)


def verify_witness(
    study: bytes, signed: Signed[Witness], party_key: bytes, server_key: bytes
) -> Signed[AuditHead]:
    """Return the head that a party has seen, if the party has signed for it and the server too.

    Anything else says nothing about the server: a party could have made it up.
    """
    head = verify(signed, [party_key]).head
    check_head(study, head, server_key)
    return head


def check_head(study: bytes, head: Signed[AuditHead], server_key: bytes) -> None:
    """Refuse a head that the server has not signed, or that is of another study."""
    verify(head, [server_key])
    if head.body.study != study:
        raise AuditError(
            "this is the end of another study's audit log", hint="compare heads of one study"
        )


def compare(
    entries: Sequence[AuditEntry], head: Signed[AuditHead], other: Signed[AuditHead]
) -> Equivocation | None:
    """Compare a verified log and its head with a verified head of somebody else.

    Returns the proof if neither log continues the other.  A head of a longer log proves nothing
    yet: look again, because a log only grows.
    """
    length = other.body.length
    if length > len(entries) or entry_hash(entries[length - 1]) == other.body.hash:
        return None
    longer = () if length == len(entries) else tuple(entries)
    return Equivocation(entries=longer, first=other, second=head)


def verify_equivocation(proof: Equivocation, server_key: bytes) -> bytes:
    """Return the study of which the server has signed two logs; refuse what does not prove it."""
    first, second = proof.first.body, proof.second.body
    try:
        check_head(first.study, proof.first, server_key)
        check_head(first.study, proof.second, server_key)
        if proof.entries:
            verify_log(first.study, proof.entries, proof.second, server_key)
    except MessageError as error:
        raise _proves_nothing() from error
    if first.length == second.length:
        differ = first.hash != second.hash and not proof.entries
    else:
        inside = first.length < second.length == len(proof.entries)
        differ = inside and entry_hash(proof.entries[first.length - 1]) != first.hash
    if not differ:
        raise _proves_nothing()
    return first.study


def equivocation_error(title: str, proof: Equivocation, who: str) -> EquivocationError:
    """Build the error for a server that has shown another log to somebody else."""
    first, second = proof.first.body, proof.second.body
    return EquivocationError(
        f"the server has signed two different logs of {title!r}: {who} was shown {first.length:,}"
        f" entries that end in {first.hash.hex()}, and you were shown {second.length:,} that end"
        f" in {second.hash.hex()}",
        hint="keep the proof, grant nothing, and show it to the other parties and the operator",
    )


def _proves_nothing() -> AuditError:
    return AuditError(
        "this does not prove that the server has signed two different logs",
        hint="both heads must be signed by the server, and be of one study",
    )
