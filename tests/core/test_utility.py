"""The exact error and covariance by enumeration of every sample and every release."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.channels import gamma_channel
from tests.support.laws import channel_matrix, fractions, orderings, release_law
from veiltab.core import utility
from veiltab.core.privacy import gamma_for
from veiltab.core.rank_design import RankDesign, finite_population_correction
from veiltab.core.uncertainty import VarianceComponents

DATABASES = [
    ((0,), 1, 2, Fraction(3)),
    ((0, 1), 1, 2, Fraction(3)),
    ((0, 1, 1), 2, 2, Fraction(5, 2)),
    ((0, 0, 0, 1), 3, 2, Fraction(9)),
    ((0, 1, 2), 2, 3, Fraction(4)),
    ((0, 0, 2, 2), 4, 3, Fraction(7, 3)),
    ((0, 0, 1, 2), 2, 3, Fraction(2)),
    ((3, 1, 3), 2, 4, Fraction(6)),
]


def enumerated_moments(
    database: tuple[int, ...], m: int, cells: int, gamma: Fraction
) -> tuple[NDArray[np.object_], NDArray[np.object_]]:
    """Return the exact mean and covariance matrix of the estimate, by brute force."""
    channel = gamma_channel(cells, gamma)
    law = release_law(database, orderings(len(database), m), channel_matrix(cells, gamma))
    mean = fractions([0] * cells)
    second = np.outer(mean, mean)
    for released, chance in law.items():
        shares = fractions(Fraction(released.count(cell), m) for cell in range(cells))
        estimate = channel.invert(shares)
        mean = mean + estimate * chance
        second = second + np.outer(estimate, estimate) * chance
    return mean, second - np.outer(mean, mean)


def distribution_of(database: tuple[int, ...], cells: int) -> NDArray[np.object_]:
    """Return the type of a database, exactly."""
    return fractions(Fraction(database.count(cell), len(database)) for cell in range(cells))


@pytest.mark.parametrize(("database", "m", "cells", "gamma"), DATABASES)
def test_exact_error_and_covariance(
    database: tuple[int, ...], m: int, cells: int, gamma: Fraction
) -> None:
    """Mean, mean squared error and every entry of the covariance are exactly as stated."""
    n, truth = len(database), distribution_of(database, cells)
    channel = gamma_channel(cells, gamma)
    mean, matrix = enumerated_moments(database, m, cells, gamma)
    assert (mean == truth).all()
    error = utility.mean_squared_error(n, m, cells, gamma, (truth**2).sum())
    assert error == matrix.trace()
    covariance = VarianceComponents(truth, RankDesign(channel, n, m))
    assert (covariance.cells().total == matrix.diagonal()).all()
    assert covariance.cells().total.sum() == error
    units = np.array([[Fraction(int(i == j)) for j in range(cells)] for i in range(cells)])
    for i, j in product(range(cells), repeat=2):
        assert covariance.between(units[i], units[j]) == matrix[i, j]


def test_the_covariance_of_a_marginal_is_that_of_its_own_channel() -> None:
    """Summing joint cells, or estimating the marginal alone: the same variance, exactly."""
    joint = fractions(["0.1", "0.2", "0.3", "0.25", "0.05", "0.1"])
    channel = gamma_channel(6, Fraction(5))
    design = RankDesign(channel, 20, 7)
    whole = VarianceComponents(joint, design)
    part = VarianceComponents(joint.reshape(2, 3).sum(axis=1), design.marginal(2))
    first = fractions([1, 1, 1, 0, 0, 0])
    assert whole.between(first, first) == part.cells().total[0]


def test_floats_and_fractions_agree() -> None:
    """The everyday path in floats gives the exact path's answers."""
    shares = ["0.1", "0.2", "0.3", "0.4"]
    channel = gamma_channel(4, Fraction(5))
    design = RankDesign(channel, 100, 30)
    exact = VarianceComponents(fractions(shares), design)
    everyday = VarianceComponents(np.array(shares, dtype=float), design)
    np.testing.assert_allclose(
        everyday.cells().total, exact.cells().total.astype(float), rtol=1e-12
    )


@given(n=st.integers(2, 10**6), cells=st.integers(2, 1000), epsilon=st.floats(0.01, 5))
def test_minimax_sample_size_is_the_minimum(n: int, cells: int, epsilon: float) -> None:
    """No other real sample size from 1 to n has a smaller exact worst-case error."""
    best = utility.minimax_sample_size(n, cells, epsilon)
    least = _continuous_error(n, best, cells, epsilon)
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2):
        if 1 <= best * factor <= n:
            assert least <= _continuous_error(n, best * factor, cells, epsilon) * (1 + 1e-12)


