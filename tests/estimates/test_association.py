"""Correlation, Cramér's V and mutual information: right where they can be known."""

import numpy as np
import pytest

from tests.support.estimates import adult_estimate, released_estimate, shaped_table
from veiltab.core.schema import CountTable
from veiltab.errors import ParameterError, SchemaError
from veiltab.estimates import Estimate

DEPENDENT = np.array([[30.0, 8.0, 2.0], [5.0, 25.0, 5.0], [2.0, 8.0, 15.0]])


def dependent() -> CountTable:
    """Return a table whose two attributes go together."""
    return shaped_table((3, 3), DEPENDENT, 45_222)


def correlation_of(shares: np.ndarray, x: list[float], y: list[float]) -> float:
    """Return the correlation in a known table."""
    cells = [(x[i], y[j], shares[i, j]) for i in range(len(x)) for j in range(len(y))]
    left, right, weights = (np.array(column) for column in zip(*cells, strict=True))
    left, right = left - weights @ left, right - weights @ right
    return float(weights @ (left * right) / np.sqrt((weights @ left**2) * (weights @ right**2)))


def test_the_correlation_is_that_of_the_unbiased_table() -> None:
    """With scores 0, 1, 2 by default, or with those that are given."""
    estimate = released_estimate(dependent(), 1.0)
    table = estimate.to_numpy("unbiased")
    found = estimate.correlation("a", "b")
    assert found.value == pytest.approx(correlation_of(table, [0, 1, 2], [0, 1, 2]))
    assert found.standard_error is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low < (found.value or 0) < found.high
    scored = estimate.correlation("a", "b", {"b": [0, 10, 11]})
    assert scored.value == pytest.approx(correlation_of(table, [0, 1, 2], [0, 10, 11]))


@pytest.mark.slow
def test_intervals_of_the_correlation_cover() -> None:
    """300 releases: 95% ± 4 standard errors (1.26% each), a false alarm of 1 in 10,000, fixed."""
    table = dependent()
    truth = correlation_of(table.distribution.reshape(3, 3), [0, 1, 2], [0, 1, 2])
    found = [released_estimate(table, 0.5, seed).correlation("a", "b") for seed in range(300)]
    covered = [f.low is not None and f.high is not None and f.low <= truth <= f.high for f in found]
    assert 0.90 <= np.mean(covered) <= 1.0
    errors = [f.standard_error for f in found]
    values = np.array([f.value for f in found], dtype=float)
    assert values.std() == pytest.approx(np.mean(np.array(errors, dtype=float)), rel=0.25)


@pytest.mark.slow
def test_intervals_of_cramers_v_and_information_cover_and_agree_with_the_test() -> None:
    """15 releases; at most 3 of 15 misses each (false alarm 1 in 180, fixed seeds)."""
    table = dependent()
    shares = table.distribution.reshape(3, 3)
    expected = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    v = float(np.sqrt(((shares - expected) ** 2 / expected).sum() / 2))
    bits = float((shares * np.log2(shares / expected)).sum())
    missed = {"v": 0, "bits": 0}
    for seed in range(15):
        estimate = released_estimate(table, 0.5, seed)
        for name, found, truth in (
            ("v", estimate.cramers_v("a", "b"), v),
            ("bits", estimate.mutual_information("a", "b"), bits),
        ):
            assert found.value is not None
            assert found.low is not None
            assert found.high is not None
            assert found.low <= found.value <= found.high
            missed[name] += not found.low <= truth <= found.high
    assert max(missed.values()) <= 3


def test_independence_is_not_sold_as_association() -> None:
    """Plugging in would give a V of a third; the estimate is near zero, and says so."""
    weights = np.outer([5.0, 3.0, 2.0], [6.0, 3.0, 1.0])
    estimate = released_estimate(shaped_table((3, 3), weights, 45_222), 0.2, seed=2)
    found = estimate.cramers_v("a", "b")
    assert found.low == 0
    assert "cannot be distinguished from zero" in found.warnings[-1]
    assert estimate.mutual_information("a", "b").low == 0


def test_results_are_reproducible() -> None:
    """The seed follows from the counts."""
    first, second = (adult_estimate(0.5, seed=4) for _ in range(2))
    assert first.cramers_v("salary", "gender") == second.cramers_v("salary", "gender")


def test_what_does_not_vary_has_no_correlation() -> None:
    """Everybody in one category: the variance cannot be told from zero."""
    weights = np.array([[60.0, 40.0], [0.0, 0.0]])
    estimate = released_estimate(shaped_table((2, 2), weights, 20_000), 0.5)
    found = estimate.correlation("a", "b")
    assert not found.estimable
    assert "the variance of a" in found.warnings[0]


def single() -> Estimate:
    """Return an estimate with an attribute of one category."""
    return released_estimate(shaped_table((1, 4), np.ones(4), 5_000), 1.0)


def test_misuse_is_refused() -> None:
    """The same attribute twice, an unknown one, one that cannot vary, scores that do not fit."""
    estimate = adult_estimate()
    with pytest.raises(ParameterError, match="named twice"):
        estimate.correlation("salary", "salary")
    with pytest.raises(SchemaError, match="no attribute 'age'"):
        estimate.cramers_v("salary", "age")
    with pytest.raises(ParameterError, match="only one category"):
        single().mutual_information("a", "b")
    for scores in ([1.0], [1.0, 1.0], [0.0, float("nan")]):
        with pytest.raises(ParameterError, match="the scores of 'salary'"):
            estimate.correlation("salary", "gender", {"salary": scores})
    large = released_estimate(shaped_table((150, 150), np.ones(22_500), 10**6), 5.0)
    with pytest.raises(ParameterError, match="too large"):
        large.cramers_v("a", "b")
