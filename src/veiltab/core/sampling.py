"""Drawing the sample: which respondents, and in which order.  Both must be uniformly random."""

import numpy as np
from numpy.typing import NDArray

from veiltab.core.entropy import Entropy, random_words
from veiltab.core.parameters import check_population_size, check_sample_size

_WORD_BITS = 64
_SPARE_DRAWS = 64
_FEW = 8
"""Up to one in so many, positions are drawn one by one; else everybody gets a key."""


def draw_sample(population_size: int, sample_size: int, entropy: Entropy) -> NDArray[np.int64]:
    """Draw distinct positions, uniform over all ordered samples (the paper's set Θ).

    Theorem 1 needs the order to be random too: with n = 5, m = 3, N = 2, γ = 3 the same sample in
    the order of positions has a worst ratio of 2.53, not 2.2.
    """
    check_population_size(population_size)
    check_sample_size(sample_size, population_size)
    if sample_size <= population_size // _FEW:
        return _draw_some(population_size, sample_size, entropy)
    return _order_all(population_size, entropy)[:sample_size]


def _draw_some(population_size: int, sample_size: int, entropy: Entropy) -> NDArray[np.int64]:
    """Draw positions one after the other, and pass over those that were drawn before."""
    drawn = np.empty(0, dtype=np.uint64)
    while True:
        more = sample_size - drawn.size
        # As many as are needed on average if all so far were different, and a few more.
        wanted = more + more * sample_size // population_size + _SPARE_DRAWS
        drawn = np.concatenate([drawn, _draw_positions(population_size, wanted, entropy)])
        drawn = drawn[_first_places(drawn, population_size)]
        if drawn.size >= sample_size:
            return drawn[:sample_size].astype(np.int64)


def _draw_positions(population_size: int, count: int, entropy: Entropy) -> NDArray[np.uint64]:
    """Draw positions by rejection of 64-bit words; at most ``count``, and nearly always all."""
    words = random_words(count, _WORD_BITS, entropy)
    width = (1 << _WORD_BITS) // population_size
    limit = width * population_size
    accepted = words if limit == 1 << _WORD_BITS else words[words < np.uint64(limit)]
    return accepted // np.uint64(width) if population_size > 1 else np.zeros_like(accepted)


def _first_places(values: NDArray[np.uint64], limit: int) -> NDArray[np.bool_]:
    """Say of each value, all below ``limit``, whether it occurs for the first time."""
    bits = (values.size - 1).bit_length()
    first = np.zeros(values.size, dtype=np.bool_)
    if limit << bits > 1 << _WORD_BITS:
        first[np.unique(values, return_index=True)[1]] = True
        return first
    words = values << np.uint64(bits) | np.arange(values.size, dtype=np.uint64)
    words.sort()  # which is several times as fast as finding the order
    new = np.append(True, (words[1:] ^ words[:-1]) >> np.uint64(bits) != 0)
    first[words[new] & np.uint64((1 << bits) - 1)] = True
    return first


def _order_all(population_size: int, entropy: Entropy) -> NDArray[np.int64]:
    """Give every position a random key, and return them in the order of the keys.

    A key shares a word with its position.  Where two keys are equal, further keys decide.
    """
    bits = (population_size - 1).bit_length()
    mask = np.uint64((1 << bits) - 1)
    words = random_words(population_size, _WORD_BITS, entropy)
    words &= ~mask
    words |= np.arange(population_size, dtype=np.uint64)
    words.sort()
    tied = (words[1:] ^ words[:-1]) <= mask
    order = (words & mask).view(np.int64)
    if tied.any():
        _settle(order, tied, entropy)
    return order


def _settle(order: NDArray[np.int64], tied: NDArray[np.bool_], entropy: Entropy) -> None:
    """Put each run of positions with equal keys into a random order of its own."""
    edges = np.diff(tied.astype(np.int8), prepend=0, append=0)
    starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) + 1
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        order[start:stop] = order[start:stop][_order_all(stop - start, entropy)]
