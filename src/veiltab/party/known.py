"""The parties that a home knows: each name with the key that it came with, as SSH knows hosts.

A party is remembered when something is first signed, sent or granted that names it.  From then on
the same name, or one that looks like it, with another key is refused.  Remembering is not
verifying: a party is verified when somebody has compared its fingerprint.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from veiltab.crypto.identity import fingerprint
from veiltab.errors import (
    BlockedError,
    InputError,
    KeyChangedError,
)
from veiltab.files.private import parse_file, write_private
from veiltab.party.fingerprints import check_same_fingerprint
from veiltab.party.names import alike
from veiltab.wire.codec import (
    MAX_INTEGER,
    TEXT,
    Part,
    integer,
    items,
    load,
    malformed,
    message,
    nested,
    optional,
    wired,
)
from veiltab.wire.contract import PARTY_ID, Agreement, PublicIdentity
from veiltab.wire.signed import Message

if TYPE_CHECKING:
    from veiltab.party.home import Home, PinnedServer

_TIME = integer(0, MAX_INTEGER)
_SHORTEST_ID = 8


class Standing(StrEnum):
    """What a home knows of a party that it meets."""

    YOU = "you"
    VERIFIED = "verified"
    UNVERIFIED = "not verified"
    NEW = "new"
    BLOCKED = "blocked"
    CHANGED = "key changed"


@message
class KnownParty(Part):
    """A party as this home knows it; times in seconds since 1970.

    ``name`` is what it is called here, ``identity.name`` what it calls itself.
    """

    name: str = wired(TEXT)
    identity: PublicIdentity = wired(nested(PublicIdentity))
    first_seen: int = wired(_TIME)
    verified: int | None = wired(optional(_TIME))

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
class _KnownFile(Message):
    """Everybody whom a home knows."""

    kind: ClassVar[str] = "home-known"

    parties: tuple[KnownParty, ...] = wired(items(nested(KnownParty)))
    blocked: tuple[BlockedParty, ...] = wired(items(nested(BlockedParty)))

    def check(self) -> None:
        """Refuse a party that is there twice."""
        for ids in ([p.party_id for p in self.parties], [b.party for b in self.blocked]):
            if len(set(ids)) != len(ids):
                raise malformed("parties", "has a party twice")


@dataclass(frozen=True, slots=True)
class Acquaintance:
    """A party of a study, and what this home knows of it; ``known_as`` is what it is called here.

    The server is not among the known parties: it is pinned when a home registers.
    """

    role: str
    identity: PublicIdentity
    standing: Standing | None
    known_as: str | None

    @property
    def fingerprint(self) -> str:
        """The thirty digits that people compare."""
        return fingerprint(self.identity.party_id)

    @property
    def verified(self) -> bool | None:
        """Whether the fingerprint was compared; None for the server, which is pinned instead."""
        if self.standing is None:
            return None
        return self.standing in (Standing.YOU, Standing.VERIFIED)


class _Memory:
    """What a home knows at one moment: its parties, itself, and its server."""

    def __init__(self, file: _KnownFile, me: PublicIdentity, server: "PinnedServer | None") -> None:
        self.file, self.me = file, me
        self._server = None if server is None else server.identity
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
        known = self.by_id.get(party)
        if known is None:
            return Standing.NEW
        return Standing.UNVERIFIED if known.verified is None else Standing.VERIFIED

    def strangers(self, identities: Iterable[PublicIdentity]) -> list[PublicIdentity]:
        """Refuse who must be refused, and return those who are not known yet."""
        new: dict[bytes, PublicIdentity] = {}
        for identity in identities:
            party = identity.party_id
            if party == self.me.party_id or party in new:
                continue
            if party in self._blocked:
                raise _refuse_blocked(identity)
            known = self.by_id.get(party)
            if known is None or not known.goes_by(identity.name):
                self.check_name(identity.name, party)
            if known is not None:
                continue
            for other in new.values():
                if alike(identity.name, other.name):
                    raise _two_parties(identity, other)
            new[party] = identity
        return list(new.values())

    def check_name(self, name: str, party: bytes) -> None:
        """Refuse a name by which people would think of another party than this one."""
        if alike(name, self.me.name):
            whom = f"your own name is {self.me.name!r}, and you have"
            raise _changed(name, party, whom, self.me.party_id)
        if self._server is not None and alike(name, self._server.name):
            whom = f"your server {self._server.name!r} has"
            raise _changed(name, party, whom, self._server.party_id)
        for known in self.file.parties:
            if known.party_id != party and known.goes_by(name):
                words = "not verified" if known.verified is None else "verified"
                whom = f"the {known.name!r} that you know ({words}) has"
                raise _changed(name, party, whom, known.party_id)

    def with_party(self, known: KnownParty) -> _KnownFile:
        """Return the file with a new or changed party."""
        parties = {**self.by_id, known.party_id: known}
        return replace(self.file, parties=tuple(parties.values()))


class KnownParties:
    """The file of known parties in a home."""

    def __init__(self, home: "Home", clock: Callable[[], float] = time.time) -> None:
        """Name the home; the file is made when the first party is remembered."""
        self._home, self._clock = home, clock
        self._path = home.path / "known.json"

    def parties(self) -> list[KnownParty]:
        """Return everybody whom this home knows, by name."""
        return sorted(self._read().parties, key=lambda known: known.name)

    def blocked(self) -> list[BlockedParty]:
        """Return everybody whom this home has blocked, by name."""
        return sorted(self._read().blocked, key=lambda blocked: blocked.name)

    def find(self, text: str) -> KnownParty:
        """Find the one party of this name, or whose party id begins with these digits."""
        parties = self.parties()
        wanted = text.strip()
        matches = [known for known in parties if known.name == wanted]
        matches = matches or [known for known in parties if known.goes_by(wanted)]
        if not matches and len(wanted) >= _SHORTEST_ID:
            digits = wanted.lower()
            matches = [known for known in parties if known.party_id.hex().startswith(digits)]
        if len(matches) == 1:
            return matches[0]
        names = ", ".join(repr(known.name) for known in matches or parties)
        raise InputError(
            f"{f'{len(matches):,} parties match' if matches else 'you know no party'} {text!r}",
            hint=f"you know {names}" if names else "name the file of its public identity",
        )

    def of(self, party_id: bytes) -> KnownParty | None:
        """Return what is known of a party, if anything is."""
        return next((k for k in self._read().parties if k.party_id == party_id), None)

    def standings(self, identities: Iterable[PublicIdentity]) -> list[Standing]:
        """Return what this home knows of each of these parties; nothing is remembered."""
        memory = self._memory()
        return [memory.standing(identity) for identity in identities]

    def check(self, identities: Iterable[PublicIdentity]) -> None:
        """Refuse a blocked party, and a name that is known with another key."""
        self._memory().strangers(identities)

    def remember(self, identities: Iterable[PublicIdentity]) -> None:
        """Refuse what :meth:`check` refuses, and remember who is new, as not verified."""
        wanted = list(identities)
        if not self._memory().strangers(wanted):
            return
        with self._home.lock():
            memory = self._memory()  # once more: another command may have met them meanwhile
            new = [self._unverified(identity) for identity in memory.strangers(wanted)]
            self._write(replace(memory.file, parties=(*memory.file.parties, *new)))

    def verify(
        self,
        party: str | PathLike[str] | PublicIdentity,
        fingerprint: str,
        *,
        name: str | None = None,
    ) -> KnownParty:
        """Remember that somebody has compared a party's fingerprint.

        ``party`` is a public identity, the path of its file, or the name of a party that is known.
        ``name`` is what to call it here; needed if another party has its name.
        """
        identity = self.identify(party)
        check_same_fingerprint(identity, fingerprint)
        with self._home.lock():
            memory = self._memory()
            known = memory.by_id.get(identity.party_id)
            called = name or (identity.name if known is None else known.name)
            if known is None or called != known.name:
                memory.check_name(called, identity.party_id)
            known = replace(known or self._unverified(identity), name=called, verified=self._now)
            self._write(memory.with_party(known))
        return known

    def forget(self, name: str) -> KnownParty:
        """Forget a party, such as one that has lost its key and comes with a new one."""
        with self._home.lock():
            file, known = self._read(), self.find(name)
            left = tuple(other for other in file.parties if other.party_id != known.party_id)
            self._write(replace(file, parties=left))
        return known

    def block(self, identity: PublicIdentity) -> BlockedParty:
        """Have nothing to do with a party any more."""
        with self._home.lock():
            file = self._read()
            for blocked in file.blocked:
                if blocked.party == identity.party_id:
                    return blocked
            blocked = BlockedParty(party=identity.party_id, name=identity.name, at=self._now)
            self._write(replace(file, blocked=(*file.blocked, blocked)))
        return blocked

    def find_blocked(self, text: str) -> BlockedParty:
        """Find the one blocked party of this name, or whose party id begins with these digits."""
        blocked, wanted = self.blocked(), text.strip()
        matches = [one for one in blocked if one.name == wanted]
        if not matches and len(wanted) >= _SHORTEST_ID:
            matches = [one for one in blocked if one.party.hex().startswith(wanted.lower())]
        if len(matches) == 1:
            return matches[0]
        names = ", ".join(f"{one.name!r} ({one.party.hex()[:16]})" for one in matches or blocked)
        raise InputError(
            f"you have not blocked one party {text!r}",
            hint=f"you have blocked {names}" if names else "you have blocked nobody",
        )

    def unblock(self, party_id: bytes) -> None:
        """Let a party be met again."""
        with self._home.lock():
            file = self._read()
            left = tuple(blocked for blocked in file.blocked if blocked.party != party_id)
            if left != file.blocked:
                self._write(replace(file, blocked=left))

    def identify(self, party: str | PathLike[str] | PublicIdentity) -> PublicIdentity:
        """Return who is meant: an identity, the file of one, or the name of a known party."""
        from veiltab.party.home import read_identity  # noqa: PLC0415 - homes hold known parties

        if isinstance(party, PublicIdentity):
            return party
        if Path(party).is_file():
            return read_identity(Path(party))
        return self.find(str(party)).identity

    @property
    def _now(self) -> int:
        return int(self._clock())

    def _unverified(self, identity: PublicIdentity) -> KnownParty:
        return KnownParty(
            name=identity.name, identity=identity, first_seen=self._now, verified=None
        )

    def _memory(self) -> "_Memory":
        return _Memory(self._read(), self._home.public, self._home.server)

    def _read(self) -> _KnownFile:
        """Read the file; one that is damaged is an error, and not an empty memory."""
        file = parse_file(self._path, lambda data: _KnownFile.from_json(load(data)))
        return _KnownFile(parties=(), blocked=()) if file is None else file

    def _write(self, file: _KnownFile) -> None:
        write_private(self._path, file.canonical())


def check_parties(home: "Home", agreement: Agreement, *others: PublicIdentity) -> None:
    """Refuse an agreement that names an impostor; remember who is new in it, as not verified.

    Everything that a party signs, pushes or grants goes through here first.  ``others`` are those
    who are given something without being named, such as a researcher.
    """
    named = [identity for place, identity in agreement.parties() if place != "server"]
    home.known.remember([*named, *others])


def acquaintances(home: "Home", agreement: Agreement) -> list[Acquaintance]:
    """Return everybody whom an agreement names, with what this home knows of them."""
    named = list(agreement.parties())
    names = {known.party_id: known.name for known in home.known.parties()}
    standings = home.known.standings(identity for _, identity in named)
    return [
        Acquaintance(
            role=place.partition("[")[0].removesuffix("s"),
            identity=identity,
            standing=None if place == "server" else standing,
            known_as=names.get(identity.party_id),
        )
        for (place, identity), standing in zip(named, standings, strict=True)
    ]


def _changed(name: str, party: bytes, whom: str, known: bytes) -> KeyChangedError:
    return KeyChangedError(
        f"THE KEY HAS CHANGED: {name!r} has the fingerprint {fingerprint(party)}, but {whom}"
        f" {fingerprint(known)}",
        hint="go no further: somebody may pretend to be them.  Call them on a number that you know."
        "  If they have a new key, forget the old one: veiltab party forget.  If it is another"
        " party of the same name, verify it under another one: veiltab party verify FILE --as NAME",
    )


def _two_parties(identity: PublicIdentity, other: PublicIdentity) -> KeyChangedError:
    return KeyChangedError(
        f"two parties are called {identity.name!r} and {other.name!r}, with the fingerprints"
        f" {fingerprint(identity.party_id)} and {fingerprint(other.party_id)}",
        hint="one of them may pretend to be the other; call them, and give one another name with"
        " `veiltab party verify FILE --as NAME`",
    )


def _refuse_blocked(identity: PublicIdentity) -> BlockedError:
    return BlockedError(
        f"you have blocked {identity.name!r}, fingerprint {fingerprint(identity.party_id)}",
        hint="take it back with `veiltab party unblock`, if you want to work with them",
    )
