"""Quantiles of binned variables, and categories of ordered ones."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import veiltab as vt
from tests.support.mean_coverage import EDGES, SCHEMA, settings, true_quantile
from veiltab.inference.conditions import everybody_or
from veiltab.inference.quantiles import Cumulative, monotone
from veiltab.inference.scores import Variable

AGES = vt.Schema(
    [
        vt.Attribute("age", ["<18", "18 to <40", "40 to <65", ">=65"]),
        vt.Attribute("sex", ["f", "m"]),
    ]
)
PEOPLE = vt.CountTable(AGES, np.array([100, 150, 400, 300, 600, 700, 500, 250]) * 4)
ESTIMATE = vt.simulate(PEOPLE, epsilon=1, seed=2)
PAPER = vt.simulate(PEOPLE, epsilon=1, mechanism="paper", seed=2)
EXACT = vt.simulate(PEOPLE, epsilon=40, seed=1)
BOTH = pytest.mark.parametrize("estimate", [ESTIMATE, PAPER, ESTIMATE.publish()])


def assert_whole(found: vt.Quantity) -> None:
    """Check what holds for every quantile with an interval."""
    assert found.estimable
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.value <= found.high
    assert found.low < found.high
    assert found.standard_error is not None
    assert json.loads(json.dumps(found.as_dict()))["high"] == found.high


def test_without_noise_they_interpolate_within_bins() -> None:
    """1,000, 2,800, 5,200 and 3,000 of 12,000 people."""
    assert EXACT.median("age").value == pytest.approx(40 + 25 * 2200 / 5200, abs=1e-3)
    assert EXACT.quantile("age", 0.1).value == pytest.approx(18 + 22 * 200 / 2800, abs=1e-3)
    low = EXACT.quantile("age", 0.05, bounds=(0, None))
    assert low.value == pytest.approx(18 * 600 / 1000, abs=1e-3)
    within = EXACT.median("age", given="sex = 'f'")
    assert within.value == pytest.approx(40 + 25 * 1200 / 2400, abs=1e-3)


@BOTH
@pytest.mark.parametrize("group", [None, "sex = 'm'"])
def test_the_interval_holds_the_values_whose_share_may_be_q(
    estimate: vt.Estimate, group: str | None
) -> None:
    """At the ends of the interval q is at the end of the interval of the share below."""
    for q in (0.2, 0.5):
        found = estimate.quantile("age", q, group, bounds=(0, 100), level=0.9)
        assert_whole(found)
        for end, side in ((found.low, "high"), (found.high, "low")):
            edges = np.array([0, 18, 40, 65, 100])
            below = np.clip((end - edges[:-1]) / np.diff(edges), 0, 1)
            share = estimate.mean("age", below.tolist(), given=group, level=0.9)
            assert getattr(share, side) == pytest.approx(q, abs=1e-3)


@BOTH
def test_quantiles_rise_and_narrow(estimate: vt.Estimate) -> None:
    """With q, and with the level."""
    quantiles = [estimate.quantile("age", q, bounds=(0, 100)) for q in (0.1, 0.3, 0.5, 0.7, 0.9)]
    for name in ("value", "low", "high"):
        assert all(getattr(a, name) < getattr(b, name) for a, b in pairwise(quantiles))
    wide, narrow = (estimate.median("age", level=level) for level in (0.99, 0.8))
    assert wide.low is not None
    assert narrow.low is not None
    assert wide.low < narrow.low


def test_an_open_bin_has_no_value_and_no_end() -> None:
    """The answer says which category, and how to close it."""
    found = ESTIMATE.quantile("age", 0.95)
    assert not found.estimable
    assert "falls into the open category '>=65' (it lies above 65" in found.warnings[0]
    near = PAPER.quantile("age", 0.74)
    assert near.value is not None
    assert near.low is not None
    assert near.high is None
    assert "no upper end: it reaches into the open category '>=65'" in near.warnings[0]
    assert near.standard_error is not None
    closed = PAPER.quantile("age", 0.74, bounds=(None, 100))
    assert closed.value == near.value
    assert closed.high is not None


def test_bins_may_leave_gaps_and_stand_in_any_order() -> None:
    """Nobody is between whole years, and the order of the schema does not matter."""
    attribute = vt.Attribute("age", ["65–99", "0–17", "18–64"])
    table = vt.CountTable(vt.Schema([attribute]), np.array([200, 400, 400]) * 10)
    estimate = vt.simulate(table, epsilon=40, seed=1)
    assert estimate.median("age").value == pytest.approx(18 + 46 * 0.25, abs=1e-2)
    assert estimate.quantile("age", 0.9).value == pytest.approx(65 + 34 * 0.5, abs=1e-2)


@pytest.mark.parametrize(
    ("categories", "message"),
    [
        (["0–17", "10–20"], "'0–17' and '10–20' of 'x' overlap"),
        (["1", "2"], "'1' of 'x' is not a bin"),
        (["low", "high"], "'low' of 'x' is not a bin"),
    ],
)
def test_what_is_no_scale_is_refused(categories: list[str], message: str) -> None:
    """And the method that needs no numbers is named."""
    schema = vt.Schema([vt.Attribute("x", categories)])
    estimate = vt.simulate(vt.CountTable(schema, np.array([500, 500])), epsilon=1, seed=1)
    with pytest.raises(vt.errors.ParameterError, match=message) as caught:
        estimate.median("x")
    assert "quantile_category" in caught.value.hint or "side by side" in caught.value.hint
    for q in (0, 1, -0.5, float("nan")):
        with pytest.raises(vt.errors.ParameterError, match="lies between the shares 0 and 1"):
            estimate.quantile("x", q)


def test_a_group_of_next_to_nobody_is_refused() -> None:
    """For both kinds of answers."""
    table = vt.CountTable(AGES, np.array([600, 0, 400, 0, 300, 0, 900, 0]))
    estimate = vt.simulate(table, epsilon=0.5, mechanism="paper", seed=1)
    found = estimate.median("age", given="sex = 'm'")
    category = estimate.quantile_category("age", given="sex = 'm'")
    for refused in (found, category):
        assert not refused.estimable
        assert "sex = 'm', cannot be distinguished from zero" in refused.warnings[0]
    assert (category.category, category.low, category.high) == (None, None, None)
    assert str(category).startswith("median of age given sex = 'm': not estimable\n  not est")


@given(st.lists(st.floats(-1, 2), min_size=1, max_size=12))
def test_the_nearest_rising_shares(shares: list[float]) -> None:
    """By their formula, max over i ≤ j of the min over l ≥ j of the mean of i..l."""
    values = np.array(shares)
    size = values.size
    expected = [
        max(min(values[i : k + 1].mean() for k in range(j, size)) for i in range(j + 1))
        for j in range(size)
    ]
    np.testing.assert_allclose(monotone(values), np.clip(expected, 0, 1), atol=1e-12)


def test_the_category_of_a_quantile() -> None:
    """Without numbers, by the order of the schema."""
    found = EXACT.quantile_category("age", given="sex = 'f'")
    assert (found.category, found.low, found.high) == ("40 to <65",) * 3
    assert found.label == "median of age given sex = 'f'"
    assert str(found) == f"{found.label}: '40 to <65' (95% interval '40 to <65' to '40 to <65')"
    vague = PAPER.quantile_category("age", 0.74)
    assert vague.label == "0.74 quantile of age"
    assert vague.low is not None
    assert vague.high is not None
    names = AGES.attributes[0].categories
    assert names.index(vague.low) < names.index(vague.high)
    assert json.loads(json.dumps(vague.as_dict()))["low"] == vague.low
    assert "<b>0.74 quantile of age</b>" in vague._repr_html_()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain, paper", "plain, published"])
def test_intervals_of_quantiles_are_the_ones_that_were_measured(name: str) -> None:
    """The quantile's interval holds the truth exactly where the share's interval holds q."""
    setting = next(s for s in settings() if s.name == name)
    truth = setting.distribution("finite")
    value = true_quantile(truth, 0.5, np.ones(SCHEMA.sizes))
    part = np.clip((value - EDGES[:-1]) / np.diff(EDGES), 0, 1)
    agreed = 0
    for counts in setting.releases(12, 4, "finite"):
        estimate = vt.Estimate(SCHEMA, counts, setting.plan, setting.publication)
        found = estimate.median("age", level=0.6)
        share = estimate.mean("age", part.tolist(), level=0.6)
        assert found.low is not None
        assert found.high is not None
        assert share.low is not None
        assert share.high is not None
        agreed += (found.low <= value <= found.high) == (share.low <= 0.5 <= share.high)
    assert agreed == 12


@pytest.mark.slow
def test_categories_of_the_interval_hold_the_true_one() -> None:
    """600 answers; both ends together miss in at most 5%, so 92% is three standard errors.

    A category is excluded only if a whole interval lies on one side, so that it holds more often.
    """
    setting = next(s for s in settings() if s.name == "plain, paper")
    held = []
    truth = setting.table.marginal(["age"]).distribution
    for counts in setting.releases(300, 5, "finite"):
        estimate = vt.Estimate(SCHEMA, counts, setting.plan).marginal("age")
        for q in (0.35, 0.65):
            true = int(np.argmax(np.cumsum(truth) >= q))
            found = estimate.quantile_category("age", q)
            names = estimate.schema.attributes[0].categories
            assert found.low is not None
            assert found.high is not None
            held.append(names.index(found.low) <= true <= names.index(found.high))
    assert np.mean(held) >= 0.92


def test_the_distribution_function_is_divided_by_category_alone() -> None:
    """Whatever else is in the table, which only adds up."""
    question = ESTIMATE._question(0.95, "finite")
    everybody = everybody_or(None, ESTIMATE.schema)
    function = Cumulative.of(question, Variable("age"), np.arange(4), everybody)
    assert function.atoms.shares.shape == (4,)
    np.testing.assert_allclose(function.shares, np.cumsum(ESTIMATE.marginal("age").unbiased))
