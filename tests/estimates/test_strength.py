"""The law of φ² and mutual information: derivatives, cumulants, and what merging can hide."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.association_settings import (
    AssociationSetting,
    association_settings,
    contingency,
    information,
    measure,
)
from veiltab.core.shape import Shape
from veiltab.core.uncertainty import CovarianceForm
from veiltab.inference.measures import Contingency, Information, smooth_log_product
from veiltab.inference.second_order import Expansion, PluggedCovariance, cumulants
from veiltab.inference.strength import Clarity, contingency_strength, information_strength

Array = NDArray[np.float64]

GENERATOR = np.random.default_rng(3)
TABLES = GENERATOR.dirichlet(np.full(12, 3.0), 2).reshape(2, 3, 4)
FORM = CovarianceForm(2e-4, 1e-3, 3e-4)
SETTINGS = {setting.name: setting for setting in association_settings()}
LARGE = [name for name in SETTINGS if name.startswith("10×10")]


def dense_hessian(expansion: Expansion) -> Array:
    """Return H as matrices."""
    diagonal = expansion.curvature[..., np.newaxis] * np.eye(expansion.curvature.shape[-1])
    columns = expansion.columns
    whole: Array = diagonal + columns @ expansion.middle @ np.swapaxes(columns, -1, -2)
    return whole


def small_errors() -> Information:
    """Return the measure with errors so small that every term is far from zero."""
    cells, rows, columns = (np.full((2, *sizes), 1e-5) for sizes in ((3, 4), (3,), (4,)))
    return Information(cells, rows, columns)


@pytest.mark.parametrize("kind", [Contingency(), small_errors()], ids=["contingency", "nats"])
def test_derivatives_are_those_of_the_measure(kind: Contingency | Information) -> None:
    """Against differences of the value and of the gradient, in directions that keep the sum."""
    step = 1e-6
    expansion = kind.expand(TABLES)
    hessian = dense_hessian(expansion)
    for left, right in itertools.pairwise(range(12)):
        direction = np.zeros(12)
        direction[left], direction[right] = 1, -1
        moved = step * direction.reshape(3, 4)
        up, down = kind.expand(TABLES + moved), kind.expand(TABLES - moved)
        np.testing.assert_allclose(
            (up.value - down.value) / (2 * step), expansion.gradient @ direction, rtol=1e-4
        )
        slopes = (up.gradient - down.gradient) / (2 * step) @ direction
        np.testing.assert_allclose(
            slopes, np.einsum("i,nij,j->n", direction, hessian, direction), rtol=1e-3
        )


def test_values_are_the_measures() -> None:
    """φ² and mutual information of known tables, for errors next to nothing."""
    np.testing.assert_allclose(Contingency().expand(TABLES).value, [*map(contingency, TABLES)])
    nats = np.array([information(table) for table in TABLES]) * np.log(2)
    np.testing.assert_allclose(small_errors().expand(TABLES).value, nats, rtol=1e-5)


def test_cumulants_are_those_of_dense_matrices() -> None:
    """κ₂ to κ₄ from H and Σ themselves; the covariance agrees with that of a partition."""
    shares = TABLES.reshape(2, 12)
    covariance = PluggedCovariance(shares, np.full((1, 12), 1 / 12), FORM)
    dense = FORM.of_partition(shares, np.full((1, 12), 1 / 12))
    vectors = GENERATOR.normal(size=(2, 12))
    np.testing.assert_allclose(
        covariance.times(vectors), np.einsum("nij,nj->ni", dense, vectors), atol=1e-15
    )
    expansion = Contingency().expand(TABLES)
    law = cumulants(expansion, covariance, None)
    for release in range(2):
        sigma, gradient = dense[release], expansion.gradient[release]
        product = dense_hessian(expansion)[release] @ sigma
        powers = [np.linalg.matrix_power(product, power) for power in range(5)]
        assert law.bias[release] == pytest.approx(np.trace(product) / 2)
        for row, (factor, times, half) in enumerate(((1, 0, 1 / 2), (3, 1, 1), (12, 2, 3))):
            linear = factor * gradient @ sigma @ powers[times] @ gradient
            assert law.linear[row, release] == pytest.approx(linear)
            assert law.square[row, release] == pytest.approx(half * np.trace(powers[row + 2]))


def test_cells_with_skew_errors_add_their_own_cumulants() -> None:
    """Drawn gamma errors: variance and third cumulant to 10%, where normal ones are far off."""
    cells, shape = 400, 1.0
    tables = np.full((1, 20, 20), 1 / cells)
    form = CovarianceForm(0.0, cells * 1e-8, 1e-12)  # a standard error of 1e-4: 4% of a share
    covariance = PluggedCovariance(tables.reshape(1, -1), np.full((1, cells), 1 / cells), form)
    skew = Shape(np.full((1, cells), 2 / shape**0.5), np.full((1, cells), 6 / shape))
    expansion = Contingency().expand(tables)
    law, normal = (cumulants(expansion, covariance, kind) for kind in (skew, None))
    drawn = GENERATOR.gamma(shape, size=(4_000, cells)) - shape
    errors = 1e-4 * (drawn - drawn.mean(axis=1, keepdims=True)).reshape(-1, 20, 20)
    values = Contingency().plain(tables + errors, tables)
    assert law.square[0, 0] == pytest.approx(values.var(), rel=0.1)
    assert normal.square[0, 0] < 0.4 * values.var()
    third = ((values - values.mean()) ** 3).mean()
    assert law.square[1, 0] == pytest.approx(third, rel=0.35)
    assert normal.square[1, 0] < 0.2 * third


@pytest.mark.parametrize(("skewness", "excess"), [(0.0, 0.0), (2.0, 6.0)], ids=["normal", "gamma"])
def test_the_smooth_function_has_the_mean_of_the_term(skewness: float, excess: float) -> None:
    """For 60,000 drawn errors: within 0.1 standard errors, and 0.17 for an empty cell."""
    generator = np.random.default_rng(8)
    gamma, normal = generator.exponential(size=60_000) - 1, generator.standard_normal(60_000)
    errors = gamma if skewness else normal
    for truth in (0.0, 0.02, 0.1, 0.3, 0.7, 1.5, 3.0, 5.0, 8.0, 30.0):
        error = 0.01
        drawn = smooth_log_product(
            error * (truth + errors), np.full(errors.size, error), (skewness, excess)
        )[0]
        exact = error * truth * np.log(error * truth) if truth else 0.0
        noise = 4 * drawn.std() / errors.size**0.5
        allowed = (0.17 if truth < 0.05 else 0.1) * error + noise
        assert abs(drawn.mean() - exact) <= allowed, truth


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in SETTINGS if n not in LARGE])
def test_intervals_cover(name: str) -> None:
    """300 releases: 95% less 4 standard errors (1.26% each); a false alarm of 1 in 10,000, fixed.

    No interval has the width zero.  Where categories had to be merged, it may cover more often.
    """
    for quantity, found in measure(SETTINGS[name], 300, seed=12).items():
        assert found.covers >= 90, (quantity, found)
        assert found.empty == 0, quantity
        assert found.given > 60, (quantity, found)


@pytest.mark.soak
@pytest.mark.parametrize("name", SETTINGS)
def test_intervals_cover_in_the_long_run(name: str) -> None:
    """2,000 releases: 93% to 97.5%, or more where the answer is wider and says why.

    The standard error is 0.5%, so that a true 95% fails once in 10,000 times.
    """
    for quantity, found in measure(SETTINGS[name], 2_000, seed=101).items():
        assert found.covers >= 93, (quantity, found)
        assert found.covers <= 97.5 or found.widened > 20, (quantity, found)
        assert found.empty == 0, quantity


def exact_setting() -> AssociationSetting:
    """Return a setting with next to no noise."""
    return AssociationSetting(
        name="next to no noise",
        shares=np.full((4, 5), 1 / 20),
        people=10**8,
        epsilon=20.0,
        options={"mechanism": "decoys"},
    )


@pytest.mark.slow
def test_merging_loses_no_more_than_is_allowed_for() -> None:
    """Of 20 random tables, with very rare and with dependent categories, in both measures."""
    _, design = exact_setting().releases(1, 1)
    generator = np.random.default_rng(2)
    for _ in range(20):
        table = generator.dirichlet(np.full(20, generator.choice([0.2, 2.0]))).reshape(4, 5)
        table *= generator.choice([1.0, 0.02], (4, 1)) * generator.choice([1.0, 0.02], 5)
        table = table / table.sum() + 1e-9
        largest = table.sum(axis=1).argmax(), table.sum(axis=0).argmax()
        rows, columns = generator.random(4) < 0.6, generator.random(5) < 0.6
        for flags, position in zip((rows, columns), largest, strict=True):
            flags[position] = flags[position - 1] = True
        clarity = Clarity(rows, columns)
        for estimate, exact in (
            (contingency_strength, contingency(table)),
            (information_strength, information(table) * np.log(2)),
        ):
            interval = estimate(table[np.newaxis], design, clarity, 1.96).interval
            assert interval.low[0] <= exact + 1e-6
            assert interval.high[0] >= exact - 1e-6
