"""Estimates with decoys: the exact error, the likelihood, and a test that keeps its level."""

import math
from typing import Any

import numpy as np
import pytest

from veiltab.core.coin_design import CoinDesign
from veiltab.core.designs import release_design
from veiltab.core.estimators import most_likely, project
from veiltab.core.plan import Plan, plan
from veiltab.core.publication import PublicationNoise
from veiltab.core.resampling import apportion
from veiltab.core.schema import Attribute, CountTable, Schema
from veiltab.core.uncertainty import VarianceComponents
from veiltab.data.counts import adult_table
from veiltab.errors import ParameterError
from veiltab.estimates import Estimate

FREE = {"epsilon_with_curator": math.inf}
MECHANISMS: dict[str, dict[str, Any]] = {
    "paper": {"mechanism": "paper"},
    "shuffle": {"mechanism": "shuffle", "delta": 1e-6},
    "decoys": {"mechanism": "decoys", **FREE},
    "decoys, channel": {"mechanism": "decoys", "epsilon_with_curator": 2.0},
    "decoys, δ": {"mechanism": "decoys", "delta": 1e-6, **FREE},
    "decoys, δ, channel": {"mechanism": "decoys", "delta": 1e-6},
    "decoys, matched": {"mechanism": "decoys", "linkage": "matched"},
    "decoys, matched, δ": {"mechanism": "decoys", "linkage": "matched", "delta": 1e-6},
}
RUNS = 1_000


def plan_of(name: str, cells: int = 24) -> Plan:
    """Return the plan of a mechanism for the Adult table."""
    return plan(population_size=45_222, domain_size=cells, epsilon=0.5, **MECHANISMS[name])


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_thousand_releases_have_the_exact_error(name: str, published: bool) -> None:  # noqa: FBT001 - a parameter
    """Within 3%, on the Adult table and on uniform data, where the plan states it as well.

    The standard error of an RMSE over 24 cells is 0.6% or less, so 3% are five of them.
    """
    chosen = plan_of(name)
    noise = PublicationNoise.for_epsilon(chosen.epsilon_public, 24) if published else None
    design = release_design(chosen, publication=noise)
    generator = np.random.default_rng([5, *name.encode()])
    for people in (adult_table(24).counts, apportion(np.ones(24), 45_222)):
        truth = people / people.sum()
        errors = design.estimate(design.draw(people, RUNS, generator)) - truth
        measured = float(np.sqrt((errors**2).sum(axis=1).mean()))
        exact = float(VarianceComponents(truth, design).cells().total.sum()) ** 0.5
        assert measured == pytest.approx(exact, rel=0.03)
    stated = chosen.rmse_published if published else chosen.rmse
    if chosen.linkage == "matched":  # there the hardest data may be those in one cell
        assert exact <= stated * (1 + 1e-9)
    else:
        assert exact == pytest.approx(stated, rel=1e-6)


@pytest.mark.parametrize("name", ["decoys", "decoys, channel", "decoys, δ", "decoys, matched"])
def test_the_most_likely_solves_the_score_equations(name: str) -> None:
    """Where a share is positive (x − t)/(a + bt) is the same; where it is zero it is no larger."""
    design = release_design(plan_of(name), rows=15_000)
    people = apportion(np.array([60.0, 20, 10] + [1.0] + [0.0] * 20), 45_222)
    counts = design.draw(people, 20, np.random.default_rng(1))
    unbiased, found = design.estimate(counts), most_likely(counts, design)
    constant, slope = map(float, design.cell_variance)
    scores = (unbiased - found) / (constant + slope * found)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert (found == 0).any()
    for row, shares in zip(scores, found, strict=True):
        multiplier = row[shares > 0].max()
        np.testing.assert_allclose(
            row[shares > 0], multiplier, rtol=1e-6, atol=1e-9 / constant**0.5
        )
        assert (row <= multiplier + 1e-6 * abs(multiplier)).all()


def test_where_nothing_is_negative_all_estimators_agree() -> None:
    """The projection and the likelihood change nothing that is a proper distribution."""
    design = release_design(plan_of("decoys"))
    counts = design.draw(apportion(np.ones(24), 45_222), 5, np.random.default_rng(1))
    unbiased = design.estimate(counts)
    assert unbiased.min() > 0
    np.testing.assert_allclose(project(unbiased), unbiased, atol=1e-12)
    np.testing.assert_allclose(most_likely(counts, design), unbiased, atol=1e-12)


def test_equal_noise_makes_the_most_likely_the_projected() -> None:
    """Where everybody takes part and no channel moves rows, all cells have the same variance."""
    design = release_design(plan_of("decoys, δ"))
    counts = design.draw(
        apportion(np.eye(24)[0] + np.eye(24)[1], 45_222), 5, np.random.default_rng(1)
    )
    assert (design.estimate(counts) < 0).any()
    np.testing.assert_allclose(
        most_likely(counts, design), project(design.estimate(counts)), atol=1e-12
    )


SCHEMA = Schema([Attribute("a", ["x", "y", "z"]), Attribute("b", ["u", "v"])])
TABLE = CountTable(SCHEMA, np.array([100, 500, 900, 300, 0, 200]))


def test_rows_may_be_any_number() -> None:
    """By coin nobody knows beforehand how many rows there are; a negative count is refused."""
    chosen = plan(population_size=2_000, domain_size=6, epsilon=1.0, mechanism="decoys")
    for counts in ([0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0], [900] * 6):
        assert Estimate(SCHEMA, np.array(counts), chosen).shares().sum() == pytest.approx(1)
    with pytest.raises(ParameterError, match="no count may be negative"):
        Estimate(SCHEMA, np.array([5, -1, 0, 0, 0, 0]), chosen)
    noise = PublicationNoise.for_epsilon(1.0, 6)
    assert Estimate(SCHEMA, np.array([5, -1, 0, 0, 0, 0]), chosen, noise).shares().min() >= 0


def test_a_published_copy_belongs_to_its_table() -> None:
    """A copy of another number of cells than the plan's and the schema's is refused."""
    chosen = plan(population_size=2_000, domain_size=6, epsilon=1.0, mechanism="decoys")
    for cells in (4, 12):
        with pytest.raises(ParameterError, match="has no marginal"):
            Estimate(SCHEMA, TABLE.counts, chosen, PublicationNoise.for_epsilon(1.0, cells))
    part = SCHEMA.subset(["b"])
    assert Estimate(part, np.array([5, 5]), chosen, PublicationNoise.for_epsilon(1.0, 6)).shares()[
        0
    ]


def test_the_design_of_a_marginal_has_the_sums_of_decoys() -> None:
    """And a marginal of a copy the sums of its noise."""
    chosen = plan(population_size=2_000, domain_size=6, epsilon=1.0, mechanism="decoys")
    noise = PublicationNoise.for_epsilon(1.0, 6)
    estimate = Estimate(SCHEMA, TABLE.counts, chosen, noise).marginal("b")
    design = estimate.design()
    assert isinstance(design, CoinDesign)
    assert (design.cells, design.domain_size) == (2, 6)
    assert design.publication == noise
    joint = Estimate(SCHEMA, TABLE.counts, chosen, noise)
    summed = joint.unbiased.reshape(3, 2).sum(axis=0)
    np.testing.assert_allclose(estimate.unbiased, summed, atol=1e-12)
