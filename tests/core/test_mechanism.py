"""The laws of decoys: their moments, their draws bit for bit, and every bad number refused."""

from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.entropy import CountingEntropy, ScriptedEntropy
from tests.support.laws import assert_fits
from veiltab.core import mechanism
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import (
    Coin,
    Geometric,
    Law,
    Mechanism,
    Rank,
    WeightTable,
    draw_numbers,
)
from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import ParameterError

GEOMETRIC = Geometric(int(0.8515 * DRAW_RANGE))
TABLE = WeightTable((1 << 60, 0, 3 << 61, 1, (1 << 63) - (1 << 60) - 1, 1 << 61))


def words(count: int) -> bytes:
    """Return that many random 64-bit words."""
    raw = np.empty(8 * count, dtype=np.uint8)
    CipherEntropy.from_seed(1, "words").fill(raw)
    return raw.tobytes()


def plain_draws(law: Law, count: int, stream: bytes) -> tuple[list[int], int]:
    """Draw as the spec says it, one number after the other; return how many bytes were read."""
    numbers, used = [0] * count, 0

    def word() -> int:
        nonlocal used
        used += 8
        return int.from_bytes(stream[used - 8 : used], "little")

    for start in range(0, count, 65_536):
        cells = list(range(start, min(start + 65_536, count)))
        if isinstance(law, WeightTable):
            sums = list(accumulate(law.weights))
            for cell in cells:
                drawn = word()
                numbers[cell] = sum(total <= drawn for total in sums)
            continue
        while cells:
            cells = [cell for cell in cells if word() < law.threshold]
            for cell in cells:
                numbers[cell] += 1
    return numbers, used


@pytest.mark.parametrize("law", [GEOMETRIC, TABLE, Geometric(1), WeightTable((DRAW_RANGE,))])
@pytest.mark.parametrize("count", [0, 1, 7, 1000, 70_000])
def test_draws_are_those_of_a_plain_program(law: Law, count: int) -> None:
    """Bit for bit, block for block, and not a byte more is read."""
    stream = words(12 * count + 200)
    entropy = ScriptedEntropy(stream)
    expected, used = plain_draws(law, count, stream)
    assert draw_numbers(law, count, entropy).tolist() == expected
    assert entropy.used == used


def test_the_edges_of_a_table_are_exact() -> None:
    """A word below a sum and the sum itself fall on either side of it; a zero weight never does."""
    totals = list(accumulate(TABLE.weights))
    cases = {0: 0, DRAW_RANGE - 1: 5}
    for edge in totals[:-1]:
        cases[edge - 1] = sum(total <= edge - 1 for total in totals)
        cases[edge] = sum(total <= edge for total in totals)
    script = b"".join(word.to_bytes(8, "little") for word in cases)
    drawn = draw_numbers(TABLE, len(cases), ScriptedEntropy(script)).tolist()
    assert drawn == list(cases.values())
    assert 1 not in drawn
    assert 3 in drawn  # the weight of one word in 2⁶⁴


def test_geometric_draws_compare_with_the_threshold_itself() -> None:
    """A word just below it gives one more decoy, the threshold itself none."""
    law = Geometric(12345)
    script = [12344, 12345, 12343, 99999]
    entropy = ScriptedEntropy(b"".join(word.to_bytes(8, "little") for word in script))
    assert draw_numbers(law, 2, entropy).tolist() == [2, 0]
    assert entropy.used == 4 * 8


@pytest.mark.parametrize("law", [GEOMETRIC, Geometric(1 << 62), TABLE])
def test_draws_have_their_law(law: Law) -> None:
    """Chi-square with a false-alarm rate of 1e-9; the rest of the geometric law is one class."""
    count = 200_000
    drawn = draw_numbers(law, count, CipherEntropy.from_seed(7, "law of decoys"))
    last = 4 if isinstance(law, Geometric) and law.threshold < 1 << 63 else 30
    seen = np.bincount(np.minimum(drawn, last), minlength=last + 1)
    chances = [float(law.probability(z)) for z in range(last)]
    chances.append(1 - sum(chances))
    if isinstance(law, WeightTable):
        assert seen[1] == 0
        kept = [0, 2, 4, 5]  # the others have no weight, or next to none
        assert seen[kept].sum() == count
        assert_fits(seen[kept], np.array(chances)[kept])
    else:
        assert_fits(seen, np.array(chances))


