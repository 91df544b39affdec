"""The sample is uniform over all ordered samples, as Theorem 1 needs."""

from collections import Counter

import numpy as np
import pytest

from tests.support.enumeration import orderings
from tests.support.scripted import ScriptedEntropy
from tests.support.statistics import assert_fits
from veiltab.core.sampling import draw_sample
from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import ParameterError


@pytest.mark.parametrize(("n", "m"), [(1, 1), (4, 1), (4, 2), (4, 4), (5, 3)])
def test_every_ordered_sample_is_equally_likely(n: int, m: int) -> None:
    """Chi-square over the whole set Θ; a sample in index order would fail at once."""
    entropy = CipherEntropy.from_seed(n * 10 + m, "samples")
    everything = orderings(n, m)
    runs = 200 * len(everything)
    seen = Counter(tuple(draw_sample(n, m, entropy).tolist()) for _ in range(runs))
    assert set(seen) == set(everything)
    if len(everything) > 1:
        counts = np.array([seen[sample] for sample in everything])
        assert_fits(counts, np.full(len(everything), 1 / len(everything)))


def test_equal_keys_are_drawn_again() -> None:
    """A tie among the chosen keys, or at the cut, would bias the order: all keys are redrawn."""
    tied, at_the_cut, good = [3, 3, 9], [1, 7, 7], [5, 2, 8]
    script = b"".join(k.to_bytes(8, "little") for k in (*tied, *at_the_cut, *good))
    entropy = ScriptedEntropy(script)
    assert draw_sample(3, 2, entropy).tolist() == [1, 0]
    assert entropy.used == len(script)


@pytest.mark.parametrize(("n", "m"), [(0, 1), (5, 0), (5, 6), (5, -1)])
def test_impossible_samples_are_refused(n: int, m: int) -> None:
    """An empty population or sample, or one that is too large, is an error."""
    with pytest.raises(ParameterError):
        draw_sample(n, m, CipherEntropy.from_seed(1, "never used"))
