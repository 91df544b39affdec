"""How much memory processes take, and tables that are too long for memory.

``python -m tests.support.memory TABLE SCRATCH`` prepares one upload in a process of its own, and
prints its rows and the most memory it took, in MB (on Linux).  It imports no server.
"""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from tests.support.chunks import NoChunks
from veiltab.core.schema import Attribute, Schema
from veiltab.crypto.entropy import CipherEntropy
from veiltab.data.feeding import feed
from veiltab.data.ids import id_messages
from veiltab.data.tables import open_table
from veiltab.files.spool import FolderSpool
from veiltab.protocol.curator.agreement import new_secret
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.curator.upload import prepare_table
from veiltab.protocol.in_process import Holding, Rehearsal, Terms

MIB = 2**20
ATTRIBUTES = {"smoker": ["no", "yes"], "age": ["<40", "40 to <60", ">=60", "unknown"]}
CELLS = 8

_LOOK_SECONDS = 0.02
_SCHEMA = {"id": pl.String, "smoker": pl.String, "age": pl.String}
_PART_ROWS = 500_000
_STEP = 0x9E3779B97F4A7C15
"""Its multiples modulo 2⁶⁴ look like numbers at random, and are all different."""


def peak_memory(process: int) -> int:
    """Return the most bytes of memory that a running process ever had, or 0 if it has ended.

    What a child's end reports (``ru_maxrss``) would not do: it counts the memory of whoever
    started it.
    """
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    peak = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return 1024 * int(peak[1]) if peak else 0


@dataclass(frozen=True)
class Measured:
    """How a command ended, how long it took, and the most memory that it had."""

    code: int
    err: str
    seconds: float
    peak: int


def run_measured(*arguments: object, timeout: float = 60.0) -> Measured:
    """Run ``veiltab`` as a process of its own, and watch its memory until it ends."""
    command = [sys.executable, "-m", "veiltab", *map(str, arguments)]
    started = time.perf_counter()
    with subprocess.Popen(  # noqa: S603 - it is our own command
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    ) as process:
        peaks = [0]

        def watch() -> None:
            while peak := peak_memory(process.pid):
                peaks[0] = max(peaks[0], peak)
                time.sleep(_LOOK_SECONDS)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            _, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
        watcher.join()
    return Measured(process.returncode, err, time.perf_counter() - started, peaks[0])


def write_long_table(path: Path, rows: int) -> Path:
    """Write a Parquet file of respondents with ids of 20 digits and two attributes."""

    def parts(
        columns: list[str] | None,
        _predicate: pl.Expr | None,
        _rows: int | None,
        _batch: int | None,
    ) -> Iterator[pl.DataFrame]:
        for start in range(0, rows, _PART_ROWS):
            frame = _part(start, min(start + _PART_ROWS, rows))
            yield frame if columns is None else frame.select(columns)

    lazy = register_io_source(parts, schema=_SCHEMA)
    lazy.sink_parquet(path, row_group_size=_PART_ROWS // 4)
    return path


def cell_counts(rows: int) -> list[int]:
    """Return how many respondents of such a table are in each cell, in the order of the schema."""
    counts = [rows // CELLS] * CELLS
    for number in range(rows % CELLS):
        counts[_cell(number)] += 1
    return counts


def _cell(number: int) -> int:
    return 4 * (number % 2) + number // 2 % 4


def _part(start: int, stop: int) -> pl.DataFrame:
    number = pl.col("number")
    smoker, age = (pl.Series(categories) for categories in ATTRIBUTES.values())
    frame = pl.DataFrame({"number": pl.int_range(start, stop, eager=True)})
    return frame.select(
        id=(number.cast(pl.UInt64) * _STEP).cast(pl.String).str.zfill(20),
        smoker=pl.lit(smoker).gather(number % 2),
        age=pl.lit(age).gather(number // 2 % 4),
    )


def main(table: str, scratch: str) -> None:
    """Take in a table with the columns ``id`` and ``v``, and encrypt it in a random order."""
    attribute = Attribute("v", map(str, range(7)))
    ids = id_messages(pl.DataFrame({"id": [1]}), ["id"], ())
    holding = Holding((attribute,), [np.zeros(1, dtype=attribute.dtype)], ids)
    rehearsal = Rehearsal([holding], CipherEntropy.from_seed(1, "memory"))
    contribution, commitment, nonce = new_secret(rehearsal.entropy)
    terms = Terms(epsilon=1.0, sample_size=1, linkage="matched")
    outcome = rehearsal._open(rehearsal._contract(terms, commitment, nonce))
    contract, (context,) = outcome.contract.body, outcome.contexts
    (secret,) = rehearsal._exchange(contract, contribution)
    spools = [FolderSpool(Path(scratch) / name) for name in ("tokens", "order")]
    schema, me = Schema([attribute]), context.identity.party_id
    with Intake(contract, secret, schema, spools[0], curator=me) as intake:
        feed(intake, open_table(table), contract.linkage, ["id"]).check()
        context = replace(context, outgoing=NoChunks())
        prepared = prepare_table(context, outcome.contract, intake, spools[1])
    peak = peak_memory(os.getpid()) // MIB
    sys.stdout.write(f"{prepared.message.body.rows} {peak}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
