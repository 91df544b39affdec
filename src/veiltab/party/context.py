"""What every step of a party over the network needs: its home, its identity, its server."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from veiltab.core.entropy import Entropy
from veiltab.crypto.entropy import SystemEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import HomeError, MismatchError, NotFoundError
from veiltab.party import known
from veiltab.party.home import Home, PinnedServer
from veiltab.party.remote import RemoteServer
from veiltab.protocol.audit_log import Seen, verify_log
from veiltab.wire.audit import AuditEntry
from veiltab.wire.contract import Agreement, Contract, PublicIdentity
from veiltab.wire.rotation import PartyKeys
from veiltab.wire.signed import Signed


@dataclass(frozen=True, slots=True, eq=False)
class PartyContext:
    """A party at work.  ``clock`` tells the seconds since 1970."""

    home: Home
    identity: PrivateIdentity
    server: RemoteServer
    entropy: Entropy = field(default_factory=SystemEntropy, repr=False)
    clock: Callable[[], float] = time.time

    @property
    def now(self) -> int:
        """The time in whole seconds since 1970."""
        return int(self.clock())

    def find_study(self, text: str) -> bytes:
        """Find the study with this exact title, or whose id starts with these digits.

        The server's titles count only for studies whose contract is not known here, and those of
        proposals that nobody has looked at only if nothing else matches: whoever proposes a study
        under the title of another one does not get in its way.
        """
        return self.home.find_study(text, self._listed(), lambda: self._listed(inbox=True))

    def _listed(self, *, inbox: bool = False) -> list[tuple[bytes, str]]:
        """Return ids and titles of studies on the server whose contract is not known here."""
        listed = [(summary.study, summary.title) for summary in self.server.studies(inbox=inbox)]
        return [(s, title) for s, title in listed if self.home.study(s).title() is None]

    def contract(self, study: bytes) -> Signed[Contract]:
        """Fetch the contract with its signatures so far, and save it.

        The study id is a hash of the contract, so the server cannot change it; but it must be for
        the server that this home has pinned.  And the server must not have gone back
        to an earlier state: restored from an old copy, it could perturb a sample twice.
        """
        self.audit(study)
        signed = self.server.contract(study)
        if signed.body.server != self.server.pinned:
            raise MismatchError(
                "the contract names another server than the one you registered with",
                hint="compare the server's fingerprint with whoever proposed the study",
            )
        self.home.study(study).save_contract(signed)
        return signed

    def sealing_key(self, party: PublicIdentity) -> bytes:
        """Return the key to seal to: a party's newest, or its first if the server knows no other.

        A party that has revoked its keys is refused, and so are keys that do not go on from those
        that were seen before: a server could hide them.
        """
        try:
            keys = self.server.party_keys(party.party_id)
        except NotFoundError:
            keys = PartyKeys(party, (), party.sealing_key, None)
        return self.home.known.newest(party, keys).sealing_key

    def check_parties(self, agreement: Agreement, *others: PublicIdentity) -> None:
        """Refuse an agreement that names an impostor, or somebody who has revoked its keys.

        ``others`` are those who are given something without being named, such as a researcher.
        """
        known.check_parties(self.home, agreement, *others)
        named = [identity for place, identity in agreement.parties() if place != "server"]
        by_id = {identity.party_id: identity for identity in (*named, *others)}
        by_id.pop(self.identity.party_id, None)
        for identity in by_id.values():
            self.sealing_key(identity)

    def audit(self, study: bytes) -> tuple[list[AuditEntry], Seen]:
        """Fetch and verify a study's audit log against everything that was seen of it before."""
        folder = self.home.study(study)
        entries, head = self.server.audit(study)
        with self.home.lock():
            before = folder.seen_head()
            if before is not None and before.length > len(entries):
                # Another command of this home may have seen more in the meantime.
                entries, head = self.server.audit(study)
            seen = None if before is None else (before.length, before.hash)
            end = verify_log(study, entries, head, self.server.pinned.signing_key, seen)
            folder.save_seen_head(*end)
            self.home.follow_server(head.signatures[0].rotations)
        return entries, end


def check_registered(home: Home) -> PinnedServer:
    """Return the server of a home, or say how to get one."""
    home.check_identity()
    pinned = home.server
    if pinned is None:
        raise HomeError(
            f"{home.path} is not registered with a server yet",
            hint="register with the invitation of a server's operator: veiltab register URL",
        )
    return pinned
