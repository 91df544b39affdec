"""A party at work: its home, its identity, the server that it has pinned."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from veiltab.core.entropy import Entropy
from veiltab.crypto.entropy import SystemEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import HomeError, MismatchError
from veiltab.files.private import write_private
from veiltab.party.home import Home, PinnedServer
from veiltab.party.remote import Reach, RemoteServer, Retry
from veiltab.protocol.audit_log import Seen, verify_log
from veiltab.wire.audit import AuditEntry
from veiltab.wire.contract import Contract
from veiltab.wire.signed import Signed

CA_FILE = "ca.pem"
"""In a home: the authority of a server whose certificate the system does not know."""


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """What every step of a party over the network needs."""

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
        """Find the study that is meant by a title or the start of an id.

        The server's titles count only for studies whose contract is not known here.
        """
        listed = [(each.study, each.title) for each in self.server.studies()]
        known = [(s, t) for s, t in listed if self.home.study(s).title() is None]
        return self.home.find_study(text, known)

    def contract(self, study: bytes) -> Signed[Contract]:
        """Fetch the contract with its signatures so far, and keep it.

        The study id is a hash of the contract, so the server cannot change it; but it must be for
        the server that this home has pinned.  And the server must not have gone back behind what
        was seen before: restored from an old copy, it could perturb a sample twice.
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

    def audit(self, study: bytes) -> tuple[list[AuditEntry], Seen]:
        """Fetch and verify a study's audit log against everything that was seen of it before."""
        place = self.home.study(study)
        entries, head = self.server.audit(study)
        with self.home.lock():
            known = place.seen_head()
            if known is not None and known.length > len(entries):
                # Another command of this home may have seen more in the meantime.
                entries, head = self.server.audit(study)
            seen = None if known is None else (known.length, known.hash)
            found = verify_log(study, entries, head, self.server.pinned.signing_key, seen)
            place.save_seen_head(*found)
        return entries, found


def check_registered(home: Home) -> PinnedServer:
    """Return the server of a home, or say how to get one."""
    home.public  # noqa: B018 - without an identity there is nothing to register
    pinned = home.server
    if pinned is None:
        raise HomeError(
            f"{home.path} is not registered with a server yet",
            hint="register with the invitation of a server's operator: veiltab register URL",
        )
    return pinned


def connect(home: Home, identity: PrivateIdentity, retry: Retry | None = None) -> Session:
    """Open the way to the server that a home has pinned; nothing is sent yet."""
    pinned = check_registered(home)
    ca_file = home.path / CA_FILE
    reach = Reach(ca_file=ca_file if ca_file.exists() else None)
    server = RemoteServer(pinned.url, pinned.identity, identity, retry=retry, reach=reach)
    return Session(home, identity, server)


def keep_authority(home: Home, certificates: bytes | None) -> None:
    """Remember whose certificates to believe for this home's server; ``None``: the system's."""
    with home.lock():
        if certificates is None:
            (home.path / CA_FILE).unlink(missing_ok=True)
        else:
            write_private(home.path / CA_FILE, certificates)
