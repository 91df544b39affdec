"""The promise of decoys, met with equality: all databases, coins, decoys and views of tiny studies.

What a record and a decoy add to a view is taken from real runs of all roles.  The law of the view
follows by enumeration, in exact fractions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

import pytest

from tests.support.chosen_runs import ChosenStudy, Decoy, Person, Run
from tests.support.enumeration import (
    Channel,
    Database,
    GeometricLaw,
    Kinds,
    Model,
    View,
    by_rank,
    check,
    compare,
    divergence,
    neighbours,
)
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.decoys import exact_delta, largest_coin, membership_ratio, pure_ratio
from veiltab.core.mechanism import Coin, Geometric, LinkageMode, WeightTable
from veiltab.core.privacy import expm1_below
from veiltab.wire.mechanism import DecoyTerms

TERMS = DecoyTerms(
    coin_threshold=DRAW_RANGE // 4,
    decoys=Geometric(DRAW_RANGE // 2),
    epsilon_public=1.0,
    keep_threshold=None,
)
"""The numbers of the real runs; what a row shows does not depend on them."""

Sizes = tuple[int, ...]
See = Callable[[Run], tuple[int, ...]]


@cache
def study(sizes: Sizes, linkage: LinkageMode, careless: tuple[int, ...] = ()) -> ChosenStudy:
    """Return a study whose curators have so many cells each."""
    return ChosenStudy(sizes, linkage, TERMS, epsilon=1.0, careless=careless)


def only(view: tuple[int, ...]) -> int | None:
    """Return the one row of a view, None if there is none."""
    assert len(view) <= 1
    return view[0] if view else None


@cache
def shown(
    sizes: Sizes, linkage: LinkageMode, see: See, careless: tuple[int, ...] = ()
) -> tuple[Kinds, Kinds]:
    """Return what real runs show of a record and of a decoy of each pattern."""
    runs = study(sizes, linkage, careless)
    every = range(runs.patterns)
    records = [only(see(runs.run((pattern,), [Person(0)]))) for pattern in every]
    decoys = [only(see(runs.run((0,), [Decoy(pattern)]))) for pattern in every]
    assert {only(see(runs.run((pattern,), []))) for pattern in every} == {None}
    return records, decoys


@dataclass(frozen=True)
class Numbers:
    """The coin's β, the decoys' q, and up to how many decoys of a pattern are enumerated."""

    coin: Fraction
    ratio: Fraction
    truncation: int

    @property
    def promise(self) -> Fraction:
        """The e^ε that is promised."""
        return 1 + self.coin / (self.ratio * (1 - self.coin))


def model(sizes: Sizes, linkage: LinkageMode, numbers: Numbers, see: See = Run.together) -> Model:
    """Return the law of a study; a person whom nobody holds has the pattern after the last."""
    records, decoys = shown(sizes, linkage, see)
    return Model(
        coin=numbers.coin,
        decoys=GeometricLaw(numbers.ratio),
        records=[*records, None],
        invented=decoys,
        truncation=numbers.truncation,
    )


QUARTER = Numbers(Fraction(1, 4), Fraction(1, 2), 14)
THIRD = Numbers(Fraction(1, 3), Fraction(1, 2), 6)
ALIGNED = [
    # persons, curators' cells, numbers, e^ε, the chance that is left out
    (3, (3,), QUARTER, Fraction(5, 3), 2e-4),
    (4, (2,), Numbers(Fraction(2, 5), Fraction(3, 4), 40), Fraction(17, 9), 3e-5),
    (2, (2, 2), Numbers(Fraction(1, 10), Fraction(1, 5), 6), Fraction(14, 9), 1e-4),
]


@pytest.mark.parametrize(("persons", "sizes", "numbers", "worst", "left"), ALIGNED)
def test_aligned_rows_meet_the_promise_with_equality(
    persons: int, sizes: Sizes, numbers: Numbers, worst: Fraction, left: float
) -> None:
    """For a changed record: the researcher's view, and that of server and researcher together.

    No event is more than e^ε times likelier, up to the chance that is left out; and some are
    exactly so.
    """
    for see in (Run.researcher, Run.together):
        law = model(sizes, "aligned", numbers, see)
        finding = check(law, neighbours(persons, range(law.kinds)))
        assert finding.worst == worst == numbers.promise
        assert finding.outside < left


def test_beyond_the_truncation_nothing_is_new() -> None:
    """Once a count exceeds the persons, one more row multiplies every chance by q.

    So every view that is left out has the ratio of one that is not, and the promise holds for all.
    """
    law = model((3,), "aligned", replace(QUARTER, truncation=6))
    persons = 3
    for view_law in law.laws(pair[0] for pair in neighbours(persons, range(3))).values():
        for view in view_law.weights:
            for cell, count in enumerate(view):
                if persons <= count < 6:
                    more = (*view[:cell], count + 1, *view[cell + 1 :])
                    assert view_law.probability(more) == view_law.probability(view) / 2


MATCHED = [
    # persons, curators' cells, truncation, the chance that is left out
    (1, (2, 1), 6, 0.05),
    (2, (2, 1), 5, 0.1),
    (3, (2, 1), 3, 0.4),
    (1, (2, 2), 2, 0.75),
    (1, (1, 2, 1), 1, 1.0),
]


@pytest.mark.slow
@pytest.mark.parametrize(("persons", "sizes", "last", "left"), MATCHED)
def test_matched_rows_meet_the_promise_with_equality(
    persons: int, sizes: Sizes, last: int, left: float
) -> None:
    """For a changed record and for changed holders, server and researcher together."""
    law = model(sizes, "matched", replace(THIRD, truncation=last))
    patterns = range(law.kinds)
    pairs = list(neighbours(persons, patterns))
    laws = law.laws({database for pair in pairs for database in pair})
    finding = compare(laws, pairs)
    assert finding.worst == 2
    assert finding.outside < left
    if persons == 1:  # every single change is found as easily as any other
        assert {compare(laws, [pair]).worst for pair in pairs} == {2}


@pytest.mark.parametrize("sizes", [(2, 2), (2, 1)])
def test_the_researcher_of_matched_rows_learns_no_more(sizes: Sizes) -> None:
    """Alone it sees joined rows only; changed holders then look like a person who comes or goes."""
    law = model(sizes, "matched", THIRD, Run.researcher)
    patterns = range(len(law.records) - 1)
    joined = [pattern for pattern in patterns if law.records[pattern] is not None]
    assert len(joined) == sizes[0] * sizes[1]
    assert check(law, neighbours(1, joined)).worst == 2
    assert check(law, neighbours(2, patterns)).worst == 2
    alone = [pattern for pattern in patterns if law.records[pattern] is None]
    moved = [((first,), (second,)) for first in joined for second in alone]
    moved += [(second, first) for first, second in moved]
    assert check(law, moved).worst == Fraction(3, 2)
    assert check(law, neighbours(1, alone)).worst == 1


@pytest.mark.parametrize(("share", "ratio"), [(1 / 3, 0.5), (0.1, 0.9), (0.6, 0.25)])
def test_whoever_comes_or_goes_spends_what_the_accounting_says(share: float, ratio: float) -> None:
    """Somebody nobody else's record replaces: ε of membership, with equality."""
    coin, decoys = Coin(int(share * DRAW_RANGE)), Geometric(int(ratio * DRAW_RANGE))
    law = model((2, 1), "matched", Numbers(coin.probability, decoys.ratio, 3))
    absent = law.kinds
    pairs = [((absent,), (pattern,)) for pattern in range(absent)]
    pairs += [(second, first) for first, second in pairs]
    assert check(law, pairs).worst == membership_ratio(coin, decoys)


