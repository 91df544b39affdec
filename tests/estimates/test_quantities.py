"""Quantities made of conditions: their values, errors, intervals, and honest refusals."""

import json
import math

import numpy as np
import pytest

from tests.support.estimates import adult_estimate, released_estimate, shaped_table
from veiltab.core.uncertainty import VarianceComponents
from veiltab.errors import ConditionError, ParameterError
from veiltab.estimates import Estimate, Quantity
from veiltab.inference.conditions import read_condition
from veiltab.inference.quantities import DOUBT, Question

ESTIMATE = adult_estimate()
RICH, MALE, FEMALE = "salary = '>50K'", "gender = 'male'", "gender = 'female'"


def mask(condition: str) -> np.ndarray:
    """Return the cells of a condition as weights."""
    return read_condition(condition, ESTIMATE.schema).mask.astype(float)


def uncertainty(estimate: Estimate = ESTIMATE) -> VarianceComponents:
    """Return the covariance with the unbiased estimate plugged in."""
    return VarianceComponents(estimate.unbiased, estimate.design())


def assert_whole(found: Quantity) -> None:
    """Check what holds for every estimable quantity."""
    assert found.estimable
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert found.standard_error is not None
    assert found.sampling_error is not None
    assert found.privacy_error is not None
    assert found.low <= found.value <= found.high
    squares = found.sampling_error**2 + found.privacy_error**2
    assert found.standard_error**2 == pytest.approx(squares, rel=1e-9)
    assert json.loads(json.dumps(found.as_dict()))["value"] == found.value
    assert f"{found.value:.4g}" in str(found)


def test_a_probability_is_the_sum_of_its_cells() -> None:
    """Unbiased, with the error that the joint covariance gives for the sum."""
    found = ESTIMATE.probability(f"{RICH} and {FEMALE}")
    weights = mask(f"{RICH} and {FEMALE}")
    assert_whole(found)
    assert found.value == pytest.approx(weights @ ESTIMATE.unbiased)
    assert found.privacy_error == pytest.approx(uncertainty().privacy(weights) ** 0.5, rel=1e-6)
    assert found.sampling_error == pytest.approx(uncertainty().sampling(weights) ** 0.5, rel=1e-6)
    assert found == ESTIMATE.probability({"salary": ">50K", "gender": "female"}) or (
        found.value == ESTIMATE.probability({"salary": ">50K", "gender": "female"}).value
    )


def test_everybody_is_certain() -> None:
    """A condition that all meet has the share one, without error."""
    found = ESTIMATE.probability("gender in ('male', 'female')")
    assert found.value == pytest.approx(1, abs=1e-12)
    assert found.standard_error == pytest.approx(0, abs=1e-7)
    assert found.low == pytest.approx(1, abs=1e-7)


def test_a_difference_has_the_error_of_the_linear_statistic() -> None:
    """Overlapping conditions too: what they share cancels."""
    for first, second in ((f"{RICH} and {MALE}", f"{RICH} and {FEMALE}"), (RICH, MALE)):
        found = ESTIMATE.difference(first, second)
        weights = mask(first) - mask(second)
        assert_whole(found)
        assert found.value == pytest.approx(weights @ ESTIMATE.unbiased)
        assert found.standard_error == pytest.approx(uncertainty().total(weights) ** 0.5, rel=1e-6)
    nothing = ESTIMATE.difference(RICH, RICH)
    assert nothing.value == pytest.approx(0, abs=1e-12)
    assert nothing.standard_error == pytest.approx(0, abs=1e-9)


