"""A release that is killed with SIGKILL at any line of Python comes out the same, once."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import decoys
from tests.support.crashing import SERVER
from tests.support.servers import make_context
from tests.support.simulator import Simulator
from tests.support.vaults import VaultOnServer
from veiltab.protocol.in_process import Terms

ROOT = Path(__file__).parents[2]


PAPER = Terms(epsilon=2.0, sample_size=20)
NOISY = decoys.decoy_terms(keep=0.5, cells=120)
TERMS = {
    "aligned": PAPER,
    "matched": replace(PAPER, linkage="matched"),
    "matched decoys": decoys.terms("matched", mechanism=NOISY),
}


def kill_releases(path: Path, terms: Terms, trials: int, seed: int) -> dict[str, int]:
    """Make a study that is ready for its release, and kill that at random lines."""
    parties = Simulator()
    parties.server = SERVER
    context = make_context(path / "data", identity=SERVER)
    study = parties.on_server(context, terms).study
    context.database.close()
    return kill_at_random(path, study, trials, seed)


def kill_stored(path: Path, step: str, trials: int, seed: int) -> dict[str, int]:
    """Kill the draw of a study on stored tables, or its release, at random lines."""
    context = make_context(path / "data", identity=SERVER)
    study = VaultOnServer(context, server=SERVER).store().study()
    if step == "release":
        study.work()
        study.answer_all()
    context.database.close()
    return kill_at_random(path, study.study, trials, seed)


def kill_at_random(path: Path, study: bytes, trials: int, seed: int) -> dict[str, int]:
    """Kill the worker's next step with a study at random lines, in a process of its own."""
    command = [sys.executable, "-m", "tests.support.crashing"]
    command += [str(path / "data"), study.hex(), str(trials), str(seed)]
    done = subprocess.run(  # noqa: S603 - our own module
        command, cwd=ROOT, capture_output=True, text=True, timeout=30 + 3 * trials, check=False
    )
    assert done.returncode == 0, done.stderr
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


def check(counts: dict[str, int]) -> None:
    """Nothing other than the one release was ever visible, and nothing else is left."""
    assert counts["wrong"] == 0
    assert counts["left"] == 0
    assert counts["killed"] >= 0.9 * counts["trials"]
    assert counts["lines"] > 10_000
    assert counts["bundles"] > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", TERMS)
def test_a_release_killed_at_random_lines(tmp_path: Path, name: str) -> None:
    """Some are killed again while they recover; the bytes are those of a release left in peace."""
    check(kill_releases(tmp_path, TERMS[name], trials=4, seed=1))


@pytest.mark.soak
@pytest.mark.parametrize("name", TERMS)
def test_a_release_killed_at_many_random_lines(tmp_path: Path, name: str) -> None:
    """The same, far more often."""
    check(kill_releases(tmp_path, TERMS[name], trials=500, seed=2))


@pytest.mark.slow
def test_a_draw_of_stored_tables_killed_at_random_lines(tmp_path: Path) -> None:
    """The rows are drawn once: the same requests, the same bytes."""
    check(kill_stored(tmp_path, "draw", trials=4, seed=3))


@pytest.mark.soak
@pytest.mark.parametrize("step", ["draw", "release"])
def test_a_study_on_stored_tables_killed_at_many_random_lines(tmp_path: Path, step: str) -> None:
    """The same, far more often."""
    check(kill_stored(tmp_path, step, trials=500, seed=4))
