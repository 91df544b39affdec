"""Two ways to simulate releases; both give the counts that a researcher would see.

The count engine draws the released table directly, at a cost of O(N) a release.  The record
engine does what the parties do, record by record, and is there to check the first.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from veiltab.core import group
from veiltab.core.perturbation import draw_noise
from veiltab.core.plan import Plan
from veiltab.core.sampling import draw_sample
from veiltab.core.table import CountTable
from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import ParameterError

Release = NDArray[np.int64]
"""Released counts: one row per run, one column per cell."""

Engine = Callable[[CountTable, Plan, int, int, str], Release]
"""Table, plan, number of runs, seed, and a label that sets this experiment's randomness apart."""

MAX_COUNTED_POPULATION = 10**9 - 1
"""What NumPy's hypergeometric sampler takes."""

MAX_RECORDS = 10**8
"""The record engine holds the whole population in memory, 8 bytes a record."""


def simulate_counts(table: CountTable, plan: Plan, runs: int, seed: int, label: str) -> Release:
    """Draw released tables from their exact law, without touching a record.

    K ~ Bin(m, p) of the m sampled records are kept; those are a simple random sample of K
    respondents, so their table is multivariate hypergeometric; the others are uniform cells.
    """
    _check_population(table, MAX_COUNTED_POPULATION, "counts")
    generator = np.random.default_rng([seed, *label.encode()])
    kept = generator.binomial(plan.sample_size, plan.keep_probability, size=runs)
    uniform = np.full(plan.domain_size, 1 / plan.domain_size)
    replaced = generator.multinomial(plan.sample_size - kept, uniform)
    return _draw_without_replacement(table.counts, kept, generator) + replaced


def _draw_without_replacement(
    counts: NDArray[np.int64], sizes: NDArray[np.int64], generator: np.random.Generator
) -> Release:
    """Draw a multivariate hypergeometric table for each sample size.

    The cells are halved again and again: how many of a node's draws fall in its left half is
    hypergeometric, so one vectorised call serves a whole level for all runs.
    """
    width = 1 << (counts.size - 1).bit_length()
    levels = [np.concatenate([counts, np.zeros(width - counts.size, dtype=np.int64)])]
    while levels[-1].size > 1:
        levels.append(levels[-1].reshape(-1, 2).sum(axis=1))
    drawn = sizes[:, np.newaxis]
    for level in reversed(levels[:-1]):
        halves = np.empty((sizes.size, level.size), dtype=np.int64)
        halves[:, 0::2] = generator.hypergeometric(level[0::2], level[1::2], drawn)
        halves[:, 1::2] = drawn - halves[:, 0::2]
        drawn = halves
    return drawn[:, : counts.size]


def simulate_records(table: CountTable, plan: Plan, runs: int, seed: int, label: str) -> Release:
    """Really sample, pad, perturb, decrypt and count, once per run."""
    _check_population(table, MAX_RECORDS, "records")
    entropy = CipherEntropy.from_seed(seed, label)
    population = np.repeat(np.arange(table.counts.size), table.counts)
    released = np.empty((runs, table.counts.size), dtype=np.int64)
    for run in range(runs):
        rows = draw_sample(population.size, plan.sample_size, entropy)
        sanitized = _through_the_server(table, plan, population[rows], entropy)
        released[run] = np.bincount(sanitized, minlength=table.counts.size)
    return released


def _through_the_server(
    table: CountTable, plan: Plan, sampled: NDArray[np.int64], entropy: CipherEntropy
) -> NDArray[np.int64]:
    """Return the sampled cells as the researcher decrypts them."""
    schema = table.schema
    noise = schema.codes(draw_noise(plan.channel, sampled.size, entropy))
    sanitized = []
    for codes, error, size in zip(schema.codes(sampled), noise, schema.sizes, strict=True):
        pad = group.draw_uniform(size, sampled.size, entropy)
        encrypted = group.add(codes, pad, size)
        perturbed = group.add(encrypted, error, size)
        sanitized.append(group.subtract(perturbed, pad, size))
    return schema.cells(sanitized)


def _check_population(table: CountTable, limit: int, engine: str) -> None:
    if table.population_size > limit:
        raise ParameterError(
            f"the engine {engine!r} takes at most {limit} respondents, not {table.population_size}",
            hint="simulate a smaller population; beyond it the exact formulas say the same",
        )


ENGINES: dict[str, Engine] = {"counts": simulate_counts, "records": simulate_records}