def _continuous_error(n: int, m: float, cells: int, epsilon: float) -> float:
    """Return the worst-case mean squared error at a sample size that need not be whole."""
    gamma = 1 + n * math.expm1(epsilon) / m
    noise = (cells - 1) * (2 * gamma + cells - 2) / (m * (gamma - 1) ** 2)
    return noise + (1 - 1 / cells) * (n - m) / (m * (n - 1))


@given(n=st.integers(2, 10**6), cells=st.integers(2, 1000), epsilon=st.floats(0.01, 5))
def test_paper_sample_size_minimises_the_papers_bound(n: int, cells: int, epsilon: float) -> None:
    """The corollary: no neighbouring whole number has a smaller bound of Theorem 2."""
    best = utility.paper_sample_size(n, cells, epsilon)

    def bound(m: int) -> float:
        return utility.error_bound(m, cells, gamma_for(n, m, epsilon))

    for other in (best - 2, best - 1, best + 1, best + 2):
        if 1 <= other <= n and abs(other - best) > 1:
            assert bound(best) <= bound(other) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("epsilon", "paper", "minimax", "rmse"),
    [(0.1, 239, 198, 0.1390), (0.5, 1472, 1222, 0.0558), (1.0, 3899, 3238, 0.0341)],
)
def test_reference_values_of_the_papers_study(
    epsilon: float, paper: int, minimax: int, rmse: float
) -> None:
    """The Adult study: n = 45222, N = 24."""
    n, cells = 45222, 24
    assert utility.paper_sample_size(n, cells, epsilon) == paper
    best = utility.minimax_sample_size(n, cells, epsilon)
    assert round(best) == pytest.approx(minimax, abs=1)
    gamma = gamma_for(n, round(best), epsilon)
    assert gamma == pytest.approx(25, abs=0.05)
    worst = utility.worst_case_rmse(n, round(best), cells, gamma)
    assert worst == pytest.approx(rmse, abs=0.00006)
    assert worst == pytest.approx(2 * math.sqrt((cells - 1) / (n * math.expm1(epsilon))), rel=0.01)


@pytest.mark.slow
@given(
    m=st.integers(1, 10**6),
    cells=st.integers(2, 10**6),
    gamma=st.floats(1.001, 1e6),
    n=st.integers(2, 10**9),
)
def test_the_exact_error_is_below_the_papers_bounds(
    m: int, cells: int, gamma: float, n: int
) -> None:
    """Theorem 2 holds, and so does the tightened form, which the paper only conjectures."""
    m = min(m, n)
    worst = utility.worst_case_rmse(n, m, cells, gamma)
    tightened = utility.tightened_bound(m, cells, gamma)
    assert worst <= tightened * (1 + 1e-9)
    assert tightened <= utility.error_bound(m, cells, gamma)


def test_uniform_data_are_the_hardest() -> None:
    """Among all databases of six respondents over three cells, the evenest has most error."""
    errors = {
        database: utility.mean_squared_error(
            6, 2, 3, Fraction(4), (distribution_of(database, 3) ** 2).sum()
        )
        for database in product(range(3), repeat=6)
    }
    assert max(errors, key=lambda database: errors[database]) == (0, 0, 1, 1, 2, 2)
    assert max(errors.values()) == utility.mean_squared_error(6, 2, 3, Fraction(4), Fraction(1, 3))


def test_a_full_sample_has_no_sampling_error() -> None:
    """With m = n only the perturbation is left, also for a single respondent."""
    assert utility.sampling_error(7, 7, Fraction(1, 3)) == 0
    assert utility.sampling_error(1, 1, Fraction(1)) == 0
    assert finite_population_correction(1, 1) == 0
    assert utility.minimax_sample_size(1, 5, 0.5) == 1


@pytest.mark.parametrize(("n", "m", "cells"), [(1_000, 1_000, 24), (1_000, 300, 2), (10**9, 7, 6)])
@pytest.mark.parametrize("gamma", [1.001, 3.0, 1e6])
def test_the_gamma_that_reaches_an_error(n: int, m: int, cells: int, gamma: float) -> None:
    """It inverts the worst-case error; below the error of the sample alone there is none."""
    rmse = utility.worst_case_rmse(n, m, cells, gamma)
    assert utility.gamma_reaching(n, m, cells, rmse) == pytest.approx(gamma, rel=1e-6)
    own = math.sqrt(utility.sampling_error(n, m, 1 / cells))
    assert utility.gamma_reaching(n, m, cells, 0.999 * own) == math.inf
