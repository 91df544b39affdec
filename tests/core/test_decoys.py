"""The accounting of decoys: exact, tight, and enumerated over all databases of small studies."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.channels import gamma_channel
from tests.support.laws import neighbours
from veiltab.core import decoys, privacy
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.decoy_search import two_sided_table
from veiltab.core.mechanism import Coin, Geometric, Law, Mechanism, WeightTable
from veiltab.core.plan import DECOYS, Plan
from veiltab.errors import InfeasiblePlanError, ParameterError


def coin(share: Fraction) -> Coin:
    """Return the coin with about this probability."""
    return Coin(int(share * DRAW_RANGE))


def table(*parts: int) -> WeightTable:
    """Return weights in these proportions; their sum must be a power of two."""
    return WeightTable(tuple(part * (DRAW_RANGE // sum(parts)) for part in parts))


def decoys_plan(law: Law, threshold: int, epsilon: float, delta: float = 0.0) -> Plan:
    """Return a plan with these decoys and no channel."""
    return Plan(
        population_size=1000,
        domain_size=24,
        epsilon=epsilon,
        delta=delta,
        mechanism=Mechanism(Coin(threshold), law, None),
        accounting=DECOYS,
    )


def count_chance(count: int, held: int, beta: Fraction, decoy: "Sequence[Fraction]") -> Fraction:
    """Return P(a cell's count), if ``held`` respondents are in it; ``decoy`` is the law of D."""
    return sum(
        (
            comb(held, b) * beta**b * (1 - beta) ** (held - b) * decoy[count - b]
            for b in range(min(held, count) + 1)
            if count - b < len(decoy)
        ),
        Fraction(0),
    )


def table_law(
    database: tuple[int, ...], cells: int, beta: Fraction, decoy: "Sequence[Fraction]", most: int
) -> dict[tuple[int, ...], Fraction]:
    """Return the chance of every table of counts up to ``most``."""
    held = [database.count(cell) for cell in range(cells)]
    columns = [[count_chance(k, h, beta, decoy) for k in range(most + 1)] for h in held]
    return {
        counts: math.prod((columns[cell][k] for cell, k in enumerate(counts)), start=Fraction(1))
        for counts in product(range(most + 1), repeat=cells)
    }


def laws_of_neighbours(
    n: int, cells: int, beta: Fraction, decoy: "Sequence[Fraction]", most: int
) -> Iterator[tuple[list[Fraction], list[Fraction]]]:
    """Yield the chances of all tables under every two neighbouring databases.

    Tables count people, so databases are told apart by their counts alone.
    """
    databases = {tuple(sorted(d)) for d in product(range(cells), repeat=n)}
    laws = {d: list(table_law(d, cells, beta, decoy, most).values()) for d in databases}
    for database in databases:
        for other in neighbours(database, cells):
            yield laws[database], laws[tuple(sorted(other))]


@pytest.mark.parametrize(
    ("n", "cells", "beta", "q", "ratio"),
    [
        (3, 3, Fraction(1, 4), Fraction(1, 2), Fraction(5, 3)),
        (4, 2, Fraction(2, 5), Fraction(3, 4), Fraction(17, 9)),
        (2, 4, Fraction(1, 10), Fraction(1, 5), Fraction(14, 9)),
    ],
)
def test_the_pure_promise_holds_with_equality(
    n: int, cells: int, beta: Fraction, q: Fraction, ratio: Fraction
) -> None:
    """Over all databases: beyond n a count's chance falls by q a step, so n + 1 counts show all."""
    decoy = [(1 - q) * q**z for z in range(n + 2)]
    worst = max(
        first / second
        for here, there in laws_of_neighbours(n, cells, beta, decoy, n + 1)
        for first, second in zip(here, there, strict=True)
    )
    assert worst == ratio == 1 + beta / (q * (1 - beta))
    exact = decoys.pure_ratio(Coin(1 << 62), Geometric(1 << 63))
    assert exact == Fraction(5, 3)


@pytest.mark.parametrize("share", [Fraction(1), Fraction(1, 2)])
@pytest.mark.parametrize("parts", [(1, 2, 1), (1, 4, 2, 1), (3, 4, 1)])
def test_delta_is_that_of_the_worst_neighbours(parts: tuple[int, ...], share: Fraction) -> None:
    """All databases of two respondents in three cells: none is worse, and some are as bad."""
    law, ratio = table(*parts), scaled_ratio(0.7)
    decoy = [law.probability(z) for z in range(len(parts))]
    worst = max(
        sum((max(p - ratio * q, Fraction(0)) for p, q in zip(*pair, strict=True)), Fraction(0))
        for pair in laws_of_neighbours(2, 3, share, decoy, 1 + len(parts))
    )
    assert decoys.exact_delta(coin(share), law, 0.7) == worst


def scaled_ratio(epsilon: float) -> Fraction:
    """Return the number just below e^ε with which the accounting computes."""
    return Fraction(int((1 + privacy.expm1_below(epsilon)) * (1 << 192)), 1 << 192)


def shifted(chance: Coin, law: WeightTable) -> list[tuple[Fraction, Fraction]]:
    """Return the chances of B + D and of D, value by value."""
    beta = chance.probability
    return [
        (
            (1 - beta) * law.probability(i) + beta * law.probability(i - 1),
            law.probability(i),
        )
        for i in range(len(law.weights) + 1)
    ]


def brute_force_delta(chance: Coin, law: WeightTable, ratio: Fraction) -> Fraction:
    """Return δ by the double sum itself."""
    pairs = product(shifted(chance, law), repeat=2)
    terms = (p * other_d - ratio * d * other_p for (p, d), (other_p, other_d) in pairs)
    return sum((max(term, Fraction(0)) for term in terms), Fraction(0))


weights = st.lists(st.integers(0, 1 << 58), min_size=1, max_size=12).map(
    lambda parts: WeightTable((*parts, DRAW_RANGE - sum(parts)))
)


@given(weights, st.integers(1, DRAW_RANGE), st.floats(1e-6, 40))
@settings(max_examples=60)
def test_delta_is_the_double_sum(law: WeightTable, threshold: int, epsilon: float) -> None:
    """Exactly, for the rational number just below e^ε; holes in the table included."""
    chance, ratio = Coin(threshold), scaled_ratio(epsilon)
    exact = decoys.exact_delta(chance, law, epsilon)
    assert exact == brute_force_delta(chance, law, ratio)
    assert ratio < 1 + Fraction(math.expm1(epsilon) * (1 + 1e-12))


@pytest.mark.parametrize("share", [Fraction(1), Fraction(1, 2), Fraction(1, 1000)])
@pytest.mark.parametrize(
    "parts", [(1,), (1, 1), (0, 3, 0, 5), (4, 0, 0, 2, 2, 0), (1, 3, 9, 3, 0), (2, 2, 2, 2)]
)
def test_delta_with_holes_and_ties(parts: tuple[int, ...], share: Fraction) -> None:
    """Values that only one of both laws has, and many pairs with one ratio."""
    law, chance = table(*parts), coin(share)
    for epsilon in (0.01, 0.4, 2.0):
        expected = brute_force_delta(chance, law, scaled_ratio(epsilon))
        assert decoys.exact_delta(chance, law, epsilon) == expected


def test_delta_of_a_long_table() -> None:
    """As planned tables are: the order by whole numbers is the order of the ratios."""
    law, chance = two_sided_table(0.8, 20, 1e-9), coin(Fraction(2, 3))
    assert len(law.weights) > 100
    for epsilon in (0.2, 0.5):
        expected = brute_force_delta(chance, law, scaled_ratio(epsilon))
        assert decoys.exact_delta(chance, law, epsilon) == expected


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 0.5, 1.0, 10.0])
@pytest.mark.parametrize("threshold", [1 << 40, 1 << 63, DRAW_RANGE - (1 << 44)])
def test_the_largest_coin_keeps_the_promise_and_the_next_breaks_it(
    threshold: int, epsilon: float
) -> None:
    """By one unit in the last place: a contract cannot cheat by less."""
    law = Geometric(threshold)
    most = decoys.largest_coin(law, epsilon)
    good = decoys_plan(law, most, epsilon)
    assert good.epsilon_achieved <= epsilon
    assert good.epsilon_achieved == pytest.approx(epsilon, rel=1e-3)
    assert good.delta_achieved == 0
    with pytest.raises(InfeasiblePlanError, match="spends more"):
        decoys_plan(law, most + 1, epsilon)


