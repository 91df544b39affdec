"""Two ways to simulate releases; both give the counts that a researcher would see.

The count engine draws the released table directly, at a cost of O(N) a release.  The record
engine runs the whole protocol among real roles, and is there to check the first.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from veiltab.core.plan import Plan
from veiltab.core.resampling import MAX_COUNTED_POPULATION, draw_releases
from veiltab.core.schema import CountTable
from veiltab.core.uncertainty import Design
from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import ParameterError
from veiltab.protocol.researcher.decrypt import estimate
from veiltab.simulation.protocol import Holding, Rehearsal, Terms
from veiltab.sources.ids import row_messages

Release = NDArray[np.int64]
"""Released counts: one row per run, one column per cell."""

Engine = Callable[[CountTable, Plan, int, int, str], Release]
"""Table, plan, number of runs, seed, and a label that sets this experiment's randomness apart."""

MAX_RECORDS = 10**7
"""The record engine holds the whole population in memory."""


def simulate_counts(table: CountTable, plan: Plan, runs: int, seed: int, label: str) -> Release:
    """Draw released tables from their exact law, without touching a record."""
    _check_population(table, MAX_COUNTED_POPULATION, "counts")
    generator = np.random.default_rng([seed, *label.encode()])
    design = Design(plan.channel, table.population_size, plan.sample_size)
    return draw_releases(table.counts, design, runs, generator)


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
