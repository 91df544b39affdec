"""Exact noise for the γ-diagonal channel: integers only, from entropy that the caller passes in.

Of 2⁶⁴ draws, t keep a record and M stand for each of the N cells that may be added to it, so that
t + N·M = 2⁶⁴.  Adding cell 0 and keeping are the same noise.  The first b bits nearly always
decide: of the 2^b first words, ⌊M/2^(64−b)⌋ stand for each cell, ⌊t/2^(64−b)⌋ keep, and the few
that are left over are undecided.  An undecided word is completed to 64 bits, which pick "kept" or a
cell out of what whole first words did not cover of t and M.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core.channel import GammaDiagonal
from veiltab.core.entropy import Entropy, random_words
from veiltab.core.rejection import places_from

SPAN_RECORDS = 1 << 18
"""Records drawn at a time: bounds memory, and fixes the order in which entropy is used."""

FEW_CELLS = 256
"""Up to this many cells the first 16 bits leave at most one draw in 256 undecided."""

_BLOCK_RECORDS = 1 << 16
"""Records that are mapped at a time: few enough for the processor's cache."""

Noise = NDArray[np.unsignedinteger[Any]]


def first_bits(domain_size: int) -> int:
    """Return how many bits of each draw are read before looking whether they decide."""
    return 16 if domain_size <= FEW_CELLS else 32


def draw_noise(channel: GammaDiagonal, count: int, entropy: Entropy) -> Noise:
    """Draw the server's noise for ``count`` records, to be added in the group of the cells.

    For each span of 262,144 records, entropy gives the first bits of every record, then 8 bytes
    for each record that they leave undecided, in record order.  The noise has the narrowest type
    for a cell.
    """
    source = NoiseSource(channel)
    noise = np.empty(count, dtype=source.dtype)
    for start in range(0, count, SPAN_RECORDS):
        source.draw(entropy, out=noise[start : start + SPAN_RECORDS])
    noise[noise == channel.domain_size] = 0
    return noise.astype(np.min_scalar_type(channel.domain_size - 1), copy=False)


class NoiseSource:
    """How draws become noise, for one channel; keeps its scratch arrays, so it is for one thread.

    Arrays of this size, made anew for each span, would take as long as all the arithmetic.
    """

    def __init__(self, channel: GammaDiagonal) -> None:
        """Split t and M into what whole first words cover, and the rest."""
        cells, self._bits = channel.domain_size, first_bits(channel.domain_size)
        rest = 64 - self._bits
        kept, kept_rest = divmod(channel.keep_threshold, 1 << rest)
        width, width_rest = divmod(channel.noise_width, 1 << rest)
        self._decided = cells * width + kept
        word: Any = np.dtype(f"<u{self._bits // 8}")
        self._words = np.empty(SPAN_RECORDS, dtype=word)
        # A word over the width is a cell, or as much as the number of cells and more if it keeps.
        # If a cell has not even one whole word, no first word stands for a cell.
        self._width = word.type(max(width, 1))
        largest = max(((1 << self._bits) - 1) // max(width, 1), cells)
        self._quotient = np.min_scalar_type(largest)
        # NumPy is ten times as fast with an array here as with one number.
        self._most = np.full(_BLOCK_RECORDS, cells if width else 0, dtype=self._quotient)
        self._rest, self._kept_rest = np.uint64(rest), np.uint64(kept_rest)
        self._width_rest = np.uint64(max(width_rest, 1))
        self.dtype = np.min_scalar_type(cells)

    def draw(self, entropy: Entropy, out: Noise) -> None:
        """Draw noise into ``out``, for at most 262,144 records: cells, or N for "kept".

        Modulo N that is cell 0, which keeps a record too; so nobody needs to tell them apart, and
        writing 0 instead would take one more pass.
        """
        words = self._words[: out.size]
        noise = out if out.dtype == self._quotient else np.empty(out.size, self._quotient)
        for start in range(0, out.size, _BLOCK_RECORDS):
            block = slice(start, start + _BLOCK_RECORDS)
            self._map(words[block], noise[block], entropy)
        if self._decided < 1 << self._bits:
            undecided = places_from(words, self._decided)
            noise[undecided] = self._complete(words[undecided], entropy)
        if noise is not out:
            out[:] = noise

    def _map(self, words: Noise, noise: Noise, entropy: Entropy) -> None:
        """Draw first words, and write down what they stand for as far as they decide."""
        entropy.fill(words.view(np.uint8))
        np.floor_divide(words, self._width, out=noise, dtype=words.dtype, casting="unsafe")
        np.minimum(noise, self._most[: noise.size], out=noise)

    def _complete(self, words: Noise, entropy: Entropy) -> NDArray[np.uint64]:
        """Complete undecided words to 64 bits, counted from the first that is undecided."""
        more = random_words(words.size, 64, entropy) >> (np.uint64(64) - self._rest)
        draws = ((words.astype(np.uint64) - np.uint64(self._decided)) << self._rest) | more
        found: NDArray[np.uint64] = np.maximum(draws, self._kept_rest) - self._kept_rest
        found //= self._width_rest
        return found
