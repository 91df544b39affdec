"""Sending chunks that a message refers to: what the server has already is not sent again."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from veiltab.files.chunks import FolderChunks
from veiltab.party.progress import OnProgress, Progress
from veiltab.wire.messages import Repad, Upload

LOCK_WAIT = 1.0
"""Seconds that a push waits for another one of the same study or vault."""


def chunk_digests(body: Upload | Repad) -> list[bytes]:
    """Return the digests of all chunks that a message refers to, each once."""
    tokens = body.tokens if isinstance(body, Upload) else None
    columns = [column.chunks for column in body.columns] + [tokens or ()]
    return list(dict.fromkeys(digest for chunks in columns for digest in chunks))


@dataclass(slots=True)
class ChunkSending:
    """The chunks that a server does not have yet, and how far it is with them."""

    digests: Sequence[bytes]
    received: Collection[bytes]
    outgoing: FolderChunks
    progress: OnProgress
    _sent: int = 0

    def missing(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield what is to be sent.

        The server reads every chunk before it takes the message, so that they need no check here.
        """
        missing = [digest for digest in self.digests if digest not in self.received]
        self.count(len(self.digests) - len(missing))
        return ((digest, self.outgoing.read(digest)) for digest in missing)

    def count(self, more: int) -> None:
        """Report how much the server has, in percent: with decoys, nobody is told how many rows."""
        self._sent += more
        done = 100 * self._sent // len(self.digests) if self.digests else 100
        self.progress(Progress("sending", done, 100))

    def look_for_damage(self) -> None:
        """Read every chunk again: if our own disk has damaged one, this says so."""
        for digest in self.digests:
            self.outgoing.get(digest)
