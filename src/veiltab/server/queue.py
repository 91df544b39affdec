"""Which study is released next: in turn by proposer, and the smallest of each first.

So nobody waits for more than one study of each other proposer.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from veiltab.server.db.usage import Waiting


@dataclass(slots=True)
class FairQueue:
    """When each proposer had its last turn."""

    _turns: dict[bytes, int] = field(default_factory=dict)
    _count: int = 0

    def choose(self, waiting: Iterable[Waiting], left_out: Collection[bytes]) -> Waiting | None:
        """Choose a study of the proposer whose last turn is longest ago, and note its turn."""
        able = [each for each in waiting if each.study not in left_out]
        if not able:
            return None
        chosen = min(
            able, key=lambda each: (self._turns.get(each.proposer, 0), each.size, each.study)
        )
        self._count += 1
        self._turns[chosen.proposer] = self._count
        return chosen
