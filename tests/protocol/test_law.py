"""The law of a release through the whole protocol is the exact law, enumerated by brute force."""

import numpy as np
import pytest

from tests.support.laws import assert_fits, channel_matrix, orderings, release_law
from tests.support.simulator import holding_of, sanitized
from veiltab.core.mechanism import LinkageMode
from veiltab.core.plan import Plan
from veiltab.crypto.entropy import CipherEntropy
from veiltab.protocol.in_process import Holding, Outcome, Rehearsal, Terms


def parties(*holdings: Holding) -> Rehearsal:
    """Return parties with a fixed seed: a test that passes once passes always."""
    return Rehearsal(holdings, CipherEntropy.from_seed(1, "law"))


def released(rehearsal: Rehearsal, outcome: Outcome) -> tuple[Plan, tuple[int, ...]]:
    """Return the cells that the researcher decrypts, in the order of the release."""
    access = rehearsal.access(outcome)
    columns = list(sanitized(access, outcome.released).values())
    return access.plan, tuple(access.contract.schema.cells(columns).tolist())


def check(rehearsal: Rehearsal, database: list[int], terms: Terms, way: str, runs: int) -> None:
    """Run many studies; every released sequence must come as often as the law says.

    Sequences, not only tables: a sample in the order of the rows would have the same tables.
    """
    deposit = rehearsal.deposit() if way == "stored" else None

    def study() -> Outcome:
        return rehearsal.run(terms) if deposit is None else rehearsal.run_stored(terms, deposit)

    plan, first = released(rehearsal, study())
    matrix = channel_matrix(plan.domain_size, plan.ranked.channel.gamma)
    law = release_law(database, orderings(len(database), plan.ranked.sample_size), matrix)
    seen = dict.fromkeys(law, 0)
    seen[first] += 1
    for _ in range(runs - 1):
        seen[released(rehearsal, study())[1]] += 1
    assert_fits(np.array(list(seen.values())), np.array([float(law[key]) for key in seen]))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["aligned", "fresh", "stored"])
def test_one_curator(way: str) -> None:
    """Two of three respondents, three cells, in order; 1e-9 false alarms in chi-square."""
    database = [0, 2, 2]
    rehearsal = parties(holding_of({"a": 3}, database))
    linkage: LinkageMode = "aligned" if way == "aligned" else "matched"
    check(rehearsal, database, Terms(epsilon=1.2, sample_size=2, linkage=linkage), way, runs=300)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["fresh", "stored"])
def test_two_curators_with_one_time_pads(way: str) -> None:
    """Joint cells of two curators, with most records kept, so that a wrong join is seen."""
    first, second = [0, 0, 1], [0, 1, 1]
    database = [2 * a + b for a, b in zip(first, second, strict=True)]
    rehearsal = parties(holding_of({"a": 2}, first), holding_of({"b": 2}, second))
    terms = Terms(epsilon=1.5, sample_size=1, linkage="matched", pads="one-time")
    check(rehearsal, database, terms, way, runs=160)
