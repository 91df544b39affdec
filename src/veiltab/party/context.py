"""What every step of a party over the network needs: its home, its identity, its server."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from veiltab.core.entropy import Entropy
from veiltab.crypto.entropy import SystemEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import HomeError, NotFoundError
from veiltab.party.evidence import fetch_contract
from veiltab.party.home import Home, PinnedServer
from veiltab.party.remote import RemoteServer
from veiltab.remedies import Remedy
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
        """Find the study whose title begins like this, or whose id starts with these digits.

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
        """Fetch the contract with its signatures so far, and save it (see ``party.evidence``)."""
        return fetch_contract(self, study)

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
        named = [identity for place, identity in agreement.parties() if place != "server"]
        self.check_identities([*named, *others])

    def check_identities(self, identities: Iterable[PublicIdentity]) -> None:
        """Refuse impostors, the server's first, and revoked keys; remember who is new."""
        self.server.check_server()
        named = list(identities)
        self.home.known.remember(named)
        by_id = {identity.party_id: identity for identity in named}
        by_id.pop(self.identity.party_id, None)
        for identity in by_id.values():
            self.sealing_key(identity)


def check_registered(home: Home) -> PinnedServer:
    """Return the server of a home, or say how to get one."""
    home.check_identity()
    pinned = home.server
    if pinned is None:
        raise HomeError(
            f"{home.path} is not registered with a server yet",
            hint=Remedy.REGISTER,
        )
    return pinned
