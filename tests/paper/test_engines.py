"""One suite for both engines: the count engine must be the record engine, only faster."""

import math
from itertools import product

import numpy as np
import pytest

from tests.support.laws import assert_fits, channel_matrix, orderings, release_law
from veiltab.core.mechanism import Coin, Geometric, Mechanism, WeightTable
from veiltab.core.plan import DECOYS, Plan, plan
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
        anyway=True,
        population_size=table.population_size,
        domain_size=table.schema.domain_size,
        epsilon=epsilon,
        sample_size=sample_size,
        mechanism="paper",
    )


HALF = 1 << 63
BINOMIAL = WeightTable(tuple(math.comb(6, number) * (HALF // 32) for number in range(7)))
"""Up to six decoys of a cell."""


def decoys_for(table: CountTable, law: Geometric | WeightTable, keep: int | None) -> Plan:
    """Plan a release with few decoys: respondents take part with probability ¼."""
    return Plan(
        population_size=table.population_size,
        domain_size=table.schema.domain_size,
        epsilon=3.0,
        delta=0.0 if isinstance(law, Geometric) else 0.01,
        mechanism=Mechanism(Coin(HALF // 2), law, keep),
        accounting=DECOYS,
    )


@pytest.mark.slow
@engines
@pytest.mark.parametrize(("counts", "sample_size"), [((1, 1), 1), ((3, 1), 2), ((2, 0, 2), 3)])
def test_the_law_of_a_release(engine: str, counts: tuple[int, ...], sample_size: int) -> None:
    """Released tables follow the exact law, by enumeration; 1e-9 false alarms in chi-square."""
    table = table_of(*counts)
    chosen = plan_for(table, sample_size)
    law = _law_of_tables(table, chosen)
    runs = min(RUNS, math.ceil(7 / min(law.values())))
    released = ENGINES[engine](table, chosen, runs, 1, "law").tolist()
    assert all(tuple(outcome) in law for outcome in released)
    assert_likely(released, law)


RUNS, EXPECTED = 300, 7
"""Releases of each law; those of outcomes that are expected less often are counted together."""


def assert_likely(released: list[list[int]], law: dict[tuple[int, ...], float]) -> None:
    """Compare how often each outcome was released with its chance."""
    runs = len(released)
    often = sorted((y for y, p in law.items() if p * runs >= EXPECTED), key=law.__getitem__)
    while 0 < (1 - sum(law[y] for y in often)) * runs < EXPECTED - 1e-6 and len(often) < len(law):
        del often[0]
    numbers, chances = [released.count(list(y)) for y in often], [law[y] for y in often]
    if len(often) < len(law):
        numbers, chances = [*numbers, runs - sum(numbers)], [*chances, 1 - sum(chances)]
    assert_fits(np.array(numbers), np.array(chances))


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


@pytest.mark.slow
@engines
@pytest.mark.parametrize(
    ("counts", "law", "keep"),
    [
        pytest.param((3, 0, 1), Geometric(HALF), None, id="geometric"),
        pytest.param((2, 1), Geometric(HALF), HALF, id="geometric, and noise"),
        pytest.param((1, 4), BINOMIAL, None, id="a table of weights"),
    ],
)
def test_the_law_of_a_release_with_decoys(
    engine: str, counts: tuple[int, ...], law: Geometric | WeightTable, keep: int | None
) -> None:
    """The same by enumeration of coins, decoys and noise; outcomes that are rare count as one."""
    table = table_of(*counts)
    chosen = decoys_for(table, law, keep)
    released = ENGINES[engine](table, chosen, RUNS, 1, "law").tolist()
    assert_likely(released, _law_with_decoys(chosen, counts))


def _law_with_decoys(chosen: Plan, counts: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """Return the probability of each released table with at most 12 rows of a cell."""
    law, most = chosen.mechanism.decoys, 12
    assert law is not None
    decoys = [float(law.probability(number)) for number in range(most + 1)]
    cells = []
    for people in counts:
        coins = [
            math.comb(people, number) * 0.25**number * 0.75 ** (people - number)
            for number in range(people + 1)
        ]
        cells.append(np.convolve(coins, decoys)[: most + 1])
    rows = {
        numbers: math.prod(cell[number] for cell, number in zip(cells, numbers, strict=True))
        for numbers in product(range(most + 1), repeat=len(counts))
    }
    return rows if chosen.keep_threshold is None else _through_channel(rows)


def _through_channel(rows: dict[tuple[int, ...], float]) -> dict[tuple[int, ...], float]:
    """Let each row of two cells change sides with probability ¼: half are kept, half redrawn."""
    law: dict[tuple[int, ...], float] = {}
    for (first, second), chance in rows.items():
        for stay, come in product(range(first + 1), range(second + 1)):
            ways = math.comb(first, stay) * 0.75**stay * 0.25 ** (first - stay)
            ways *= math.comb(second, come) * 0.25**come * 0.75 ** (second - come)
            released = (stay + come, first + second - stay - come)
            law[released] = law.get(released, 0.0) + chance * ways
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
    for chosen in (plan_for(table, 100), decoys_for(table, Geometric(HALF), None)):

        def release(seed: int, label: str, chosen: Plan = chosen) -> list[list[int]]:
            counts: list[list[int]] = ENGINES[engine](table, chosen, 5, seed, label).tolist()
            return counts

        assert release(1, "a") == release(1, "a")
        assert release(1, "a") != release(2, "a")
        assert release(1, "a") != release(1, "b")


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["paper", "decoys"])
def test_records_go_through_several_attributes(mechanism: str) -> None:
    """With attributes of uneven sizes the record engine has the count engine's mean and spread."""
    schema = Schema(Attribute(name, categories) for name, categories in _uneven().items())
    counts = np.arange(schema.domain_size) * 7 % 50
    table = CountTable(schema, counts)
    chosen = plan_for(table, 200, epsilon=3.0)
    if mechanism == "decoys":
        chosen = decoys_for(table, Geometric(HALF), chosen.keep_threshold)
    few, many = 120, 5_000  # a release of records is the whole protocol
    by_records = simulate_records(table, chosen, few, 5, "uneven")
    by_counts = simulate_counts(table, chosen, many, 5, "uneven")
    difference = by_records.mean(axis=0) - by_counts.mean(axis=0)
    spread = np.sqrt(by_records.var(axis=0) / few + by_counts.var(axis=0) / many)
    assert np.abs(difference / spread).max() < 6  # one false alarm in 10^7 for 42 cells
    ratio = by_records.var(axis=0).sum() / by_counts.var(axis=0).sum()
    # Its standard error is at most √(2/few/40) = 2.1%, as cells are nearly independent.
    assert ratio == pytest.approx(1, abs=0.12)


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
