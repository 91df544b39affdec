"""Everything that the server remembers, as one transaction sees it.

These are invitations and parties, studies and their members, and the messages and audit log of each
study.
"""

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sqlalchemy import bindparam, delete, func, insert, select, update

from veiltab.errors import InvitationError, StateError
from veiltab.server.db.keys import KeyRecords
from veiltab.server.db.lists import ListRecords
from veiltab.server.db.operators import OperatorRecords
from veiltab.server.db.tables import AUDIT, INVITATIONS, MEMBERS, MESSAGES, NONCES, PARTIES, STUDIES
from veiltab.server.db.usage import UsageRecords
from veiltab.server.db.view import TransactionView
from veiltab.wire.contract import PublicIdentity
from veiltab.wire.states import State

CURATOR: Final = "curator"
RESEARCHER: Final = "researcher"

STUDY: Final = "study"
VAULT: Final = "vault"
"""The kinds of what is kept among the studies."""

# Most requests run these statements; building one takes longer than running it.
_STUDY = select(*(column for column in STUDIES.c if column.name != "size")).where(
    STUDIES.c.study == bindparam("wanted")
)
_STUDY_TO_CHANGE = _STUDY.with_for_update()  # SQLite has one writer at a time, and leaves this out
_ROLE = select(MEMBERS.c.role).where(
    MEMBERS.c.study == bindparam("wanted"), MEMBERS.c.party == bindparam("member")
)
_MESSAGE = select(*(column for column in MESSAGES.c if column.name != "size"))
_MESSAGES = _MESSAGE.where(
    MESSAGES.c.study == bindparam("wanted"), MESSAGES.c.kind == bindparam("of_kind")
).order_by(MESSAGES.c.at, MESSAGES.c.sender, MESSAGES.c.reference)


@dataclass(frozen=True, slots=True)
class Invitation:
    """An invitation as the operator sees it: with the hash of its code, but not the code."""

    code_hash: bytes
    name: str
    created: int
    expires: int
    party: bytes | None
    used: int | None

    def state(self, now: int) -> str:
        """Return whether it is open, used or expired."""
        if self.party is not None:
            return "used"
        return "expired" if self.expires <= now else "open"


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """A study or a vault as the server knows it.

    ``contract`` is the canonical bytes of the contract, or of the vault's terms, with the
    signatures so far, and ``any_researcher`` whether it leaves open who may be granted something.
    ``vault`` is the vault that a study reads, if it reads one.  ``archived`` is when the contents
    of all other messages were erased, if they were.
    """

    study: bytes
    title: str
    contract: bytes
    state: str
    noise_key: bytes | None = field(repr=False)
    reason: str | None
    created: int
    updated: int
    proposer: bytes = b""
    any_researcher: bool = True
    archived: int | None = None
    kind: str = STUDY
    vault: bytes | None = None


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """A message as it was sent: ``content`` is its canonical bytes, or empty if it was erased.

    ``reference`` tells a sender's messages of one kind apart: it is the receiver's party id, the id
    of a grant, or empty where each sender sends one message.
    """

    study: bytes
    kind: str
    sender: bytes
    reference: bytes
    digest: bytes
    content: bytes = field(repr=False)
    at: int


def unknown_invitation() -> InvitationError:
    """Return the answer to whoever shows no code of this server's."""
    return InvitationError(
        "there is no such invitation here",
        hint="compare the code with what the server's operator gave you, or ask them for a new one",
    )