def test_conditional_quantities_are_ratios_of_sums() -> None:
    """Shares, differences and ratios of groups, all from the unbiased table."""
    joint = ESTIMATE.unbiased
    rich_male, rich_female = (float(mask(f"{RICH} and {g}") @ joint) for g in (MALE, FEMALE))
    male, female = (float(mask(g) @ joint) for g in (MALE, FEMALE))
    odds = rich_male * (female - rich_female) / ((male - rich_male) * rich_female)
    expected = {
        ESTIMATE.probability(RICH, MALE): rich_male / male,
        ESTIMATE.risk_difference(RICH, MALE): rich_male / male - rich_female / female,
        ESTIMATE.difference(RICH, "salary != '>50K'", given=MALE): 2 * rich_male / male - 1,
        ESTIMATE.risk_ratio(RICH, MALE): rich_male * female / (male * rich_female),
        ESTIMATE.odds_ratio(RICH, MALE): odds,
    }
    for found, value in expected.items():
        assert found.value == pytest.approx(value, rel=1e-9), found
        assert_whole(found)
    explicit = ESTIMATE.odds_ratio(RICH, MALE, FEMALE)
    assert explicit.value == pytest.approx(odds)


def test_a_difference_within_a_group_has_the_interval_of_its_share() -> None:
    """P(rich | male) − P(not rich | male) is 2P(rich | male) − 1, and so are both of its ends."""
    difference = ESTIMATE.difference(RICH, "salary != '>50K'", given=MALE)
    share = ESTIMATE.probability(RICH, given=MALE)
    for end in ("low", "high"):
        expected = 2 * getattr(share, end) - 1
        assert getattr(difference, end) == pytest.approx(expected, abs=1e-6)


def test_numeric_gradients_confirm_the_errors_of_ratios() -> None:
    """The delta method's gradients, against differences of the ratio itself."""
    plain = ESTIMATE.unbiased

    def odds(joint: np.ndarray) -> float:
        a, b, c, d = (
            float(mask(f"salary {sign} '>50K' and {group}") @ joint)
            for group in (MALE, FEMALE)
            for sign in ("=", "!=")
        )
        return a * d / (b * c)

    step = 1e-6
    gradient = np.array(
        [
            (odds(plain + step * unit) - odds(plain - step * unit)) / (2 * step)
            for unit in np.eye(24)
        ]
    )
    found = ESTIMATE.odds_ratio(RICH, MALE, population="finite")
    assert found.standard_error == pytest.approx(uncertainty().total(gradient) ** 0.5, rel=1e-4)
    assert found.privacy_error == pytest.approx(uncertainty().privacy(gradient) ** 0.5, rel=1e-4)


@pytest.fixture(scope="module")
def hollow() -> Estimate:
    """Return an estimate of a table where nobody is in the group a1."""
    weights = np.array([[60.0, 40.0], [0.0, 0.0], [30.0, 20.0]])
    return released_estimate(shaped_table((3, 2), weights, 20_000), 1.0)


def test_dividing_by_next_to_nothing_is_not_estimable(hollow: Estimate) -> None:
    """Every kind of ratio says so, with the reason, and has no numbers."""
    for found in (
        hollow.probability("b = 'b0'", "a = 'a1'"),
        hollow.difference("b = 'b0'", "b = 'b1'", given="a = 'a1'"),
        hollow.risk_difference("b = 'b0'", "a = 'a1'"),
        hollow.risk_difference("b = 'b0'", "a = 'a0'", "a = 'a1'"),
        hollow.risk_ratio("b = 'b0'", "a = 'a1'"),
        hollow.odds_ratio("b = 'b0'", "a = 'a0'", "a = 'a1'"),
    ):
        assert not found.estimable
        assert found.value is found.low is found.high is found.standard_error is None
        assert "cannot be distinguished from zero" in found.warnings[0]
        assert "not estimable" in str(found)
        assert "not estimable" in found._repr_html_()
        assert not any(isinstance(v, float) and math.isnan(v) for v in found.as_dict().values())


