"""The keys of parties: the newest ones, the rotations that lead to them, and revocations."""

from sqlalchemy import insert, select, update

from veiltab.server.db.tables import PARTIES, ROTATIONS
from veiltab.server.db.view import TransactionView
from veiltab.wire.contract import PublicIdentity
from veiltab.wire.rotation import PartyKeys, Revocation, Rotation
from veiltab.wire.signed import Signed


class KeyRecords(TransactionView):
    """Rotations and revocations of registered parties."""

    def newest_key(self, party: bytes) -> bytes | None:
        """Return the newest signing key of a party, or none if it is unknown or revoked."""
        statement = select(PARTIES.c.newest_signing).where(
            PARTIES.c.party == party, PARTIES.c.revocation.is_(None)
        )
        key: bytes | None = self._connection.execute(statement).scalar_one_or_none()
        return key

    def party_keys(self, party: bytes) -> PartyKeys | None:
        """Return all that others may know of a party's keys.

        A transaction that may write locks the party until it ends.
        """
        statement = select(PARTIES).where(PARTIES.c.party == party)
        if self._writing:
            statement = statement.with_for_update()
        row = self._connection.execute(statement).mappings().one_or_none()
        if row is None:
            return None
        revocation = row["revocation"]
        return PartyKeys(
            identity=PublicIdentity(row["name"], row["signing_key"], row["sealing_key"]),
            rotations=self._rotations(party),
            sealing_key=row["newest_sealing"],
            revocation=None if revocation is None else Revocation.loads(revocation),
        )

    def _rotations(self, party: bytes) -> tuple[Signed[Rotation], ...]:
        statement = (
            select(ROTATIONS.c.content)
            .where(ROTATIONS.c.party == party)
            .order_by(ROTATIONS.c.sequence)
        )
        contents = self._connection.execute(statement).scalars()
        return tuple(Rotation.loads(content) for content in contents)

    def add_rotation(self, rotation: Signed[Rotation], sealing_key: bytes) -> None:
        """Put new keys in the place of a party's newest; they have been verified."""
        body = rotation.body
        values = {"party": body.party, "sequence": body.sequence, "content": rotation.dumps()}
        self._connection.execute(insert(ROTATIONS).values(**values))
        self._connection.execute(
            update(PARTIES)
            .where(PARTIES.c.party == body.party)
            .values(newest_signing=body.signing_key, newest_sealing=sealing_key)
        )

    def revoke(self, revocation: Signed[Revocation]) -> None:
        """End a party for good; the first revocation stays."""
        self._connection.execute(
            update(PARTIES)
            .where(PARTIES.c.party == revocation.body.party, PARTIES.c.revocation.is_(None))
            .values(revocation=revocation.dumps())
        )
