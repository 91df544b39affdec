"""Drawing the sample: which respondents, and in which order.  Both must be uniformly random."""

import numpy as np
from numpy.typing import NDArray

from veiltab.core.entropy import Entropy, random_words
from veiltab.core.memory import keep_freed_memory
from veiltab.core.parameters import check_population_size, check_sample_size
from veiltab.core.rejection import places_from

Positions = NDArray[np.uint64]

_WORD_BITS = 64
_SHORT_BITS = 32
_ONE_IN = 4
"""Up to so large a part, positions are drawn one by one; else everybody gets a key."""

_BLOCK_ROWS = 1 << 15
"""Keys that are made at a time: few enough for the processor's cache."""

keep_freed_memory()  # arrays as long as the sample are made and freed


def draw_sample(population_size: int, sample_size: int, entropy: Entropy) -> NDArray[np.int64]:
    """Draw distinct positions, uniform over all ordered samples (the paper's set Θ).

    Theorem 1 needs the order to be random too: with n = 5, m = 3, N = 2, γ = 3 the same sample in
    the order of positions has a worst ratio of 2.53, not 2.2.
    """
    check_population_size(population_size)
    check_sample_size(sample_size, population_size)
    if sample_size <= population_size // _ONE_IN:
        return _draw_some(population_size, sample_size, entropy).view(np.int64)
    return _order_all(population_size, entropy)[:sample_size]


def _draw_some(population_size: int, sample_size: int, entropy: Entropy) -> Positions:
    """Draw positions, and again in place of those that were drawn before, until all differ.

    Nothing is asked of a position but whether it equals another one, so renaming all respondents
    would rename the sample, and every ordered sample is as likely as any other.
    """
    sample = fresh = _draw_positions(population_size, sample_size, entropy)
    earlier: list[Positions] = []
    holes = None
    while True:
        values, places = _in_order(fresh, population_size)
        repeated = np.append(False, values[1:] == values[:-1])
        for others in earlier:
            repeated |= _among(others, values)
        again = np.sort(places[repeated])
        if not again.size:
            return sample
        earlier.append(values)
        holes = again if holes is None else holes[again]
        fresh = _draw_positions(population_size, holes.size, entropy)
        sample[holes] = fresh


def _draw_positions(population_size: int, count: int, entropy: Entropy) -> Positions:
    """Draw positions, which may repeat, by rejection of words, short ones if they reject few."""
    bits = _SHORT_BITS if population_size <= 1 << (_SHORT_BITS - 4) else _WORD_BITS
    width = (1 << bits) // population_size
    words = random_words(count, bits, entropy)
    if width * population_size < 1 << bits:
        refused = places_from(words, width * population_size)
        while refused.size:
            words[refused] = more = random_words(refused.size, bits, entropy)
            refused = refused[places_from(more, width * population_size)]
    if population_size == 1:
        return np.zeros(count, dtype=np.uint64)
    return (words // words.dtype.type(width)).astype(np.uint64, copy=False)


def _in_order(values: Positions, limit: int) -> tuple[Positions, NDArray[np.int64]]:
    """Return values below ``limit`` in ascending order, and their places; of equals, as they are.

    A value shares a word with its place: sorting is several times as fast as finding the order.
    """
    bits = (values.size - 1).bit_length()
    if limit << bits > 1 << _WORD_BITS:
        order = np.argsort(values, kind="stable")
        return values[order], order
    words = values << np.uint64(bits)
    words |= np.arange(values.size, dtype=np.uint64)
    words.sort()
    places = (words & np.uint64((1 << bits) - 1)).view(np.int64)
    words >>= np.uint64(bits)
    return words, places


def _among(others: Positions, values: Positions) -> NDArray[np.bool_]:
    """Say of each value whether it is among others, which are in ascending order."""
    at = np.searchsorted(others, values)
    at[at == others.size] = 0
    found: NDArray[np.bool_] = others[at] == values
    return found


def _order_all(population_size: int, entropy: Entropy) -> NDArray[np.int64]:
    """Give every position a random key, and return them in the order of the keys.

    A key shares a word with its position.  Where two keys are equal, further keys decide.
    """
    bits = (population_size - 1).bit_length()
    mask = np.uint64((1 << bits) - 1)
    words = np.arange(population_size, dtype=np.uint64)
    for start in range(0, population_size, _BLOCK_ROWS):
        block = words[start : start + _BLOCK_ROWS]
        block |= random_words(block.size, _WORD_BITS, entropy) & ~mask
    words.sort()
    tied = np.empty(max(population_size - 1, 0), dtype=np.bool_)
    for start in range(0, tied.size, _BLOCK_ROWS):
        block = words[start : start + _BLOCK_ROWS + 1]
        np.less_equal(block[1:] ^ block[:-1], mask, out=tied[start : start + _BLOCK_ROWS])
    words &= mask
    order = words.view(np.int64)
    if tied.any():
        _settle(order, tied, entropy)
    return order


def _settle(order: NDArray[np.int64], tied: NDArray[np.bool_], entropy: Entropy) -> None:
    """Put each run of positions with equal keys into a random order of its own."""
    edges = np.diff(tied.astype(np.int8), prepend=0, append=0)
    starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) + 1
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        order[start:stop] = order[start:stop][_order_all(stop - start, entropy)]
