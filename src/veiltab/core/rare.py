"""Which of many records something rare happens to: to each on its own, with chance exactly 2⁻ʲ.

Asking every record would cost it j bits.  Instead each group of 4,096 records draws how many of its
own are hit, which is binomial, and then which they are, which is uniform.
"""

from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core.entropy import Entropy, random_bytes, random_words

_GROUP_BITS = 12
_GROUP = 1 << _GROUP_BITS
_COUNT_BITS = 64
_PLACE_BITS = 16
_INSIDE = np.uint32(_GROUP - 1)


class RareEvents:
    """Events that happen to a record with chance 2⁻ʲ, whatever happens to the others."""

    def __init__(self, halvings: int) -> None:
        """Take j, at least 1."""
        self._halvings = halvings
        self._edges = _edges(halvings)

    def places(self, count: int, entropy: Entropy) -> NDArray[np.intp]:
        """Draw which of ``count`` records, at most 2³², are hit, in ascending order.

        For each group entropy gives 8 bytes, and more where they do not decide (once in 2⁵⁷ or
        so); then 2 bytes for each record that is hit, and for each that had been hit already.
        """
        hits = self._hits(-(-count // _GROUP), entropy)
        starts = np.arange(hits.size, dtype=np.uint32) << np.uint32(_GROUP_BITS)
        places = _inside(np.repeat(starts, hits), entropy)
        places.sort()
        while (again := places[1:] == places[:-1]).any():
            fresh = _inside(places[1:][again] & ~_INSIDE, entropy)
            places = np.concatenate([places[:1], places[1:][~again], fresh])
            places.sort()
        # The last group may be larger than what is left of the records.
        return places[: np.searchsorted(places, count)].astype(np.intp)

    def _hits(self, groups: int, entropy: Entropy) -> NDArray[np.intp]:
        """Draw how many are hit in each group: as many as there are chances up to the draw."""
        draws: Any = random_words(groups, _COUNT_BITS, entropy)
        hits: NDArray[np.intp] = np.searchsorted(self._edges, draws, side="right")
        tied = self._edges[hits - 1] == draws  # of none, the last edge, which is never tied then
        for group in np.flatnonzero(tied) if tied.any() else ():
            hits[group] = self._settled(int(draws[group]), entropy)
        return hits

    def _settled(self, draw: int, entropy: Entropy) -> int:
        """Complete a draw to as many bits as the chances have, and compare again."""
        more = self._halvings * _GROUP - _COUNT_BITS
        exact = draw << more | int.from_bytes(random_bytes(more // 8, entropy), "little")
        return next(hits for hits, chance in enumerate(_chances(self._halvings)) if exact < chance)


def _inside(starts: NDArray[np.uint32], entropy: Entropy) -> NDArray[np.uint32]:
    """Draw a record of each of the groups that start there."""
    return starts | random_words(starts.size, _PLACE_BITS, entropy) & _INSIDE


def _chances(halvings: int) -> Iterator[int]:
    """Yield the chances that 0, at most 1, at most 2, … of a group are hit, times 2^(j·4096)."""

    def terms() -> Iterator[int]:
        miss = (1 << halvings) - 1
        term = miss**_GROUP
        for hits in range(_GROUP + 1):
            yield term
            term = term * (_GROUP - hits) // ((hits + 1) * miss)

    return accumulate(terms())


@cache
def _edges(halvings: int) -> NDArray[np.uint64]:
    """Return the first 64 bits of the chances, up to the first where they are all ones."""
    edges: list[int] = []
    for chance in _chances(halvings):
        edges.append(chance >> (halvings * _GROUP - _COUNT_BITS))
        if edges[-1] == (1 << _COUNT_BITS) - 1:
            break
    return np.array(edges, dtype=np.uint64)
