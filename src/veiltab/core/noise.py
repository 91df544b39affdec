"""Exact noise for the γ-diagonal channel: integers only, from entropy that the caller passes in.

Of 2⁶⁴ draws, t keep a record and M stand for each of the N cells that may be added to it, so that
t + N·M = 2⁶⁴.  Adding cell 0 and keeping are the same noise.  A short word of b bits is nearly
enough: of the 2^b words, a = ⌈M/2^(64−b)⌉ stand for each cell, and the others keep.  With
A = a·2^(64−b) that is a little too much for each cell, A instead of M.  So each record is kept with
probability 1 − M/A whatever its word says, and then every cell has

    (M/A) · a/2^b = M/2⁶⁴.

A Bernoulli draw for every record would cost many bits.  Instead each group of 4,096 records draws
how many of its own are kept this way, which is binomial, and then which, which is uniform.
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

STRETCH_RECORDS = 1 << 20
"""How many records at a time draw which of them are kept whatever their words say."""

_BLOCK_BYTES = 1 << 17
"""How many bytes of words are mapped at a time: few enough for the processor's cache."""

_WORD_BITS = (8, 16, 32, 64)
_FEW = Fraction(1, 128)
"""Up to this probability, drawing who is kept costs less than longer words for all records."""

_GROUP_BITS = 12
_GROUP = 1 << _GROUP_BITS
_PLACE_BITS = 16
_INSIDE = np.uint32(_GROUP - 1)

Noise = NDArray[np.unsignedinteger[Any]]


def draw_noise(channel: GammaDiagonal, count: int, entropy: Entropy) -> Noise:
    """Draw the server's noise for ``count`` records, to be added in the group of the cells.

    The noise has the narrowest type that holds a cell.
    """
    source = NoiseSource(channel, count, entropy)
    noise = np.empty(count, dtype=source.dtype)
    source.draw(noise)
    noise[noise == channel.domain_size] = 0
    return noise.astype(np.min_scalar_type(channel.domain_size - 1), copy=False)


