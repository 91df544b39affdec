"""Plans by shuffling: how much they gain, what they promise, and what they refuse."""

import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.cases import examples
from veiltab.core import privacy, utility
from veiltab.core.accounting import largest_gamma
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.plan import MechanismName, Plan
from veiltab.core.plan import plan as plan_any
from veiltab.errors import InfeasiblePlanError, ParameterError
from veiltab.paper.experiment import Setting, distribution_table, run_experiment


def plan(**asked: Any) -> Plan:
    """Plan a sample by rank: by shuffling where there is a δ, and by the paper's way without."""
    mechanism: MechanismName = "shuffle" if asked.get("delta") else "paper"
    return plan_any(**asked, mechanism=mechanism, anyway=True)


def adult_plan(epsilon: float, delta: float = 1e-6, sample_size: int | None = None) -> Plan:
    """Plan the paper's study."""
    return plan(
        population_size=45222,
        domain_size=24,
        epsilon=epsilon,
        delta=delta,
        sample_size=sample_size,
    )


def with_threshold(good: Plan, threshold: int) -> Plan:
    """Return the plan with another channel."""
    return replace(good, mechanism=replace(good.mechanism, keep_threshold=threshold))


def threshold_of(cells: int, gamma: float) -> int:
    """Return the largest threshold whose γ is not above this one."""
    return DRAW_RANGE - cells * math.ceil(DRAW_RANGE / (cells + Fraction(gamma) - 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "most", "gain"),
    [(0.1, 0.0069, 20.4), (0.5, 0.00173, 32.4), (1.0, 0.00098, 35.0)],
)
def test_the_papers_study_with_one_in_a_million(epsilon: float, most: float, gain: float) -> None:
    """Everybody is sampled, and the error is 20 to 35 times below the pure plan's."""
    shuffled, pure = adult_plan(epsilon), adult_plan(epsilon, 0.0)
    assert shuffled.rmse <= most
    assert pure.rmse / shuffled.rmse == pytest.approx(gain, rel=0.005)
    assert (shuffled.accounting, pure.accounting) == ("shuffle", "pure")
    assert shuffled.sample_size == 45222
    assert shuffled.epsilon_achieved == epsilon
    assert 0.99e-6 < shuffled.delta_achieved <= 1e-6
    assert (
        privacy.epsilon_if_order_known(shuffled.ranked.channel)
        >= math.log(shuffled.ranked.gamma)
        > epsilon
    )


questions = st.tuples(
    st.integers(1, 20_000),
    st.sampled_from([2, 3, 24, 768, 10**6]),
    st.floats(0.02, 8),
    st.floats(-10, -2).map(lambda exponent: 10.0**exponent),
    st.none() | st.floats(0, 1),
)
Question = tuple[int, int, float, float, float | None]


def asked(question: Question) -> Plan:
    """Return the plan that answers the question."""
    n, cells, epsilon, delta, share = question
    m = None if share is None else max(1, round(share * n))
    found = plan(population_size=n, domain_size=cells, epsilon=epsilon, delta=delta, sample_size=m)
    assert m is None or found.sample_size == m
    return found


def without_delta(question: Question) -> Plan:
    """Return the plan that answers the question with δ = 0."""
    return asked((*question[:3], 0.0, question[4]))


@pytest.mark.slow
@given(question=questions)
@examples(40)
def test_delta_never_costs_accuracy(question: Question) -> None:
    """The better accounting is taken, and it keeps its promise."""
    found, pure = asked(question), without_delta(question)
    assert found.rmse <= pure.rmse
    assert found.epsilon_achieved <= found.epsilon
    assert found.delta_achieved <= found.delta == question[3]
    if found.accounting == "pure":
        assert found == replace(pure, delta=found.delta)
    else:
        assert found.delta_achieved > 0
        assert (DRAW_RANGE - found.ranked.keep_threshold) % found.domain_size == 0


