"""What every step of a party over the network needs: its home, its identity, its server."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from veiltab.core.entropy import Entropy
from veiltab.crypto.entropy import SystemEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import HomeError
from veiltab.party.evidence import fetch_contract
from veiltab.party.home import Home, PinnedServer
from veiltab.party.remote import RemoteServer
from veiltab.wire.contract import Contract
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
        """Fetch the contract with its signatures so far, and save it (see ``party.evidence``)."""
        return fetch_contract(self, study)


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
