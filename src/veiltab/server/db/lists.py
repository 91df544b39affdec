"""Which studies a party sees in its lists: those it has looked at, and an inbox of the others.

Nobody is bound by another's proposal.  A study that names a party without its consent is in the
party's inbox until it looks at the study; and a party can block those whose proposals it does not
want.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from sqlalchemy import and_, delete, func, select, tuple_, update

from veiltab.server.db.tables import BLOCKS, MEMBERS, PARTIES, STUDIES
from veiltab.server.db.view import TransactionView

LISTED: Final = "listed"
INBOX: Final = "inbox"
HIDDEN: Final = "hidden"
"""Where a member finds a study: hidden is what ended, or was blocked, before the member looked."""

Cursor = tuple[int, bytes]
"""When a study was added to somebody's list, and its id: where a page of the list ends."""


@dataclass(frozen=True, slots=True)
class ListedStudy:
    """A study as a list shows it."""

    study: bytes
    title: str
    state: str
    role: str
    updated: int
    created: int

    @property
    def cursor(self) -> Cursor:
        """Where the list goes on after this study."""
        return self.created, self.study


@dataclass(frozen=True, slots=True)
class NamedMember:
    """Somebody whom a contract names, as it names them; curators in order, and then researchers."""

    party: bytes
    role: str
    name: str
    signed: bool


class ListRecords(TransactionView):
    """Members of studies, the pages of their lists, and whom they block."""

    def add_member(
        self,
        study: bytes,
        party: bytes,
        role: str,
        *,
        place: str = INBOX,
        name: str | None = None,
        position: int | None = None,
        now: int = 0,
    ) -> None:
        """Give a party a role in a study; a role that it has already stays.

        ``name`` and ``position`` are those of the contract, if the contract names the party.
        """
        values = {
            "study": study,
            "party": party,
            "role": role,
            "place": place,
            "name": name,
            "position": position,
            "signed": False,
            "created": now,
        }
        self._insert_new(MEMBERS, values)

    def named(self, study: bytes) -> list[NamedMember]:
        """Return those whom the contract names, in its order."""
        statement = (
            select(MEMBERS.c.party, MEMBERS.c.role, MEMBERS.c.name, MEMBERS.c.signed)
            .where(MEMBERS.c.study == study, MEMBERS.c.position.is_not(None))
            .order_by(MEMBERS.c.position)
        )
        return [NamedMember(*row) for row in self._connection.execute(statement)]

    def member_name(self, study: bytes, party: bytes) -> str:
        """Return what the contract calls a party, whatever the party calls itself."""
        statement = select(MEMBERS.c.name).where(MEMBERS.c.study == study, MEMBERS.c.party == party)
        return self._connection.execute(statement).scalar_one_or_none() or ""

    def save_signed(self, study: bytes, parties: Collection[bytes]) -> None:
        """Write down who has signed the contract so far."""
        self._connection.execute(
            update(MEMBERS)
            .where(MEMBERS.c.study == study, MEMBERS.c.party.in_(parties))
            .values(signed=True)
        )

    def place(self, study: bytes, party: bytes) -> str | None:
        """Return where a party finds a study, if the study names it."""
        statement = select(MEMBERS.c.place).where(
            MEMBERS.c.study == study, MEMBERS.c.party == party
        )
        place: str | None = self._connection.execute(statement).scalar_one_or_none()
        return place

    def look(self, study: bytes, party: bytes) -> None:
        """Put a study into a party's list: it has looked at it."""
        self._connection.execute(
            update(MEMBERS)
            .where(MEMBERS.c.study == study, MEMBERS.c.party == party)
            .values(place=LISTED)
        )

    def hide_unseen(self, study: bytes) -> None:
        """Take a study that has ended out of the inboxes of those who never looked at it."""
        self._connection.execute(
            update(MEMBERS)
            .where(MEMBERS.c.study == study, MEMBERS.c.place == INBOX)
            .values(place=HIDDEN)
        )

    def page_of_studies(
        self, party: bytes, place: str, after: Cursor | None, most: int, kind: str = "study"
    ) -> list[ListedStudy]:
        """Return a page of a party's list or inbox of studies or vaults, the oldest first.

        Only what is shown is read: no contract, however long.
        """
        order = (MEMBERS.c.created, MEMBERS.c.study)
        statement = (
            select(
                STUDIES.c.study,
                STUDIES.c.title,
                STUDIES.c.state,
                MEMBERS.c.role,
                STUDIES.c.updated,
                MEMBERS.c.created,
            )
            .join(MEMBERS, MEMBERS.c.study == STUDIES.c.study)
            .where(MEMBERS.c.party == party, MEMBERS.c.place == place, STUDIES.c.kind == kind)
            .order_by(*order)
            .limit(most)
        )
        if after is not None:
            statement = statement.where(tuple_(*order) > tuple_(*after))
        return [ListedStudy(*row) for row in self._connection.execute(statement)]

    def block(self, party: bytes, blocked: bytes, now: int) -> bool:
        """Refuse another party's proposals from now on; those in the inbox are hidden.

        ``False`` if the other party was blocked before.
        """
        new = self._insert_new(BLOCKS, {"party": party, "blocked": blocked, "at": now})
        proposals = select(STUDIES.c.study).where(STUDIES.c.proposer == blocked)
        self._connection.execute(
            update(MEMBERS)
            .where(MEMBERS.c.party == party, MEMBERS.c.place == INBOX)
            .where(MEMBERS.c.study.in_(proposals))
            .values(place=HIDDEN)
        )
        return new

    def unblock(self, party: bytes, blocked: bytes) -> bool:
        """Allow another party's proposals again; ``False`` if they were not blocked."""
        statement = delete(BLOCKS).where(BLOCKS.c.party == party, BLOCKS.c.blocked == blocked)
        return self._connection.execute(statement).rowcount == 1

    def blocked_by(self, party: bytes) -> list[tuple[bytes, int]]:
        """Return whom a party has blocked, and since when, the first first."""
        statement = (
            select(BLOCKS.c.blocked, BLOCKS.c.at)
            .where(BLOCKS.c.party == party)
            .order_by(BLOCKS.c.at, BLOCKS.c.blocked)
        )
        return [(row.blocked, row.at) for row in self._connection.execute(statement)]

    def block_count(self, party: bytes) -> int:
        """Return how many others a party has blocked."""
        statement = select(func.count()).select_from(BLOCKS).where(BLOCKS.c.party == party)
        return int(self._connection.execute(statement).scalar_one())

    def has_blocked(self, party: bytes, other: bytes) -> bool:
        """Tell whether a party has blocked another."""
        statement = select(BLOCKS.c.at).where(BLOCKS.c.party == party, BLOCKS.c.blocked == other)
        return self._connection.execute(statement).first() is not None

    def out_of_reach(self, parties: Collection[bytes], sender: bytes) -> set[bytes]:
        """Return which of these parties a sender cannot propose to.

        They are unknown here, banned or revoked, or have blocked the sender; nobody is told which.
        """
        blocks = and_(BLOCKS.c.party == PARTIES.c.party, BLOCKS.c.blocked == sender)
        statement = (
            select(PARTIES.c.party)
            .outerjoin(BLOCKS, blocks)
            .where(PARTIES.c.party.in_(parties), PARTIES.c.banned.is_(None))
            .where(PARTIES.c.revocation.is_(None))
            .where(BLOCKS.c.party.is_(None))
        )
        return set(parties) - set(self._connection.execute(statement).scalars())