@given(question=questions)
@settings(max_examples=40)
def test_without_delta_the_plan_is_the_minimax_one(question: Question) -> None:
    """Computed here directly: Theorem 1's threshold at the whole sample size beside m°."""
    found = without_delta(question)
    n, cells, epsilon, _, share = question
    best = utility.minimax_sample_size(n, cells, epsilon)
    sizes = {math.floor(best), math.ceil(best)} if share is None else {found.ranked.sample_size}
    candidates = [
        Plan.by_rank(
            population_size=n,
            domain_size=cells,
            epsilon=epsilon,
            sample_size=m,
            keep_threshold=privacy.largest_keep_threshold(n, m, cells, epsilon),
        )
        for m in sorted(sizes)
    ]
    assert found == min(candidates, key=lambda candidate: candidate.rmse)
    assert (found.delta, found.accounting, found.delta_achieved) == (0.0, "pure", 0.0)


@pytest.mark.slow
@given(
    n=st.integers(1, 5000),
    cells=st.sampled_from([2, 3, 24, 768]),
    epsilon=st.floats(0.02, 4),
    share=st.none() | st.floats(0.01, 1),
    factor=st.floats(1.2, 4),
)
@examples(20)
def test_more_epsilon_or_more_delta_means_less_error(
    n: int, cells: int, epsilon: float, share: float | None, factor: float
) -> None:
    """Up to the five digits of γ."""
    here = asked((n, cells, epsilon, 1e-6, share))
    weaker = asked((n, cells, epsilon * factor, 1e-6, share))
    looser = asked((n, cells, epsilon, 1e-6 * factor, share))
    assert weaker.rmse < here.rmse
    assert looser.rmse <= here.rmse * (1 + 1e-4)


@pytest.mark.parametrize("sample_size", [1, 9, 999])
def test_no_sample_is_released_in_the_clear(sample_size: int) -> None:
    """δ = 10⁻⁴ of 100,000 people would allow it for ten; up to a hundred times that we do not."""
    found = plan(
        population_size=100_000, domain_size=24, epsilon=0.5, delta=1e-4, sample_size=sample_size
    )
    assert found.accounting == "pure"
    enough = plan(
        population_size=100_000, domain_size=24, epsilon=0.5, delta=1e-4, sample_size=1000
    )
    assert (enough.accounting, enough.sample_size) == ("shuffle", 1000)
    assert enough.ranked.keep_probability < 0.99


@given(
    population=st.integers(10**5, 10**7),
    delta=st.sampled_from([1e-6, 3e-5, 1e-4, 0.000123, 0.00999]),
    off=st.sampled_from([-1, 0, 1]),
)
@example(population=100_000, delta=1e-4, off=0)  # exactly 100 δn
@example(population=100_000, delta=1e-4, off=-1)
@example(population=100_000, delta=1e-4, off=-991)  # less than δn: even in the clear
@settings(max_examples=8, deadline=None)
def test_planner_and_verifier_agree_which_samples_are_worth_delta(
    population: int, delta: float, off: int
) -> None:
    """At the border m = 100 δn, what is planned can be verified, and what is not planned cannot."""
    border = math.ceil(100 * Fraction(repr(delta)) * population)
    size = min(population, max(1, border + off))
    asked_for: dict[str, Any] = {
        "population_size": population,
        "domain_size": 4,
        "epsilon": 0.5,
        "delta": delta,
    }
    found = plan(**asked_for, sample_size=size)
    numbers: dict[str, Any] = {"sample_size": size, "accounting": "shuffle"}
    threshold = found.ranked.keep_threshold
    if size < border:
        assert found.accounting == "pure"
        gamma = largest_gamma(population, size, 4, 0.5, delta * 0.9)
        assert gamma is not None  # it keeps (ε, δ), and is refused all the same
        with pytest.raises(InfeasiblePlanError, match="spends more"):
            Plan.by_rank(**asked_for, **numbers, keep_threshold=threshold_of(4, gamma))
    elif found.accounting == "shuffle":
        assert Plan.by_rank(**asked_for, **numbers, keep_threshold=threshold) == found
    else:  # where δ gains nothing over Theorem 1
        assert largest_gamma(population, size, 4, 0.5, delta) in (None, pytest.approx(found.gamma))


