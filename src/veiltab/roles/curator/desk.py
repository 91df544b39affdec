"""A curator at work: who it is, its randomness, and where what it makes is kept."""

from dataclasses import dataclass, field

from veiltab.core.entropy import Entropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.roles.chunks import ChunkStore


@dataclass(frozen=True, slots=True, eq=False)
class Desk:
    """What every step of a curator needs.

    ``outgoing`` holds chunks for the server; ``private`` holds one-time pads, and nobody else may
    ever read it.
    """

    identity: PrivateIdentity
    entropy: Entropy = field(repr=False)
    outgoing: ChunkStore = field(repr=False)
    private: ChunkStore = field(repr=False)
