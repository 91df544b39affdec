"""The one number of an overlap count: its promise, its law, and what it says."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import for_each
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.decoys import pure_ratio
from veiltab.core.mechanism import Coin, Geometric
from veiltab.core.overlap import MOST_CURATORS, OverlapEstimate, OverlapPlan, plan_overlap
from veiltab.core.privacy import count_threshold, expm1_below
from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import InfeasiblePlanError, ParameterError

HALF, QUARTER = DRAW_RANGE // 2, DRAW_RANGE // 4
EPSILONS = (0.01, 0.1, 0.5, 1.0, 3.0)


def plan_of(coin: int, decoys: int, noise: int, epsilon: float = 1.0) -> OverlapPlan:
    """Return a plan for two curators with these thresholds."""
    return OverlapPlan(epsilon, 2, Coin(coin), Geometric(decoys), Geometric(noise))


def noise_law(ratio: Fraction, most: int) -> dict[int, Fraction]:
    """Return P(Z = z) of two-sided geometric noise, for |z| up to ``most``."""
    whole = (1 - ratio) / (1 + ratio)
    return {z: whole * ratio ** abs(z) for z in range(-most, most + 1)}


def law_of(plan: OverlapPlan, people: int, most: int) -> dict[int, Fraction]:
    """Return P(X = x) with so many people in common, exactly but for far tails."""
    beta, q, r = plan.coin.probability, plan.decoys.ratio, plan.noise.ratio
    coins = {
        taking: math.comb(people, taking) * beta**taking * (1 - beta) ** (people - taking)
        for taking in range(people + 1)
    }
    decoys = {number: (1 - q) * q**number for number in range(most)}
    law: dict[int, Fraction] = {}
    noise = noise_law(r, most)
    for taking, number, z in product(coins, decoys, noise):
        chance = coins[taking] * decoys[number] * noise[z]
        law[taking + number + z] = law.get(taking + number + z, Fraction(0)) + chance
    return law


@for_each("epsilon", EPSILONS)
def test_a_curator_learns_epsilon_and_not_a_bit_more(epsilon: float) -> None:
    """Who knows coins and decoys sees J + Z: the worst ratio of J and J + 1 is 1/r, attained."""
    threshold = count_threshold(epsilon)
    ratio = Fraction(threshold, DRAW_RANGE)
    law = noise_law(ratio, 40)
    seen = [law[z] / law[z - 1] for z in range(-39, 41)]
    assert max(*seen, *(1 / one for one in seen)) == 1 / ratio
    assert 1 / ratio <= 1 + expm1_below(epsilon)
    # The next smaller threshold would break the promise, or nearly: nothing is given away.
    assert float(Fraction(DRAW_RANGE, threshold - 1)) >= math.exp(epsilon) * (1 - 1e-12)


@for_each("epsilon", EPSILONS)
def test_numbers_that_break_the_promise_cannot_be_put_together(epsilon: float) -> None:
    """Neither a likelier coin, nor fewer decoys, nor less noise."""
    plan = plan_overlap(1_000, epsilon)
    assert pure_ratio(plan.coin, plan.decoys) <= 1 + expm1_below(epsilon)  # type: ignore[operator]
    for change in (
        {"coin": Coin(plan.coin.threshold + 2**12)},
        {"coin": Coin(DRAW_RANGE)},
        {"decoys": Geometric(plan.decoys.threshold - 2**16)},
        {"noise": Geometric(plan.noise.threshold - 1)},
        {"epsilon": epsilon * 0.999},
    ):
        with pytest.raises(InfeasiblePlanError, match="more than epsilon"):
            replace(plan, **change)


def test_no_curator_alone_and_not_too_many() -> None:
    """Every set of curators has decoys of its own, and their number grows fast."""
    assert plan_overlap(10, 1.0, MOST_CURATORS).patterns == 255
    odd: tuple[Any, ...] = (0, 1, MOST_CURATORS + 1, 2.5, "2")
    for curators in odd:
        with pytest.raises(ParameterError, match="2 and 8 curators"):
            plan_overlap(10, 1.0, curators)


def test_what_would_take_for_ever_to_draw_is_refused() -> None:
    """A contract could otherwise keep a server, or another curator, busy for years."""
    with pytest.raises(InfeasiblePlanError, match="too long to draw"):
        plan_overlap(10, 1e-6)
    plan = plan_overlap(10, 1.0)
    for change in ({"noise": Geometric(DRAW_RANGE - 1)}, {"decoys": Geometric(DRAW_RANGE - 1)}):
        with pytest.raises(InfeasiblePlanError, match="too long to draw"):
            replace(plan, **change)  # type: ignore[arg-type]


@for_each("epsilon", EPSILONS)
def test_add_or_remove_is_never_dearer(epsilon: float) -> None:
    """Replacing who holds a person is the worst change, and what is charged."""
    plan = plan_overlap(1_000, epsilon)
    assert 0 < plan.epsilon_membership <= epsilon


@for_each("people", [0, 1, 4])
def test_the_law_of_the_number(people: int) -> None:
    """The closed form is the sum over all coins, decoys and noise; mean and variance are its."""
    plan = plan_of(QUARTER, HALF, 3 * DRAW_RANGE // 8)
    law = law_of(plan, people, 36)
    below = Fraction(0)
    for told in sorted(law):
        below += law[told]
        assert plan.chance_below(told, people) == pytest.approx(float(below), abs=1e-9)
    mean = sum(told * chance for told, chance in law.items())
    variance = sum(told**2 * chance for told, chance in law.items()) - mean**2
    assert plan.mean(people) == pytest.approx(float(mean), rel=1e-9)
    assert plan.variance(people) == pytest.approx(float(variance), rel=1e-7)


def test_equal_ratios_of_decoys_and_noise_are_no_special_case() -> None:
    """The closed form has q − r in a denominator."""
    noise = int(0.4 * DRAW_RANGE)
    chances = [
        plan_of(QUARTER // 4, noise + step, noise).chance_below(3, 7)
        for step in (-(2**20), -1, 0, 1, 2**20)
    ]
    assert max(chances) - min(chances) < 1e-9


@settings(max_examples=25)
@given(st.integers(-200, 1_000), st.sampled_from(EPSILONS), st.sampled_from([0.5, 0.9, 0.999]))
def test_an_interval_holds_its_estimate(number: int, epsilon: float, level: float) -> None:
    """It is never empty, starts at 0 at least, and holds the point or what is nearest to it."""
    estimate = OverlapEstimate(number, plan_overlap(100, epsilon))
    low, high = estimate.interval(level)
    assert 0 <= low <= high
    assert low <= math.ceil(estimate.people + 1)
    assert high >= math.floor(estimate.people) - 1
    assert estimate.people == max(0, estimate.unbiased)


@pytest.mark.parametrize("people", [0, 3, 40])
def test_the_interval_holds_the_truth_as_often_as_it_says(people: int) -> None:
    """Summed over every number that can be told: no simulation, and no false alarm."""
    plan = plan_overlap(40, 1.0)
    most = 200
    chances = [
        plan.chance_below(told, people) - plan.chance_below(told - 1, people)
        for told in range(-most, most)
    ]
    assert sum(chances) == pytest.approx(1, abs=1e-9)
    held = 0.0
    for told, chance in zip(range(-most, most), chances, strict=True):
        if chance > 1e-7:
            low, high = OverlapEstimate(told, plan).interval()
            held += chance * (low <= people <= high)
    assert held >= 0.95 - 1e-5
    assert held <= 0.995


@for_each("people", [50, 1_000, 100_000])
def test_no_other_ratio_of_decoys_does_better(people: int) -> None:
    """The planner's error is the least on a grid of its own, to one part in a thousand."""
    for epsilon in (0.1, 1.0):
        best = plan_overlap(people, epsilon)
        for loss in np.geomspace(1e-3, 0.9, 40):
            other = Geometric(int((1 - loss) * DRAW_RANGE))
            growth = math.expm1(epsilon) * (1 - loss)
            coin = Coin(int(DRAW_RANGE * growth / (1 + growth) * (1 - 1e-9)))
            plan = replace(best, coin=coin, decoys=other)
            assert best.standard_error(people) <= 1.001 * plan.standard_error(people)