@pytest.mark.slow
@pytest.mark.parametrize("sample_size", [None, 45222, 20_000, 300])
def test_a_plan_that_breaks_its_promise_cannot_be_built(sample_size: int | None) -> None:
    """0.1% more γ, less ε, less δ, or another accounting: each is refused, whoever asks."""
    good = adult_plan(0.5, sample_size=sample_size)
    assert good.accounting == "shuffle"
    assert sample_size is None or good.sample_size == sample_size
    with pytest.raises(InfeasiblePlanError, match="spends more"):
        with_threshold(good, threshold_of(24, good.ranked.gamma * 1.001))
    with pytest.raises(InfeasiblePlanError, match="spends more"):
        replace(good, epsilon=good.epsilon * 0.998)
    with pytest.raises(InfeasiblePlanError, match="spends more"):
        replace(good, delta=good.delta * 0.99)
    with pytest.raises(InfeasiblePlanError, match="spends more"):
        replace(good, accounting="pure")
    with pytest.raises(ParameterError, match="same number of draws"):
        with_threshold(good, good.ranked.keep_threshold - 1)
    assert with_threshold(good, threshold_of(24, good.ranked.gamma * 0.9)).delta_achieved < 1e-6


@pytest.mark.parametrize("threshold", [2**63, DRAW_RANGE - 2, 2])
def test_shuffling_needs_a_delta_and_a_channel(threshold: int) -> None:
    """Without δ nothing may be spent, and a γ that floats round to 1 promises nothing."""
    with pytest.raises(InfeasiblePlanError, match="spends more"):
        Plan.by_rank(
            population_size=100,
            domain_size=2,
            epsilon=0.5,
            delta=1e-6 if threshold == 2 else 0.0,
            sample_size=100,
            keep_threshold=threshold,
            accounting="shuffle",
        )


def test_the_threshold_comes_from_the_largest_gamma() -> None:
    """Rounded so that γ never rises, and within a hundredth of a percent of all that δ allows."""
    found = adult_plan(0.5)
    most = largest_gamma(45222, 45222, 24, 0.5, 1e-6)
    assert most is not None
    assert most * (1 - 1e-3) <= found.ranked.gamma <= most


@pytest.mark.slow
def test_a_target_is_reached_with_the_least_epsilon() -> None:
    """With δ the same target takes far less ε; 0.1% less ε would miss it."""
    found = plan(population_size=2_000, domain_size=6, target_rmse=0.01, delta=1e-6)
    pure = plan(population_size=2_000, domain_size=6, target_rmse=0.01)
    assert found.accounting == "shuffle"
    assert found.rmse <= 0.01
    assert found.epsilon < pure.epsilon / 3
    less = plan(
        population_size=2_000, domain_size=6, epsilon=found.epsilon * (1 - 1e-3), delta=1e-6
    )
    assert less.rmse > 0.01


def test_the_search_for_a_target_goes_down_to_its_end() -> None:
    """Where a billionth of ε would do, no larger one is answered."""
    found = plan(population_size=2**53, domain_size=2, target_rmse=0.1)
    assert found.epsilon == pytest.approx(1e-9)


def test_the_json_has_the_same_keys_as_without_delta() -> None:
    """Scripts rely on these names."""
    shuffled, pure = (json.loads(json.dumps(adult_plan(0.5, d).as_dict())) for d in (1e-6, 0.0))
    assert list(shuffled) == list(pure)
    assert (shuffled["accounting"], shuffled["delta"]) == ("shuffle", 1e-6)
    assert shuffled["epsilon_achieved"] == shuffled["epsilon"] == 0.5
    assert 0 < shuffled["delta_achieved"] <= 1e-6
    assert int(shuffled["keep_threshold"]) / 2**64 == shuffled["keep_probability"]
    assert shuffled["epsilon_if_order_known"] == pytest.approx(math.log(shuffled["gamma"]))
    assert shuffled["paper"] == pure["paper"]


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("distribution", ["uniform", "adult"])
def test_simulated_releases_have_the_planned_error(distribution: str, epsilon: float) -> None:
    """1000 releases: their standard error is half a percent, so 3% is six of them."""
    found = adult_plan(epsilon)
    table = distribution_table(distribution, 24, 45222)
    result = run_experiment(
        Setting(distribution=distribution, table=table, plan=found), 1000, seed=5
    )
    assert result.rmse == pytest.approx(result.exact_rmse, rel=0.03)
    # Everybody is sampled, so the error is the same whatever the data.
    assert result.exact_rmse == pytest.approx(found.rmse, rel=1e-9)
