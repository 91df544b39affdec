"""Rare events: exactly binomial in each group, uniform inside it, and independent of each other."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest

from tests.support.scripted import ScriptedEntropy
from tests.support.statistics import assert_fits
from veiltab.core import rare
from veiltab.core.rare import RareEvents
from veiltab.crypto.entropy import CipherEntropy

GROUP = 4096
HALVINGS = [1, 2, 7, 11, 16]


def chance_of_at_most(hits: int, halvings: int) -> Fraction:
    """Return P(X ≤ hits) for X ~ Bin(4096, 2⁻ʲ), as one would write it down."""
    chance = Fraction(1, 2**halvings)
    terms = (comb(GROUP, k) * chance**k * (1 - chance) ** (GROUP - k) for k in range(hits + 1))
    return sum(terms, Fraction(0))


def first_bits(chance: Fraction) -> int:
    """Return the first 64 bits of a number below 1."""
    return chance.numerator * 2**64 // chance.denominator


def scripted(draws: list[int], more: bytes = b"") -> ScriptedEntropy:
    """Return entropy that begins with draws of how many are hit."""
    return ScriptedEntropy(b"".join(draw.to_bytes(8, "little") for draw in draws) + more)


def inside(places: list[int]) -> bytes:
    """Return draws of records inside their groups."""
    return b"".join(place.to_bytes(2, "little") for place in places)


@pytest.mark.parametrize("halvings", [7, 11, 16])
def test_the_number_of_hits_is_exactly_binomial(halvings: int) -> None:
    """On both sides of the first chances, and where 64 bits do not decide, all bits do."""
    events, more = RareEvents(halvings), halvings * GROUP - 64
    for hits in range(6):
        chance = chance_of_at_most(hits, halvings)
        edge = first_bits(chance)
        rest = int(chance * 2 ** (64 + more)) - (edge << more)
        assert edge << more | rest == chance * 2 ** (64 + more), "the chances have that many bits"
        assert events._hits(1, scripted([edge - 1])).tolist() == [hits]
        assert events._hits(1, scripted([edge + 1])).tolist() == [hits + 1]
        for below, found in ((1, hits), (0, hits + 1)):
            tied = scripted([edge], (rest - below).to_bytes(more // 8, "little"))
            assert events._hits(1, tied).tolist() == [found]
            assert tied.used == 8 + more // 8


@pytest.mark.parametrize("halvings", HALVINGS)
def test_the_largest_and_the_smallest_draw(halvings: int) -> None:
    """The first draw of all is nobody, the last is everybody, and neither is decided early."""
    events, more = RareEvents(halvings), (halvings * GROUP - 64) // 8
    assert events._hits(1, scripted([0], bytes(more))).tolist() == [0]
    last = scripted([2**64 - 1], b"\xff" * more)
    assert events._hits(1, last).tolist() == [GROUP]
    assert last.used == 8 + more


def test_chances_end_with_certainty() -> None:
    """The exact chances of a group add up to 1, and never fall."""
    chances = list(rare._chances(2))
    assert len(chances) == GROUP + 1
    assert chances[-1] == 2 ** (2 * GROUP)
    assert chances == sorted(chances)
    assert Fraction(chances[1000], 2 ** (2 * GROUP)) == chance_of_at_most(1000, 2)


def test_every_record_of_a_group_has_as_many_words() -> None:
    """Each of the 65,536 words of a place is used, 16 for each record."""
    starts = np.zeros(65_536, dtype=np.uint32)
    found = rare._inside(starts, ScriptedEntropy(inside(list(range(65_536)))))
    assert (np.bincount(found) == np.full(GROUP, 16)).all()


def draws_for(hits: list[int], halvings: int) -> list[int]:
    """Return draws which make so many hits in each group."""
    return [(first_bits(chance_of_at_most(each, halvings)) - 1) if each else 0 for each in hits]


def test_records_that_were_hit_already_are_drawn_again() -> None:
    """A second hit of the same record does not count, in its own group, until all differ."""
    first, second, third = [5, 5, 9], [7], [7, 8, 7, 8]
    again = [9, 8, 3]  # for the 5, and for the 7 and the 8 of the third group
    once_more = [6, 9]  # since 9 and 8 are there
    entropy = scripted(
        draws_for([3, 1, 4, 0], 11), inside([*first, *second, *third, *again, *once_more])
    )
    places = RareEvents(11).places(4 * GROUP, entropy)
    assert places.tolist() == [5, 6, 9, GROUP + 7, *(2 * GROUP + each for each in (3, 7, 8, 9))]
    assert entropy.used == 4 * 8 + 2 * 13


@pytest.mark.parametrize("count", [0, 1, 100, GROUP - 1, GROUP, GROUP + 1])
def test_the_last_group_may_be_cut_short(count: int) -> None:
    """Hits beyond the last record are dropped, which changes nothing for the others."""
    groups = -(-count // GROUP)
    entropy = scripted(draws_for([2] * groups, 7), inside([0, 99] * groups))
    places = RareEvents(7).places(count, entropy)
    whole = [group * GROUP + place for group in range(groups) for place in (0, 99)]
    assert places.tolist() == [place for place in whole if place < count]
    assert places.dtype == np.intp


@pytest.mark.parametrize("halvings", HALVINGS)
def test_hits_are_spread_as_independent_events(halvings: int) -> None:
    """Chi-square of how many hits fall into blocks that cut across groups; 1e-9 false alarms."""
    block, blocks = 1 << min(halvings, 10), 4000
    places = RareEvents(halvings).places(
        block * blocks, CipherEntropy.from_seed(halvings, "rare events")
    )
    assert (np.diff(places) > 0).all()
    hits = np.bincount(np.bincount(places // block, minlength=blocks))
    chance = Fraction(1, 2**halvings)
    law = [
        float(comb(block, k) * chance**k * (1 - chance) ** (block - k))
        for k in range(min(block, hits.size) + 1)
    ]
    likely = max(k for k, p in enumerate(law) if p * blocks >= 5)
    tail = np.append(hits[:likely], hits[likely:].sum())
    assert_fits(tail, np.append(law[:likely], 1 - sum(law[:likely])))


def test_hits_are_uniform_over_the_records() -> None:
    """Chi-square of where in a group the hits are, and of how far they lie apart; 1e-9 each."""
    places = RareEvents(7).places(1 << 24, CipherEntropy.from_seed(3, "where"))
    assert_fits(np.bincount(places % GROUP // 16, minlength=256), np.full(256, 1 / 256))
    gaps = np.minimum(np.diff(places), 600) - 1
    law = (127 / 128) ** np.arange(599) / 128
    assert_fits(np.bincount(gaps, minlength=600), np.append(law, 1 - law.sum()))
