"""The parties that a home knows: each name with the key that it came with, as SSH knows hosts.

A party is remembered when something is first signed, sent or granted that names it.  From then on
the same name, or one that looks like it, with another key is refused.  Remembering is not
verifying: a party is verified when somebody has compared its fingerprint.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from veiltab.crypto.identity import fingerprint
from veiltab.errors import InputError, KeyChangedError, ParameterError
from veiltab.files.disk import is_file
from veiltab.files.private import parse_file, write_private
from veiltab.party.known.file import BlockedParty, KnownFile, KnownParty, Memory, Standing
from veiltab.party.known.fingerprints import check_same_fingerprint
from veiltab.protocol.keys import extends, verify_keys, verify_revocation
from veiltab.wire.codec import load
from veiltab.wire.contract import Agreement, PublicIdentity
from veiltab.wire.rotation import PartyKeys

if TYPE_CHECKING:
    from veiltab.party.home import Home

__all__ = [
    "Acquaintance",
    "BlockedParty",
    "KnownParties",
    "KnownParty",
    "Standing",
    "acquaintances",
]

_SHORTEST_ID = 8


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
        self._check_other(identity)
        with self._home.lock():
            memory = self._memory()
            known = memory.by_id.get(identity.party_id)
            called = name or (identity.name if known is None else known.name)
            if known is None or called != known.name:
                memory.check_name(called, identity.party_id)
            known = replace(known or self._unverified(identity), name=called, verified=self._now)
            self._write(memory.with_party(known))
        return known

    def newest(self, identity: PublicIdentity, keys: PartyKeys) -> PartyKeys:
        """Return the keys that a server states for a party, if nothing contradicts them.

        They are verified, and must go on from those that were seen before; what is new in them is
        remembered.  A party that has revoked its keys is refused, also if the server hides that
        later.
        """
        self.remember([identity])
        with self._home.lock():
            memory = self._memory()
            known = memory.by_id.get(identity.party_id)
            if known is None:  # one's own, which needs no memory
                return verify_keys(identity, keys)
            if keys.revocation is not None and keys.identity.party_id == identity.party_id:
                verify_revocation(identity, keys.revocation)
                self._write(memory.with_party(replace(known, revocation=keys.revocation)))
            verify_keys(identity, keys)
            if not extends(keys.rotations, known.rotations):
                raise _older_keys(identity, known, keys)
            if len(keys.rotations) > len(known.rotations):
                self._write(memory.with_party(replace(known, rotations=keys.rotations)))
        return keys

    def forget(self, name: str) -> KnownParty:
        """Forget a party, such as one that has lost its key and comes with a new one."""
        with self._home.lock():
            file, known = self._read(), self.find(name)
            left = tuple(other for other in file.parties if other.party_id != known.party_id)
            self._write(replace(file, parties=left))
        return known

    def block(self, identity: PublicIdentity) -> BlockedParty:
        """Have nothing to do with a party any more."""
        self._check_other(identity)
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
        if is_file(party):
            return read_identity(Path(party))
        try:
            return self.find(str(party)).identity
        except InputError as error:
            raise InputError(
                f"{error.message}, and there is no such file", hint=error.hint
            ) from None

    def _check_other(self, identity: PublicIdentity) -> None:
        """Refuse to count oneself, or the pinned server, among the others."""
        server = self._home.server
        pinned = None if server is None else server.identity.party_id
        if identity.party_id in (self._home.public.party_id, pinned):
            who = "your server, which is pinned" if identity.party_id == pinned else "you"
            raise ParameterError(f"{identity.name!r} is {who}", hint="name another party")

    @property
    def _now(self) -> int:
        return int(self._clock())

    def _unverified(self, identity: PublicIdentity) -> KnownParty:
        return KnownParty(
            name=identity.name,
            identity=identity,
            first_seen=self._now,
            verified=None,
            rotations=(),
            revocation=None,
        )

    def _memory(self) -> Memory:
        server = self._home.server
        return Memory(self._read(), self._home.public, None if server is None else server.identity)

    def _read(self) -> KnownFile:
        """Read the file; one that is damaged is an error, and not an empty memory."""
        file = parse_file(self._path, lambda data: KnownFile.from_json(load(data)))
        return KnownFile(parties=(), blocked=()) if file is None else file

    def _write(self, file: KnownFile) -> None:
        write_private(self._path, file.canonical())


def is_verified(home: "Home", party_id: bytes) -> bool:
    """Tell whether a party is this home's own, or its fingerprint was compared."""
    known = home.known.of(party_id)
    return party_id == home.public.party_id or (known is not None and known.verified is not None)


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


def _older_keys(identity: PublicIdentity, known: KnownParty, keys: PartyKeys) -> KeyChangedError:
    return KeyChangedError(
        f"THE KEY HAS CHANGED: the server states {len(keys.rotations):,} new keys for"
        f" {identity.name!r}, and not the {len(known.rotations):,} that were seen before",
        hint="go no further: the server has gone back to an older key, or shows another one than"
        " before; ask that party, and the server's operator",
    )
