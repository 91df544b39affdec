"""However long a table is, neither the curator's computer nor the server needs more memory."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.support.load_tables import ATTRIBUTES, cell_counts, write_long_table
from tests.support.offices import write_study
from tests.support.processes import MIB, NO_LIMITS, Measured, run_measured, serving

TITLE = "A long table"
MOST_MEMORY = 500 * MIB
MOST_GROWTH = 100 * MIB
FREE_BYTES = 20 * 10**9


@dataclass(frozen=True)
class Pushed:
    """A table that went from a file to its release, and what that took."""

    rows: int
    push: Measured
    estimate: Measured
    server_peak: int
    sent: int
    release_seconds: float

    def __str__(self) -> str:
        """Say it in a line."""
        return (
            f"{self.rows:,} rows: pushed in {self.push.seconds:.1f} s"
            f" ({self.rows / self.push.seconds:,.0f} rows/s, {self.sent / 1e6:.1f} MB sent),"
            f" released in {self.release_seconds:.1f} s, estimated in {self.estimate.seconds:.1f} s;"
            f" most memory: push {self.push.peak / MIB:.0f} MiB,"
            f" server {self.server_peak / MIB:.0f} MiB, estimate {self.estimate.peak / MIB:.0f} MiB"
        )


def push_table(folder: Path, rows: int, timeout: float, sampler: str) -> Pushed:
    """Push a table of so many rows by the commands, and estimate it once it is released."""
    folder.mkdir()
    table = write_long_table(folder / "table.parquet", rows)
    with serving(folder, *NO_LIMITS) as server:
        home = ("--home", folder / "home")

        def run(*arguments: object) -> Measured:
            measured = run_measured(*arguments, timeout=timeout)
            assert measured.outcome.code == 0, measured.outcome.err
            return measured

        run("id", "new", "--name", "curator", "--no-passphrase", *home)
        invitation = folder / "invitation"
        invited = run("invite", "--data", server.data, "curator")
        invitation.write_text(invited.outcome.out)
        run("register", server.url, "--invitation-file", invitation, "--yes", *home)
        run("ledger", "set", "people", "--epsilon", 10, "--delta", 1e-5, *home)
        study = write_study(
            folder / "study.toml",
            {"me": ATTRIBUTES},
            title=TITLE,
            lines="delta = 1e-6",
            sampling=f'by = "{sampler}"',
        )
        run("study", "propose", study, *home)
        push = run("push", TITLE, "--table", table, "--id", "id", "--no-wait", *home)
        run("study", "status", TITLE, "--wait", "released", *home)
        run("id", "show", "--public", "--out", folder / "me.json", *home)
        run("grant", TITLE, "--to", folder / "me.json", "--days", 1, "--yes", *home)
        estimate = run("estimate", TITLE, "--json", *home)
        check_estimate(json.loads(estimate.outcome.out), rows)
        return Pushed(
            rows,
            push,
            estimate,
            server.peak,
            int(server.metric("veiltab_chunk_received_bytes_total")),
            server.metric("veiltab_release_seconds_sum"),
        )
