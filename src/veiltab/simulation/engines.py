"""Two ways to simulate releases; both give the counts that a researcher would see.

The count engine draws the released table directly, at a cost of O(N) a release.  The record
engine runs the whole protocol among real roles, and is there to check the first.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from veiltab.core.plan import Plan
from veiltab.core.table import CountTable
from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import ParameterError
from veiltab.roles.researcher.estimate import estimate
from veiltab.simulation.protocol import Holding, Rehearsal, Terms
from veiltab.sources.ids import row_messages

Release = NDArray[np.int64]
"""Released counts: one row per run, one column per cell."""

Engine = Callable[[CountTable, Plan, int, int, str], Release]
"""Table, plan, number of runs, seed, and a label that sets this experiment's randomness apart."""

MAX_COUNTED_POPULATION = 10**9 - 1
"""What NumPy's hypergeometric sampler takes."""

MAX_RECORDS = 10**7
"""The record engine holds the whole population in memory."""


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
    """Go through a whole study once per run: the real roles sample, pad, perturb and decrypt.

    The attributes are divided between two curators, unless there is only one.
    """
    _check_population(table, MAX_RECORDS, "records")
    rehearsal = Rehearsal(_holdings(table), CipherEntropy.from_seed(seed, label))
    terms = Terms(epsilon=plan.epsilon, sample_size=plan.sample_size)
    released = np.empty((runs, table.counts.size), dtype=np.int64)
    for run in range(runs):
        outcome = rehearsal.run(terms)
        access = rehearsal.access(outcome)
        released[run] = estimate(access, outcome.released).counts
    return released


def _holdings(table: CountTable) -> list[Holding]:
    schema = table.schema
    codes = schema.codes(np.repeat(np.arange(table.counts.size), table.counts))
    ids = row_messages(table.population_size)
    half = max(1, len(codes) // 2)
    parts = [slice(0, half), slice(half, None)][: len(codes)]
    return [Holding(schema.attributes[part], codes[part], ids) for part in parts]


def _check_population(table: CountTable, limit: int, engine: str) -> None:
    if table.population_size > limit:
        raise ParameterError(
            f"the engine {engine!r} takes at most {limit} respondents, not {table.population_size}",
            hint="simulate a smaller population; beyond it the exact formulas say the same",
        )


ENGINES: dict[str, Engine] = {"counts": simulate_counts, "records": simulate_records}
