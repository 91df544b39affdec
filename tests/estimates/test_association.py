"""Correlation, Cramér's V and mutual information: right where they can be known."""

import numpy as np
import pytest

import veiltab as vt
from tests.support.association_settings import (
    CRITICAL,
    AssociationSetting,
    cramers_v,
    information,
)
from tests.support.estimates import adult_estimate, released_estimate, shaped_table
from veiltab.core.schema import CountTable
from veiltab.errors import ParameterError, SchemaError
from veiltab.estimates import Estimate
from veiltab.inference.correlation import estimate_correlation
from veiltab.inference.strength import (
    Clarity,
    clear_categories,
    contingency_strength,
    information_strength,
)

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


def test_answers_are_those_that_are_measured() -> None:
    """The coverage of V, information and correlation is measured on what users get."""
    estimate = released_estimate(dependent(), 0.5)
    tables = estimate.to_numpy("unbiased")[np.newaxis]
    design = estimate.design("super")
    clarity = Clarity(*(flags[0] for flags in clear_categories(tables, design)))
    squared = contingency_strength(tables, design, clarity, CRITICAL)
    v = estimate.cramers_v("a", "b")
    np.testing.assert_allclose(
        [v.low or 0, v.value or 0, v.high or 0],
        [np.sqrt(n[0] / 2) for n in (squared.interval.low, squared.value, squared.interval.high)],
    )
    nats = information_strength(tables, design, clarity, CRITICAL)
    bits = estimate.mutual_information("a", "b")
    np.testing.assert_allclose(
        [bits.low or 0, bits.value or 0, bits.high or 0],
        [n[0] / np.log(2) for n in (nats.interval.low, nats.value, nats.interval.high)],
    )
    linear = estimate_correlation(tables, design, (np.arange(3.0), np.arange(3.0)), CRITICAL)
    found = estimate.correlation("a", "b")
    assert (found.low, found.high) == (linear.interval.low[0], linear.interval.high[0])


@pytest.mark.parametrize("quantity", ["cramers_v", "mutual_information", "correlation"])
def test_standard_errors_are_the_spread_of_the_estimates(quantity: str) -> None:
    """300 releases about a larger population: the spread has a standard error of 4%, so 20% is 5.

    The errors have their two parts, and both together are the whole.
    """
    setting = AssociationSetting(
        name="spread",
        shares=DEPENDENT / DEPENDENT.sum(),
        people=20_000,
        epsilon=0.5,
        options={"mechanism": "decoys"},
    )
    counts, design = setting.releases(300, 4)
    tables = design.estimate(counts).reshape(-1, 3, 3)
    clarity = Clarity(np.ones(3, dtype=bool), np.ones(3, dtype=bool))
    if quantity == "correlation":
        found = estimate_correlation(tables, design, (np.arange(3.0), np.arange(3.0)), CRITICAL)
        values, errors = found.value, found.error
    else:
        estimator = {"cramers_v": contingency_strength, "mutual_information": information_strength}
        strength = estimator[quantity](tables, design, clarity, CRITICAL)
        values, errors = strength.value, strength.error
    assert values.std() == pytest.approx(errors.mean(), rel=0.2)
    one = getattr(released_estimate(dependent(), 0.5), quantity)("a", "b")
    parts = np.hypot(one.sampling_error, one.privacy_error)
    assert one.standard_error == pytest.approx(parts)
    assert one.low < one.value < one.high


def test_they_generalise_unless_they_are_asked_not_to() -> None:
    """With everybody in the release, only a larger population has a sampling error."""
    estimate = vt.simulate(dependent(), epsilon=1, delta=1e-6, seed=1)
    for quantity in (estimate.cramers_v, estimate.mutual_information, estimate.correlation):
        assert quantity("a", "b").population == "super"
        assert (quantity("a", "b").sampling_error or 0) > 0
        finite = quantity("a", "b", population="finite")
        assert (finite.sampling_error or 0) < 1e-3 * (quantity("a", "b").standard_error or 0)
        assert 0 < width(finite) < width(quantity("a", "b"))


def width(quantity: vt.Quantity) -> float:
    """Return how long an interval is."""
    assert quantity.low is not None
    assert quantity.high is not None
    return quantity.high - quantity.low


