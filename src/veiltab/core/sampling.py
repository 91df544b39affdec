"""Drawing the sample: which respondents, and in which order.  Both must be uniformly random."""

import numpy as np
from numpy.typing import NDArray

from veiltab.core.entropy import Entropy, random_words
from veiltab.core.parameters import check_population_size, check_sample_size


def draw_sample(population_size: int, sample_size: int, entropy: Entropy) -> NDArray[np.int64]:
    """Draw distinct positions, uniform over all ordered samples (the paper's set Θ).

    Every position gets a random 64-bit key, and the sample is the positions of the smallest keys
    in the order of the keys.  Theorem 1 needs the order to be random too: with n = 5, m = 3,
    N = 2, γ = 3 the same sample in the order of positions has a worst ratio of 2.53, not 2.2.
    """
    check_population_size(population_size)
    check_sample_size(sample_size, population_size)
    while True:
        keys = random_words(population_size, 64, entropy)
        chosen = np.argpartition(keys, sample_size - 1)[:sample_size]
        chosen = chosen[np.argsort(keys[chosen])]
        # Equal keys would leave the order to the sorting algorithm: draw all anew, which keeps
        # the sample exactly uniform and happens about once in 2^64/n² times.
        ordered = keys[chosen]
        distinct = bool((ordered[1:] > ordered[:-1]).all())
        if distinct and np.count_nonzero(keys <= ordered[-1]) == sample_size:
            return chosen