def test_the_estimate_is_right_on_average_and_off_by_what_it_says() -> None:
    """2,000 counts of 300 people: a correct program fails once in about 10,000 seeds."""
    people, runs = 300, 2_000
    plan = plan_overlap(people, 0.5)
    source = np.random.default_rng(17)
    entropy = CipherEntropy.from_seed(3, "noise")
    taking = source.binomial(people, float(plan.coin.probability), runs)
    decoys = source.geometric(1 - float(plan.decoys.ratio), runs) - 1
    told = [plan.add_noise(int(count), entropy) for count in taking + decoys]
    errors = np.array([OverlapEstimate(number, plan).unbiased for number in told]) - people
    expected = plan.standard_error(people)
    assert abs(errors.mean()) < 4 * expected / math.sqrt(runs)
    assert errors.std() == pytest.approx(expected, rel=0.075)


def test_noise_is_drawn_exactly_from_its_source() -> None:
    """The same bytes give the same number; it is a difference of two geometric numbers."""
    plan = plan_overlap(1_000, 0.1)

    def told(seed: int) -> int:
        return plan.add_noise(1_000, CipherEntropy.from_seed(seed, "server"))

    assert told(1) == told(1)
    assert len({told(seed) for seed in range(20)}) > 10


def test_a_server_that_claims_anything_costs_bounded_work() -> None:
    """However large the number, an interval takes little time and memory."""
    estimate = OverlapEstimate(2**34, plan_overlap(1_000, 1.0))
    low, high = estimate.interval()
    half = 1.96 * estimate.standard_error
    assert (low, high) == pytest.approx((estimate.people - half, estimate.people + half), rel=1e-7)


def test_odd_questions_are_refused() -> None:
    """A level outside (0, 1), and a table without anybody."""
    estimate = OverlapEstimate(10, plan_overlap(10, 1.0))
    with pytest.raises(ParameterError, match="confidence level"):
        estimate.interval(1.0)
    with pytest.raises(ParameterError, match="cannot have 0 people"):
        estimate.share_of(0)
    assert estimate.share_of(1) == 1.0


def test_a_count_that_says_nothing_carries_a_warning() -> None:
    """In plain words, with both numbers."""
    assert plan_overlap(10_000, 0.1).warnings(10_000) == ()
    (warning,) = plan_overlap(100, 0.01).warnings(100)
    assert "more than the 100 that are expected" in warning
