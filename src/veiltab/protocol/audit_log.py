"""Writing a study's audit log, and finding out whether somebody has rewritten it.

The server writes the log and is not trusted: it could make up another one.  But it cannot show one
log today and another one tomorrow, or cut off the end, because clients remember what they saw.
"""

from collections.abc import Sequence

from veiltab.errors import AuditError, SignatureError
from veiltab.protocol.verify import verify
from veiltab.wire.audit import AuditEntry, AuditHead, entry_hash
from veiltab.wire.signed import Signed

Seen = tuple[int, bytes]
"""How far a log goes: its length, and the hash of its last entry."""

_HINT = "keep what you have, and ask the server's operator and the other parties what they see"


def next_entry(
    previous: Seen | None,
    study: bytes,
    *,
    at: int,
    actor: bytes,
    event: str,
    message: bytes | None,
    state: str,
) -> AuditEntry:
    """Build the entry that follows a log of this length and last hash, or the first one."""
    length, last = (0, study) if previous is None else previous
    return AuditEntry(
        actor=actor,
        at=at,
        event=event,
        message=message,
        previous=last,
        sequence=length,
        state=state,
        study=study,
    )


def verify_log(
    study: bytes,
    entries: Sequence[AuditEntry],
    head: Signed[AuditHead],
    server_key: bytes,
    seen: Seen | None = None,
) -> Seen:
    """Check a whole log, and return how far it goes, to be remembered as ``seen``.

    ``server_key`` is the server's public signing key.  A log that does not begin with what was
    seen before is refused, as is one that the head does not fit.
    """
    known_length, known_hash = (0, study) if seen is None else seen
    _check_head(study, head, server_key)
    if len(entries) < known_length:
        _follow(study, entries, (0, study))
        raise _cut(len(entries), known_length)
    if _follow(study, entries[:known_length], (0, study)) != known_hash:
        raise _rewritten(known_length)
    return verify_more(study, entries[known_length:], head, server_key, (known_length, known_hash))


def verify_more(
    study: bytes,
    entries: Sequence[AuditEntry],
    head: Signed[AuditHead],
    server_key: bytes,
    seen: Seen,
) -> Seen:
    """Check what follows the part of a log that was seen before, and return how far it goes."""
    _check_head(study, head, server_key)
    if head.body.length < seen[0]:
        raise _cut(head.body.length, seen[0])
    if entries and seen[0] and entries[0].previous != seen[1]:
        raise _rewritten(seen[0])
    last = _follow(study, entries, seen)
    if not entries and head.body.length == seen[0] and head.body.hash != last:
        raise _rewritten(seen[0])
    _check_end(seen[0] + len(entries), last, head.body)
    return seen[0] + len(entries), last


def _follow(study: bytes, entries: Sequence[AuditEntry], start: Seen) -> bytes:
    """Check that entries follow each other from a place on, and return the last hash."""
    number, last = start
    for entry in entries:
        _check_entry(entry, study, number, last)
        number, last = number + 1, entry_hash(entry)
    return last


def _check_head(study: bytes, head: Signed[AuditHead], server_key: bytes) -> None:
    try:
        body = verify(head, [server_key])
    except SignatureError as error:
        raise AuditError(
            "the head of the audit log is not signed by the study's server", hint=_HINT
        ) from error
    if body.study != study:
        raise AuditError("the head of the audit log is that of another study", hint=_HINT)


def _check_entry(entry: AuditEntry, study: bytes, number: int, last: bytes) -> None:
    if entry.study != study:
        raise _broken(number, "is about another study")
    if entry.sequence != number:
        raise _broken(number, f"is not there; number {entry.sequence:,} stands in its place")
    if entry.previous != last:
        before = "the study's id" if number == 0 else f"the hash of entry {number - 1:,}"
        raise _broken(number, f"does not refer to {before}")


def _check_end(length: int, last: bytes, head: AuditHead) -> None:
    if length < head.length:
        raise _broken(length, f"is missing, but the server signed for {head.length:,} entries")
    if length > head.length:
        raise _broken(head.length, f"stands after the {head.length:,} that the server signed for")
    if last != head.hash:
        raise _broken(length - 1, "is not the one that the server signed for")


def _broken(number: int, problem: str) -> AuditError:
    return AuditError(f"the audit log is broken: entry {number:,} {problem}", hint=_HINT)


def _cut(length: int, known: int) -> AuditError:
    return _broken(length, f"is missing, but {known:,} entries were there before")


def _rewritten(length: int) -> AuditError:
    number = max(length - 1, 0)
    return _broken(number, "or one before it is not the one that was seen before")