def test_a_weight_moved_by_one_breaks_the_promise() -> None:
    """At ε = 20 only the two ends cost: δ = a + (1 − a)a with a = 2⁻¹⁰, a float, met exactly."""
    end, middle = 1 << 54, DRAW_RANGE - (1 << 55)
    delta = 2**-9 - 2**-20
    good = decoys_plan(WeightTable((end, middle, end)), DRAW_RANGE, 20.0, delta)
    assert good.delta_achieved == delta
    for first, last in ((1, 0), (0, 1)):
        worse = WeightTable((end + first, middle - 1, end + last))
        with pytest.raises(InfeasiblePlanError, match="spends more"):
            decoys_plan(worse, DRAW_RANGE, 20.0, delta)
    with pytest.raises(InfeasiblePlanError, match="spends more"):
        replace(good, delta=math.nextafter(delta, 0))


def test_a_bounded_law_keeps_no_pure_promise() -> None:
    """Nor does a coin that always falls, with the geometric law, whatever ε and δ."""
    with pytest.raises(InfeasiblePlanError, match="without delta"):
        decoys_plan(table(1, 2, 4, 1), 1, 50.0)
    assert decoys.pure_ratio(Coin(DRAW_RANGE), Geometric(1 << 63)) is None
    with pytest.raises(InfeasiblePlanError, match="spends more"):
        decoys_plan(Geometric(1 << 63), DRAW_RANGE, 50.0, 0.01)


