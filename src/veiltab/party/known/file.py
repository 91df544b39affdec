"""What the file of known parties holds, and what follows from it for somebody one meets."""

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from typing import ClassVar

from veiltab.crypto.identity import fingerprint
from veiltab.errors import BlockedError, KeyChangedError, RevokedError
from veiltab.party.known.names import alike
from veiltab.protocol.keys import revoked
from veiltab.remedies import Remedy
from veiltab.wire.codec import (
    MAX_INTEGER,
    TEXT,
    Part,
    integer,
    items,
    malformed,
    message,
    nested,
    optional,
    wired,
)
from veiltab.wire.contract import PARTY_ID, PublicIdentity
from veiltab.wire.rotation import ROTATIONS, Revocation, Rotation, signed_part
from veiltab.wire.signed import Message, Signed

_TIME = integer(0, MAX_INTEGER)


class Standing(StrEnum):
    """What a home knows of a party that it meets."""

    YOU = "you"
    VERIFIED = "verified"
    UNVERIFIED = "not verified"
    NEW = "new"
    BLOCKED = "blocked"
    REVOKED = "revoked"
    CHANGED = "key changed"


@message
class KnownParty(Part):
    """A party as this home knows it; times in seconds since 1970.

    ``name`` is what it is called here, ``identity.name`` what it calls itself.  ``rotations`` are
    the longest chain of new keys seen; a ``revocation`` stays until the party is forgotten.
    """

    name: str = wired(TEXT)
    identity: PublicIdentity = wired(nested(PublicIdentity))
    first_seen: int = wired(_TIME)
    verified: int | None = wired(optional(_TIME))
    rotations: tuple[Signed[Rotation], ...] = wired(ROTATIONS)
    revocation: Signed[Revocation] | None = wired(optional(signed_part(Revocation)))

    @property
    def party_id(self) -> bytes:
        """The party's id."""
        return self.identity.party_id

    @property
    def fingerprint(self) -> str:
        """The thirty digits that people compare."""
        return fingerprint(self.party_id)

    def goes_by(self, name: str) -> bool:
        """Tell whether people could think of this party when they read a name."""
        return alike(name, self.name) or alike(name, self.identity.name)


@message
class BlockedParty(Part):
    """A party with which this home has nothing to do; it need not be known otherwise."""

    party: bytes = wired(PARTY_ID)
    name: str = wired(TEXT)
    at: int = wired(_TIME)


@message
class KnownFile(Message):
    """Everybody whom a home knows."""

    kind: ClassVar[str] = "home-known"

    parties: tuple[KnownParty, ...] = wired(items(nested(KnownParty)))
    blocked: tuple[BlockedParty, ...] = wired(items(nested(BlockedParty)))

    def check(self) -> None:
        """Refuse a party that is there twice."""
        for ids in ([p.party_id for p in self.parties], [b.party for b in self.blocked]):
            if len(set(ids)) != len(ids):
                raise malformed("parties", "has a party twice")


class Memory:
    """What a home knows at one moment: its parties, itself, and its server."""

    def __init__(self, file: KnownFile, me: PublicIdentity, server: PublicIdentity | None) -> None:
        """Take what was read; nothing of it changes."""
        self.file, self.me = file, me
        self._server = server
        self.by_id = {known.party_id: known for known in file.parties}
        self._blocked = {blocked.party for blocked in file.blocked}

    def standing(self, identity: PublicIdentity) -> Standing:
        """Return what is known of one party."""
        party = identity.party_id
        if party == self.me.party_id:
            return Standing.YOU
        try:
            self.strangers([identity])
        except BlockedError:
            return Standing.BLOCKED
        except KeyChangedError:
            return Standing.CHANGED
        except RevokedError:
            return Standing.REVOKED
        known = self.by_id.get(party)
        if known is None:
            return Standing.NEW
        return Standing.UNVERIFIED if known.verified is None else Standing.VERIFIED

    def strangers(self, identities: Iterable[PublicIdentity]) -> list[PublicIdentity]:
        """Refuse who must be refused, and return those who are not known yet."""
        new: dict[bytes, PublicIdentity] = {}
        for identity in identities:
            party = identity.party_id
            if party == self.me.party_id:
                continue
            if party in self._blocked:
                raise _refuse_blocked(identity)
            known = self.by_id.get(party)
            if known is not None and known.revocation is not None:
                raise revoked(identity.name, known.revocation.body)
            if known is None or not known.goes_by(identity.name):
                self.check_name(identity.name, party)
            if known is not None:
                continue
            for other in new.values():
                if other.party_id != party and alike(identity.name, other.name):
                    raise _two_parties(identity, other)
            new.setdefault(party, identity)
        return list(new.values())

    def check_name(self, name: str, party: bytes) -> None:
        """Refuse a name by which people would think of another party than this one."""
        if alike(name, self.me.name):
            whom = f"your own name is {self.me.name!r}, and you have"
            raise _changed(name, party, whom, self.me.party_id)
        server = self._server
        if server is not None and server.party_id != party and alike(name, server.name):
            whom = f"your server {server.name!r} has"
            raise _changed(name, party, whom, server.party_id)
        for known in self.file.parties:
            if known.party_id != party and known.goes_by(name):
                words = "not verified" if known.verified is None else "verified"
                whom = f"the {known.name!r} that you know ({words}) has"
                raise _changed(name, party, whom, known.party_id)

    def with_party(self, known: KnownParty) -> KnownFile:
        """Return the file with a new or changed party."""
        parties = {**self.by_id, known.party_id: known}
        return replace(self.file, parties=tuple(parties.values()))


def _changed(name: str, party: bytes, whom: str, known: bytes) -> KeyChangedError:
    return KeyChangedError(
        f"THE KEY HAS CHANGED: {name!r} has the fingerprint {fingerprint(party)}, but {whom}"
        f" {fingerprint(known)}",
        hint="go no further: somebody may pretend to be them.  Call them on a number that you know."
        "  If they have a new key, forget the old one: veiltab party forget.  If it is another"
        f" party of the same name, {Remedy.VERIFY_AS}",
    )


def _two_parties(identity: PublicIdentity, other: PublicIdentity) -> KeyChangedError:
    return KeyChangedError(
        f"two parties are called {identity.name!r} and {other.name!r}, with the fingerprints"
        f" {fingerprint(identity.party_id)} and {fingerprint(other.party_id)}",
        hint=f"one of them may pretend to be the other; call them, and {Remedy.NAME_AS}",
    )


def _refuse_blocked(identity: PublicIdentity) -> BlockedError:
    return BlockedError(
        f"you have blocked {identity.name!r}, fingerprint {fingerprint(identity.party_id)}",
        hint=f"{Remedy.UNBLOCK}, if you want to work with them",
    )
