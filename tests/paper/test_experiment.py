"""Experiments: simulated errors against the exact formula, and their bookkeeping."""

import math
from dataclasses import fields

import numpy as np
import pytest

from tests.support.cases import thinned
from veiltab.core import utility
from veiltab.core.designs import release_design
from veiltab.errors import ParameterError
from veiltab.paper import figures
from veiltab.paper.experiment import (
    BATCH_NUMBERS,
    DISTRIBUTIONS,
    Result,
    Setting,
    Wishes,
    distribution_table,
    exact_rmse,
    run_experiment,
    settings_for,
    simulate_counts,
)

PRECISION = 0.004


def adult_setting(sample_size: int | None = None) -> Setting:
    """Return the paper's main setting at ε = 0.5."""
    wishes = [Wishes(sample_size=sample_size)]
    return settings_for("adult", distribution_table("adult", 24), [0.5], wishes)[0]


EVERY_MECHANISM = [
    pytest.param(Wishes(), id="paper"),
    pytest.param(Wishes(mechanism="shuffle", delta=1e-6), id="shuffle"),
    pytest.param(Wishes(mechanism="decoys"), id="decoys"),
    pytest.param(Wishes(mechanism="decoys", epsilon_with_curator=math.inf), id="decoys-alone"),
    pytest.param(Wishes(mechanism="decoys", delta=1e-6), id="decoys-delta"),
    pytest.param(
        Wishes(mechanism="decoys", delta=1e-6, epsilon_with_curator=math.inf),
        id="decoys-delta-alone",
    ),
]
"""All mechanisms, decoys with and without δ and with and without the server's noise."""


def precise_result(setting: Setting, seed: int) -> Result:
    """Simulate a setting with as many runs as leave a standard error of at most 0.4%.

    With 768 cells 1,000 runs are enough; small samples of peaky data need some 20,000.
    """
    runs = 1_000
    while True:
        result = run_experiment(setting, runs, seed)
        assert result.rmse_standard_error is not None
        error = result.rmse_standard_error / result.rmse
        if error <= PRECISION:
            return result
        runs = math.ceil(1.2 * runs * (error / PRECISION) ** 2)


@pytest.mark.parametrize("wishes", EVERY_MECHANISM)
@pytest.mark.parametrize("distribution", ["adult", "uniform"])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_a_thousand_releases_have_the_exact_error(
    wishes: Wishes, distribution: str, epsilon: float
) -> None:
    """Within 3%, for every mechanism, with 96 cells.

    The standard error of a simulated RMSE is at most 0.45%, so each of the 36 settings fails by
    chance less than once in 10^10.
    """
    table = distribution_table(distribution, 96)
    [setting] = settings_for(distribution, table, [epsilon], [wishes])
    result = run_experiment(setting, 1000, seed=14)
    assert result.rmse == pytest.approx(result.exact_rmse, rel=0.03)
    assert result.rmse_standard_error is not None
    assert result.rmse_standard_error < 0.0045 * result.rmse


@pytest.mark.slow
@pytest.mark.parametrize("wishes", EVERY_MECHANISM)
def test_peaked_data_have_the_exact_error(wishes: Wishes) -> None:
    """Where decoys gain least; as many runs as leave a standard error of 0.4%."""
    table = distribution_table("peaky", 24)
    for setting in settings_for("peaky", table, [0.1, 1.0], [wishes]):
        result = precise_result(setting, seed=15)
        assert result.rmse == pytest.approx(result.exact_rmse, rel=0.03)