@dataclass(frozen=True, slots=True)
class WordMapping:
    """How short words stand for noise: b bits, a words for each cell, and 1 − M/A, all as above."""

    bits: int
    width: int
    keep_anyway: Fraction

    @classmethod
    def of(cls, channel: GammaDiagonal) -> "WordMapping":
        """Choose the shortest words that do; with 64 bits a is M, and no extra record is kept."""
        for bits in _WORD_BITS:
            word = DRAW_RANGE >> bits
            width = -(-channel.noise_width // word)
            keep_anyway = 1 - Fraction(channel.noise_width, width * word)
            fits = channel.domain_size * width <= 1 << bits and width < 1 << bits
            if fits and keep_anyway <= _FEW:
                break
        return cls(bits, width, keep_anyway)


class NoiseSource:
    """Draws the noise of a release's records one after the other; for one thread.

    Each stretch of 1,048,576 records takes from the entropy what :class:`BernoulliTrials` need,
    and then a word for every record.
    """

    def __init__(self, channel: GammaDiagonal, count: int, entropy: Entropy) -> None:
        """Prepare the noise of ``count`` records."""
        cells, words = channel.domain_size, WordMapping.of(channel)
        self.dtype = np.min_scalar_type(cells)
        self._entropy, self._undrawn = entropy, count
        word: Any = np.dtype(f"<u{words.bits // 8}")
        self._words = np.empty(_BLOCK_BYTES // word.itemsize, dtype=word)
        self._width = word.type(words.width)
        # A word divided by the width is a cell; from the number of cells up, it keeps the record.
        largest = ((1 << words.bits) - 1) // words.width
        self._quotient = self.dtype if largest <= np.iinfo(self.dtype).max else word
        # NumPy is ten times as fast with an array here as with one number.
        self._most = np.full(self._words.size, cells, dtype=self._quotient)
        self._kept = cells
        self._trials = BernoulliTrials(words.keep_anyway) if words.keep_anyway else None
        self._kept_anyway = np.empty(0, dtype=np.intp)
        self._at = self._stretch = 0

    def draw(self, out: Noise) -> None:
        """Draw the noise of the next records into ``out``: a cell for each, or N for "kept".

        Modulo N that is cell 0, which keeps a record too, so callers need not tell them apart;
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
        if not self._undrawn:
            raise ParameterError(
                "the noise of all records has been drawn already",
                hint="ask for as many records as there will be",
            )
        self._at, self._stretch = 0, min(self._undrawn, STRETCH_RECORDS)
        self._undrawn -= self._stretch
        if self._trials:
            self._kept_anyway = self._trials.places(self._stretch, self._entropy)

    def _draw_within(self, out: Noise) -> None:
        """Draw noise within a stretch: by words, except for the records that are kept anyway."""
        block = self._words.size
        for start in range(0, out.size, block):
            self._map(out[start : start + block])
        first, last = np.searchsorted(self._kept_anyway, [self._at, self._at + out.size])
        out[self._kept_anyway[first:last] - self._at] = self._kept
        self._at += out.size

    def _map(self, out: Noise) -> None:
        """Draw words, and write the noise that they stand for."""
        words = self._words[: out.size]
        self._entropy.fill(words.view(np.uint8))
        words //= self._width
        quotients = words.astype(self._quotient, copy=False)
        np.minimum(quotients, self._most[: out.size], out=out, casting="unsafe")


class BernoulliTrials:
    """Independent trials, one for each record, that succeed with the same small probability."""

    def __init__(self, chance: Fraction) -> None:
        """Prepare trials that succeed with this probability, above 0 and below 1."""
        self._chance = chance
        self._edges = _edges(chance)

    def places(self, count: int, entropy: Entropy) -> NDArray[np.intp]:
        """Draw which of ``count`` trials, at most 2³², succeed, in ascending order.

        Each group takes 8 bytes of entropy, and more where they do not decide (once in 2⁵⁷ or so);
        then each success takes 2 bytes, and 2 more whenever its place has been drawn before.
        """
        successes = self._successes(-(-count // _GROUP), entropy)
        starts = np.arange(successes.size, dtype=np.uint32) << np.uint32(_GROUP_BITS)
        places = _inside(np.repeat(starts, successes), entropy)
        places.sort()
        while (again := places[1:] == places[:-1]).any():
            fresh = _inside(places[1:][again] & ~_INSIDE, entropy)
            places = np.concatenate([places[:1], places[1:][~again], fresh])
            places.sort()
        # The last group may reach beyond the last record.
        return places[: np.searchsorted(places, count)].astype(np.intp)

    def _successes(self, groups: int, entropy: Entropy) -> NDArray[np.intp]:
        """Draw how many trials succeed in each group: as many as there are sums up to the draw."""
        draws: Any = random_words(groups, 64, entropy)
        successes: NDArray[np.intp] = np.searchsorted(self._edges, draws, side="right")
        # With no success this compares the last edge, which the draw is below, so it is no tie.
        tied = self._edges[successes - 1] == draws
        for group in np.flatnonzero(tied) if tied.any() else ():
            successes[group] = self._settle(int(draws[group]), entropy)
        return successes

    def _settle(self, draw: int, entropy: Entropy) -> int:
        """Draw more bits until they show between which two sums the whole draw lies."""
        whole, bits = self._chance.denominator**_GROUP, 64
        while True:
            draw = draw << 64 | int(random_words(1, 64, entropy)[0])
            bits += 64
            least, most = draw * whole, (draw + 1) * whole
            for successes, total in enumerate(_sums(self._chance)):
                if most <= total << bits:
                    return successes
                if least < total << bits:
                    break


def _inside(starts: NDArray[np.uint32], entropy: Entropy) -> NDArray[np.uint32]:
    """Draw a uniform place in each of the groups that start at ``starts``."""
    return starts | random_words(starts.size, _PLACE_BITS, entropy) & _INSIDE


def _sums(chance: Fraction) -> Iterator[int]:
    """Yield P(no success), P(at most 1), P(at most 2), … in a group, times denominator^4096."""

    def terms() -> Iterator[int]:
        success, failure = chance.numerator, chance.denominator - chance.numerator
        term = failure**_GROUP
        for successes in range(_GROUP + 1):
            yield term
            term = term * (_GROUP - successes) * success // ((successes + 1) * failure)

    return accumulate(terms())


@lru_cache(maxsize=64)
def _edges(chance: Fraction) -> NDArray[np.uint64]:
    """Return the first 64 bits of each sum, up to the first sum whose bits are all ones."""
    whole = chance.denominator**_GROUP
    edges: list[int] = []
    for total in _sums(chance):
        edges.append((total << 64) // whole)
        if edges[-1] == (1 << 64) - 1:
            break
    return np.array(edges, dtype=np.uint64)