class PeopleRecords(TransactionView):
    """Invitations, parties and nonces."""

    def add_invitation(self, code_hash: bytes, name: str, now: int, expires: int) -> None:
        """Keep an invitation; its code itself is never stored."""
        values = {"code_hash": code_hash, "name": name, "created": now, "expires": expires}
        if not self._insert_new(INVITATIONS, values):
            raise InvitationError(
                "there is an invitation with this code already", hint="draw a new code at random"
            )

    def use_invitation(self, code_hash: bytes, party: bytes, now: int) -> None:
        """Bind an invitation to the party that shows its code; that party may show it again."""
        fresh = INVITATIONS.c.party.is_(None) & (INVITATIONS.c.expires > now)
        statement = (
            update(INVITATIONS)
            .where(INVITATIONS.c.code_hash == code_hash)
            .where(fresh | (INVITATIONS.c.party == party))
            .values(party=party, used=func.coalesce(INVITATIONS.c.used, now))
        )
        if self._connection.execute(statement).rowcount != 1:
            raise self._refused_invitation(code_hash)

    def _refused_invitation(self, code_hash: bytes) -> InvitationError:
        """Say why an invitation is refused: whoever shows its code may know."""
        statement = select(INVITATIONS.c.party).where(INVITATIONS.c.code_hash == code_hash)
        row = self._connection.execute(statement).one_or_none()
        if row is None:
            return unknown_invitation()
        if row.party is None:
            return InvitationError(
                "the invitation has expired", hint="ask the server's operator for a new one"
            )
        return InvitationError(
            "the invitation was used already, and not by you",
            hint="ask the server's operator for a new one; if you have not used it, somebody else"
            " had the code: tell the operator so",
        )

    def invitations(self) -> list[Invitation]:
        """Return all invitations, the oldest first."""
        statement = select(INVITATIONS).order_by(INVITATIONS.c.created, INVITATIONS.c.code_hash)
        return [Invitation(**row) for row in self._connection.execute(statement).mappings()]

    def add_party(self, identity: PublicIdentity, now: int) -> bool:
        """Register a party; ``False`` if it is registered already, and then its name stays."""
        values = {
            "party": identity.party_id,
            "name": identity.name,
            "signing_key": identity.signing_key,
            "sealing_key": identity.sealing_key,
            "newest_signing": identity.signing_key,
            "newest_sealing": identity.sealing_key,
            "created": now,
        }
        new = self._insert_new(PARTIES, values)
        if not new and self.party(identity.party_id) is None:
            raise unknown_invitation()  # it is banned or revoked
        return new

    def party(self, party_id: bytes) -> PublicIdentity | None:
        """Return a registered party; one that is banned or revoked is not there."""
        statement = select(PARTIES).where(
            PARTIES.c.party == party_id,
            PARTIES.c.banned.is_(None),
            PARTIES.c.revocation.is_(None),
        )
        row = self._connection.execute(statement).mappings().one_or_none()
        if row is None:
            return None
        return PublicIdentity(row["name"], row["signing_key"], row["sealing_key"])

    def use_nonce(self, party: bytes, nonce: bytes, created: int) -> bool:
        """Write down that a party has used a nonce; ``False`` if it has used it before."""
        return self._insert_new(NONCES, {"party": party, "nonce": nonce, "created": created})

    def forget_nonces(self, before: int) -> int:
        """Delete the nonces of requests that are too old to be accepted; return how many."""
        return self._connection.execute(delete(NONCES).where(NONCES.c.created < before)).rowcount


class StudyRecords(TransactionView):
    """Studies and their members."""

    def add_study(self, record: StudyRecord) -> None:
        """Add a study; refuse one that exists."""
        if not self._insert_new(STUDIES, {**asdict(record), "size": len(record.contract)}):
            raise StateError(
                f"the study {record.study.hex()} is there already",
                hint="ask for its status; repeat the request if it was sent twice at once",
            )

    def study(self, study: bytes) -> StudyRecord | None:
        """Return a study.

        A transaction that may write locks the study until it ends, so that requests on one study
        follow each other.
        """
        statement = _STUDY_TO_CHANGE if self._writing else _STUDY
        row = self._connection.execute(statement, {"wanted": study}).mappings().one_or_none()
        return None if row is None else StudyRecord(**row)

    def change_study(self, study: bytes, **changes: Any) -> None:
        """Change some fields of a study, and write nothing else: a contract can be long."""
        if "contract" in changes:
            changes["size"] = len(changes["contract"])
        self._connection.execute(update(STUDIES).where(STUDIES.c.study == study).values(**changes))

    def studies_in(self, states: Collection[str]) -> list[bytes]:
        """Return the ids of the studies that are in one of these states, the oldest first."""
        statement = (
            select(STUDIES.c.study)
            .where(STUDIES.c.state.in_(states))
            .order_by(STUDIES.c.created, STUDIES.c.study)
        )
        return list(self._connection.execute(statement).scalars())

    def studies_to_draw(self) -> list[bytes]:
        """Return the studies on stored tables that wait for their rows, the oldest first.

        Their rows are not drawn yet, or the disk has damaged them: then a reason is written.
        """
        damaged = (STUDIES.c.state == State.SAMPLED) & STUDIES.c.reason.is_not(None)
        statement = (
            select(STUDIES.c.study)
            .where(STUDIES.c.vault.is_not(None), (STUDIES.c.state == State.OPEN) | damaged)
            .order_by(STUDIES.c.created, STUDIES.c.study)
        )
        return list(self._connection.execute(statement).scalars())

    def studies_on(self, vault: bytes, states: Collection[str]) -> list[bytes]:
        """Return the studies on a vault that are in one of these states, in the order of ids."""
        statement = (
            select(STUDIES.c.study)
            .where(STUDIES.c.vault == vault, STUDIES.c.state.in_(states))
            .order_by(STUDIES.c.study)
        )
        return list(self._connection.execute(statement).scalars())

    def role(self, study: bytes, party: bytes) -> str | None:
        """Return a party's role in a study: ``curator``, ``researcher`` or none."""
        wanted = {"wanted": study, "member": party}
        role: str | None = self._connection.execute(_ROLE, wanted).scalar_one_or_none()
        return role


