"""Exact noise for the γ-diagonal channel: integers only, from entropy that the caller passes in.

One uniform 64-bit draw r decides a record's fate: below the threshold t it is kept, otherwise the
noise is the cell (r − t) div M.  Kept and "replaced by adding cell 0" are the same noise, so in all
noise(r) = (max(r, t) − t) div M, which never decreases in r.  Hence the first bits of r nearly
always decide, and the others are drawn only where they do not.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from veiltab.core.channel import GammaDiagonal
from veiltab.core.entropy import Entropy, random_words

CHUNK_RECORDS = 1 << 16
"""Records drawn at a time: bounds memory, and fixes the order in which entropy is used."""

FEW_CELLS = 256
"""Up to this many cells the first 16 bits leave at most one draw in 256 undecided."""


def first_bits(domain_size: int) -> int:
    """Return how many bits of each draw are read before looking whether they decide."""
    return 16 if domain_size <= FEW_CELLS else 32


def draw_noise(channel: GammaDiagonal, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Draw the server's noise for ``count`` records, to be added in the group of the cells.

    For each chunk, entropy gives the first bits of every record, then 8 bytes for each record
    that they leave undecided, in record order.
    """
    noise = np.empty(count, dtype=np.int64)
    for start, stop in _chunks(count):
        noise[start:stop] = _draw_chunk(channel, stop - start, entropy)
    return noise


def _draw_chunk(channel: GammaDiagonal, count: int, entropy: Entropy) -> NDArray[np.uint64]:
    bits = first_bits(channel.domain_size)
    rest = np.uint64(64 - bits)
    lowest = random_words(count, bits, entropy).astype(np.uint64) << rest
    noise = _noise_of_draws(channel, lowest)
    highest = lowest | np.uint64((1 << int(rest)) - 1)
    undecided = np.flatnonzero(_noise_of_draws(channel, highest) != noise)
    if undecided.size:
        more = random_words(undecided.size, 64, entropy) >> np.uint64(bits)
        noise[undecided] = _noise_of_draws(channel, lowest[undecided] | more)
    return noise


def _noise_of_draws(channel: GammaDiagonal, draws: NDArray[np.uint64]) -> NDArray[np.uint64]:
    threshold = np.uint64(channel.keep_threshold)
    return (np.maximum(draws, threshold) - threshold) // np.uint64(channel.noise_width)


def _chunks(count: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, CHUNK_RECORDS):
        yield start, min(start + CHUNK_RECORDS, count)
