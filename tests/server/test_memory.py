"""However long a table is, neither the curator's computer nor the server needs more memory."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.decoys import EPSILON, decoy_terms
from tests.support.http_simulator import HttpTerms
from tests.support.memory import (
    ATTRIBUTES,
    MIB,
    Measured,
    cell_counts,
    run_measured,
    write_long_table,
)
from tests.support.servers import NO_LIMITS, serving, wait_for
from veiltab.core.schema import Attribute
from veiltab.estimates import Estimate
from veiltab.party.curator import give_grant, propose
from veiltab.party.researcher import estimate_study
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.in_process import LATER

TITLE = "A long table"
HELD = [Attribute(name, categories) for name, categories in ATTRIBUTES.items()]
MOST_MEMORY = 500 * MIB
MOST_GROWTH = 100 * MIB
FREE_BYTES = 20 * 10**9


@dataclass(frozen=True)
class Pushed:
    """A table that went from a file to its release, and what that took."""

    rows: int
    push: Measured
    server_peak: int
    release_seconds: float

    def __str__(self) -> str:
        """Say it in a line."""
        return (
            f"{self.rows:,} rows: pushed in {self.push.seconds:.1f} s"
            f" ({self.rows / self.push.seconds:,.0f} rows/s),"
            f" released in {self.release_seconds:.1f} s;"
            f" most memory: push {self.push.peak / MIB:.0f} MiB,"
            f" server {self.server_peak / MIB:.0f} MiB"
        )


SHUFFLED = HttpTerms(title=TITLE, delta=1e-6, sample_size=None)
TERMS = {
    "aligned": SHUFFLED,
    "matched": replace(SHUFFLED, linkage="matched"),
    "matched decoys": HttpTerms(
        title=TITLE, linkage="matched", epsilon=EPSILON, mechanism=decoy_terms()
    ),
}


def push_table(folder: Path, rows: int, terms: HttpTerms, timeout: float) -> Pushed:
    """Push a table of so many rows, release it, and estimate it: the long steps by commands."""
    folder.mkdir()
    table = write_long_table(folder / "table.parquet", rows)
    with serving(folder, *NO_LIMITS) as server:
        curator, researcher = (server.join(n, folder / n) for n in ("curator", "researcher"))
        study = propose(curator, terms.draft([curator], [HELD], None), terms.ledger).study_id
        command = ("push", TITLE, "--table", table, "--id", "id", "--no-wait")
        push = run_measured(*command, "--home", curator.home.path, timeout=timeout)
        assert push.code == 0, push.err
        wait_for(curator, study, "released", timeout)
        give_grant(
            curator, curator.contract(study), public_identity(researcher.identity), None, LATER
        )
        check_estimate(estimate_study(researcher, researcher.contract(study)), rows)
        assert server.problems() == []
        return Pushed(
            rows,
            push,
            server.peak,
            server.metric("veiltab_release_seconds_sum"),
        )


def check_estimate(found: Estimate, rows: int) -> None:
    """Compare with the table itself: as many take part, and as many change, as planned."""
    coin = found.plan.coin_probability
    if coin is not None:
        assert np.abs(found.counts - coin * np.array(cell_counts(rows))).max() <= 6 * rows**0.5
        return
    assert found.plan.sample_size == rows
    changed = rows * (1 - found.plan.ranked.keep_probability)
    assert np.abs(found.counts - cell_counts(rows)).max() <= 6 * changed**0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["matched decoys"])  # the most work; `make soak` has all
def test_memory_does_not_grow_with_the_table(tmp_path: Path, name: str) -> None:
    """Ten times the rows, next to the same memory: in the push and in the server.

    With fewer rows the buffers of the shorter table would be far from full.
    """
    short, long = push_short_and_long(tmp_path, TERMS[name], 500_000)
    assert long.push.peak - short.push.peak < MOST_GROWTH
    assert long.server_peak - short.server_peak < MOST_GROWTH
    assert max(long.push.peak, long.server_peak) < MOST_MEMORY


def push_short_and_long(folder: Path, terms: HttpTerms, rows: int) -> tuple[Pushed, Pushed]:
    """Push two tables, of which one has ten times as many rows, each to its own server."""
    short = push_table(folder / "short", rows, terms, 120)
    long = push_table(folder / "long", 10 * rows, terms, 120)
    print(f"{short}\n{long}")  # noqa: T201 - pytest -rA shows it
    return short, long


@pytest.mark.soak
@pytest.mark.parametrize("name", TERMS)
def test_a_hundred_million_rows(tmp_path: Path, name: str) -> None:
    """The whole population is released, and neither side needs 500 MiB for it."""
    if (free := shutil.disk_usage(tmp_path).free) < FREE_BYTES:
        pytest.skip(f"it takes {FREE_BYTES:,} bytes of disk space, and {free:,} are free")
    found = push_table(tmp_path / "table", 100_000_000, TERMS[name], 7200)
    print(found)  # noqa: T201 - pytest -rA shows it
    assert found.push.peak < MOST_MEMORY
    assert found.server_peak < MOST_MEMORY