@pytest.mark.parametrize("linkage", ["aligned", "matched"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_planned_numbers_meet_their_own_promise(linkage: LinkageMode, epsilon: float) -> None:
    """With 64-bit thresholds, the worst ratio is the accounting's; the next coin breaks e^ε."""
    decoys = Geometric(3 << 61)
    for more in (0, 1):
        coin = Coin(largest_coin(decoys, epsilon) + more)
        law = model((2, 1), linkage, Numbers(coin.probability, decoys.ratio, 4))
        finding = check(law, neighbours(1, range(law.kinds)))
        assert finding.worst == pure_ratio(coin, decoys)
        assert finding.breaks(1 + expm1_below(epsilon)) == bool(more)


@pytest.mark.parametrize(
    ("persons", "cells", "numbers", "gamma"),
    [
        (2, 2, Numbers(Fraction(1, 4), Fraction(1, 2), 12), 7),
        (2, 3, Numbers(Fraction(1, 4), Fraction(1, 2), 6), 25),
        (3, 2, Numbers(Fraction(2, 5), Fraction(3, 4), 20), 3),
    ],
)
def test_the_channel_helps_against_the_researcher_alone(
    persons: int, cells: int, numbers: Numbers, gamma: int
) -> None:
    """The worst ratio is less than without it, and comes as near to its formula as γ^(−rows)."""
    law = model((cells,), "aligned", numbers, Run.researcher)
    rows = numbers.truncation
    channel = Channel(Fraction(gamma), cells, rows)
    finding = check(law, neighbours(persons, range(cells)), channel)
    coin, ratio = numbers.coin, numbers.ratio
    limit = (1 - coin + coin / ratio) / (1 - coin + coin / (ratio * gamma))
    assert finding.worst is not None
    assert limit * (1 - Fraction(8, gamma**rows)) <= finding.worst < limit
    assert limit < numbers.promise


def table(*parts: int) -> WeightTable:
    """Return weights in these proportions, whose sum is a power of two."""
    return WeightTable(tuple(part * (DRAW_RANGE // sum(parts)) for part in parts))


@pytest.mark.parametrize(
    ("persons", "sizes", "linkage"), [(2, (3,), "aligned"), (1, (2, 1), "matched")]
)
@pytest.mark.parametrize(
    ("law", "coin"),
    [
        (table(1, 2, 8, 4, 1), Coin(DRAW_RANGE)),
        (table(1, 3, 17, 8, 2, 1), Coin(DRAW_RANGE)),
        (table(8, 4, 2, 1, 1), Coin(DRAW_RANGE // 3)),
        (table(0, 3, 1), Coin(DRAW_RANGE // 2)),
    ],
)
def test_tables_of_weights_spend_the_delta_that_is_accounted(
    persons: int, sizes: Sizes, linkage: LinkageMode, law: WeightTable, coin: Coin
) -> None:
    """Over all databases, neighbours and views, with nothing left out: the largest δ is exact."""
    records, decoys = shown(sizes, linkage, Run.together)
    exact = Model(
        coin=coin.probability,
        decoys=law,
        records=records,
        invented=decoys,
        truncation=None,
        largest=len(law.weights) - 1,
    )
    pairs = list(neighbours(persons, range(exact.kinds)))
    laws = exact.laws({database for pair in pairs for database in pair})
    assert {view_law.outside for view_law in laws.values()} == {0}
    for epsilon in (0.05, 0.7, 1.5):
        ratio = Fraction(int((1 + expm1_below(epsilon)) * 2**192), 2**192)  # as it is accounted
        spent = max(divergence(laws[first], laws[second], ratio) for first, second in pairs)
        assert spent == exact_delta(coin, law, epsilon)


def number_of_decoys(decoys: Sequence[int]) -> View:
    """Tell how many decoys there are."""
    return (sum(decoys),)


BROKEN = [
    pytest.param("aligned", {"sampling": by_rank(1)}, id="aligned, cut by rank"),
    pytest.param("aligned", {"told": number_of_decoys}, id="aligned, number of decoys told"),
    pytest.param("aligned", {"invented": [None] * 3}, id="aligned, no decoys"),
    pytest.param("aligned", {"invented": [None, 1, 2]}, id="aligned, a cell without decoys"),
    pytest.param("matched", {"sampling": by_rank(1)}, id="matched, cut by rank"),
    pytest.param("matched", {"told": number_of_decoys}, id="matched, number of decoys told"),
    pytest.param("matched", {"coin": Fraction(1)}, id="matched, everybody takes part"),
]


@pytest.mark.parametrize(("linkage", "broken"), BROKEN)
def test_the_check_finds_a_broken_mechanism(
    linkage: LinkageMode, broken: dict[str, object]
) -> None:
    """The same check that the mechanism passes."""
    sizes: Sizes = (3,) if linkage == "aligned" else (2, 1)
    good = model(sizes, linkage, replace(QUARTER, truncation=3))
    pairs = list(neighbours(2, range(good.kinds)))
    assert not check(good, pairs).breaks(Fraction(5, 3))
    assert check(replace(good, **broken), pairs).worst is None  # type: ignore[arg-type]


@pytest.mark.parametrize("persons", [1, 2])
def test_the_check_finds_absence_without_decoys(persons: int) -> None:
    """Whoever is held by one curator alone is then seen at once; others still are not."""
    sizes = (2, 2)
    good = model(sizes, "matched", replace(QUARTER, truncation=2))
    whole = [
        pattern
        for pattern in range(good.kinds)
        if None not in study(sizes, "matched").digits(pattern)
    ]
    kinds = [kind if pattern in whole else None for pattern, kind in enumerate(good.invented)]
    broken = replace(good, invented=kinds)
    assert check(broken, neighbours(persons, range(good.kinds))).worst is None
    assert check(broken, neighbours(persons, whole)).worst == Fraction(5, 3)


@pytest.mark.parametrize("careless", [0, 1])
def test_the_check_finds_a_curator_who_leaves_decoys_out(careless: int) -> None:
    """By real runs in which it does, and lies when digests are compared."""
    sizes = (1, 2)
    good = model(sizes, "matched", replace(QUARTER, truncation=4))
    records, decoys = shown(sizes, "matched", Run.together, (careless,))
    assert [*records, None] == good.records
    assert decoys != good.invented
    broken = replace(good, invented=decoys)
    pairs: list[tuple[Database, Database]] = list(neighbours(1, range(good.kinds)))
    assert check(good, pairs).worst == Fraction(5, 3)
    assert check(broken, pairs).worst is None