def test_more_than_anybody_could_upload_is_refused() -> None:
    """A geometric law has no largest number, so its mean is what is limited."""
    law = Geometric(DRAW_RANGE - (1 << 20))
    with pytest.raises(InfeasiblePlanError, match="asks for about"):
        decoys_plan(law, decoys.largest_coin(law, 1.0), 1.0)


def test_decoys_and_accountings_go_together() -> None:
    """Decoys by the accounting of a cut by rank are refused; the population may be unknown."""
    good = decoys_plan(Geometric(1 << 63), 1 << 50, 1.0)
    assert (good.mechanism_name, good.sample_size, good.channel) == ("decoys", None, None)
    with pytest.raises(ParameterError, match="does not go with"):
        replace(good, accounting="pure")
    with pytest.raises(ParameterError, match="no sample of a known size"):
        _ = good.ranked


@given(st.integers(1, DRAW_RANGE - 1), st.integers(1, DRAW_RANGE - 1))
def test_membership_without_delta(threshold: int, ratio: int) -> None:
    """By the counts themselves: the chance of 0 changes, and that of all others alike."""
    chance, law = Coin(threshold), Geometric(ratio)
    beta, q = chance.probability, law.ratio
    plain = [(1 - q) * q**z for z in range(4)]
    more = [(1 - beta) * plain[0]]
    more += [(1 - beta) * plain[z] + beta * plain[z - 1] for z in range(1, 4)]
    worst = max(max(a / b, b / a) for a, b in zip(plain, more, strict=True))
    assert decoys.membership_ratio(chance, law) == worst
    assert decoys.membership_ratio(Coin(DRAW_RANGE), law) is None


@given(weights, st.integers(1, DRAW_RANGE), st.integers(1, 60).map(lambda k: Fraction(1, 1 << k)))
@settings(max_examples=80)
def test_membership_with_delta_is_the_least(
    law: WeightTable, threshold: int, delta: Fraction
) -> None:
    """Both ways within δ there; less would be too little, unless it is 1 already."""
    chance = Coin(threshold)
    pairs = shifted(chance, law)

    def spent(ratio: Fraction) -> Fraction:
        forward = sum((max(p - ratio * d, Fraction(0)) for p, d in pairs), Fraction(0))
        backward = sum((max(d - ratio * p, Fraction(0)) for p, d in pairs), Fraction(0))
        return max(forward, backward)

    least = decoys.membership_ratio_with_delta(chance, law, delta)
    if least is None:
        only_one = (sum(p for p, d in pairs if d == 0), sum(d for p, d in pairs if p == 0))
        assert max(only_one) > delta
        return
    assert least >= 1
    assert spent(least) <= delta
    assert least == 1 or spent(least * (1 - Fraction(1, 10**9))) > delta


def test_with_a_channel_the_researcher_alone_learns_less() -> None:
    """Two cells, one respondent: e^ε = (1 − β + β/q)/(1 − β + β/(qγ)) is approached, never passed.

    With f₀, f₁ what the channel makes of a record, the tables' generating function is
    (1 − β + βf)/((1 − qf₀)(1 − qf₁)) up to a factor, f being the respondent's own.
    """
    beta, q, channel = Fraction(1, 3), Fraction(1, 2), gamma_channel(2, Fraction(5))
    same = channel.probability(released=0, cell=0)
    other = channel.probability(released=0, cell=1)
    depth = 24
    tables = decoy_tables(q, same, other, depth)

    def chance(k: int, j: int, own: Fraction, foreign: Fraction) -> Fraction:
        left = tables.get((k - 1, j), Fraction(0)) * own + tables.get((k, j - 1), 0) * foreign
        return (1 - beta) * tables[k, j] + beta * left

    ratios = {
        (k, j): chance(k, j, same, other) / chance(k, j, other, same)
        for k in range(depth)
        for j in range(depth - k)
    }
    formula = (1 - beta + beta / q) / (1 - beta + beta / (q * channel.gamma))
    assert max(ratios.values()) < formula
    assert float(ratios[depth - 1, 0]) == pytest.approx(float(formula), rel=1e-9)
    with_the_server = 1 + beta / (q * (1 - beta))
    assert formula < with_the_server


def decoy_tables(
    q: Fraction, same: Fraction, other: Fraction, depth: int
) -> dict[tuple[int, int], Fraction]:
    """Return the coefficients of 1/((1 − q(ax + by))(1 − q(bx + ay))), up to a total degree."""
    powers = [
        {
            (k, d - k): comb(d, k) * q**d * a**k * b ** (d - k)
            for d in range(depth)
            for k in range(d + 1)
        }
        for a, b in ((same, other), (other, same))
    ]
    tables: dict[tuple[int, int], Fraction] = {}
    for (k, j), first in powers[0].items():
        for (m, i), second in powers[1].items():
            if k + j + m + i < depth:
                tables[k + m, j + i] = tables.get((k + m, j + i), Fraction(0)) + first * second
    return tables
