"""Bernoulli trials: exactly binomial in each group, uniform inside it, and independent.

A set of k records of a group has the chance P(k hits)/C(4096, k), which is that of independent
trials: so an exact number and a uniform set are all there is to check.
"""

from fractions import Fraction
from math import comb

import numpy as np
import pytest

from tests.support.entropy import ScriptedEntropy
from tests.support.laws import assert_fits
from veiltab.core import noise
from veiltab.core.noise import BernoulliTrials
from veiltab.crypto.entropy import CipherEntropy

GROUP = 4096
CHANCES = [Fraction(1, 2), Fraction(1, 128), Fraction(1, 65_536), Fraction(3, 1009)]
CHANCES += [1 - Fraction(717_254_941_234_567_891, 10 << 56)]
"""The last is one as a channel has it."""

RARE = CHANCES[1]


def chance_of_at_most(hits: int, chance: Fraction) -> Fraction:
    """Return P(X ≤ hits) for X ~ Bin(4096, chance), as one would write it down."""
    hit, whole = chance.as_integer_ratio()
    terms = (comb(GROUP, k) * hit**k * (whole - hit) ** (GROUP - k) for k in range(hits + 1))
    return Fraction(sum(terms), whole**GROUP)


def first_bits(chance: Fraction, bits: int = 64) -> int:
    """Return the first bits of a number below 1."""
    return (chance.numerator << bits) // chance.denominator


def scripted(draws: list[int], more: bytes = b"") -> ScriptedEntropy:
    """Return entropy that begins with draws of how many are hit."""
    return ScriptedEntropy(b"".join(draw.to_bytes(8, "little") for draw in draws) + more)


def inside(places: list[int]) -> bytes:
    """Return draws of records inside their groups."""
    return b"".join(place.to_bytes(2, "little") for place in places)


@pytest.mark.slow
@pytest.mark.parametrize("chance", CHANCES[1:])
def test_the_number_of_hits_is_exactly_binomial(chance: Fraction) -> None:
    """On both sides of the first sums; where 64 bits do not decide, as many as it takes."""
    trials = BernoulliTrials(chance)
    for hits in range(6):
        total = chance_of_at_most(hits, chance)
        edge, more = first_bits(total), first_bits(total, 192)
        assert trials._successes(1, scripted([edge - 1])).tolist() == [hits]
        assert trials._successes(1, scripted([edge + 1])).tolist() == [hits + 1]
        below = (more >> 64) - 1 & (1 << 64) - 1
        above = (more >> 64) + 1 & (1 << 64) - 1
        for draw, found in ((below, hits), (above, hits + 1)):
            assert trials._successes(1, scripted([edge, draw])).tolist() == [found]
        for last, found in ((more - 1, hits), (more + 1, hits + 1)):
            draws = [edge, more >> 64 & (1 << 64) - 1, last & (1 << 64) - 1]
            entropy = scripted(draws)
            assert trials._successes(1, entropy).tolist() == [found]
            assert entropy.used == 3 * 8


