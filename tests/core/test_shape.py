"""Scores of skew and heavy-tailed errors: monotone, invertible, and right for known laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from veiltab.core.shape import LOGARITHM, Shape, compose, cumulants_of, from_moments

shapes = st.tuples(st.floats(-2, 2), st.floats(0, 6)).map(
    lambda pair: Shape(np.array(pair[0]), np.array(pair[1]))
)


@given(shape=shapes, score=st.floats(-4, 4))
def test_scores_can_be_undone(shape: Shape, score: float) -> None:
    """The deviation with a given score has that score."""
    deviation = shape.deviation(score)
    assert float(shape.score(deviation)) == pytest.approx(score, abs=1e-6)


@given(shape=shapes)
def test_larger_deviations_have_larger_scores(shape: Shape) -> None:
    """Otherwise an interval could have a hole."""
    scores = shape.score(np.linspace(-5, 8, 400))
    assert (np.diff(scores) >= -1e-9).all()


def test_the_normal_law_has_its_own_scores() -> None:
    """Without skewness and excess nothing changes."""
    deviations = np.linspace(-4, 4, 33)
    normal = Shape(np.array(0.0), np.array(0.0))
    np.testing.assert_allclose(normal.score(deviations), deviations, atol=1e-5)
    assert float(normal.deviation(1.96)) == pytest.approx(1.96, abs=1e-5)


LAWS = {
    "exponential": stats.expon(),
    "gamma, two": stats.gamma(2),
    "gamma, ten": stats.gamma(10),
    "Laplace": stats.laplace(),
    "Student, eight": stats.t(8),
}


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("name", LAWS)
def test_intervals_of_known_laws_hold_about_as_often_as_they_say(name: str, level: float) -> None:
    """Neither tail misses much more than it should, nor the long one much less."""
    law = LAWS[name]
    mean, variance, skewness, excess = law.stats(moments="mvsk")
    shape = Shape(np.array(float(skewness)), np.array(float(excess)))
    critical = float(stats.norm.ppf((1 + level) / 2))
    spread = float(variance) ** 0.5
    above = float(law.sf(mean + spread * shape.deviation(critical)))
    below = float(law.cdf(mean + spread * shape.deviation(-critical)))
    assert (1 - level) * 0.45 <= above + below <= (1 - level) * 1.4
    assert above == pytest.approx((1 - level) / 2, rel=0.4)
    normal = float(law.sf(mean + spread * critical))
    assert abs(above - (1 - level) / 2) <= abs(normal - (1 - level) / 2) + 0.003


def test_series_of_known_laws() -> None:
    """A Poisson number of coins is a Poisson number: its cumulants are all the same."""
    rate, chance = 3.0, 0.4
    coin = from_moments([chance] * 4)  # E[exp(sX)] − 1
    poisson = tuple(
        rate * coefficient for coefficient in coin
    )  # log E[exp(sN)] = λ(E[exp(sX)] − 1)
    assert cumulants_of(poisson) == pytest.approx([rate * chance] * 4)
    binomial = compose(LOGARITHM, coin)
    expected = [
        chance,
        chance * (1 - chance),
        chance * (1 - chance) * (1 - 2 * chance),
        chance * (1 - chance) * (1 - 6 * chance * (1 - chance)),
    ]
    assert cumulants_of(binomial) == pytest.approx(expected)


def test_a_normal_interval_of_an_empty_cell_would_hold_too_rarely() -> None:
    """At zero it ends at a one-sided quantile; geometric decoys are nearly exponential."""
    decoys = stats.expon(loc=-1)
    for level, normal in ((0.95, 0.929), (0.99, 0.964)):
        critical = float(stats.norm.ppf(level))
        assert float(decoys.cdf(critical)) == pytest.approx(normal, abs=0.001)
        scored = float(Shape(np.array(2.0), np.array(6.0)).deviation(critical))
        assert float(decoys.cdf(scored)) == pytest.approx(level, abs=0.002)