def test_memory_is_bounded_by_blocks() -> None:
    """Cells are drawn in blocks, so a table's words are read in blocks too."""
    sizes: list[int] = []

    class Recording(CountingEntropy):
        def fill(self, out: np.ndarray) -> None:
            sizes.append(out.size)
            super().fill(out)

    draw_numbers(TABLE, 3 * mechanism.DRAW_BLOCK + 1, Recording(CipherEntropy.from_seed(1, "x")))
    assert max(sizes) == 8 * mechanism.DRAW_BLOCK


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=30), st.integers(1, DRAW_RANGE - 1))
def test_moments_are_those_of_the_probabilities(parts: list[int], threshold: int) -> None:
    """By summing over all values; the geometric law's by its equation μ = q(1 + μ)."""
    law = WeightTable((*parts, DRAW_RANGE - sum(parts)))
    chances = [law.probability(z) for z in range(len(law.weights))]
    assert sum(chances) == 1
    assert law.probability(-1) == law.probability(len(law.weights)) == 0
    assert law.mean == sum(z * chance for z, chance in enumerate(chances))
    assert law.variance == sum((z - law.mean) ** 2 * chance for z, chance in enumerate(chances))
    steep = Geometric(threshold)
    q, mean = steep.ratio, steep.mean
    assert mean == q * (1 + mean)
    assert steep.variance + mean**2 == q * (1 + 2 * mean + steep.variance + mean**2)
    assert steep.probability(3) == (1 - q) * q**3
    assert steep.probability(-1) == 0


@pytest.mark.parametrize("threshold", [0, DRAW_RANGE, DRAW_RANGE + 1, -5])
def test_a_ratio_outside_its_range_is_refused(threshold: int) -> None:
    """With q = 0 there are no decoys, and with q = 1 there is no end of them."""
    with pytest.raises(ParameterError, match="ratio of the decoys' law"):
        Geometric(threshold)


@pytest.mark.parametrize("threshold", [0, -1, DRAW_RANGE + 1])
def test_a_coin_outside_its_range_is_refused(threshold: int) -> None:
    """Nobody, or more than everybody."""
    with pytest.raises(ParameterError, match="cannot take part with probability"):
        Coin(threshold)
    assert Coin(DRAW_RANGE).probability == 1


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ((), "0 weights"),
        ((1,) * 65_537, "65,537 weights"),
        ((DRAW_RANGE - 1,), "sum to"),
        ((DRAW_RANGE, 1), "sum to"),
        ((DRAW_RANGE + 1, -1), "negative"),
    ],
)
def test_weights_that_are_no_law_are_refused(weights: tuple[int, ...], message: str) -> None:
    """By one unit in the last place, too."""
    with pytest.raises(ParameterError, match=message) as caught:
        WeightTable(weights)
    assert caught.value.hint


def test_parts_that_keep_no_promise_together_are_refused() -> None:
    """Decoys with a cut by rank, a coin without decoys, and nothing at all."""
    with pytest.raises(ParameterError, match="decoys go with a coin"):
        Mechanism(Rank(10), GEOMETRIC, 1 << 63)
    with pytest.raises(ParameterError, match="decoys go with a coin"):
        Mechanism(Coin(1 << 63), None, 1 << 63)
    with pytest.raises(ParameterError, match="the sample itself would be released"):
        Mechanism(Rank(10), None, None)
    assert Mechanism(Rank(10), None, 1 << 63).coin is None
    hidden = Mechanism(Coin(1 << 63), GEOMETRIC, None)
    assert hidden.coin == Coin(1 << 63)
    assert hidden.coin.probability == Fraction(1, 2)
