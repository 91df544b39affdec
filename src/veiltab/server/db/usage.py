"""How much each party has sent and keeps on the disk, and what its grants cover."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, case, delete, exists, func, select, update

from veiltab.server.db.tables import GRANTED, HELD, MESSAGES, PARTIES, STUDIES
from veiltab.server.db.view import TransactionView
from veiltab.wire.states import ENDED

LEAST_BYTES = 4096
"""What a message counts at least: its row, and its entry in the log, take space too."""


@dataclass(frozen=True, slots=True)
class GrantLine:
    """What a grant covers: places in the contract's schema, with the attributes' names."""

    grant_id: bytes
    curator: bytes
    researcher: bytes
    attributes: Sequence[tuple[int, str]]
    expires: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A study that waits for its release: ``size`` is how many bytes it reads."""

    study: bytes
    proposer: bytes
    size: int


class UsageRecords(TransactionView):
    """Bytes of messages and of chunks by party, and the index of grants."""

    def lock_party(self, party: bytes) -> None:
        """Let the transactions that count a party's use follow each other.

        SQLite has one writer at a time anyway.  A transaction locks its study first.
        """
        statement = select(PARTIES.c.party).where(PARTIES.c.party == party).with_for_update()
        self._connection.execute(statement)

    def open_proposals(self, party: bytes) -> int:
        """Return how many studies of a proposer not everybody has signed yet."""
        statement = select(func.count()).where(
            STUDIES.c.proposer == party, STUDIES.c.state == "proposed"
        )
        return int(self._connection.execute(statement).scalar_one())

    def proposals_since(self, party: bytes, time: int) -> int:
        """Return how many studies a party has proposed since a time, however they ended."""
        statement = select(func.count()).where(
            STUDIES.c.proposer == party, STUDIES.c.created > time
        )
        return int(self._connection.execute(statement).scalar_one())

    def message_bytes(self, party: bytes) -> int:
        """Return the bytes of a party's contracts and messages; a short one counts as 4096."""
        sent = select(_counted(MESSAGES.c.size)).where(MESSAGES.c.sender == party)
        proposed = select(_counted(STUDIES.c.size)).where(STUDIES.c.proposer == party)
        return sum(int(self._connection.execute(each).scalar_one()) for each in (sent, proposed))

    def held_bytes(self, party: bytes) -> int:
        """Return the bytes of chunks on the disk for which a party answers."""
        statement = select(_total(HELD.c.bytes)).where(HELD.c.party == party)
        return int(self._connection.execute(statement).scalar_one())

    def held_by_study(self, study: bytes) -> dict[bytes, int]:
        """Return the bytes of a study's chunks, by the party that answers for them."""
        statement = select(HELD.c.party, HELD.c.bytes).where(HELD.c.study == study)
        return {row.party: row.bytes for row in self._connection.execute(statement)}

    def held_chunks(self, study: bytes, party: bytes) -> int:
        """Return how many chunks a party has sent for a study; one sent twice may count twice."""
        statement = select(HELD.c.chunks).where(HELD.c.study == study, HELD.c.party == party)
        return int(self._connection.execute(statement).scalar_one_or_none() or 0)

    def add_held(self, study: bytes, party: bytes, size: int, chunks: int) -> None:
        """Count more bytes and chunks of a study to a party, or fewer, but never less than none.

        The disk may have been counted after what is now counted back.
        """
        self._insert_new(HELD, {"study": study, "party": party, "bytes": 0, "chunks": 0})
        changed = {"bytes": HELD.c.bytes + size, "chunks": HELD.c.chunks + chunks}
        self._connection.execute(
            update(HELD)
            .where(HELD.c.study == study, HELD.c.party == party)
            .values({name: case((total < 0, 0), else_=total) for name, total in changed.items()})
        )

    def set_held(self, study: bytes, party: bytes, size: int, chunks: int) -> None:
        """Correct what is counted to a party, after a look at the disk."""
        self._insert_new(HELD, {"study": study, "party": party, "bytes": 0, "chunks": 0})
        self._connection.execute(
            update(HELD)
            .where(HELD.c.study == study, HELD.c.party == party)
            .values(bytes=size, chunks=chunks)
        )

    def forget_held(self, study: bytes) -> None:
        """Count nothing of a study any more."""
        self._connection.execute(delete(HELD).where(HELD.c.study == study))

    def waiting(self, studies: Collection[bytes]) -> list[Waiting]:
        """Return these studies with who has proposed them, and how much of them is on the disk.

        Of a study on stored tables, these are the tables.
        """
        if not studies:  # nearly always, and it is asked every few seconds
            return []
        read = func.coalesce(STUDIES.c.vault, STUDIES.c.study)
        statement = (
            select(STUDIES.c.study, STUDIES.c.proposer, _total(HELD.c.bytes))
            .outerjoin(HELD, HELD.c.study == read)
            .where(STUDIES.c.study.in_(studies))
            .group_by(STUDIES.c.study, STUDIES.c.proposer)
        )
        rows = self._connection.execute(statement)
        return [Waiting(study, proposer, int(size)) for study, proposer, size in rows]

    def unsigned_since(self, before: int) -> list[bytes]:
        """Return the studies and vaults that not everybody has signed since a time."""
        statement = (
            select(STUDIES.c.study)
            .where(STUDIES.c.state == "proposed", STUDIES.c.created <= before)
            .order_by(STUDIES.c.created, STUDIES.c.study)
        )
        return list(self._connection.execute(statement).scalars())

    def finished_since(self, before: int, now: int) -> list[bytes]:
        """Return what ended before a time, did not change since, and nobody may read now."""
        unexpired = exists().where(GRANTED.c.study == STUDIES.c.study, _good(now))
        statement = (
            select(STUDIES.c.study)
            .where(STUDIES.c.state.in_(ENDED))
            .where(STUDIES.c.updated <= before, STUDIES.c.archived.is_(None), ~unexpired)
            .order_by(STUDIES.c.created, STUDIES.c.study)
        )
        return list(self._connection.execute(statement).scalars())

    def forget_messages(self, study: bytes) -> None:
        """Erase the contents of every message of a study; senders and digests stay."""
        self._connection.execute(
            update(MESSAGES).where(MESSAGES.c.study == study).values(content=b"", size=0)
        )

    def add_granted(self, study: bytes, line: GrantLine) -> bool:
        """Note what a grant covers; ``False`` if there is a grant with this id already."""
        values = {
            "study": study,
            "grant_id": line.grant_id,
            "curator": line.curator,
            "researcher": line.researcher,
            "attributes": json.dumps(list(line.attributes), ensure_ascii=False),
            "expires": line.expires,
        }
        return self._insert_new(GRANTED, values)

    def grant_count(self, study: bytes, curator: bytes, researcher: bytes | None = None) -> int:
        """Return how many grants a curator has given in a study, to one researcher or to all."""
        statement = select(func.count()).where(
            GRANTED.c.study == study, GRANTED.c.curator == curator
        )
        if researcher is not None:
            statement = statement.where(GRANTED.c.researcher == researcher)
        return int(self._connection.execute(statement).scalar_one())

    def revoke_grant(self, study: bytes, grant_id: bytes, header: bytes, now: int) -> None:
        """Note that a grant is no longer good, and keep its header alone."""
        self._connection.execute(
            update(GRANTED)
            .where(GRANTED.c.study == study, GRANTED.c.grant_id == grant_id)
            .values(revoked=now)
        )
        self._connection.execute(
            update(MESSAGES)
            .where(MESSAGES.c.study == study, MESSAGES.c.kind == "grant")
            .where(MESSAGES.c.reference == grant_id)
            .values(content=header, size=len(header))
        )

    def granted_to(self, study: bytes, researcher: bytes, now: int) -> list[str]:
        """Return the attributes that good grants give a researcher, in the schema's order."""
        statement = select(GRANTED.c.attributes).where(
            GRANTED.c.study == study, GRANTED.c.researcher == researcher, _good(now)
        )
        rows = self._connection.execute(statement).scalars()
        places = {place: name for row in rows for place, name in json.loads(row)}
        return [name for _, name in sorted(places.items())]

    def grants_of(self, study: bytes, party: bytes, kind: str = "grant") -> list[bytes]:
        """Return the grants that a party has given or was given, the oldest first.

        With another ``kind``, the messages of that kind about those grants.
        """
        same = and_(
            GRANTED.c.study == MESSAGES.c.study,
            GRANTED.c.grant_id == MESSAGES.c.reference,
            GRANTED.c.curator == MESSAGES.c.sender,
        )
        statement = (
            select(MESSAGES.c.content)
            .join(GRANTED, same)
            .where(MESSAGES.c.study == study, MESSAGES.c.kind == kind, MESSAGES.c.size > 0)
            .where((GRANTED.c.curator == party) | (GRANTED.c.researcher == party))
            .order_by(MESSAGES.c.at, MESSAGES.c.sender, MESSAGES.c.reference)
        )
        return list(self._connection.execute(statement).scalars())

    def about_grant(self, study: bytes, kind: str, grant_id: bytes) -> list[bytes]:
        """Return the messages of a kind about the grant of one id, by whichever curator."""
        statement = select(MESSAGES.c.content).where(
            MESSAGES.c.study == study,
            MESSAGES.c.kind == kind,
            MESSAGES.c.reference == grant_id,
            MESSAGES.c.size > 0,
        )
        return list(self._connection.execute(statement).scalars())

    def message_count(self, study: bytes, kind: str, sender: bytes) -> int:
        """Return how many messages of a kind a party has sent to a study."""
        statement = select(func.count()).where(
            MESSAGES.c.study == study, MESSAGES.c.kind == kind, MESSAGES.c.sender == sender
        )
        return int(self._connection.execute(statement).scalar_one())


def _good(now: int) -> ColumnElement[bool]:
    """Return the condition of grants that have neither expired nor been revoked."""
    return and_(GRANTED.c.expires > now, GRANTED.c.revoked.is_(None))


def _total(column: ColumnElement[int]) -> ColumnElement[int]:
    return func.coalesce(func.sum(column), 0)


def _counted(size: ColumnElement[int]) -> ColumnElement[int]:
    """Sum sizes; what was erased counts as nothing, and anything else as at least a page."""
    least = case((size == 0, 0), (size < LEAST_BYTES, LEAST_BYTES), else_=size)
    return _total(least)
