"""The server at work: its key, its randomness, and its two stores of chunks."""

from dataclasses import dataclass, field

from veiltab.core.entropy import Entropy
from veiltab.crypto.signing import SigningKey
from veiltab.roles.chunks import ChunkStore


@dataclass(frozen=True, slots=True, eq=False)
class Bench:
    """What every step of the server in one study needs.

    ``received`` holds the study's ciphertext that is not perturbed; it is never served, and is
    cleared after the release.  ``released`` is all that a researcher can get anything from.
    """

    key: SigningKey
    entropy: Entropy = field(repr=False)
    received: ChunkStore = field(repr=False)
    released: ChunkStore = field(repr=False)
