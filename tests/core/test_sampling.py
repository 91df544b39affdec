"""The sample is uniform over all ordered samples, as Theorem 1 needs."""

from collections import Counter

import numpy as np
import pytest

from tests.support.enumeration import orderings
from tests.support.scripted import ScriptedEntropy
from tests.support.statistics import assert_fits
from veiltab.core.sampling import _among, _in_order, draw_sample
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


def test_equal_keys_are_settled_by_further_keys() -> None:
    """Of five keys three are equal: their positions get keys of their own."""
    keys = [7, 3, 7, 7, 1]
    script = [key << 3 for key in keys]  # the last three bits are the position's
    further = [9 << 2, 2 << 2, 5 << 2]
    entropy = ScriptedEntropy(b"".join(k.to_bytes(8, "little") for k in (*script, *further)))
    assert draw_sample(5, 5, entropy).tolist() == [4, 1, 2, 3, 0]
    assert entropy.used == 8 * 8


def scripted(population: int, positions: list[int]) -> ScriptedEntropy:
    """Return words of 32 bits that stand for these positions."""
    width = 2**32 // population
    words = (position * width + width // 2 for position in positions)
    return ScriptedEntropy(b"".join(word.to_bytes(4, "little") for word in words))


def test_positions_that_were_drawn_before_are_drawn_again() -> None:
    """In their place, and as often as it takes; what came first stays where it is."""
    entropy = scripted(100, [17, 3, 17, 99, 3, 0, 17, 0, 50])
    assert draw_sample(100, 5, entropy).tolist() == [17, 3, 0, 99, 50]
    assert entropy.used == 9 * 4


def test_words_beyond_the_last_whole_part_are_refused() -> None:
    """2³² is no multiple of 100: the words above its largest multiple stand for no position."""
    width = 2**32 // 100
    words = [2**32 - 1, 5 * width, 100 * width, 100 * width - 1]
    entropy = ScriptedEntropy(b"".join(word.to_bytes(4, "little") for word in words))
    assert draw_sample(100, 2, entropy).tolist() == [99, 5]
    assert entropy.used == 4 * 4


def test_too_few_different_positions_are_drawn_again() -> None:
    """If everything drawn was the same, and then nearly so, the first stay where they are."""
    entropy = scripted(80, [7] * 10 + [40, 7, 3, 3, 40, 7, 8, 7, 7] + [7, 1, 2, 40, 4, 5] + [6, 9])
    assert draw_sample(80, 10, entropy).tolist() == [7, 40, 6, 3, 1, 2, 9, 8, 4, 5]


@pytest.mark.parametrize("population", [2**28, 2**28 + 1, 2**33])
def test_long_words_for_many_people(population: int) -> None:
    """From where short words would refuse too many, words have 64 bits; the sample is as good."""
    found = draw_sample(population, 60_000, CipherEntropy.from_seed(1, "many people"))
    assert found.dtype == np.int64
    assert np.unique(found).size == found.size
    assert_fits(np.bincount(found * 20 // population, minlength=20), np.full(20, 1 / 20))


@pytest.mark.parametrize("m", [1, 2, 3])
def test_few_of_many_are_uniform(m: int) -> None:
    """Positions that are drawn one by one: each is in each place equally often, and each pair."""
    entropy = CipherEntropy.from_seed(m, "few")
    seen = np.array([draw_sample(24, m, entropy) for _ in range(24 * 2000)])
    for column in seen.T:
        assert_fits(np.bincount(column, minlength=24), np.full(24, 1 / 24))
    if m > 1:
        pairs = np.bincount(seen[:, 0] * 24 + seen[:, 1], minlength=576).reshape(24, 24)
        assert not pairs.diagonal().any()
        off = pairs[~np.eye(24, dtype=np.bool_)]
        assert_fits(off, np.full(off.size, 1 / off.size))


def test_positions_too_large_to_share_a_word() -> None:
    """Where a word has no room for a position and its place, both come out in the same order."""
    values = np.array([5, 2**47, 5, 9, 2**47, 1], dtype=np.uint64)
    (together, places), (apart, same_places) = (_in_order(values, 2**b) for b in (48, 62))
    assert together.tolist() == apart.tolist() == [1, 5, 5, 9, 2**47, 2**47]
    assert places.tolist() == same_places.tolist() == [5, 0, 2, 3, 1, 4]


def test_what_is_among_others() -> None:
    """Below, between, equal, and above all of them."""
    others, values = (np.array(v, dtype=np.uint64) for v in ([3, 5, 9], [1, 3, 4, 9, 10]))
    assert _among(others, values).tolist() == [False, True, False, True, False]


@pytest.mark.parametrize(("n", "m"), [(0, 1), (5, 0), (5, 6), (5, -1)])
def test_impossible_samples_are_refused(n: int, m: int) -> None:
    """An empty population or sample, or one that is too large, is an error."""
    with pytest.raises(ParameterError):
        draw_sample(n, m, CipherEntropy.from_seed(1, "never used"))
