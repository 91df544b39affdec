"""Estimates to try things on: releases of the Adult table, and of small made-up ones."""

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


def released_estimate(table: CountTable, epsilon: float, seed: int = 1) -> Estimate:
    """Return the estimate from a simulated release of a table, with the planner's parameters."""
    chosen = plan(
        population_size=table.population_size,
        domain_size=table.schema.domain_size,
        epsilon=epsilon,
    )
    counts = simulate_counts(table, chosen, 1, seed, "estimate")[0]
    return Estimate(table.schema, counts, chosen, provenance=PROVENANCE)


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
