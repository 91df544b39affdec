"""The smallest and oddest releases: numbers, refusals and warnings, but never NaN or a crash."""

import math
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from veiltab.core.plan import Plan
from veiltab.core.plan import plan as careful_plan
from veiltab.core.schema import Attribute, CountTable, Schema
from veiltab.core.uncertainty import Population
from veiltab.estimates import Estimate, Quantity
from veiltab.rehearsal import simulate

SCHEMA = Schema([Attribute("a", ["x", "y"]), Attribute("b", ["u", "v"]), Attribute("one", ["z"])])
plan = partial(careful_plan, anyway=True)
POPULATIONS: tuple[Population, ...] = ("finite", "super")


def plans() -> dict[str, Plan]:
    """Return plans of very few records, and of everybody."""
    return {
        "one of two": plan(population_size=2, domain_size=4, epsilon=0.1, sample_size=1),
        "one of one": plan(population_size=1, domain_size=4, epsilon=2.0, mechanism="paper"),
        "next to no privacy": plan(
            population_size=30, domain_size=4, epsilon=30.0, mechanism="paper"
        ),
        "next to no information": plan(
            population_size=30, domain_size=4, epsilon=0.001, mechanism="paper"
        ),
        "everybody, shuffled": plan(
            population_size=400, domain_size=4, epsilon=1.0, delta=1e-3, mechanism="shuffle"
        ),
    }


def decoy_plans() -> dict[str, Plan]:
    """Return plans with decoys for hardly anybody, and for next to no noise."""

    def decoys(population: int, epsilon: float, **options: Any) -> Plan:
        return plan(
            population_size=population,
            domain_size=4,
            epsilon=epsilon,
            mechanism="decoys",
            **options,
        )

    return {
        "decoys, one person": decoys(1, 0.1),
        "decoys, next to no privacy": decoys(30, 12.0),
        "decoys, next to no information": decoys(30, 0.001),
        "decoys, everybody": decoys(400, 1.0, delta=1e-3),
        "decoys, matched": decoys(900, 1.0, linkage="matched"),
    }


def releases(chosen: Plan) -> Iterator[np.ndarray]:
    """Yield all records in one cell, in the last one, and spread out."""
    size = chosen.sample_size or round(chosen.expected_rows or 0)
    yield np.array([size, 0, 0, 0])
    yield np.array([0, 0, 0, size])
    yield np.bincount(np.arange(size) % 4, minlength=4)


def quantities(estimate: Estimate) -> Iterator[Quantity]:
    """Yield everything that can be asked about two attributes."""
    a, b, both = "a = 'x'", "b = 'u'", "a in ('x', 'y')"
    for population in POPULATIONS:
        yield estimate.probability(a, population=population)
        yield estimate.probability(both, population=population)
        yield estimate.probability(a, b, population=population)
        yield estimate.probability(both, b, population=population)
        yield estimate.difference(a, b, population=population)
        yield estimate.difference(a, "a = 'y'", given=b, population=population)
        yield estimate.risk_difference(a, b, population=population)
        yield estimate.risk_ratio(a, b, population=population)
        yield estimate.odds_ratio(a, b, population=population)
        yield estimate.correlation("a", "b", population=population)
    yield estimate.cramers_v("a", "b")
    yield estimate.mutual_information("a", "b", population="super")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*plans(), *decoy_plans()])
def test_every_answer_is_a_number_or_an_explicit_refusal(name: str) -> None:
    """For every quantity: finite numbers in order, or none and a reason."""
    chosen = (plans() | decoy_plans())[name]
    for counts in releases(chosen):
        estimate = Estimate(SCHEMA, counts, chosen)
        for found in quantities(estimate):
            numbers = (found.value, found.low, found.high, found.standard_error)
            if not found.estimable:
                assert numbers == (None,) * 4
                assert found.warnings
                continue
            assert all(number is None or math.isfinite(number) for number in numbers), found
            assert found.value is not None or found.warnings
            assert found.low is not None
            low, high = found.low, math.inf if found.high is None else found.high
            # Only what is known exactly has no width.
            assert low < high or found.standard_error == 0, found
            assert low <= (low if found.value is None else found.value) <= high, found
        assert 0 < estimate.independence_test("a", "b").p_value <= 1
        assert estimate._repr_html_()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*plans(), *decoy_plans()])
def test_every_table_is_whole(name: str) -> None:
    """Joint, marginal and conditional tables have no NaN, whatever the release and the choices."""
    chosen = (plans() | decoy_plans())[name]
    for counts in releases(chosen):
        estimate = Estimate(SCHEMA, counts, chosen)
        parts = (estimate, estimate.marginal("a"), estimate.marginal("one"))
        for each, simultaneous, population in product(parts, (False, True), POPULATIONS):
            table = each.table(simultaneous=simultaneous, population=population)
            numbers = table.select("share", "standard_error", "low", "high").to_numpy()
            assert np.isfinite(numbers).all()
            low, high = table["low"] - 1e-9, table["high"] + 1e-9
            assert ((low <= table["share"]) & (table["share"] <= high)).all()
        for table in (estimate.conditional("a", "b"), estimate.conditional("b", ["one", "a"])):
            assert not table["share"].is_nan().any()
            assert (table["low"].is_null() == ~table["estimable"]).all()
            assert (table["share"].is_null() >= ~table["estimable"]).all()
            assert (table["reason"].is_null() == table["estimable"]).all()


def test_one_category_holds_everybody_for_sure() -> None:
    """The share is one, and nothing about it is uncertain."""
    chosen = plans()["next to no privacy"]
    table = Estimate(SCHEMA, next(releases(chosen)), chosen).marginal("one").table()
    assert table["share"].item() == 1
    assert table["standard_error"].item() == pytest.approx(0, abs=1e-9)


def test_a_shown_share_lies_within_its_interval() -> None:
    """Also where a projection would have to move most shares far: in many cells of few records."""
    chosen = plan(population_size=100, domain_size=80, epsilon=6.0, sample_size=100)
    counts = np.zeros(80, dtype=np.int64)
    counts[:2] = 97, 3
    found = Estimate(Schema([Attribute("a", map(str, range(80)))]), counts, chosen)
    table, projected = found.table(), found.table("projected")
    assert ((table["low"] <= table["share"]) & (table["share"] <= table["high"])).all()
    assert not (projected["low"] <= projected["share"]).all()


def test_one_person_has_a_trend_test() -> None:
    """Drawn releases without any spread raise no warning, and are no reason to reject."""
    names = [("a", ["x", "y", "z"]), ("b", ["u", "v"]), ("c", ["n", "s"])]
    table = CountTable(Schema([Attribute(*named) for named in names]), np.eye(12, dtype=int)[0])
    estimate = simulate(table, epsilon=1.0, seed=1, anyway=True)
    assert 0 < estimate.trend_test("a", "b").p_value <= 1
