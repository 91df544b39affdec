"""Plans by the paper's way: the best choice, the promise in integers, bad parameters refused."""

import json
import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veiltab.core import privacy
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import Mechanism, Rank
from veiltab.core.plan import MechanismName, Plan
from veiltab.core.plan import plan as plan_any
from veiltab.core.utility import uniform_guess_rmse
from veiltab.errors import InfeasiblePlanError, ParameterError, UselessPlanError

plan = partial(plan_any, mechanism="paper", anyway=True)


def adult_plan(epsilon: float, sample_size: int | None = None) -> Plan:
    """Plan the paper's study."""
    return plan(
        population_size=45222,
        domain_size=24,
        epsilon=epsilon,
        sample_size=sample_size,
    )


@pytest.mark.parametrize(
    ("epsilon", "sample_size", "rmse", "papers"),
    [(0.1, 198, 0.1390, 239), (0.5, 1222, 0.0558, 1472), (1.0, 3238, 0.0341, 3899)],
)
def test_the_papers_study(epsilon: float, sample_size: int, rmse: float, papers: int) -> None:
    """The minimax plan keeps half the records and beats the paper's own m* a little."""
    found = adult_plan(epsilon)
    assert found.sample_size == pytest.approx(sample_size, abs=1)
    assert found.gamma == pytest.approx(25, abs=0.05)
    assert found.keep_probability == pytest.approx(0.5, abs=0.001)
    assert found.rmse == pytest.approx(rmse, abs=0.00006)
    assert found.paper.optimal_sample_size == papers
    assert found.rmse < found.paper.rmse < found.paper.tightened_bound < found.paper.error_bound


@pytest.mark.slow
@settings(max_examples=300)
@given(
    n=st.integers(1, 2**53),
    cells=st.integers(2, 10**7),
    epsilon=st.floats(1e-3, 50),
    share=st.none() | st.floats(0, 1),
)
def test_the_promise_is_never_exceeded(
    n: int, cells: int, epsilon: float, share: float | None
) -> None:
    """Whatever is asked, the integers spend at most ε and leave every cell the same draws."""
    m = None if share is None else max(1, min(n, round(share * n)))
    try:
        found = plan(population_size=n, domain_size=cells, epsilon=epsilon, sample_size=m)
    except InfeasiblePlanError:
        return
    assert found.epsilon_achieved <= epsilon
    assert (DRAW_RANGE - found.ranked.keep_threshold) % cells == 0
    assert m is None or found.sample_size == m
    assert 1 <= found.ranked.sample_size <= n
    assert privacy.epsilon_if_order_known(found.ranked.channel) >= found.epsilon_achieved
    assert math.isfinite(found.rmse)


