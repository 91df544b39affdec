"""A million cells: never a matrix, and memory in proportion to the cells."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from veiltab.core.designs import release_design
from veiltab.core.plan import plan
from veiltab.core.schema import Attribute, Schema
from veiltab.estimates import Estimate

CELLS = 10**6
BOUND = 400 * CELLS
"""Bytes: fifty numbers a cell.  A matrix of these cells would take eight terabytes."""


@pytest.fixture(scope="module")
def estimate() -> Estimate:
    """Return an estimate of three attributes of a hundred categories each."""
    schema = Schema(Attribute(name, [f"{name}{i}" for i in range(100)]) for name in "abc")
    chosen = plan(population_size=10**8, domain_size=CELLS, epsilon=3.0, mechanism="paper")
    generator = np.random.default_rng(0)
    kept = generator.binomial(chosen.ranked.sample_size, chosen.ranked.keep_probability)
    cells = np.concatenate(
        [
            (generator.beta(2, 5, kept) * CELLS).astype(np.int64),
            generator.integers(0, CELLS, chosen.ranked.sample_size - kept),
        ]
    )
    return Estimate(schema, np.bincount(cells, minlength=CELLS), chosen)


TASKS: dict[str, Callable[[Estimate], object]] = {
    "table": lambda e: e.table(),
    "most likely table": lambda e: e.table("most_likely"),
    "band": lambda e: e.table(simultaneous=True),
    "marginal": lambda e: e.marginal("a").table(),
    "conditional": lambda e: e.conditional("c", ["a", "b"]),
    "probability": lambda e: e.probability("a = 'a1' and not b in ('b2', 'b3')"),
    "odds ratio": lambda e: e.odds_ratio("a in ('a1', 'a2', 'a3')", "b = 'b1' or c = 'c7'"),
    "correlation": lambda e: e.correlation("a", "b"),
    "independence": lambda e: e.independence_test("a", "b"),
    "page": lambda e: e._repr_html_(),
    "warnings": lambda e: e.warnings,
}


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_a_million_cells_take_memory_in_proportion(estimate: Estimate, task: str) -> None:
    """The peak of what NumPy and Python allocate stays below fifty numbers a cell."""
    tracemalloc.start()
    try:
        assert TASKS[task](estimate) is not None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < BOUND


DECOY_CELLS = 250_000
DECOY_TASKS: dict[str, Callable[[Estimate], object]] = {
    "table": lambda e: e.table(),
    "band": lambda e: e.table(simultaneous=True),
    "conditional": lambda e: e.conditional("c", ["a", "b"]),
    "people": lambda e: e.people_table(),
}


@pytest.fixture(scope="module")
def with_decoys() -> Estimate:
    """Return an estimate with decoys that does not know how many people there are."""
    sizes = {"a": 50, "b": 50, "c": 100}
    schema = Schema(Attribute(n, [f"{n}{i}" for i in range(k)]) for n, k in sizes.items())
    chosen = plan(
        population_size=10**7,
        domain_size=DECOY_CELLS,
        epsilon=1.0,
        mechanism="decoys",
        linkage="matched",
    )
    generator = np.random.default_rng(0)
    people = generator.multinomial(10**7, np.full(DECOY_CELLS, 1 / DECOY_CELLS))
    return Estimate(schema, release_design(chosen).draw(people, 1, generator)[0], chosen)


@pytest.mark.slow
@pytest.mark.parametrize("task", DECOY_TASKS)
def test_decoys_take_memory_in_proportion(with_decoys: Estimate, task: str) -> None:
    """The same bound for each cell, where errors are skew and their shapes are computed."""
    tracemalloc.start()
    try:
        assert DECOY_TASKS[task](with_decoys) is not None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < BOUND / CELLS * DECOY_CELLS
