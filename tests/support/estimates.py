"""Estimates to show: of the Adult table, with odd names, and of a million cells."""

import numpy as np

from veiltab.core.plan import plan
from veiltab.core.schema import Attribute, CountTable, Schema
from veiltab.data.counts import adult_table
from veiltab.estimates import Estimate, Provenance
from veiltab.paper.experiment import simulate_counts

ORIGIN = Provenance("5a" * 32, "Work and wages", "Statistics bureau")


def adult_estimate(epsilon: float = 1.0, delta: float = 0.0, cells: int = 24) -> Estimate:
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
    chosen = plan(
        population_size=table.population_size,
        domain_size=table.schema.domain_size,
        epsilon=epsilon,
        delta=delta,
    )
    [counts] = simulate_counts(table, chosen, 1, 7, "to be shown")
    return Estimate(table.schema, counts, chosen, provenance=origin)
