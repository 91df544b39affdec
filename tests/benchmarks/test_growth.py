import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from benchmarks import growth
from benchmarks.growth import MOST_MEBIBYTES, Run, Stage, run_studies, study_peaks, study_ratios
from benchmarks.growth_kernels import kernel_growth
from benchmarks.growth_stages import check_counts
from benchmarks.growth_table import Batches
from tests.support.cases import in_soak
from veiltab.core.mechanism import LinkageMode

ROWS = 2_000


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which temporary files are made during the test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def run_of(rows: int, seconds: float, linkage: LinkageMode = "aligned", peak: float = 99.0) -> Run:
    """Return what a study could have taken: every stage the same."""
    stages = dict.fromkeys(growth.STAGES, Stage(seconds, seconds, seconds / rows, peak))
    return Run(rows, linkage, stages, rows)


@pytest.mark.slow
@pytest.mark.parametrize("linkage", ["matched", *in_soak("aligned")])
def test_a_study_of_one_size(scratch: Path, linkage: LinkageMode) -> None:
    """The command counts everybody, measures every stage, and leaves no file behind."""
    found = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "benchmarks.growth", str(ROWS), linkage],
        check=True,
        stdout=subprocess.PIPE,
        timeout=120,
    )
    run = json.loads(found.stdout)
    assert (run["rows"], run["linkage"], run["counted"], run["note"]) == (ROWS, linkage, ROWS, "")
    assert list(run["stages"]) == ["prepare", "accept", "release", "estimate"]
    for took in run["stages"].values():
        assert took["seconds"] > 0
        assert took["seconds_per_record"] == took["seconds"] / ROWS
        assert 10 < took["peak_mib"] < MOST_MEBIBYTES
    assert list(scratch.iterdir()) == []


def test_no_study_is_begun_without_room(scratch: Path) -> None:
    """A study that no disk could hold is left out, and the note says why."""
    (run,) = run_studies({10**15: 1}, "matched")
    assert run.stages == {}
    assert "free disk" in run.note
    assert list(scratch.iterdir()) == []


@pytest.mark.slow
def test_a_failed_stage_leaves_nothing(scratch: Path) -> None:
    """Files go away also when a stage fails: here there is nobody to take in."""
    with pytest.raises(subprocess.CalledProcessError):
        run_studies({0: 1}, "aligned")
    assert list(scratch.iterdir()) == []


def test_batches_make_one_table() -> None:
    """Ids are all different and of 16 characters, and the cells are counted right."""
    rows = 70_000
    batches = Batches(rows)
    ids: set[bytes] = set()
    columns = []
    for curator in range(2):
        parts = []
        for messages, codes in batches.of(curator):
            ids |= {bytes(row) for row in messages.data.reshape(-1, 16)}
            parts.append(np.stack([column.astype(np.int64) for column in codes]))
        columns.append(np.concatenate(parts, axis=1))
    (a, b), (c, d) = columns
    cells = ((a * 3 + b) * 2 + c) * 2 + d
    assert len(ids) == rows
    assert batches.cell_counts().tolist() == np.bincount(cells, minlength=24).tolist()


def test_counts_that_are_noise_are_refused() -> None:
    """Wrong pads would make the counts even, which the check must notice; so is a lost record."""
    truth = Batches(1_000_000).cell_counts()
    even = np.full(truth.size, 1_000_000 // truth.size)
    even[0] += 1_000_000 - even.sum()
    check_counts(truth, truth, keep=1.0)
    with pytest.raises(ValueError, match="not about"):
        check_counts(even, truth, keep=0.5)
    with pytest.raises(ValueError, match="were counted"):
        check_counts(truth - np.eye(1, truth.size, dtype=np.int64)[0], truth, keep=1.0)


@pytest.mark.parametrize(("seconds", "met"), [(149.0, True), (151.0, False)])
def test_goals_of_the_largest_study(seconds: float, *, met: bool) -> None:
    """A hundred times the rows may take 150 times as long; where it sorts, 200 times."""
    runs = [run_of(10**5, 1.0), run_of(10**6, 1.0), run_of(10**7, 99.0), run_of(10**8, seconds)]
    found = [row for row in study_ratios(runs) if row.reference.endswith(" 1,000,000")]
    rows = {row.name: row for row in found}
    assert len(rows) == len(found) == 3 * len(growth.STAGES)
    assert [row.name for row in rows.values() if row.goal] == [
        name for name in rows if name.endswith("100,000,000")
    ]
    assert rows["release, aligned, 100,000,000"].met is met
    assert rows["prepare one curator's table, aligned, 100,000,000"].met
    assert rows["release, aligned, 10,000,000"].met


@pytest.mark.parametrize(("seconds", "met"), [(14.9, True), (15.1, False)])
def test_the_largest_study_against_the_next(seconds: float, *, met: bool) -> None:
    """What hides in the start of the small study shows against the next one to the largest."""
    runs = [run_of(10**6, 1.0), run_of(10**7, 1.0), run_of(10**8, seconds)]
    found = [row for row in study_ratios(runs) if row.reference == "10 × 10,000,000"]
    assert len(found) == len(growth.STAGES)
    assert [row.met for row in found if row.name.startswith("release")] == [met]


def test_without_a_study_of_the_reference_size() -> None:
    """Nothing is compared if there was no room for a million rows, or if it is all there is."""
    assert list(study_ratios([run_of(10**5, 1.0)])) == []
    assert list(study_ratios([run_of(10**6, 1.0)])) == []


def test_memory_has_a_goal_and_a_note() -> None:
    """The largest study that there was room for must stay below 1 GiB."""
    small, large = run_of(10**6, 1.0, "matched"), run_of(10**7, 1.0, "matched", peak=1024.0)
    rows = study_peaks([small, large, Run(10**8, "matched", {}, note="no room")])
    assert [(row.goal, row.met, row.note) for row in rows] == [
        *[("", True, "")] * len(growth.STAGES),
        *[("below 1 GiB", False, "no room")] * len(growth.STAGES),
    ]


def test_kernels_grow_with_records_and_cells() -> None:
    """There is a row for each number of records and of cells; only the most records have a goal."""
    rows = kernel_growth(10**6)
    assert [row.name for row in rows if "perturb" in row.name] == [
        "perturb, 24 cells, 100,000 records",
        "perturb, 2 cells",
        "perturb, 256 cells",
        "perturb, 1,000 cells",
        "perturb, 1,000,000 cells",
    ]
    assert all(row.seconds > 0 for row in rows)
