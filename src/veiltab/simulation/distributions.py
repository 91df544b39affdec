"""The data that experiments run on: the Adult table and the paper's three synthetic shapes."""

import numpy as np
from numpy.typing import NDArray

from veiltab.core.channel import MAX_ESTIMATED_CELLS
from veiltab.core.parameters import check_domain_size, check_population_size
from veiltab.core.resampling import apportion
from veiltab.core.schema import MAX_CATEGORIES, Attribute, CountTable, Schema
from veiltab.errors import ParameterError
from veiltab.sources.adult import adult_table

DISTRIBUTIONS = ("adult", "uniform", "linear", "peaky")
ADULT_POPULATION = 45_222
PEAK = 0.9
"""The share of the most frequent cell in the paper's "peaky" data."""


def distribution_table(name: str, cells: int, population_size: int | None = None) -> CountTable:
    """Return the named data over ``cells`` cells; synthetic ones have any population."""
    if name == "adult":
        table = adult_table(cells)
        if population_size not in (None, table.population_size):
            raise ParameterError(
                f"the Adult table has {table.population_size} respondents, not {population_size}",
                hint="leave the population out, or choose a synthetic distribution",
            )
        return table
    check_domain_size(cells)
    if cells > MAX_ESTIMATED_CELLS:
        raise ParameterError(
            f"{cells} cells are too many to simulate", hint=f"use at most {MAX_ESTIMATED_CELLS}"
        )
    population_size = ADULT_POPULATION if population_size is None else population_size
    check_population_size(population_size)
    return CountTable(anonymous_schema(cells), apportion(_weights(name, cells), population_size))


def anonymous_schema(cells: int) -> Schema:
    """Return a schema of as few plain attributes as can have this many cells."""
    sizes = [cells]
    while sizes[-1] > MAX_CATEGORIES:  # split off a factor until what is left fits in one attribute
        factor = next((f for f in range(MAX_CATEGORIES, 1, -1) if sizes[-1] % f == 0), None)
        if factor is None:
            raise ParameterError(
                f"{cells} cells cannot be arranged as attributes of at most {MAX_CATEGORIES}"
                " categories",
                hint="choose a number of cells with smaller factors, such as a power of ten",
            )
        sizes[-1:] = [factor, sizes[-1] // factor]
    return Schema(
        Attribute(f"attribute {number}", map(str, range(size)))
        for number, size in enumerate(sizes, start=1)
    )


def _weights(name: str, cells: int) -> NDArray[np.float64]:
    if name == "uniform":
        return np.ones(cells)
    if name == "linear":
        return np.arange(1, cells + 1, dtype=np.float64)
    if name == "peaky":
        weights = np.full(cells, (1 - PEAK) / (cells - 1))
        weights[0] = PEAK
        return weights
    raise ParameterError(
        f"there is no distribution {name!r}", hint=f"choose one of {', '.join(DISTRIBUTIONS)}"
    )
