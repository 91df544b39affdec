"""The sample is uniform over all ordered samples, as Theorem 1 needs."""

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.enumeration import orderings
from tests.support.scripted import ScriptedEntropy
from tests.support.statistics import assert_fits
from veiltab.core.sampling import _first_places, draw_sample
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


def test_positions_that_were_drawn_before_are_passed_over() -> None:
    """The sample is the first different positions, in the order in which they were drawn."""
    width = 2**64 // 100
    drawn = [17, 3, 17, 99, 3, 0, 50] + [1] * 100
    words = [position * width + width // 2 for position in drawn]
    entropy = ScriptedEntropy(b"".join(word.to_bytes(8, "little") for word in words))
    assert draw_sample(100, 5, entropy).tolist() == [17, 3, 99, 0, 50]


def test_words_beyond_the_last_whole_part_are_refused() -> None:
    """2⁶⁴ is no multiple of 100: the words above its largest multiple stand for no position."""
    width = 2**64 // 100
    words = [2**64 - 1, 100 * width, 100 * width - 1] + [5 * width] * 100
    entropy = ScriptedEntropy(b"".join(word.to_bytes(8, "little") for word in words))
    assert draw_sample(100, 2, entropy).tolist() == [99, 5]


def test_too_few_different_positions_are_drawn_again() -> None:
    """If everything drawn was the same, more is drawn, and what there is stays in front."""
    width = 2**64 // 80
    first, second = [7 * width] * 200, [40 * width, 7 * width, 3 * width]
    words = [*first, *second] + [0] * 200
    entropy = ScriptedEntropy(b"".join(word.to_bytes(8, "little") for word in words))
    found = draw_sample(80, 10, _Endless(entropy)).tolist()
    assert found[0] == 7
    assert len(set(found)) == 10


@pytest.mark.parametrize("m", [1, 2, 3])
def test_few_of_many_are_uniform(m: int) -> None:
    """Positions that are drawn one by one: each is first equally often, and each pair."""
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
    """Of 2⁴⁸ positions with many draws, the words have no room for both."""
    values = np.array([5, 2**47, 5, 9, 2**47, 1], dtype=np.uint64)
    found = _first_places(values, 2**62)
    assert found.tolist() == _first_places(values, 2**48).tolist()
    assert found.tolist() == [True, True, False, True, False, True]


class _Endless:
    """A script, and after its end whatever a cipher gives."""

    def __init__(self, script: ScriptedEntropy) -> None:
        self._script = script
        self._rest = CipherEntropy.from_seed(1, "rest")

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Take from the script while it lasts."""
        try:
            self._script.fill(out)
        except AssertionError:
            self._rest.fill(out)


@pytest.mark.parametrize(("n", "m"), [(0, 1), (5, 0), (5, 6), (5, -1)])
def test_impossible_samples_are_refused(n: int, m: int) -> None:
    """An empty population or sample, or one that is too large, is an error."""
    with pytest.raises(ParameterError):
        draw_sample(n, m, CipherEntropy.from_seed(1, "never used"))
