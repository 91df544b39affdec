"""Records of what was sent in a study, and its audit log, to which entries are only added."""

from dataclasses import asdict, dataclass, field

from sqlalchemy import bindparam, insert, select, update

from veiltab.errors import StateError
from veiltab.storage.access import Access
from veiltab.storage.tables import AUDIT, MESSAGES

# Most requests run it, some several times; building it takes longer than running it.
_MESSAGES = (
    select(MESSAGES)
    .where(MESSAGES.c.study == bindparam("wanted"), MESSAGES.c.kind == bindparam("of_kind"))
    .order_by(MESSAGES.c.at, MESSAGES.c.sender, MESSAGES.c.reference)
)


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """A message as it was sent: ``content`` is its canonical bytes, or empty if it was erased.

    ``reference`` tells a sender's messages of one kind apart: the receiver's party id, the id of a
    grant, or nothing where each sender has one.
    """

    study: bytes
    kind: str
    sender: bytes
    reference: bytes
    digest: bytes
    content: bytes = field(repr=False)
    at: int


class MessageRecords(Access):
    """Messages and audit logs of studies."""

    def add_message(self, record: MessageRecord) -> bool:
        """Keep a message; ``False`` if the same one is there, and refuse another in its place."""
        if self._insert_new(MESSAGES, asdict(record)):
            return True
        there = self.message(record.study, record.kind, record.sender, record.reference)
        if there is None or there.digest != record.digest:
            raise StateError(
                f"there is another message of the kind {record.kind} in this one's place",
                hint="what was sent stays: send the same message again, or start a new study",
            )
        return False

    def message(
        self, study: bytes, kind: str, sender: bytes, reference: bytes = b""
    ) -> MessageRecord | None:
        """Return one message."""
        statement = select(MESSAGES).where(
            MESSAGES.c.study == study,
            MESSAGES.c.kind == kind,
            MESSAGES.c.sender == sender,
            MESSAGES.c.reference == reference,
        )
        row = self._connection.execute(statement).mappings().one_or_none()
        return None if row is None else MessageRecord(**row)

    def messages(self, study: bytes, kind: str) -> list[MessageRecord]:
        """Return the messages of one kind in the order of their time, then of their sender."""
        found = self._connection.execute(_MESSAGES, {"wanted": study, "of_kind": kind})
        return [MessageRecord(**row) for row in found.mappings()]

    def forget_contents(self, study: bytes, kind: str) -> None:
        """Erase what was in the messages of one kind; that they came, and their digests, stay."""
        self._connection.execute(
            update(MESSAGES)
            .where(MESSAGES.c.study == study, MESSAGES.c.kind == kind)
            .values(content=b"")
        )

    def append_audit(self, study: bytes, content: bytes, hash: bytes) -> None:  # noqa: A002 - the field's name in the log
        """Add an entry to the end of a study's audit log."""
        head = self.audit_head(study)
        values = {"study": study, "sequence": head[0] if head else 0}
        self._connection.execute(insert(AUDIT).values(content=content, hash=hash, **values))

    def audit(self, study: bytes) -> list[bytes]:
        """Return the contents of a study's audit log in order."""
        statement = select(AUDIT.c.content).where(AUDIT.c.study == study).order_by(AUDIT.c.sequence)
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
