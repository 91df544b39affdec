"""Exact laws by brute force, and a test of whether counts fit them."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations, permutations, product

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

Release = tuple[int, ...]
Law = dict[Release, Fraction]


def channel_matrix(domain_size: int, gamma: Fraction) -> list[list[Fraction]]:
    """Return the paper's matrix A, written out cell by cell."""
    normalizer = gamma + domain_size - 1
    return [
        [(gamma if row == column else Fraction(1)) / normalizer for column in range(domain_size)]
        for row in range(domain_size)
    ]


def orderings(population_size: int, sample_size: int) -> list[tuple[int, ...]]:
    """Return every ordered sample: the paper's set Θ."""
    return list(permutations(range(population_size), sample_size))


def index_orderings(population_size: int, sample_size: int) -> list[tuple[int, ...]]:
    """Return every sample in index order: what a careless implementation would release."""
    return list(combinations(range(population_size), sample_size))


def release_law(
    database: Sequence[int],
    samples: Iterable[tuple[int, ...]],
    matrix: list[list[Fraction]],
) -> Law:
    """Return the exact law of the released records, each sample being equally likely."""
    samples = list(samples)
    law: Law = {}
    for released in product(range(len(matrix)), repeat=len(samples[0])):
        total = Fraction(0)
        for sample in samples:
            chance = Fraction(1)
            for out, position in zip(released, sample, strict=True):
                chance *= matrix[out][database[position]]
            total += chance
        law[released] = total / len(samples)
    return law


def worst_ratio(
    population_size: int, domain_size: int, samples: list[tuple[int, ...]], gamma: Fraction
) -> Fraction:
    """Return the largest ratio of any release's probability between any two neighbours."""
    matrix = channel_matrix(domain_size, gamma)
    databases = list(product(range(domain_size), repeat=population_size))
    laws = {database: release_law(database, samples, matrix) for database in databases}
    return max(
        laws[database][released] / laws[neighbour][released]
        for database in databases
        for neighbour in neighbours(database, domain_size)
        for released in laws[database]
    )


def neighbours(database: Sequence[int], domain_size: int) -> Iterable[tuple[int, ...]]:
    """Yield every database that differs in exactly one respondent."""
    for position, value in enumerate(database):
        for other in range(domain_size):
            if other != value:
                yield (*database[:position], other, *database[position + 1 :])


def fractions(values: Iterable[object]) -> NDArray[np.object_]:
    """Return an object array of exact Fractions."""
    return np.array([Fraction(str(value)) for value in values], dtype=object)


FALSE_ALARM = 1e-9
"""The chance that a correct sampler fails one chi-square test; all seeds are fixed besides."""


def assert_fits(counts: NDArray[np.int64], probabilities: NDArray[np.float64]) -> None:
    """Fail if the counts are too far from the probabilities (Pearson's chi-square)."""
    expected = probabilities * counts.sum()
    assert expected.min() >= 5, "too few draws for a chi-square test"
    statistic = float(((counts - expected) ** 2 / expected).sum())
    p_value = float(chdtrc(counts.size - 1, statistic))
    assert p_value > FALSE_ALARM, f"chi-square {statistic:.1f}, p = {p_value:.2e}"
