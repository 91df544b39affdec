"""How time and memory grow with the number of respondents, in studies that are gone through whole.

``python -m benchmarks.growth 1000000 curators`` goes through one study and prints a JSON object;
``python -m benchmarks.growth`` prints every row, of the kernels too.  Each stage is a process of
its own, whose memory is what the kernel says it had at most.
"""

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from benchmarks.growth_kernels import kernel_growth
from benchmarks.timing import Figure, Ratio
from veiltab.core.mechanism import LinkageMode

REPEATS = {10**5: 5, 10**6: 5, 10**7: 3, 10**8: 1}
"""How often each size is measured; medians are reported."""

REFERENCE_ROWS = 10**6
LARGEST, LARGEST_OF_SERVER = 10**8, 10**7
MOST_TIMES = 1.5
MOST_MEBIBYTES = 1024

STAGES = {
    "prepare": ("prepare-0", "prepare-1"),
    "accept": ("accept",),
    "release": ("release",),
    "estimate": ("estimate",),
}
"""The reported stages, and the measured ones behind each; there are two curators."""

WORDS = {
    "prepare": "prepare one curator's table",
    "accept": "check two uploads",
    "release": "release",
    "estimate": "estimate",
}
SORTING: Mapping[LinkageMode, Sequence[str]] = {
    "aligned": ("prepare",),
    "matched": ("prepare", "release"),
}

ROW_BYTES: Mapping[LinkageMode, int] = {"aligned": 40, "matched": 140}
"""The most bytes of disk that a row takes: chunks, and the scratch files of a sort."""

ROOM = 3
"""No study is begun unless the disk has so many times the room for it."""


Stages = dict[str, dict[str, float]]
"""What each process has printed."""


class NoRoomError(Exception):
    """The disk has too little room for a study of this size."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What one stage of a study took."""

    seconds: float
    cpu_seconds: float
    seconds_per_record: float
    peak_mib: float


@dataclass(frozen=True, slots=True)
class Run:
    """A measured study; if it has no stages, the note says why it was not measured."""

    rows: int
    linkage: LinkageMode
    stages: dict[str, Stage]
    counted: int | None = None
    note: str = ""


def growth_ratios(largest: int = LARGEST, server_largest: int = LARGEST_OF_SERVER) -> list[Ratio]:
    """Compare the time of each stage at each size with a multiple of its time at 10^6 rows."""
    studies = [row for runs in _all_runs(largest, server_largest) for row in study_ratios(runs)]
    return [*studies, *kernel_growth(largest)]


def growth_peaks(largest: int = LARGEST, server_largest: int = LARGEST_OF_SERVER) -> list[Figure]:
    """Return the most memory of each stage, from the same studies as the times."""
    return [row for runs in _all_runs(largest, server_largest) for row in study_peaks(runs)]


def study_ratios(runs: Sequence[Run]) -> Iterator[Ratio]:
    """Compare studies of one kind; the largest that was gone through has a goal.

    That one is compared with the next smaller one too: where a million rows take a few hundredths
    of a second, half of it goes by before the first row, and whatever grows would hide in that.
    """
    there, note = _gone_through(runs)
    reference = next((run for run in there if run.rows == REFERENCE_ROWS), None)
    if reference is None:
        return
    pairs = [(run, reference) for run in there if run is not reference]
    pairs += [(there[-1], run) for run in there[-2:-1] if run.rows > reference.rows]
    for run, smaller in pairs:
        largest = run is there[-1] and run.rows > smaller.rows
        for stage in run.stages:
            row = _ratio(run, smaller, stage, has_goal=largest)
            yield replace(row, note=f"{row.note}; {note}") if largest and note else row


def _ratio(run: Run, reference: Run, stage: str, *, has_goal: bool) -> Ratio:
    """Compare a stage with a multiple of the same stage of the reference."""
    factor, took, expected = run.rows / reference.rows, run.stages[stage], reference.stages[stage]
    most, goal = MOST_TIMES, f"at most {MOST_TIMES:g} times"
    if stage in SORTING[run.linkage]:
        most *= math.log(run.rows) / math.log(reference.rows)
        goal = f"at most {most:.3g} times, log n for sorting"
    return Ratio(
        name=_name(run, stage),
        seconds=took.seconds,
        reference=f"{factor:g} × {reference.rows:,}",
        reference_seconds=factor * expected.seconds,
        goal=goal if has_goal else "",
        met=not has_goal or took.seconds <= most * factor * expected.seconds,
        records=run.rows,
        note=f"of the processors, {took.cpu_seconds / factor / expected.cpu_seconds:.2f} times",
    )


