"""The audit log of a study or vault: what happened, in a chain of hashes that the server signs.

An entry is not a message and states neither kind nor version: its hash has a label of its own, and
entries are sent with a head, which is a signed message and states both.
"""

from typing import ClassVar

from veiltab.core.hashing import labelled_hash
from veiltab.wire.codec import (
    MAX_INTEGER,
    Codec,
    Part,
    choice,
    dump,
    exact_fields,
    integer,
    items,
    message,
    nested,
    optional,
    wired,
)
from veiltab.wire.contract import DIGEST, PARTY_ID
from veiltab.wire.signed import Message, Signed, SignedMessage
from veiltab.wire.states import AuditEvent, State, VaultState

MAX_ENTRIES = 2**32
"""More than any study has; a limit keeps numbers in messages small."""

_EVENT: Codec[str] = choice(*map(str, AuditEvent))
_STATE: Codec[str] = choice(*dict.fromkeys(map(str, (*State, *VaultState))))
_TIME = integer(0, MAX_INTEGER)


@message
class AuditEntry(Part):
    """One event of a study or vault, and its state after it.

    ``at`` is in Unix seconds by the server's clock; ``message`` is the digest of the message that
    the event is about, if there is one.  ``previous`` is the hash of the entry before, or the id in
    the first entry.  ``study`` is the id of the study or of the vault.
    """

    actor: bytes = wired(PARTY_ID)
    at: int = wired(_TIME)
    event: str = wired(_EVENT)
    message: bytes | None = wired(optional(DIGEST))
    previous: bytes = wired(DIGEST)
    sequence: int = wired(integer(0, MAX_ENTRIES - 1))
    state: str = wired(_STATE)
    study: bytes = wired(DIGEST)

    def canonical(self) -> bytes:
        """Return the bytes that are hashed."""
        return dump(self.to_json())


@message
class AuditHead(SignedMessage):
    """What the server signs of a whole log: its length, and the hash of its last entry."""

    kind: ClassVar[str] = "audit-head"

    at: int = wired(_TIME)
    hash: bytes = wired(DIGEST)
    length: int = wired(integer(1, MAX_ENTRIES))
    study: bytes = wired(DIGEST)


def _read_head(value: object, path: str) -> Signed[AuditHead]:
    return Signed.from_json(AuditHead, exact_fields(value, ("body", "signatures"), path))


_HEAD: Codec[Signed[AuditHead]] = Codec(_read_head, lambda signed, _: signed.to_json())


@message
class Witness(SignedMessage):
    """A party says which signed end of a log the server has shown to it."""

    kind: ClassVar[str] = "witness"

    head: Signed[AuditHead] = wired(_HEAD)
    party: bytes = wired(PARTY_ID)


@message
class Equivocation(Message):
    """Two ends that the server has signed, of logs of which neither continues the other.

    ``entries`` are the log that ``second`` ends, if that is longer than the one of ``first``.  The
    two signatures are all that is needed to prove it to anybody.
    """

    kind: ClassVar[str] = "equivocation"

    entries: tuple[AuditEntry, ...] = wired(items(nested(AuditEntry)))
    first: Signed[AuditHead] = wired(_HEAD)
    second: Signed[AuditHead] = wired(_HEAD)


def entry_hash(entry: AuditEntry) -> bytes:
    """Return the hash by which the next entry and the head refer to this one."""
    return labelled_hash("audit", entry.canonical())
