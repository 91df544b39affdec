"""Estimates to try things on and to show: of the Adult table, of small and of huge ones."""

import numpy as np
from numpy.typing import NDArray

from veiltab.core.plan import plan
from veiltab.core.resampling import apportion
from veiltab.core.schema import Attribute, CountTable, Schema
from veiltab.data.counts import adult_table
from veiltab.estimates import Estimate, Provenance
from veiltab.paper.experiment import simulate_counts

PROVENANCE = Provenance(
    study="3fa9" * 16, title="Salary & schooling", perturbed_by="Statistics <Office>"
)
ORIGIN = Provenance("5a" * 32, "Work and wages", "Statistics bureau")


def adult_to_show(epsilon: float = 1.0, delta: float = 0.0, cells: int = 24) -> Estimate:
    """Return an estimate from one simulated release of the Adult table."""
    return _estimate(adult_table(cells), epsilon, delta, ORIGIN)


def long_estimate(categories: int) -> Estimate:
    """Return an estimate of one attribute."""
    schema = Schema([Attribute("place", [f"place {i}" for i in range(categories)])])
    counts = np.arange(1, categories + 1) * 10
    return _estimate(CountTable(schema, counts), 3.0, 0.0, ORIGIN)


def million_cells() -> Estimate:
    """Return an estimate of 10⁶ cells, most of them empty."""
    schema = Schema(Attribute(f"a{i}", map(str, range(100))) for i in range(3))
    counts = np.zeros(10**6, dtype=np.int64)
    counts[:1000] = 1000
    return _estimate(CountTable(schema, counts), 1.0, 1e-6, ORIGIN)


ODD = ("<script>alert(1)</script>", "a \"b\" 'c' & d", "😀 share", "عمر", "=1+1")


def odd_estimate() -> Estimate:
    """Return an estimate whose names are hostile, quoted, joyful, and from right to left."""
    schema = Schema(
        [Attribute(ODD[0], ODD[:3]), Attribute("share", ODD[3:]), Attribute("x", ["1"])]
    )
    counts = np.array([300, 100, 200, 200, 0, 200])
    origin = Provenance("5a" * 32, f"{ODD[0]} & {ODD[3]}", ODD[1])
    return _estimate(CountTable(schema, counts), 2.0, 0.0, origin)


def _estimate(table: CountTable, epsilon: float, delta: float, origin: Provenance) -> Estimate:
    return _released(table, origin, epsilon=epsilon, delta=delta, seed=7, label="to be shown")


def _released(
    table: CountTable, origin: Provenance, *, epsilon: float, delta: float, seed: int, label: str
) -> Estimate:
    """Return the estimate from a simulated release, with the planner's parameters."""
    chosen = plan(
        population_size=table.population_size,
        domain_size=table.schema.domain_size,
        epsilon=epsilon,
        delta=delta,
        mechanism="shuffle" if delta else "paper",
        anyway=True,
    )
    [counts] = simulate_counts(table, chosen, 1, seed, label)
    return Estimate(table.schema, counts, chosen, provenance=origin)


def released_estimate(table: CountTable, epsilon: float, seed: int = 1) -> Estimate:
    """Return the estimate from a simulated release of a table."""
    return _released(table, PROVENANCE, epsilon=epsilon, delta=0.0, seed=seed, label="estimate")


def adult_estimate(epsilon: float = 1.0, seed: int = 1) -> Estimate:
    """Return the estimate from a release of the Adult table over 24 cells."""
    return released_estimate(adult_table(24), epsilon, seed)


def shaped_table(
    sizes: tuple[int, ...], weights: NDArray[np.float64], population: int
) -> CountTable:
    """Return a table over attributes a, b, c, … with categories a0, a1, …."""
    names = "abcdefgh"[: len(sizes)]
    schema = Schema(
        Attribute(name, [f"{name}{code}" for code in range(size)])
        for name, size in zip(names, sizes, strict=True)
    )
    return CountTable(schema, apportion(weights.reshape(-1), population))