def test_a_perfect_association_has_an_interval_up_to_one() -> None:
    """Also where the unbiased estimate lies beyond one, which it does in about half of them."""
    beyond = 0
    for seed in range(6):
        estimate = vt.simulate(shaped_table((2, 2), np.diag([6.0, 4.0]), 500), epsilon=1, seed=seed)
        for found in (estimate.cramers_v("a", "b"), estimate.correlation("a", "b")):
            assert found.high == 1
            assert 0.5 < (found.low or 0) < 1
        beyond += any("outside −1..1" in text for text in found.warnings)
    assert 0 < beyond < 6


def test_independence_is_not_sold_as_association() -> None:
    """Plugging in would give a V of a third; the estimate is near zero, and says so."""
    weights = np.outer([5.0, 3.0, 2.0], [6.0, 3.0, 1.0])
    estimate = released_estimate(shaped_table((3, 3), weights, 45_222), 0.2, seed=2)
    for found in (estimate.cramers_v("a", "b"), estimate.mutual_information("a", "b")):
        assert found.low == 0
        assert width(found) > 0.01
        assert "cannot be distinguished from zero" in found.warnings[0]


def test_categories_that_may_be_empty_widen_the_interval_and_are_named() -> None:
    """They are counted with the most frequent one; if too few are left, there is no answer."""
    weights = np.array([[60.0, 5.0, 2.0], [5.0, 20.0, 8.0], [0.0, 0.0, 0.05]])
    clear = released_estimate(shaped_table((2, 3), weights[:2], 45_222), 1.0)
    rare = released_estimate(shaped_table((3, 3), weights, 45_222), 1.0)
    found = rare.cramers_v("a", "b")
    assert any("the share of a = 'a2' cannot be clearly" in text for text in found.warnings)
    assert width(found) > 2 * width(clear.cramers_v("a", "b"))
    assert width(rare.mutual_information("a", "b")) > width(clear.mutual_information("a", "b"))
    lonely = released_estimate(shaped_table((2, 2), np.array([[60.0, 40.0], [0, 0]]), 20_000), 0.5)
    refused = lonely.cramers_v("a", "b")
    assert not refused.estimable
    assert "a = 'a1'" in refused.warnings[0]


def test_results_are_reproducible() -> None:
    """Nothing is drawn."""
    first, second = (adult_estimate(0.5, seed=4) for _ in range(2))
    assert first.cramers_v("salary", "gender") == second.cramers_v("salary", "gender")


def test_what_does_not_vary_has_no_correlation() -> None:
    """Everybody in one category: the variance cannot be told from zero."""
    weights = np.array([[60.0, 40.0], [0.0, 0.0]])
    estimate = released_estimate(shaped_table((2, 2), weights, 20_000), 0.5)
    found = estimate.correlation("a", "b")
    assert not found.estimable
    assert "the variance of a" in found.warnings[0]


def test_a_variance_that_is_hardly_there_is_said_to_be() -> None:
    """Its interval is wide, lies within −1..1, and says which end tells something."""
    weights = np.array([[90.0, 1.0], [1.0, 8.0]])
    texts: list[str] = []
    for seed in range(8):
        estimate = released_estimate(shaped_table((2, 2), weights, 6_000), 0.7, seed)
        found = estimate.correlation("a", "b")
        if found.estimable:
            assert -1 <= (found.low or 0) < (found.high or 0) <= 1
            texts += found.warnings
    assert any("is itself uncertain" in text for text in texts)
    assert any("only its lower end says something" in text for text in texts)


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
    wide = released_estimate(shaped_table((2, 2_000), np.ones(4_000), 10**6), 5.0)
    with pytest.raises(ParameterError, match="too large"):
        wide.mutual_information("a", "b")


@pytest.mark.slow
def test_a_table_of_2500_cells_has_its_measures() -> None:
    """Without matrices of all pairs of cells; the truth is in the intervals."""
    generator = np.random.default_rng(5)
    weights = generator.random((50, 50)) + 0.2
    table = shaped_table((50, 50), weights, 10**7)
    estimate = released_estimate(table, 5.0)
    shares = table.distribution.reshape(50, 50)
    for found, truth in (
        (estimate.cramers_v("a", "b"), cramers_v(shares)),
        (estimate.mutual_information("a", "b"), information(shares)),
    ):
        assert (found.low or 0) < truth < (found.high or 0)
        assert width(found) < truth / 10
