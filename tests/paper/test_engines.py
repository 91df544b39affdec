"""One suite for both engines: the count engine must be the record engine, only faster."""

import math

import numpy as np
import pytest

from tests.support.laws import assert_fits, channel_matrix, orderings, release_law
from veiltab.core.plan import Plan, plan
from veiltab.core.resampling import MAX_COUNTED_POPULATION
from veiltab.core.schema import Attribute, CountTable, Schema
from veiltab.errors import ParameterError
from veiltab.paper.experiment import (
    ENGINES,
    MAX_RECORDS,
    anonymous_schema,
    simulate_counts,
    simulate_records,
)

engines = pytest.mark.parametrize("engine", list(ENGINES))


def table_of(*counts: int) -> CountTable:
    """Return a table over one plain attribute."""
    return CountTable(anonymous_schema(len(counts)), np.array(counts))


def plan_for(table: CountTable, sample_size: int, epsilon: float = 1.0) -> Plan:
    """Plan a release of the table."""
    return plan(
        population_size=table.population_size,
        domain_size=table.schema.domain_size,
        epsilon=epsilon,
        sample_size=sample_size,
    )


@pytest.mark.slow
@engines
@pytest.mark.parametrize(
    ("counts", "sample_size"), [((1, 1), 1), ((3, 1), 2), ((2, 0, 2), 3), ((1, 2, 1), 4)]
)
def test_the_law_of_a_release(engine: str, counts: tuple[int, ...], sample_size: int) -> None:
    """Released tables follow the exact law, by enumeration; 1e-9 false alarms in chi-square."""
    table = table_of(*counts)
    chosen = plan_for(table, sample_size)
    law = _law_of_tables(table, chosen)
    runs = math.ceil(7 / min(law.values()))
    released = ENGINES[engine](table, chosen, runs, 1, "law")
    seen = [int((released == np.array(outcome)).all(axis=1).sum()) for outcome in law]
    assert sum(seen) == runs
    assert_fits(np.array(seen), np.array(list(law.values())))


def _law_of_tables(table: CountTable, chosen: Plan) -> dict[tuple[int, ...], float]:
    """Return the probability of each released table, from that of each released sequence."""
    database = np.repeat(np.arange(table.counts.size), table.counts).tolist()
    matrix = channel_matrix(chosen.domain_size, chosen.ranked.channel.gamma)
    sequences = release_law(database, orderings(len(database), chosen.ranked.sample_size), matrix)
    law: dict[tuple[int, ...], float] = {}
    for released, chance in sequences.items():
        key = tuple(released.count(cell) for cell in range(chosen.domain_size))
        law[key] = law.get(key, 0.0) + float(chance)
    return law


@engines
def test_a_release_has_as_many_records_as_the_sample(engine: str) -> None:
    """Nothing is lost or added, whatever the shape of the table."""
    table = table_of(50, 0, 3, 7, 0, 0, 40)
    released = ENGINES[engine](table, plan_for(table, 31), 20, 3, "sums")
    assert released.shape == (20, 7)
    assert (released.sum(axis=1) == 31).all()
    assert released.min() >= 0


@engines
def test_the_seed_and_the_label_decide(engine: str) -> None:
    """The same seed and label repeat a run; another of either gives another run."""
    table = table_of(500, 300, 200)
    chosen = plan_for(table, 100)

    def release(seed: int, label: str) -> list[list[int]]:
        counts: list[list[int]] = ENGINES[engine](table, chosen, 5, seed, label).tolist()
        return counts

    assert release(1, "a") == release(1, "a")
    assert release(1, "a") != release(2, "a")
    assert release(1, "a") != release(1, "b")


@pytest.mark.slow
def test_records_go_through_several_attributes() -> None:
    """With attributes of uneven sizes the record engine has the count engine's mean and spread."""
    schema = Schema(Attribute(name, categories) for name, categories in _uneven().items())
    counts = np.arange(schema.domain_size) * 7 % 50
    table = CountTable(schema, counts)
    chosen = plan_for(table, 200, epsilon=3.0)
    runs = 500
    by_records = simulate_records(table, chosen, runs, 5, "uneven")
    by_counts = simulate_counts(table, chosen, runs, 5, "uneven")
    difference = by_records.mean(axis=0) - by_counts.mean(axis=0)
    spread = np.sqrt((by_records.var(axis=0) + by_counts.var(axis=0)) / runs)
    assert np.abs(difference / spread).max() < 6  # one false alarm in 10^7 for 42 cells
    ratio = by_records.var(axis=0).sum() / by_counts.var(axis=0).sum()
    assert ratio == pytest.approx(1, abs=0.1)


def _uneven() -> dict[str, list[str]]:
    return {"one": ["x"], "two": ["a", "b"], "three": list("abc"), "seven": list("abcdefg")}


@pytest.mark.parametrize(
    ("engine", "limit"), [("counts", MAX_COUNTED_POPULATION), ("records", MAX_RECORDS)]
)
def test_populations_beyond_an_engine_are_refused(engine: str, limit: int) -> None:
    """Rather than overflow or fill the memory."""
    table = table_of(limit, 1)
    with pytest.raises(ParameterError, match="takes at most"):
        ENGINES[engine](table, plan_for(table, 10), 1, 1, "large")