class MessageRecords(TransactionView):
    """Messages and audit logs of studies."""

    def add_message(self, record: MessageRecord) -> bool:
        """Add a message; ``False`` if it is there already, and refuse another in its place."""
        if self._insert_new(MESSAGES, {**asdict(record), "size": len(record.content)}):
            return True
        earlier = self.message(record.study, record.kind, record.sender, record.reference)
        if earlier is None or earlier.digest != record.digest:
            raise StateError(
                f"another {record.kind} was sent to this study before, and cannot be replaced",
                hint="if that one was wrong, abort the study and propose a new one",
            )
        return False

    def replace_message(self, record: MessageRecord) -> None:
        """Put a message in the place of an earlier one; only of kinds that bind nobody."""
        self.forget_message(record.study, record.kind, record.sender, record.reference)
        self.add_message(record)

    def forget_message(
        self, study: bytes, kind: str, sender: bytes, reference: bytes = b""
    ) -> None:
        """Delete a message, so that another one can take its place; only one that binds nobody."""
        key = {"study": study, "kind": kind, "sender": sender, "reference": reference}
        same = [MESSAGES.c[name] == value for name, value in key.items()]
        self._connection.execute(delete(MESSAGES).where(*same))

    def message(
        self, study: bytes, kind: str, sender: bytes, reference: bytes = b""
    ) -> MessageRecord | None:
        """Return one message."""
        statement = _MESSAGE.where(
            MESSAGES.c.study == study,
            MESSAGES.c.kind == kind,
            MESSAGES.c.sender == sender,
            MESSAGES.c.reference == reference,
        )
        row = self._connection.execute(statement).mappings().one_or_none()
        return None if row is None else MessageRecord(**row)

    def messages(self, study: bytes, kind: str) -> list[MessageRecord]:
        """Return the messages of one kind in the order of their time, then of their sender."""
        rows = self._connection.execute(_MESSAGES, {"wanted": study, "of_kind": kind})
        return [MessageRecord(**row) for row in rows.mappings()]

    def message_with(self, study: bytes, kind: str, digest: bytes) -> MessageRecord | None:
        """Return the message of a kind that has this digest, unless it was erased."""
        statement = _MESSAGES.where(MESSAGES.c.digest == digest, MESSAGES.c.size > 0)
        rows = self._connection.execute(statement, {"wanted": study, "of_kind": kind})
        row = rows.mappings().first()
        return None if row is None else MessageRecord(**row)

    def digests(self, study: bytes, kind: str) -> dict[bytes, bytes]:
        """Return the digests of the messages of one kind by their senders, without the messages."""
        statement = select(MESSAGES.c.sender, MESSAGES.c.digest).where(
            MESSAGES.c.study == study, MESSAGES.c.kind == kind
        )
        return {row.sender: row.digest for row in self._connection.execute(statement)}

    def messages_of(self, study: bytes, kind: str, party: bytes) -> list[MessageRecord]:
        """Return the messages of one kind that a party has sent, or that are for it."""
        statement = _MESSAGES.where(
            (MESSAGES.c.sender == party) | (MESSAGES.c.reference == party), MESSAGES.c.size > 0
        )
        rows = self._connection.execute(statement, {"wanted": study, "of_kind": kind})
        return [MessageRecord(**row) for row in rows.mappings()]

    def forget_contents(self, study: bytes, kind: str) -> None:
        """Erase the contents of the messages of one kind; their senders and digests stay."""
        self._connection.execute(
            update(MESSAGES)
            .where(MESSAGES.c.study == study, MESSAGES.c.kind == kind)
            .values(content=b"", size=0)
        )

    def append_audit(self, study: bytes, content: bytes, hash: bytes) -> None:  # noqa: A002 - the field's name in the log
        """Add an entry to the end of a study's audit log."""
        head = self.audit_head(study)
        values = {"study": study, "sequence": head[0] if head else 0}
        self._connection.execute(insert(AUDIT).values(content=content, hash=hash, **values))

    def audit(self, study: bytes, after: int = 0, most: int | None = None) -> list[bytes]:
        """Return the contents of a study's audit log in order, from an entry on."""
        statement = (
            select(AUDIT.c.content)
            .where(AUDIT.c.study == study, AUDIT.c.sequence >= after)
            .order_by(AUDIT.c.sequence)
            .limit(most)
        )
        return list(self._connection.execute(statement).scalars())

    def audit_head(self, study: bytes) -> tuple[int, bytes] | None:
        """Return the length of a study's audit log and the hash of its last entry."""
        statement = (
            select(AUDIT.c.sequence, AUDIT.c.hash)
            .where(AUDIT.c.study == study)
            .order_by(AUDIT.c.sequence.desc())
            .limit(1)
        )
        row = self._connection.execute(statement).one_or_none()
        return None if row is None else (row.sequence + 1, row.hash)


class Records(
    PeopleRecords,
    KeyRecords,
    StudyRecords,
    ListRecords,
    MessageRecords,
    UsageRecords,
    OperatorRecords,
):
    """One transaction's view of the database; ``Database`` makes it, and ends the transaction.

    Times are in seconds since 1970; ids, digests and messages are bytes.
    """
