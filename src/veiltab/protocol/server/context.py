"""What the server works with: its key, its randomness, two stores of chunks, and scratch space."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from veiltab.core.entropy import Entropy
from veiltab.crypto.signing import SigningKey
from veiltab.protocol.sorting import MemorySpool, Spool
from veiltab.protocol.stores import ChunkStore

Scratch: TypeAlias = Callable[[str], Spool]
"""Returns the scratch space with a given name; what an earlier run has left there may be lost."""


def memory_scratch(_: str) -> Spool:
    """Sort in memory: for tests, simulations and small tables."""
    return MemorySpool()


@dataclass(frozen=True, slots=True, eq=False)
class ServerContext:
    """What every step of the server in one study needs.

    ``received`` holds ciphertext that is not perturbed: it is never served, and is deleted once the
    study is released.  Researchers are served from ``released`` alone.  ``scratch`` is used only
    where the server matches rows, and is as private as ``received``.
    """

    key: SigningKey
    entropy: Entropy = field(repr=False)
    received: ChunkStore = field(repr=False)
    released: ChunkStore = field(repr=False)
    scratch: Scratch = field(default=memory_scratch, repr=False)
