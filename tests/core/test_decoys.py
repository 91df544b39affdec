"""The accounting of decoys: exact, tight, and enumerated over all databases of small studies."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest

from veiltab.core import decoys, privacy
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import Coin, Geometric, Law, Mechanism, WeightTable
from veiltab.core.plan import DECOYS, Plan
from veiltab.errors import InfeasiblePlanError, ParameterError


def coin(share: Fraction) -> Coin:
    """Return the coin with about this probability."""
    return Coin(int(share * DRAW_RANGE))


def geometric(ratio: Fraction) -> Geometric:
    """Return the geometric law with about this ratio."""
    return Geometric(int(ratio * DRAW_RANGE))


def table(*parts: int) -> WeightTable:
    """Return weights in these proportions, which divide 2⁶⁴ if their sum is a power of two."""
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


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 0.5, 1.0, 10.0])
@pytest.mark.parametrize("threshold", [1 << 40, 1 << 63, DRAW_RANGE - 1])
def test_the_largest_coin_keeps_the_promise_and_the_next_breaks_it(
    threshold: int, epsilon: float
) -> None:
    """By one unit in the last place: a contract cannot cheat by less."""
    law = Geometric(threshold)
    most = decoys.largest_coin(law, epsilon)
    assert decoys_plan(law, most, epsilon).epsilon_achieved <= epsilon
    with pytest.raises(InfeasiblePlanError, match="spends more"):
        decoys_plan(law, most + 1, epsilon)


def brute_force_delta(coin: Coin, law: WeightTable, ratio: Fraction) -> Fraction:
    """Return δ by the double sum itself."""
    beta = coin.probability
    size = len(law.weights) + 1
    plain = [law.probability(i) for i in range(size)]
    shifted = [(1 - beta) * law.probability(i) + beta * law.probability(i - 1) for i in range(size)]
    return sum(
        (
            max(shifted[i] * plain[j] - ratio * plain[i] * shifted[j], Fraction(0))
            for i, j in product(range(size), repeat=2)
        ),
        Fraction(0),
    )


@pytest.mark.parametrize("epsilon", [0.01, 0.4, 2.0])
@pytest.mark.parametrize("share", [Fraction(1), Fraction(1, 2), Fraction(1, 1000)])
@pytest.mark.parametrize(
    "parts", [(1,), (1, 1), (1, 2, 4, 1), (0, 3, 0, 5), (4, 0, 0, 2, 2, 0), (1, 3, 9, 3, 0)]
)
def test_delta_is_the_double_sum(parts: tuple[int, ...], share: Fraction, epsilon: float) -> None:
    """For tables with holes, with ties and without, and whatever the coin."""
    law, chance = table(*parts), coin(share)
    ratio = Fraction(
        int((1 + privacy.expm1_below(epsilon)) * (1 << 192)),
        1 << 192,
    )
    assert decoys.exact_delta(chance, law, epsilon) == brute_force_delta(chance, law, ratio)


def test_a_bounded_law_keeps_no_pure_promise() -> None:
    """Nor does a coin that always falls, with the geometric law."""
    law = table(1, 2, 4, 1)
    with pytest.raises(InfeasiblePlanError, match="without delta"):
        decoys_plan(law, 1, 1.0)
    with pytest.raises(InfeasiblePlanError, match="spends more"):
        decoys_plan(Geometric(1 << 63), DRAW_RANGE, 50.0, 0.01)


def test_decoys_and_accountings_go_together() -> None:
    """Decoys by the accounting of a cut by rank, and the reverse, are refused."""
    good = decoys_plan(Geometric(1 << 63), 1 << 50, 1.0)
    assert (good.mechanism_name, good.sample_size, good.channel) == ("decoys", None, None)
    with pytest.raises(ParameterError, match="does not go with"):
        replace(good, accounting="pure")
    unknown = replace(good, population_size=None)
    assert unknown.expected_rows is None
    assert unknown.epsilon_achieved == good.epsilon_achieved