@pytest.mark.parametrize("wishes", EVERY_MECHANISM)
def test_the_exact_error_is_at_worst_the_planned_one(wishes: Wishes) -> None:
    """Uniform data have the planned error, and no other data have a larger one."""
    for name in DISTRIBUTIONS:
        # 45,216 respondents divide evenly over 24 cells.
        table = distribution_table(name, 24, None if name == "adult" else 45_216)
        [setting] = settings_for(name, table, [0.5], [wishes])
        exact = exact_rmse(setting.plan, table)
        if name == "uniform":
            assert exact == pytest.approx(setting.plan.rmse)
        assert exact <= setting.plan.rmse * (1 + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_simulated_rmse_is_the_exact_one_at_every_point(distribution: str) -> None:
    """Within 3% at every ε and sample size of figures 1 to 4, in `make soak`; else at a third.

    The standard error is at most 0.4%, so a right formula fails by chance less than once in 10^13;
    a wrong one by 5% always does.
    """
    settings = [s for s in figures.sample_size_settings() if s.distribution == distribution]
    assert len(settings) >= 3 * 20
    for setting in thinned(settings):
        result = precise_result(setting, seed=7)
        assert result.rmse == pytest.approx(result.exact_rmse, rel=0.03), result
        assert result.mean_l2 <= result.rmse


@pytest.mark.slow
def test_simulated_rmse_is_the_exact_one_at_every_cardinality() -> None:
    """Figure 5: all four distributions, 12 to 768 cells, down to samples of six."""
    for setting in thinned(figures.cardinality_settings(), by=5):
        result = precise_result(setting, seed=8)
        assert result.rmse == pytest.approx(result.exact_rmse, rel=0.03), result


@pytest.mark.slow
@pytest.mark.parametrize("wishes", thinned(EVERY_MECHANISM, by=2))
def test_the_record_engine_meets_the_exact_formula(wishes: Wishes) -> None:
    """The whole protocol, from coins and decoys to decrypted counts, has the predicted error."""
    table = distribution_table("linear", 24, 3000)
    [setting] = settings_for("linear", table, [0.5], [wishes])
    result = run_experiment(setting, 100, seed=9, engine="records")
    assert result.rmse_standard_error is not None
    # Six standard errors: a false alarm of two in a billion.
    assert abs(result.rmse - result.exact_rmse) < 6 * result.rmse_standard_error


def test_the_result_has_the_documented_names_and_values() -> None:
    """Scripts rely on these names."""
    setting = adult_setting(1472)
    result = run_experiment(setting, 50, seed=1)
    assert [field.name for field in fields(Result)] == [
        *("distribution", "mechanism", "population_size", "cells", "epsilon", "delta"),
        *("sample_size", "coin_probability", "expected_rows", "gamma", "runs", "mean_l2", "rmse"),
        *("rmse_standard_error", "exact_rmse", "error_bound", "tightened_bound"),
    ]
    gamma = setting.plan.ranked.gamma
    assert (result.cells, result.epsilon, result.sample_size, result.runs) == (24, 0.5, 1472, 50)
    assert (result.mechanism, result.population_size, result.delta) == ("paper", 45_222, 0)
    assert (result.coin_probability, result.expected_rows) == (None, 1472)
    assert result.error_bound == utility.error_bound(1472, 24, gamma)
    assert result.tightened_bound == utility.tightened_bound(1472, 24, gamma)
    assert result.exact_rmse == pytest.approx(0.0557, abs=0.0001)


def test_a_result_with_decoys_has_what_they_have() -> None:
    """A coin in place of a sample size, and neither of the paper's bounds."""
    wishes = [Wishes(mechanism="decoys", delta=1e-6, epsilon_with_curator=math.inf)]
    [setting] = settings_for("adult", distribution_table("adult", 24), [0.5], wishes)
    result = run_experiment(setting, 5, seed=1)
    assert (result.mechanism, result.delta, result.sample_size) == ("decoys", 1e-6, None)
    assert (result.gamma, result.error_bound, result.tightened_bound) == (None, None, None)
    assert result.coin_probability == setting.plan.coin_probability
    assert result.expected_rows == setting.plan.expected_rows
    assert result.expected_rows > 45_222


def test_one_run_has_no_standard_error() -> None:
    """A single release gives an error but no idea of its spread."""
    result = run_experiment(adult_setting(), 1, seed=1)
    assert result.rmse == result.mean_l2
    assert result.rmse_standard_error is None


def test_a_setting_does_not_depend_on_its_neighbours() -> None:
    """Running more settings, or in another order, changes no result."""
    table = distribution_table("peaky", 24)
    few = settings_for("peaky", table, [0.5], [Wishes(sample_size=100)])
    several = [Wishes(sample_size=50), Wishes(mechanism="decoys"), Wishes(sample_size=100)]
    many = settings_for("peaky", table, [0.1, 0.5], several)
    alone = run_experiment(few[0], 20, seed=3)
    among = [run_experiment(setting, 20, seed=3) for setting in many]
    assert alone in among


@pytest.mark.slow
def test_batches_bound_the_memory_and_are_independent() -> None:
    """A setting that needs several batches draws anew in each of them."""
    cells = BATCH_NUMBERS // 4
    table = distribution_table("uniform", cells, 1000)
    [setting] = settings_for("uniform", table, [9.0], [Wishes(sample_size=50)])
    result = run_experiment(setting, 9, seed=1)
    assert result.runs == 9
    assert result.rmse_standard_error is not None
    one = run_experiment(setting, 4, seed=1)
    assert one.rmse != result.rmse


@pytest.mark.parametrize("runs", [0, -1, 10**7 + 1])
def test_impossible_numbers_of_runs_are_refused(runs: int) -> None:
    """Nothing is simulated for them."""
    with pytest.raises(ParameterError, match="number of runs"):
        run_experiment(adult_setting(), runs, seed=1)


@pytest.mark.slow
def test_estimates_have_the_exact_covariance() -> None:
    """Simulated variances of cells, a marginal and a contrast are those of the formula."""
    setting = adult_setting()
    truth, chosen = setting.table.distribution, setting.plan
    runs = 40_000
    design = release_design(chosen)
    estimates = design.estimate(simulate_counts(setting.table, chosen, runs, 4, "covariance"))
    cells = np.eye(24)
    expected = [design.total.between(truth, cell, cell) for cell in cells]
    # The relative standard error of a variance is about √(2/40000) = 0.7%: 5% is seven of them.
    np.testing.assert_allclose(estimates.var(axis=0), expected, rtol=0.05)
    male = np.arange(24) // 2 % 2 == 0
    for weights in (male.astype(float), np.where(male, 1.0, -1.0)):
        variance = design.total.between(truth, weights, weights)
        assert (estimates @ weights).var() == pytest.approx(variance, rel=0.05)
