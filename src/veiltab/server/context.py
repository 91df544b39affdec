"""What every part of the service works with: its key, its database, its clock."""

from collections.abc import Callable
from dataclasses import dataclass, field

from veiltab.core.entropy import Entropy
from veiltab.crypto.signing import SigningKey
from veiltab.errors import MismatchError
from veiltab.protocol.keys import root_key
from veiltab.server.db.database import Database
from veiltab.server.directory import DataDirectory
from veiltab.server.limits import Lane, Memory, Settings
from veiltab.server.monitoring import Metrics
from veiltab.wire.contract import PublicIdentity

ANSWER_BYTES = 64 * 2**20
"""Memory for released chunks while they are sent; answers beyond it read their chunks twice."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServiceContext:
    """One server.  ``clock`` tells the seconds since 1970.

    The server signs and never decrypts, so of its identity only the signing key is here.
    """

    identity: PublicIdentity
    key: SigningKey = field(repr=False)
    database: Database
    folders: DataDirectory
    entropy: Entropy = field(repr=False)
    clock: Callable[[], float]
    settings: Settings = field(default_factory=Settings)
    metrics: Metrics = field(default_factory=Metrics)
    lane: Lane = field(default_factory=Lane, repr=False)
    answers: Memory = field(default_factory=lambda: Memory(ANSWER_BYTES), repr=False)

    def __post_init__(self) -> None:
        """Refuse a key that is not the identity's: everything it signs would be refused."""
        if root_key(self.key) != self.identity.signing_key:
            raise MismatchError(
                "the server's key is not the one of its identity",
                hint="load both from the same key file",
            )
        self.database.make_room = self.folders.drop_ballast

    @property
    def now(self) -> int:
        """The time in whole seconds."""
        return int(self.clock())