@pytest.mark.slow
def test_a_draw_that_equals_a_sum_is_above_it() -> None:
    """A sum with 4096 bits is met exactly by as many bits, and missed by one less."""
    trials = BernoulliTrials(Fraction(1, 2))
    total = chance_of_at_most(2048, Fraction(1, 2)) * 2**GROUP
    assert total.denominator == 1
    for draw, found in ((int(total) - 1, 2048), (int(total), 2049)):
        words = [draw >> GROUP - 64 * (i + 1) & (1 << 64) - 1 for i in range(GROUP // 64)]
        entropy = scripted(words, bytes(8))  # that all were drawn shows only with the next word
        assert trials._successes(1, entropy).tolist() == [found]
        assert entropy.used == GROUP // 8


@pytest.mark.slow
@pytest.mark.parametrize("chance", CHANCES)
def test_the_largest_and_the_smallest_draws(chance: Fraction) -> None:
    """The lowest draws are nobody; the highest 64 bits are decided by the next ones."""
    trials = BernoulliTrials(chance)
    assert trials._successes(1, scripted([0] * 65)).tolist() == [0]
    entropy = scripted([2**64 - 1, 0])
    [most] = trials._successes(1, entropy).tolist()
    assert entropy.used == 2 * 8
    draw = 1 - Fraction(1, 2**64)
    assert chance_of_at_most(most - 1, chance) <= draw < chance_of_at_most(most, chance)


def test_sums_end_with_certainty() -> None:
    """The exact sums of a group never fall, and end at 1."""
    sums = list(noise._sums(Fraction(3, 1009)))
    assert len(sums) == GROUP + 1
    assert sums[-1] == 1009**GROUP
    assert sums == sorted(sums)
    assert Fraction(sums[7], 1009**GROUP) == chance_of_at_most(7, Fraction(3, 1009))


def test_every_record_of_a_group_has_as_many_words() -> None:
    """Each of the 65,536 words of a place is used, 16 for each record."""
    starts = np.zeros(65_536, dtype=np.uint32)
    found = noise._inside(starts, ScriptedEntropy(inside(list(range(65_536)))))
    assert (np.bincount(found) == np.full(GROUP, 16)).all()


def draws_for(hits: list[int], chance: Fraction) -> list[int]:
    """Return draws which make so many hits in each group."""
    return [first_bits(chance_of_at_most(each, chance)) - 1 if each else 0 for each in hits]


def test_records_that_were_hit_already_are_drawn_again() -> None:
    """A second hit of the same record does not count, in its own group, until all differ."""
    first, second, third = [5, 5, 9], [7], [7, 8, 7, 8]
    again = [9, 8, 3]  # for the 5, and for the 7 and the 8 of the third group
    once_more = [6, 9]  # since 9 and 8 are there
    entropy = scripted(
        draws_for([3, 1, 4, 0], RARE), inside([*first, *second, *third, *again, *once_more])
    )
    places = BernoulliTrials(RARE).places(4 * GROUP, entropy)
    assert places.tolist() == [5, 6, 9, GROUP + 7, *(2 * GROUP + each for each in (3, 7, 8, 9))]
    assert entropy.used == 4 * 8 + 2 * 13


@pytest.mark.parametrize("count", [0, 1, 100, GROUP - 1, GROUP, GROUP + 1])
def test_the_last_group_may_be_cut_short(count: int) -> None:
    """Hits beyond the last record are dropped, which changes nothing for the others."""
    groups = -(-count // GROUP)
    entropy = scripted(draws_for([2] * groups, RARE), inside([0, 99] * groups))
    places = BernoulliTrials(RARE).places(count, entropy)
    whole = [group * GROUP + place for group in range(groups) for place in (0, 99)]
    assert places.tolist() == [place for place in whole if place < count]
    assert places.dtype == np.intp


@pytest.mark.parametrize("chance", CHANCES)
def test_hits_are_spread_as_independent_events(chance: Fraction) -> None:
    """Chi-square of how many hits fall into blocks that cut across groups; 1e-9 false alarms."""
    block, blocks = min(int(2 / chance), 1000), 4000
    places = BernoulliTrials(chance).places(
        block * blocks, CipherEntropy.from_seed(chance.denominator, "rare events")
    )
    assert (np.diff(places) > 0).all()
    hits = np.bincount(np.bincount(places // block, minlength=blocks))
    law = [
        float(comb(block, k) * chance**k * (1 - chance) ** (block - k))
        for k in range(min(block, hits.size) + 1)
    ]
    likely = max(k for k, p in enumerate(law) if p * blocks >= 5)
    tail = np.append(hits[:likely], hits[likely:].sum())
    assert_fits(tail, np.append(law[:likely], 1 - sum(law[:likely])))


def test_hits_are_uniform_over_the_records() -> None:
    """Chi-square of where in a group the hits are, and of how far they lie apart; 1e-9 each."""
    places = BernoulliTrials(Fraction(1, 128)).places(1 << 24, CipherEntropy.from_seed(3, "where"))
    assert_fits(np.bincount(places % GROUP // 16, minlength=256), np.full(256, 1 / 256))
    gaps = np.minimum(np.diff(places), 600) - 1
    law = (127 / 128) ** np.arange(599) / 128
    assert_fits(np.bincount(gaps, minlength=600), np.append(law, 1 - law.sum()))