@given(n=st.integers(1, 3000), cells=st.integers(2, 60), epsilon=st.floats(0.05, 3))
@settings(max_examples=25)
def test_no_other_sample_size_is_better(n: int, cells: int, epsilon: float) -> None:
    """By trying them: the chosen whole m has the least worst-case error."""
    found = plan(population_size=n, domain_size=cells, epsilon=epsilon)
    best = found.ranked.sample_size
    near = range(max(1, best - 3), min(n, best + 3) + 1)
    for m in {1, n, *near, *range(1, n, max(1, n // 50))}:
        other = plan(population_size=n, domain_size=cells, epsilon=epsilon, sample_size=m)
        assert found.rmse <= other.rmse * (1 + 1e-12)


@given(
    n=st.integers(10, 10**7),
    cells=st.integers(2, 1000),
    target=st.floats(1e-4, 0.9),
    share=st.none() | st.floats(0.01, 1),
)
@settings(max_examples=40)
def test_the_smallest_epsilon_that_reaches_a_target(
    n: int, cells: int, target: float, share: float | None
) -> None:
    """The plan reaches the target, and a millionth less ε would not."""
    m = None if share is None else max(1, round(share * n))
    try:
        found = plan(population_size=n, domain_size=cells, target_rmse=target, sample_size=m)
    except InfeasiblePlanError:
        most = plan(population_size=n, domain_size=cells, epsilon=50, sample_size=m)
        assert most.rmse > target
        return
    assert found.rmse <= target
    less = plan(
        population_size=n, domain_size=cells, epsilon=found.epsilon * (1 - 1e-6), sample_size=m
    )
    assert less.rmse > target


def test_the_json_has_exactly_the_documented_keys() -> None:
    """Scripts rely on these names and on the threshold being a decimal string."""
    found = json.loads(json.dumps(adult_plan(0.5).as_dict()))
    assert list(found) == [
        *("population_size", "domain_size", "epsilon", "delta", "mechanism", "linkage"),
        *("sample_size", "coin_probability", "coin_threshold", "decoys", "patterns"),
        *("expected_rows", "gamma", "keep_probability", "keep_threshold", "accounting"),
        *("accounting_version", "epsilon_achieved", "delta_achieved", "epsilon_with_curator"),
        *("epsilon_if_order_known", "epsilon_public", "epsilon_membership", "mean_share"),
        *("uniform_guess_rmse", "rmse", "rmse_per_cell", "rmse_published", "paper", "shuffle"),
        *("trusted", "trusted_party_rmse", "bytes_per_curator", "warnings"),
    ]
    assert list(found["paper"]) == [
        *("optimal_sample_size", "gamma", "error_bound", "tightened_bound", "rmse"),
    ]
    assert (found["mechanism"], found["sample_size"], found["expected_rows"]) == (
        "paper",
        1222,
        1222,
    )
    for absent in ("coin_probability", "coin_threshold", "decoys", "shuffle", "epsilon_membership"):
        assert found[absent] is None
    assert isinstance(found["keep_threshold"], str)
    assert int(found["keep_threshold"]) / 2**64 == found["keep_probability"]
    assert (found["accounting"], found["delta"], found["delta_achieved"]) == ("pure", 0, 0)
    assert found["bytes_per_curator"] == math.ceil(1222 * math.log2(24) / 8)


@pytest.mark.parametrize(("n", "epsilon"), [(1, 1.1e-10), (10, 1.1e-11), (2**53, 2e-26)])
def test_the_smallest_epsilon_has_every_number(n: int, epsilon: float) -> None:
    """Just above what is refused, nothing divides by a γ − 1 that floats have rounded to zero."""
    found = plan(population_size=n, domain_size=2, epsilon=epsilon)
    assert found.epsilon_achieved <= epsilon
    assert math.isfinite(found.rmse)
    assert math.isfinite(found.paper.error_bound)
    with pytest.raises(InfeasiblePlanError, match="nothing but noise"):
        plan(population_size=n, domain_size=2, epsilon=epsilon / 10)


def test_a_plan_that_breaks_its_promise_cannot_be_built() -> None:
    """A threshold from elsewhere is checked exactly, not trusted."""
    good = adult_plan(0.5)
    size, threshold = good.ranked.sample_size, good.ranked.keep_threshold
    with pytest.raises(InfeasiblePlanError, match="spends more"):
        replace(good, mechanism=Mechanism(Rank(size), None, threshold + 24))
    with pytest.raises(InfeasiblePlanError, match="spends more"):
        replace(good, mechanism=Mechanism(Rank(size + 1), None, threshold))
    with pytest.raises(ParameterError, match="same number of draws"):
        replace(good, mechanism=Mechanism(Rank(size), None, threshold - 1))
    with pytest.raises(ParameterError, match="unknown accounting"):
        replace(good, accounting="hopeful")


@pytest.mark.parametrize(
    "bad",
    [
        {"epsilon": 0},
        {"epsilon": -1},
        {"epsilon": math.nan},
        {"epsilon": math.inf},
        {"epsilon": 50.001},
        {"population_size": 0},
        {"population_size": -3},
        {"population_size": 2**53 + 1},
        {"population_size": 10.5},
        {"population_size": True},
        {"sample_size": 0},
        {"sample_size": 45223},
        {"sample_size": 1.5},
        {"domain_size": 1},
        {"domain_size": 0},
        {"domain_size": 2**48 + 1},
        {"delta": -1e-6},
        {"delta": 0.011},
        {"delta": 1e-31},
        {"delta": math.inf},
        {"delta": math.nan},
        {"epsilon": None},
        {"target_rmse": 0.1},
        {"epsilon": None, "target_rmse": 0},
        {"epsilon": None, "target_rmse": 1},
        {"epsilon": None, "target_rmse": math.nan},
    ],
    ids=str,
)
def test_bad_parameters_are_refused(bad: dict[str, float | None]) -> None:
    """Each is one line of error and a hint."""
    asked = {"population_size": 45222, "domain_size": 24, "epsilon": 0.5} | bad
    with pytest.raises(ParameterError) as caught:
        plan(**asked)  # type: ignore[arg-type]  # wrong types are the point
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_extremes() -> None:
    """One respondent, the largest ε, and the largest tables have plans."""
    one = plan(population_size=1, domain_size=2, epsilon=0.5)
    assert one.sample_size == 1
    assert one.gamma == pytest.approx(math.exp(0.5))
    assert plan(population_size=10, domain_size=2, epsilon=50).rmse < 1e-9
    wide = plan(population_size=10**6, domain_size=2**48, epsilon=50)
    assert wide.epsilon_achieved <= 50


@given(weights=st.lists(st.integers(0, 99), min_size=2, max_size=6).filter(any))
@settings(max_examples=40)
def test_no_data_are_farther_from_uniform_than_a_single_cell(weights: list[int]) -> None:
    """‖T − U‖² = ‖T‖² − 1/N in fractions, at most 1 − 1/N."""
    cells, total = len(weights), sum(weights)
    truth = [Fraction(weight, total) for weight in weights]
    squared = sum((share - Fraction(1, cells)) ** 2 for share in truth)
    assert squared == sum(share**2 for share in truth) - Fraction(1, cells)
    assert math.sqrt(squared) <= uniform_guess_rmse(cells) + 1e-12
    single = 1 - Fraction(1, cells)
    assert uniform_guess_rmse(cells) == pytest.approx(math.sqrt(single))


NONSENSE: dict[str, Any] = {"population_size": 10_000, "domain_size": 4**12, "epsilon": 0.5}


@pytest.mark.parametrize("mechanism", ["auto", "paper"])
def test_a_plan_that_says_less_than_a_guess_is_refused(mechanism: MechanismName) -> None:
    """With the reason and a way out; whoever insists gets it."""
    with pytest.raises(UselessPlanError, match="less than a guess: its RMSE is") as caught:
        plan_any(**NONSENSE, mechanism=mechanism)
    assert "16,777,216 cells" in caught.value.message
    assert "anyway=True" in caught.value.hint
    found = plan_any(**NONSENSE, mechanism=mechanism, anyway=True)
    assert found.rmse > found.uniform_guess_rmse
    assert found.mostly_noise


def test_the_error_stands_beside_the_mean_share() -> None:
    """Some tables are worth while as a whole, but not cell by cell."""
    good = adult_plan(1.0)
    assert good.mean_share == 1 / 24
    assert good.rmse_per_cell == pytest.approx(good.rmse / math.sqrt(24))
    assert not good.mostly_noise
    wide = plan_any(population_size=20_000, domain_size=10_000, epsilon=1)
    assert wide.rmse < wide.uniform_guess_rmse
    assert wide.mostly_noise


def test_a_delta_above_one_in_n_is_warned_of_also_where_nobody_knows_n() -> None:
    """Whoever signs is not told how many respondents the proposer expects."""
    found = plan_any(population_size=20_000, domain_size=24, epsilon=1, delta=1e-4)
    assert "δ = 0.0001 is above 1/n, one in 20,000 respondents" in found.warnings[0]
    (warning,) = replace(found, population_size=None).warnings
    assert "δ = 0.0001 is above 1/n for more than 10,000 respondents" in warning
    small = plan_any(population_size=20_000, domain_size=24, epsilon=1, delta=1e-5)
    assert replace(small, population_size=None).warnings == small.warnings == ()
