"""p-values by drawing: counted where that is possible, and never too small where it is not."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.support.nulls import nulls
from veiltab.core.released import Shares
from veiltab.core.resampling import Statistic, resample
from veiltab.core.uncertainty import ReleaseDesign
from veiltab.inference.independence import Independence
from veiltab.inference.significance import MOST_DRAWN, SMALLEST, Tail, significance

LAWS = {
    "χ² of 1": stats.chi2(1),
    "χ² of 4": stats.chi2(4),
    "χ² of 24": stats.chi2(24),
    "squares of decoys": stats.weibull_min(0.5),
    "heavier still": stats.weibull_min(0.35),
    "lognormal": stats.lognorm(1),
}
"""From lighter tails than an exponential one to much heavier ones."""


def exceeded(law: Any, alpha: float, tail: Tail) -> float:  # noqa: ANN401 - a frozen law of scipy
    """Return the exact chance of a p-value of at most alpha, given the fitted tail."""
    low, high = tail.threshold, 1e12
    for _ in range(80):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if tail.chance(middle) <= alpha else (middle, high)
    return float(law.sf(high))


def fitted_tail(drawn: Shares) -> Tail:
    """Return the tail of what has one."""
    tail = Tail.of(drawn)
    assert tail is not None
    return tail


@pytest.mark.parametrize("size", [MOST_DRAWN, 1_999])
@pytest.mark.parametrize("name", LAWS)
def test_the_tail_promises_no_more_than_it_keeps(name: str, size: int) -> None:
    """P(p ≤ α) ≤ α on average over what is drawn, computed exactly from the law.

    Of 60 tails the average is at most 1.1 α, a tenth being three of its standard errors or more.
    Larger p-values are counted.
    """
    generator = np.random.default_rng([3, size, *name.encode()])
    law = LAWS[name]
    tails = [fitted_tail(law.rvs(size, random_state=generator)) for _ in range(60)]
    for alpha in (5e-4, 1e-4, 1e-5, SMALLEST):
        chance = float(np.mean([exceeded(law, alpha, tail) for tail in tails]))
        assert chance <= 1.1 * alpha, (alpha, chance)


@pytest.mark.parametrize("name", ["χ² of 1", "squares of decoys"])
def test_the_tail_is_not_far_off(name: str) -> None:
    """At a true 10⁻⁴, the p-value is at most five times as large."""
    law = LAWS[name]
    drawn = law.rvs(MOST_DRAWN, random_state=np.random.default_rng(1))
    assert fitted_tail(drawn).chance(float(law.isf(1e-4))) <= 5e-4


def test_a_tail_never_ends() -> None:
    """Statistics that are bounded by one: two is unlikely, but not impossible."""
    tail = fitted_tail(np.random.default_rng(1).random(MOST_DRAWN))
    assert tail.index == 0
    assert 0 < tail.chance(2.0) < 1e-9


def normal_squares() -> tuple[list[int], Callable[[int], Shares]]:
    """Return a source of statistics, and the list in which it writes how many were asked for."""
    asked: list[int] = []
    generator = np.random.default_rng(1)

    def draw(runs: int) -> Shares:
        asked.append(runs)
        return generator.standard_normal(runs) ** 2

    return asked, draw


def test_more_are_drawn_only_where_few_are_as_large() -> None:
    """A p-value of a half needs 1,999 draws, one of a thousandth all, and both are counted."""
    asked, draw = normal_squares()
    found = significance(0.45, 24, draw)
    assert asked == [1_999]
    assert found.found_by == "draws"
    assert found.p_value == pytest.approx(0.5, abs=0.05)
    asked, draw = normal_squares()
    found = significance(9.5, 24, draw)
    assert asked == [1_999, 8_000]
    assert (found.replicates, found.found_by) == (9_999, "draws")
    assert found.p_value == pytest.approx(0.002, abs=0.001)


def test_beyond_the_draws_the_tail_goes_on_but_not_to_zero() -> None:
    """At 25 = 5² the p-value is below 10⁻⁴, and at a million it is the smallest there is."""
    found = significance(25.0, 24, normal_squares()[1])
    assert found.found_by == "tail"
    assert stats.chi2(1).sf(25) < found.p_value < 1e-4
    assert significance(1e6, 24, normal_squares()[1]).p_value == SMALLEST


def test_large_tables_are_counted() -> None:
    """Where fewer than 1,999 releases can be drawn, a p-value is not continued."""
    found = significance(25.0, 100_000, normal_squares()[1])
    assert (found.replicates, found.found_by, found.p_value) == (200, "draws", 1 / 201)


def test_statistics_without_a_tail_are_counted() -> None:
    """If all drawn statistics are the same, nothing can be continued."""
    found = significance(1.0, 24, np.zeros)
    assert (found.found_by, found.p_value) == ("draws", 1 / 10_000)


def _draw(
    truth: Shares,
    design: ReleaseDesign,
    statistic: Statistic,
    generator: np.random.Generator,
    runs: int,
) -> Shares:
    return resample(truth, design, statistic, generator, runs)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["2 x 2 in 3, paper", "3 x 2 in 5 uneven, decoys"])
def test_small_p_values_of_true_hypotheses_are_rare(name: str) -> None:
    """A million releases under independence; only the most extreme ones need their p-value.

    With the exact rate α, the numbers below 10⁻³, 10⁻⁴ and 10⁻⁵ exceed their means by three
    standard errors in 1 of 100 runs; one half more is left to the fitted null distribution.
    """
    setting = nulls()[name]()
    generator = np.random.default_rng([9, *name.encode()])
    design = setting.design("super")
    null = Independence(design, *setting.truth.shape)
    small = []
    for _ in range(50):
        counts = setting.releases(20_000, "super", generator)
        statistics = null.statistic(counts)
        for place in np.argsort(statistics)[-60:]:
            draw = partial(_draw, null.plausible(counts[place]), design, null.statistic, generator)
            found = significance(float(statistics[place]), setting.truth.size, draw)
            small.append(found.p_value)
    for alpha in (1e-3, 1e-4, 1e-5):
        mean = alpha * 1_000_000
        assert np.count_nonzero(np.array(small) <= alpha) <= 1.5 * mean + 3 * mean**0.5, alpha