def study_peaks(runs: Sequence[Run]) -> Iterator[Figure]:
    """Return the memory of studies of one kind; the largest that was gone through has a goal."""
    there, note = _gone_through(runs)
    for run in there:
        largest = run is there[-1]
        for stage, took in run.stages.items():
            yield Figure(
                name=_name(run, stage),
                value=took.peak_mib,
                unit="MiB",
                goal="below 1 GiB" if largest else "",
                met=not largest or took.peak_mib < MOST_MEBIBYTES,
                note=note if largest else "",
            )


@cache
def _all_runs(largest: int, server_largest: int) -> tuple[tuple[Run, ...], ...]:
    kinds: tuple[tuple[LinkageMode, int], ...] = (("aligned", largest), ("matched", server_largest))
    return tuple(
        run_studies({rows: many for rows, many in REPEATS.items() if rows <= most}, linkage)
        for linkage, most in kinds
    )


def _gone_through(runs: Sequence[Run]) -> tuple[list[Run], str]:
    """Return the studies that the disk had room for, and why others are missing."""
    return [run for run in runs if run.stages], "; ".join(run.note for run in runs if run.note)


def _name(run: Run, stage: str) -> str:
    return f"{WORDS[stage]}, {run.linkage}, {run.rows:,}"


def run_studies(repeats: Mapping[int, int], linkage: LinkageMode) -> tuple[Run, ...]:
    """Measure studies of several sizes, each so many times.

    The sizes take turns, the rare ones in the middle: a machine that is busy for a while is then
    busy for all of them.
    """
    turns = max(repeats.values())
    measured: dict[int, list[Stages]] = {rows: [] for rows in repeats}
    notes = dict.fromkeys(repeats, "")
    for turn in range(turns):
        for rows, many in repeats.items():
            first = (turns - many) // 2
            if not first <= turn < first + many:
                continue
            try:
                measured[rows].append(go_through(rows, linkage))
            except NoRoomError as error:
                notes[rows] = str(error)
    return tuple(_summary(rows, linkage, measured[rows], notes[rows]) for rows in repeats)


def _summary(rows: int, linkage: LinkageMode, repeats: Sequence[Stages], note: str) -> Run:
    """Take medians of times, and the most memory."""
    if not repeats:
        return Run(rows, linkage, {}, note=note)
    stages = {}
    for name, parts in STAGES.items():
        measured = [repeat[part] for repeat in repeats for part in parts]
        seconds = statistics.median(took["seconds"] for took in measured)
        stages[name] = Stage(
            seconds=seconds,
            cpu_seconds=statistics.median(took["cpu_seconds"] for took in measured),
            seconds_per_record=seconds / rows,
            peak_mib=max(took["peak_mib"] for took in measured),
        )
    return Run(rows, linkage, stages, int(repeats[0]["estimate"]["counted"]), note)


def go_through(rows: int, linkage: LinkageMode) -> Stages:
    """Run a study once, with a process for each stage, and delete its files afterwards."""
    with tempfile.TemporaryDirectory(prefix="veiltab-growth-") as folder:
        needed, free = ROOM * ROW_BYTES[linkage] * rows, shutil.disk_usage(folder).free
        if free < needed:
            raise NoRoomError(
                f"{rows:,} rows were left out: they want {needed / 1e9:,.1f} GB of free disk, and"
                f" there are {free / 1e9:,.1f}"
            )
        names = [part for parts in STAGES.values() for part in parts]
        return {name: _run_stage(name, folder, str(rows), linkage) for name in names}


def _run_stage(*arguments: str) -> dict[str, float]:
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "benchmarks.growth_stages", *arguments],
        check=True,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    )
    took: dict[str, float] = json.loads(done.stdout)
    return took


def main() -> int:
    """Measure one study, or all of them; the exit code says whether every goal was met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int, nargs="?", help="go through one study of so many rows")
    parser.add_argument("linkage", choices=("aligned", "matched"), nargs="?", default="aligned")
    parser.add_argument("--large", action="store_true", help="10^8 rows where the server matches")
    chosen = parser.parse_args()
    if chosen.rows is not None:
        (run,) = run_studies({chosen.rows: 1}, chosen.linkage)
        print(json.dumps(asdict(run)))
        return 0
    sizes = (LARGEST, LARGEST if chosen.large else LARGEST_OF_SERVER)
    rows: list[Ratio | Figure] = [*growth_ratios(*sizes), *growth_peaks(*sizes)]
    for row in rows:
        print(_line(row))
    return 0 if all(row.met for row in rows) else 1


def _line(row: Ratio | Figure) -> str:
    goal = f"{row.goal}: {'yes' if row.met else 'NO'}" if row.goal else ""
    if isinstance(row, Figure):
        return f"{row.name:70} {row.value:9.1f} {row.unit}  {goal}  {row.note}"
    times = f"{row.seconds:9.3f} s, {1 / row.ratio:5.2f} times {row.reference}"
    return f"{row.name:70} {times}  {goal}  {row.note}"


if __name__ == "__main__":
    sys.exit(main())
