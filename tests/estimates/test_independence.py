"""The test of independence: as many false alarms as it says, and it sees what is there."""

import time

import numpy as np
import pytest

from tests.support.estimates import adult_estimate, released_estimate, shaped_table
from tests.support.nulls import nulls, p_value
from veiltab.core.uncertainty import Population
from veiltab.errors import ParameterError
from veiltab.inference.independence import Independence
from veiltab.inference.rank_one import Model

NULLS = nulls()
QUICK = {
    "3 x 3 in 6, rank, little": 300,
    "3 x 3 in 6, decoys": 250,
    "3 x 2, channel, published": 300,
}
"""How many releases of these settings are tested in the usual tests."""


def false_alarms(name: str, runs: int, population: Population) -> float:
    """Return how often independence is rejected at 5% when it is true."""
    setting = NULLS[name]()
    generator = np.random.default_rng([7, *name.encode()])
    rejected = 0
    for counts in setting.releases(runs, population, generator):
        design = setting.design(population, int(counts.sum()))
        null = Independence(design, *setting.truth.shape)
        observed = float(null.statistic(counts[np.newaxis])[0])
        truth = null.plausible(counts)
        rejected += p_value(observed, truth, design, null.statistic, generator) <= 0.05
    return rejected / runs


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_false_alarms_are_about_five_in_a_hundred(name: str) -> None:
    """Within 5% ± 3.9%, three standard errors (1 in 400 by chance, fixed)."""
    runs = QUICK[name]
    assert abs(false_alarms(name, runs, "super") - 0.05) <= 3 * (0.05 * 0.95 / runs) ** 0.5


@pytest.mark.soak
@pytest.mark.parametrize("population", ["finite", "super"])
@pytest.mark.parametrize("name", NULLS)
def test_false_alarms_lie_between_four_and_six_in_a_hundred(
    name: str, population: Population
) -> None:
    """8,000 nulls each; the standard error is 0.24%.

    The bound is 4% to 6% and two standard errors: a rate of 6% fails 1 in 40 times.
    """
    rate = false_alarms(name, 8_000, population)
    assert 0.04 - 0.005 <= rate <= 0.06 + 0.005, rate


def test_the_statistic_has_the_mean_of_its_degrees_of_freedom() -> None:
    """Whatever the margins and the noise: 2,000 releases each, within 12%.

    The margin-fitted statistic had 1.7 times the mean of flat margins in the first of these.
    """
    for name in ("3 x 3 in 6, rank, little", "3 x 3 in 6, rank", "3 x 2 in 5 uneven, paper"):
        setting = NULLS[name]()
        counts = setting.releases(2_000, "super", np.random.default_rng(5))
        null = Independence(setting.design("super"), *setting.truth.shape)
        ratio = float(null.statistic(counts).mean()) / null.degrees_of_freedom
        assert 0.88 <= ratio <= 1.12, (name, ratio)


def test_dependence_is_seen() -> None:
    """Salary and marital status in the Adult table, at ε = 1."""
    found = adult_estimate().independence_test("salary", "marital")
    assert found.p_value < 1e-6
    assert found.replicates == 9_999
    assert found.found_by == "tail"
    assert found.degrees_of_freedom == 1
    assert "the tail of 9,999 drawn releases" in str(found)
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
    within = estimate.independence_test("a", "b", given="c")
    assert within.p_value > 0.01
    assert within.degrees_of_freedom == 2
    assert within.found_by == "draws"
    assert estimate.independence_test("a", "b", given=["c"]).label.endswith("given c")


def test_the_nearest_table_is_independent_and_nearest() -> None:
    """It has rank one in each group and the total one, and none of its neighbours is nearer."""
    setting = NULLS["3 x 2 in 5 uneven, paper"]()
    null = Independence(setting.design("super"), *setting.truth.shape)
    generator = np.random.default_rng(3)
    tables = null.tables(setting.releases(4, "super", generator))
    fitted = null.model.signed(tables, 300)
    np.testing.assert_allclose(fitted.sum(axis=(0, 1, 2)), 1, rtol=1e-9)
    singular = np.linalg.svd(np.moveaxis(fitted, (0, 1), (-2, -1)), compute_uv=False)
    assert (singular[..., 1] <= 1e-9 * singular[..., 0]).all()
    weights = null.model.weights(fitted)
    nearest = (weights * (tables - fitted) ** 2).sum(axis=(0, 1, 2))
    for _ in range(50):
        rows, columns = (
            generator.normal(0, 1e-4, (3, 1, 5, 1)),
            generator.normal(0, 1e-4, (1, 2, 5, 1)),
        )
        moved = fitted * (1 + rows) * (1 + columns)
        moved /= moved.sum(axis=(0, 1, 2))
        assert ((weights * (tables - moved) ** 2).sum(axis=(0, 1, 2)) >= nearest - 1e-9).all()


def test_what_is_drawn_from_is_a_proper_distribution_and_independent() -> None:
    """Without noise it is the product of the margins; with noise it has no negative shares."""
    exact = np.outer([0.5, 0.3, 0.2], [0.6, 0.4]).reshape(3, 2, 1, 1)
    np.testing.assert_allclose(Model(1e-9, 1.0).proper(exact), exact, atol=1e-9)
    setting = NULLS["3 x 3 in 6, rank, little"]()
    null = Independence(setting.design("super"), *setting.truth.shape)
    counts = setting.releases(1, "super", np.random.default_rng(3))[0]
    drawn_from = null.plausible(counts).reshape(3, 3, 6)
    assert drawn_from.min() >= 0
    assert drawn_from.sum() == pytest.approx(1)
    for group in range(6):
        part = drawn_from[:, :, group]
        outer = np.outer(part.sum(axis=1), part.sum(axis=0))
        np.testing.assert_allclose(part * part.sum(), outer, atol=1e-12)


def test_many_releases_are_measured_at_once() -> None:
    """Each row has the statistic that it has alone."""
    pair = adult_estimate().marginal(["education", "gender"])
    null = Independence(pair.design(), 3, 2, 1)
    counts = np.stack([pair.counts, pair.counts[::-1]])
    together = null.statistic(counts)
    alone = [float(null.statistic(row[np.newaxis])[0]) for row in counts]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


def test_a_test_takes_a_moment() -> None:
    """A test of 24 cells by 9,999 releases: well under a second of this process."""
    estimate = adult_estimate()
    start = time.process_time()
    estimate.independence_test("salary", "marital", given=["education", "gender"])
    assert time.process_time() - start < 1.0


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
