"""What the operator of a server sees and does: parties and studies, whosever they are."""

from dataclasses import dataclass

from sqlalchemy import delete, func, select, update

from veiltab.server.db.tables import BLOCKS, HELD, INVITATIONS, MEMBERS, PARTIES, ROTATIONS, STUDIES
from veiltab.server.db.view import TransactionView


@dataclass(frozen=True, slots=True)
class PartyLine:
    """A registered party; ``banned`` is since when, if it is."""

    party: bytes
    name: str
    created: int
    banned: int | None


@dataclass(frozen=True, slots=True)
class OperatorLine:
    """A study or vault without its contract; ``size`` is how many bytes of chunks it has."""

    study: bytes
    kind: str
    title: str
    state: str
    reason: str | None
    proposer: bytes
    created: int
    updated: int
    archived: int | None
    size: int


class OperatorRecords(TransactionView):
    """Parties and studies as the operator sees them."""

    def party_lines(self) -> list[PartyLine]:
        """Return all parties, the first first."""
        statement = select(
            PARTIES.c.party, PARTIES.c.name, PARTIES.c.created, PARTIES.c.banned
        ).order_by(PARTIES.c.created, PARTIES.c.party)
        return [PartyLine(*row) for row in self._connection.execute(statement)]

    def set_banned(self, party: bytes, at: int | None) -> None:
        """Ban a party from now on, or allow it again."""
        self._connection.execute(update(PARTIES).where(PARTIES.c.party == party).values(banned=at))

    def remove_party(self, party: bytes) -> None:
        """Forget a party: it needs a new invitation, and its blocks are lifted.

        One that has revoked its keys stays refused: whoever stole them could be invited.
        """
        revoked = select(PARTIES.c.party).where(PARTIES.c.revocation.is_not(None))
        for table in (ROTATIONS, PARTIES):
            self._connection.execute(
                delete(table).where(table.c.party == party, table.c.party.not_in(revoked))
            )
        self._connection.execute(delete(BLOCKS).where(BLOCKS.c.party == party))
        # A party may show its invitation again; this one must not.
        self._connection.execute(
            update(INVITATIONS).where(INVITATIONS.c.party == party).values(party=b"")
        )

    def study_lines(self, party: bytes | None = None) -> list[OperatorLine]:
        """Return all studies and vaults, or those that name a party, the oldest first."""
        held = select(func.coalesce(func.sum(HELD.c.bytes), 0)).where(
            HELD.c.study == STUDIES.c.study
        )
        statement = select(
            STUDIES.c.study,
            STUDIES.c.kind,
            STUDIES.c.title,
            STUDIES.c.state,
            STUDIES.c.reason,
            STUDIES.c.proposer,
            STUDIES.c.created,
            STUDIES.c.updated,
            STUDIES.c.archived,
            held.scalar_subquery().label("size"),
        ).order_by(STUDIES.c.created, STUDIES.c.study)
        if party is not None:
            named = select(MEMBERS.c.study).where(MEMBERS.c.party == party)
            statement = statement.where(STUDIES.c.study.in_(named))
        rows = self._connection.execute(statement).mappings()
        return [OperatorLine(**{**row, "size": int(row["size"])}) for row in rows]
