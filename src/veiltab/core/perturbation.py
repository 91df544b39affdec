"""Exact noise for the γ-diagonal channel: integers only, from entropy that the caller passes in.

Of 2⁶⁴ draws, t keep a record and M stand for each of the N cells that may be added to it, so that
t + N·M = 2⁶⁴.  Adding cell 0 and keeping are the same noise.  A short word of b bits is nearly
enough: of the 2^b words, a = ⌈M/2^(64−b)⌉ stand for each cell, which is a little too many, and the
others keep.  So with a chance of 2⁻ʲ a record forgets its word and is drawn again, with 64 bits,
from exactly what the words leave of t and M: τ draws keep then, and β stand for each cell, with

    (1 − 2⁻ʲ)·a/2^b + 2⁻ʲ·β/2⁶⁴ = M/2⁶⁴        τ + N·β = 2⁶⁴
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core.channel import DRAW_RANGE, GammaDiagonal
from veiltab.core.entropy import Entropy, random_words
from veiltab.core.rare import RareEvents

STRETCH_RECORDS = 1 << 19
"""Of so many records it is drawn at once who is drawn again: they are few, and calls cost time."""

_BLOCK_BYTES = 1 << 17
"""Words that are mapped at a time: few enough for the processor's cache."""

_WORD_BITS = (8, 16, 32, 64)
_RARELY, _MOST_RARELY = 7, 16
"""Drawing one record in 2⁷ again costs less than longer words for all; one in 2¹⁶, nothing."""

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
    """How short words stand for noise: b, a, and j; and β, what they leave of M for each cell."""

    bits: int
    width: int
    halvings: int
    rest: int

    @classmethod
    def of(cls, channel: GammaDiagonal) -> "Words":
        """Take the shortest words that leave little to be drawn again."""
        return next(filter(None, (cls._with(channel, bits) for bits in _WORD_BITS)))

    @classmethod
    def _with(cls, channel: GammaDiagonal, bits: int) -> "Words | None":
        """Take words of so many bits; with 64, every draw is a word, and none is drawn again."""
        exact, word = channel.noise_width, DRAW_RANGE >> bits
        width = -(-exact // word)
        covered = width * word
        if covered == exact:
            return cls(bits, width, halvings=0, rest=exact)
        # As rarely as leaves something to every cell: 2ʲ·(covered − M) < covered.
        halvings = min(((covered - 1) // (covered - exact)).bit_length() - 1, _MOST_RARELY)
        fits = channel.domain_size * covered <= DRAW_RANGE and covered < DRAW_RANGE
        if not fits or halvings < _RARELY:
            return None
        return cls(bits, width, halvings, rest=covered - ((covered - exact) << halvings))


class NoiseSource:
    """The noise of a release's records, one after the other; for one thread.

    For each stretch of 524,288 records, entropy gives what
    :class:`~veiltab.core.rare.RareEvents` takes, then 8 bytes for each record that is drawn again,
    then a word for every record.
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
        self._events = RareEvents(words.halvings) if words.halvings else None
        self._rest, self._keeps = np.uint64(words.rest), DRAW_RANGE - cells * words.rest
        self._again = np.empty(0, dtype=np.intp), np.empty(0, dtype=self.dtype)
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
        self._at, self._stretch = 0, min(self._to_come, STRETCH_RECORDS)
        self._to_come -= self._stretch
        if self._events:
            places = self._events.places(self._stretch, self._entropy)
            self._again = places, self._redraw(random_words(places.size, 64, self._entropy))

    def _draw_within(self, out: Noise) -> None:
        """Draw noise within a stretch: by words, and over those for which they do not hold."""
        block = self._words.size
        for start in range(0, out.size, block):
            self._map(out[start : start + block])
        places, redrawn = self._again
        first, last = np.searchsorted(places, [self._at, self._at + out.size])
        out[places[first:last] - self._at] = redrawn[first:last]
        self._at += out.size

    def _map(self, out: Noise) -> None:
        """Draw words, and write down what they stand for."""
        words = self._words[: out.size]
        self._entropy.fill(words.view(np.uint8))
        words //= self._width
        quotients = words.astype(self._quotient, copy=False)
        np.minimum(quotients, self._most[: out.size], out=out, casting="unsafe")

    def _redraw(self, draws: Noise) -> Noise:
        """Return what draws of 64 bits stand for: "kept" below τ, then the cells."""
        keeps = np.uint64(self._keeps)
        return ((np.maximum(draws, keeps) - keeps) // self._rest).astype(self.dtype)