def test_an_uncertain_denominator_is_said() -> None:
    """At a small ε the odds have no upper limit, or one with a warning."""
    found = [adult_estimate(0.5, seed).odds_ratio(RICH, MALE) for seed in range(20)]
    open_ended = [quantity for quantity in found if quantity.high is None]
    assert 0 < len(open_ended) < 20
    for quantity in open_ended:
        assert quantity.estimable
        assert (quantity.low or 0) > 0
        assert "no upper limit, because the denominator" in quantity.warnings[-1]
        assert "at least" in str(quantity)
    assert all(DOUBT in quantity.warnings for quantity in found if quantity.high is not None)
    assert ESTIMATE.risk_difference(RICH, MALE).warnings == ()


def test_an_estimate_below_zero_is_shown_as_zero_and_said(hollow: Estimate) -> None:
    """The interval starts at zero, and the warning gives the unbiased number."""
    cell = hollow.unbiased.reshape(3, 2)[1].argmin()
    found = hollow.probability({"a": "a1", "b": f"b{cell}"})
    assert found.value == 0
    assert found.low == 0
    assert "below zero because of the noise" in found.warnings[0]


def test_contradictions_are_refused() -> None:
    """A group within which the outcome is impossible, or a group without others."""
    with pytest.raises(ConditionError, match="nobody can meet"):
        ESTIMATE.probability(MALE, FEMALE)
    with pytest.raises(ConditionError, match="nobody can meet"):
        ESTIMATE.odds_ratio(RICH, "gender in ('male', 'female')")
    with pytest.raises(ParameterError, match="confidence level"):
        ESTIMATE.probability(RICH, level=95)


def test_wider_levels_and_populations() -> None:
    """More confidence takes more room, and so does a larger population."""
    narrow, wide = (ESTIMATE.probability(RICH, level=level) for level in (0.8, 0.99))
    assert narrow.low is not None
    assert wide.low is not None
    assert wide.low < narrow.low
    larger = ESTIMATE.probability(RICH, population="super")
    assert larger.population == "super"
    assert larger.sampling_error is not None
    assert larger.sampling_error > (narrow.sampling_error or 0)
    assert larger.privacy_error == pytest.approx(narrow.privacy_error)


def test_few_records_are_always_said() -> None:
    """Whatever is asked of a release of a handful of records."""
    poor = released_estimate(shaped_table((2, 2), np.ones(4), 150), 0.5)
    assert poor.plan.ranked.sample_size < 100
    assert "records were released" in poor.probability("a = 'a0'").warnings[0]


def test_html_is_escaped() -> None:
    """What people named their categories is text."""
    found = ESTIMATE.probability(RICH)
    assert "&gt;50K" in found._repr_html_()
    assert ">50K" not in found._repr_html_().replace("&gt;", "")


@pytest.mark.parametrize(
    ("value", "low", "high", "shown"),
    [
        (2.4, 1.3, None, "2.4 (95% interval at least 1.3; no upper limit; standard error 0.5"),
        (2.4, None, 9.0, "2.4 (95% interval at most 9; no lower limit; standard error 0.5"),
        (None, 1.3, None, "at least 1.3; no upper limit (95% interval; Fieller)"),
        (None, 0.2, 1.0, "0.2 to 1 (95% interval; Fieller)"),
    ],
)
def test_an_interval_with_one_end_says_which(
    value: float | None, low: float | None, high: float | None, shown: str
) -> None:
    """In text, in HTML and in JSON; a quantity without a value is still estimable."""
    question = Question(released=ESTIMATE, level=0.95, population="super")
    errors = None if value is None else (0.5, 0.3, 0.4)
    found = question.answer("ratio", "Fieller", value, errors, (low, high), "no limit: vague")
    assert found.estimable
    assert str(found).startswith(f"ratio: {shown}")
    assert str(found).endswith("\n  no limit: vague")
    assert shown in found._repr_html_()
    stored = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert (stored["value"], stored["low"], stored["high"]) == (value, low, high)
    assert stored["estimable"]
    assert stored["standard_error"] == (None if value is None else 0.5)
