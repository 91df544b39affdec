"""Exact noise for the γ-diagonal channel: integers only, from entropy that the caller passes in.

Of 2⁶⁴ draws, t keep a record and M stand for each of the N cells that may be added to it, so that
t + N·M = 2⁶⁴.  Adding cell 0 and keeping are the same noise.  A short word of b bits is nearly
enough: of the 2^b words, a = ⌈M/2^(64−b)⌉ stand for each cell, and the others keep.  With
A = a·2^(64−b) that is a little too much for each cell, A instead of M.  So a few records are
spared: with a chance of 1 − M/A a record is kept whatever its word says, and then

    (M/A) · a/2^b = M/2⁶⁴
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core.channel import DRAW_RANGE, GammaDiagonal
from veiltab.core.entropy import Entropy
from veiltab.core.rare import RareEvents
from veiltab.errors import ParameterError

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
    :class:`~veiltab.core.rare.RareEvents` takes, then a word for every record.
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
