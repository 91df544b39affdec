"""How much the service takes, from whom, and how fast."""

from dataclasses import dataclass
from importlib.metadata import version

from veiltab.wire.bundles import BUNDLE_BYTES, CHUNK_BYTES

SOFTWARE_VERSION = version("veiltab")
KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The limits of a service; the defaults suit a few hundred parties on one small machine.

    ``rate`` is in requests a second for each party, ``burst`` how many may come at once; those of
    strangers, who have not proved who they are, are counted by network address.
    """

    message_bytes: int = 16 * MIB
    bundle_bytes: int = BUNDLE_BYTES
    chunk_bytes: int = CHUNK_BYTES
    small_bytes: int = 64 * KIB
    rate: float = 500.0
    burst: int = 2000
    stranger_rate: float = 20.0
    stranger_burst: int = 100
    shutdown_seconds: int = 20
    poll_seconds: float = 2.0
    """How often the worker looks for work that nobody woke it for, such as after a crash."""
