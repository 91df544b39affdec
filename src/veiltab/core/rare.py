"""Which of many records something rare happens to: to each on its own, with an exact chance.

Asking every record would cost it many bits.  Instead each group of 4,096 records draws how many of
its own are hit, which is binomial, and then which they are, which is uniform.
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core.entropy import Entropy, random_words

_GROUP_BITS = 12
_GROUP = 1 << _GROUP_BITS
_PLACE_BITS = 16
_INSIDE = np.uint32(_GROUP - 1)


class RareEvents:
    """Events that happen to a record with the same chance, whatever happens to the others."""

    def __init__(self, chance: Fraction) -> None:
        """Take the chance, above 0 and below 1."""
        self._chance = chance
        self._edges = _edges(chance)

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
        """Draw how many are hit in each group: as many as there are sums up to the draw."""
        draws: Any = random_words(groups, 64, entropy)
        hits: NDArray[np.intp] = np.searchsorted(self._edges, draws, side="right")
        tied = self._edges[hits - 1] == draws  # of none, the last edge, which is never tied then
        for group in np.flatnonzero(tied) if tied.any() else ():
            hits[group] = self._settled(int(draws[group]), entropy)
        return hits

    def _settled(self, draw: int, entropy: Entropy) -> int:
        """Draw more bits until they tell between which sums the whole draw lies."""
        whole, bits = self._chance.denominator**_GROUP, 64
        while True:
            draw = draw << 64 | int(random_words(1, 64, entropy)[0])
            bits += 64
            least, most = draw * whole, (draw + 1) * whole
            for hits, total in enumerate(_sums(self._chance)):
                if most <= total << bits:
                    return hits
                if least < total << bits:
                    break


def _inside(starts: NDArray[np.uint32], entropy: Entropy) -> NDArray[np.uint32]:
    """Draw a record of each of the groups that start there."""
    return starts | random_words(starts.size, _PLACE_BITS, entropy) & _INSIDE


def _sums(chance: Fraction) -> Iterator[int]:
    """Yield P(0 hits), P(at most 1), P(at most 2), … of a group, times the denominator^4096."""

    def terms() -> Iterator[int]:
        hit, miss = chance.numerator, chance.denominator - chance.numerator
        term = miss**_GROUP
        for hits in range(_GROUP + 1):
            yield term
            term = term * (_GROUP - hits) * hit // ((hits + 1) * miss)

    return accumulate(terms())


@lru_cache(maxsize=64)
def _edges(chance: Fraction) -> NDArray[np.uint64]:
    """Return the first 64 bits of the sums, up to the first where they are all ones."""
    whole = chance.denominator**_GROUP
    edges: list[int] = []
    for total in _sums(chance):
        edges.append((total << 64) // whole)
        if edges[-1] == (1 << 64) - 1:
            break
    return np.array(edges, dtype=np.uint64)
