"""The test of independence: as many false alarms as it says, and it sees what is there."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.estimates import adult_estimate, released_estimate, shaped_table
from veiltab.core.plan import plan
from veiltab.core.rank_design import RankDesign
from veiltab.core.resampling import apportion, resample
from veiltab.core.uncertainty import Population
from veiltab.errors import ParameterError
from veiltab.inference.independence import Null

REPLICATES = 199

SETTINGS: dict[str, tuple[list[float], list[float], list[float], float]] = {
    "3 x 2, ε = 0.1": ([0.7, 0.2, 0.1], [0.8, 0.2], [1.0], 0.1),
    "3 x 2, ε = 1": ([0.7, 0.2, 0.1], [0.8, 0.2], [1.0], 1.0),
    "4 x 4, ε = 0.5": ([0.9, 0.05, 0.03, 0.02], [0.6, 0.25, 0.1, 0.05], [1.0], 0.5),
    "2 x 2 in three groups, ε = 0.5": ([0.7, 0.3], [0.85, 0.15], [0.6, 0.3, 0.1], 0.5),
}


def false_positive_rate(name: str, runs: int, population: Population) -> float:
    """Return how often independence is rejected at 5% when it is true, with uneven margins.

    The tables are half of a larger release, so that the channel is that of a marginal.
    """
    rows, columns, groups, epsilon = SETTINGS[name]
    shape = len(rows), len(columns), len(groups)
    cells = int(np.prod(shape))
    chosen = plan(population_size=45_222, domain_size=2 * cells, epsilon=epsilon, mechanism="paper")
    channel = chosen.ranked.channel.marginal(cells)
    truth = np.einsum("i,j,k->ijk", rows, columns, groups).ravel()
    generator = np.random.default_rng([7, *name.encode()])
    design = RankDesign(channel, 45_222, chosen.ranked.sample_size, population)
    sampled = RankDesign(channel, 45_222, chosen.ranked.sample_size)
    null = Null(design, *shape)
    rejected = 0
    for _ in range(runs):
        people: NDArray[np.int64] = apportion(truth, 45_222)
        if population == "super":  # the respondents themselves are drawn from it
            people = generator.multinomial(45_222, truth)
        counts = sampled.draw(people, 1, generator)[0]
        drawn = resample(null.plausible(counts), design, null.statistic, generator, REPLICATES)
        larger = int(np.count_nonzero(drawn >= float(null.statistic(counts)) * (1 - 1e-12)))
        rejected += int((1 + larger) / (1 + REPLICATES) <= 0.05)
    return rejected / runs


@pytest.mark.slow
@pytest.mark.parametrize("population", ["finite", "super"])
@pytest.mark.parametrize("name", SETTINGS)
def test_false_alarms_are_about_five_in_a_hundred(name: str, population: Population) -> None:
    """500 nulls: within 5% ± 3%, which is three standard errors (1 in 400 by chance, fixed)."""
    assert 0.02 <= false_positive_rate(name, 500, population) <= 0.08


@pytest.mark.soak
@pytest.mark.parametrize("population", ["finite", "super"])
@pytest.mark.parametrize("name", SETTINGS)
def test_false_alarms_lie_between_four_and_six_in_a_hundred(
    name: str, population: Population
) -> None:
    """8,000 nulls each; the standard error is 0.24%, so the rate itself is in 4% to 6%."""
    rate = false_positive_rate(name, 8_000, population)
    assert 0.04 <= rate <= 0.06, rate


def test_dependence_is_seen() -> None:
    """Salary and marital status in the Adult table, at ε = 1."""
    found = adult_estimate().independence_test("salary", "marital")
    assert found.p_value <= 1 / 2000 + 1e-12
    assert found.replicates == 1_999
    assert "p = 0.0005" in str(found)
    assert found.as_dict()["warnings"] == []
    assert "<b>independence of salary and marital</b>" in found._repr_html_()


def test_dependence_that_a_third_attribute_explains_is_explained() -> None:
    """Both depend on c alone: they are dependent, but not given c."""
    given = np.array([0.9, 0.1])
    weights = np.zeros((2, 2, 2))
    for group, chance in enumerate(given):
        share = np.array([chance, 1 - chance])
        weights[:, :, group] = np.outer(share, share)
    estimate = released_estimate(shaped_table((2, 2, 2), weights, 45_222), 2.0)
    assert estimate.independence_test("a", "b").p_value < 0.001
    assert estimate.independence_test("a", "b", given="c").p_value > 0.01
    assert estimate.independence_test("a", "b", given=["c"]).label.endswith("given c")


def test_the_fitted_null_is_independent_and_has_the_margins() -> None:
    """Within each group the joint is the product of its margins; without groups, of both."""
    estimate = adult_estimate()
    pair = estimate.marginal(["education", "gender"])
    null = Null(pair.design(), 3, 2, 1)
    fitted = null.fit(pair.counts).reshape(3, 2)
    margins = [estimate.marginal(n).shares("most_likely") for n in ("education", "gender")]
    np.testing.assert_allclose(fitted, np.outer(*margins), atol=1e-12)
    np.testing.assert_allclose(null.plausible(pair.counts).reshape(3, 2), fitted, atol=1e-12)
    triple = estimate.marginal(["education", "gender", "salary"])
    grouped = Null(triple.design(), 3, 2, 2)
    for joint in (grouped.fit(triple.counts), grouped.plausible(triple.counts)):
        table = joint.reshape(3, 2, 2)
        assert table.sum() == pytest.approx(1)
        for group in range(2):
            part = table[:, :, group] / table[:, :, group].sum()
            np.testing.assert_allclose(
                part, np.outer(part.sum(axis=1), part.sum(axis=0)), atol=1e-12
            )


def test_many_releases_are_measured_at_once() -> None:
    """Each row has the statistic that it has alone."""
    pair = adult_estimate().marginal(["education", "gender"])
    null = Null(pair.design(), 3, 2, 1)
    counts = np.stack([pair.counts, pair.counts[::-1]])
    together = null.statistic(counts)
    assert together.tolist() == [float(null.statistic(row)) for row in counts]


def test_misuse_is_refused() -> None:
    """An attribute on both sides, and tables that would take forever."""
    estimate = adult_estimate()
    with pytest.raises(ParameterError, match="both tested and conditioned on"):
        estimate.independence_test("salary", "gender", given="gender")
    with pytest.raises(ParameterError, match="named twice"):
        estimate.independence_test("salary", "salary")
    large = released_estimate(shaped_table((400, 300), np.ones(120_000), 10**6), 5.0)
    with pytest.raises(ParameterError, match="too large"):
        large.independence_test("a", "b")
