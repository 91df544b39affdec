"""Run every peer in its own environment, one thread each, and read what it printed."""

import json
import math
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.environments import PEERS, ROOT, NotInstalledError, python_for
from benchmarks.peers.workload import CELLS, EPSILON, Check

KINDS = ("randomise", "estimate", "histogram", "link", "other")
"""What is comparable with what; ``other`` is comparable with nothing of ours."""

SINGLE_THREADED = {
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
}
"""Our kernels are compared on one thread, so the peers get one as well."""

MEASURE_SECONDS = 600


class ReportError(ValueError):
    """A peer's script printed something else than the report it should."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One piece of work by one library; without ``seconds``, the note says why there are none."""

    name: str
    version: str
    kind: str
    work: str
    records: int
    seconds: float | None
    note: str

    @property
    def records_per_second(self) -> float | None:
        """How fast it is, or nothing if it was not measured."""
        return None if self.seconds is None else self.records / self.seconds


def measure_peers(names: tuple[str, ...] = PEERS) -> list[Peer]:
    """Measure these peers, one after the other; one that cannot be measured says so in its row."""
    return [row for name in names for row in measure_peer(name)]


def measure_peer(name: str) -> list[Peer]:
    """Measure one peer: a row for each piece of its work, or a single row that says why not."""
    try:
        python = python_for(name)
    except NotInstalledError as error:
        return [unmeasured(name, f"not installed: {error}")]
    print(f"peers: measuring {name}", flush=True)
    try:
        return read_report(name, run_script(python, name))
    except ReportError as error:
        return [unmeasured(name, f"not measured: {error}")]


def fastest(peers: list[Peer], kind: str, name: str | None = None) -> Peer | None:
    """Return the fastest row of this kind, of one library or of all; nothing if none was measured.

    A goal that depends on the row is then not met.
    """
    rows = [each for each in peers if each.kind == kind and name in {None, each.name}]
    measured = [each for each in rows if each.seconds is not None]
    return max(measured, key=lambda each: each.records_per_second or 0, default=None)


def unmeasured(name: str, note: str) -> Peer:
    """Return the row of a peer that has no numbers."""
    return Peer(name, version="", kind="", work="", records=0, seconds=None, note=note)


def run_script(python: Path, name: str) -> str:
    """Run the peer's script with its own Python and return what it printed."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [str(python), "-m", f"benchmarks.peers.{name}"]
    try:
        done = subprocess.run(  # noqa: S603 - our own script
            command,
            capture_output=True,
            check=False,
            cwd=ROOT,
            env=environment | SINGLE_THREADED,
            text=True,
            timeout=MEASURE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReportError(str(error)) from error
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise ReportError(lines[-1] if lines else f"exit code {done.returncode}")
    return done.stdout


def read_report(name: str, text: str) -> list[Peer]:
    """Read the object that a script prints; anything else is refused."""
    try:
        report: dict[str, Any] = json.loads(text)
        if (report["cells"], report["epsilon"]) != (CELLS, EPSILON):
            raise ReportError("measured with other parameters")
        rows = [_row(name, str(report["version"]), work) for work in report["works"]]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ReportError(f"no report: {error!r}") from error
    if not rows:
        raise ReportError("an empty report")
    return rows


def _row(name: str, version: str, work: dict[str, Any]) -> Peer:
    check = Check(**work["check"])
    kind, records, seconds = work["kind"], work["records"], work["seconds"]
    if kind not in KINDS:
        raise ReportError(f"no such kind of work: {kind!r}")
    if type(records) is not int or records < 1:
        raise ReportError(f"no number of records: {records!r}")
    if type(seconds) is not float or not math.isfinite(seconds) or seconds <= 0:
        raise ReportError(f"no number of seconds: {seconds!r}")
    if not all(
        type(each) in {int, float} for each in (check.value, check.expected, check.tolerance)
    ):
        raise ReportError(f"no numbers to check: {check!r}")
    note = f"{check.what}: {check.value:.4g}, expected {check.expected:.4g}"
    # What computes something else is no reference, however fast it is.
    if not check.passed:
        return Peer(name, version, kind, work["work"], records, None, f"wrong output: {note}")
    return Peer(name, version, kind, work["work"], records, seconds, note)
