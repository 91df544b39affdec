"""Exact noise for the γ-diagonal channel: integers only, from entropy that is passed in.

Short words of a keystream stand for noise with slightly too much of it; the few records that this
would change too often are spared with the exact rational chance that makes up for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core.channel import DRAW_RANGE, GammaDiagonal
from veiltab.core.entropy import Entropy, random_words
from veiltab.errors import ParameterError

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


STRETCH_RECORDS = 1 << 20
"""Of so many records it is drawn at once who is spared: they are few, and calls cost time."""

_BLOCK_BYTES = 1 << 17
"""Words that are mapped at a time: few enough for the processor's cache."""

_WORD_BITS = (8, 16, 32, 64)
_FEW = Fraction(1, 128)
"""Sparing one record in so many costs less than longer words for all."""

Noise = NDArray[np.unsignedinteger[Any]]


def draw_noise(channel: GammaDiagonal, count: int, entropy: Entropy) -> Noise:
    """Draw the server's noise for ``count`` records, to be added in the group of the cells.

    The noise has the narrowest type for a cell.
    """
    source = NoiseSource(channel, count, entropy)
    noise = np.empty(count, dtype=source.dtype)
    source.draw(noise)
    noise[noise == channel.domain_size] = 0
    return noise.astype(np.min_scalar_type(channel.domain_size - 1), copy=False)


@dataclass(frozen=True, slots=True)
class Words:
    """How short words stand for noise: b, a, and the chance that a record is spared."""

    bits: int
    width: int
    spared: Fraction

    @classmethod
    def of(cls, channel: GammaDiagonal) -> "Words":
        """Take the shortest words that fit, and spare few; with 64 bits, a is M and none is."""
        for bits in _WORD_BITS:
            word = DRAW_RANGE >> bits
            width = -(-channel.noise_width // word)
            spared = 1 - Fraction(channel.noise_width, width * word)
            fits = channel.domain_size * width <= 1 << bits and width < 1 << bits
            if fits and spared <= _FEW:
                break
        return cls(bits, width, spared)


class NoiseSource:
    """The noise of a release's records, one after the other; for one thread.

    For each stretch of 1,048,576 records, entropy gives what
    :class:`~veiltab.core.noise.RareEvents` takes, then a word for every record.
    """

    def __init__(self, channel: GammaDiagonal, count: int, entropy: Entropy) -> None:
        """Prepare the noise of ``count`` records."""
        cells, words = channel.domain_size, Words.of(channel)
        self.dtype = np.min_scalar_type(cells)
        self._entropy, self._to_come = entropy, count
        word: Any = np.dtype(f"<u{words.bits // 8}")
        self._words = np.empty(_BLOCK_BYTES // word.itemsize, dtype=word)
        self._width = word.type(words.width)
        # A word over the width is a cell, or as much as the number of cells and more if it keeps.
        largest = ((1 << words.bits) - 1) // words.width
        self._quotient = self.dtype if largest <= np.iinfo(self.dtype).max else word
        # NumPy is ten times as fast with an array here as with one number.
        self._most = np.full(self._words.size, cells, dtype=self._quotient)
        self._kept = cells
        self._events = RareEvents(words.spared) if words.spared else None
        self._spared = np.empty(0, dtype=np.intp)
        self._at = self._stretch = 0

    def draw(self, out: Noise) -> None:
        """Draw the noise of the next records into ``out``: cells, or N for "kept".

        Modulo N that is cell 0, which keeps a record too; so nobody needs to tell them apart, and
        writing 0 instead would take one more pass.
        """
        start = 0
        while start < out.size:
            if self._at == self._stretch:
                self._begin_stretch()
            stop = min(out.size, start + self._stretch - self._at)
            self._draw_within(out[start:stop])
            start = stop

    def _begin_stretch(self) -> None:
        if not self._to_come:
            raise ParameterError(
                "the noise of all records was drawn", hint="name as many as there will be"
            )
        self._at, self._stretch = 0, min(self._to_come, STRETCH_RECORDS)
        self._to_come -= self._stretch
        if self._events:
            self._spared = self._events.places(self._stretch, self._entropy)

    def _draw_within(self, out: Noise) -> None:
        """Draw noise within a stretch: by words, except for those who are spared."""
        block = self._words.size
        for start in range(0, out.size, block):
            self._map(out[start : start + block])
        first, last = np.searchsorted(self._spared, [self._at, self._at + out.size])
        out[self._spared[first:last] - self._at] = self._kept
        self._at += out.size

    def _map(self, out: Noise) -> None:
        """Draw words, and write down what they stand for."""
        words = self._words[: out.size]
        self._entropy.fill(words.view(np.uint8))
        words //= self._width
        quotients = words.astype(self._quotient, copy=False)
        np.minimum(quotients, self._most[: out.size], out=out, casting="unsafe")
