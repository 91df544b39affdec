"""Records about who may speak to the server: invitations, parties and used nonces."""

from dataclasses import dataclass

from sqlalchemy import delete, func, select, update

from veiltab.errors import InvitationError
from veiltab.storage.access import Access
from veiltab.storage.tables import INVITATIONS, NONCES, PARTIES
from veiltab.wire.contract import PublicIdentity


@dataclass(frozen=True, slots=True)
class Invitation:
    """An invitation as the operator sees it; of its code only the hash is known."""

    code_hash: bytes
    name: str
    created: int
    expires: int
    party: bytes | None
    used: int | None


class PeopleRecords(Access):
    """Invitations, parties and nonces."""

    def add_invitation(self, code_hash: bytes, name: str, now: int, expires: int) -> None:
        """Keep an invitation; its code itself is never stored."""
        values = {"code_hash": code_hash, "name": name, "created": now, "expires": expires}
        if not self._insert_new(INVITATIONS, values):
            raise InvitationError(
                "there is an invitation with this code already", hint="draw a new code at random"
            )

    def use_invitation(self, code_hash: bytes, party: bytes, now: int) -> None:
        """Give an invitation to the party that shows its code; it may show it again later."""
        fresh = INVITATIONS.c.party.is_(None) & (INVITATIONS.c.expires > now)
        statement = (
            update(INVITATIONS)
            .where(INVITATIONS.c.code_hash == code_hash)
            .where(fresh | (INVITATIONS.c.party == party))
            .values(party=party, used=func.coalesce(INVITATIONS.c.used, now))
        )
        if self._connection.execute(statement).rowcount != 1:
            # One answer for all three: who guesses codes must not learn which of them exist.
            raise InvitationError(
                "the invitation is unknown, expired or used by somebody else",
                hint="ask the operator of the server for a new invitation",
            )

    def invitations(self) -> list[Invitation]:
        """Return all invitations, the oldest first."""
        statement = select(INVITATIONS).order_by(INVITATIONS.c.created, INVITATIONS.c.code_hash)
        return [Invitation(**row) for row in self._connection.execute(statement).mappings()]

    def add_party(self, identity: PublicIdentity, now: int) -> bool:
        """Register a party; ``False`` if it is registered, whose first name then stays."""
        values = {
            "party": identity.party_id,
            "name": identity.name,
            "signing_key": identity.signing_key,
            "sealing_key": identity.sealing_key,
            "created": now,
        }
        return self._insert_new(PARTIES, values)

    def party(self, party_id: bytes) -> PublicIdentity | None:
        """Return a registered party."""
        statement = select(PARTIES).where(PARTIES.c.party == party_id)
        row = self._connection.execute(statement).mappings().one_or_none()
        if row is None:
            return None
        return PublicIdentity(row["name"], row["signing_key"], row["sealing_key"])

    def use_nonce(self, party: bytes, nonce: bytes, created: int) -> bool:
        """Note that a party has used a nonce; ``False`` if it had done so before."""
        return self._insert_new(NONCES, {"party": party, "nonce": nonce, "created": created})

    def forget_nonces(self, before: int) -> int:
        """Delete the nonces of requests that are too old to be accepted; return how many."""
        return self._connection.execute(delete(NONCES).where(NONCES.c.created < before)).rowcount
