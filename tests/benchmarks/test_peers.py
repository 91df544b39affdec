import ast
import json
import re
import sys
from pathlib import Path

import pytest

from benchmarks.peers import environments, run, workload
from benchmarks.peers.environments import HERE, PEERS, NotInstalledError, requirement_file
from benchmarks.peers.run import Peer, ReportError, fastest, read_report
from benchmarks.peers.workload import CELLS, EPSILON, KEPT, Check, check_estimate, check_kept

PIN = re.compile(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.+]*")
ALLOWED_OURS = {"benchmarks.peers.workload", "benchmarks.timing"}


def imported_modules(path: Path) -> set[str]:
    """Return every module that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def report(**changes: object) -> str:
    """Return what a script prints, with one piece of work, of which some fields are changed."""
    check = {"what": "share of records kept", "value": KEPT, "expected": KEPT, "tolerance": 0.01}
    work = {"kind": "randomise", "work": "a call", "records": 1000, "seconds": 0.5, "check": check}
    whole = {"library": "x", "version": "1.2", "cells": CELLS, "epsilon": EPSILON, "repeats": 5}
    return json.dumps(whole | {"works": [work | changes]})


def row(name: str, kind: str, seconds: float | None) -> Peer:
    """Return a row of 1000 records."""
    return Peer(name, "1", kind, "a call", 1000, seconds, "")


def test_peers_and_requirement_files_belong_together() -> None:
    """Every peer has a script and a requirement file, and no requirement file lies idle."""
    assert {path.stem for path in HERE.glob("*.txt")} == set(PEERS)
    assert all((HERE / f"{peer}.py").is_file() for peer in PEERS)


@pytest.mark.parametrize("peer", PEERS)
def test_requirements_are_exact(peer: str) -> None:
    """Every line pins one version, and the library itself is among them."""
    lines = requirement_file(peer).read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(PIN.fullmatch(line) for line in pins), pins
    names = [line.split("==")[0].lower().replace("-", "_") for line in pins]
    assert peer in names
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", [*PEERS, "workload", "../timing", "../__init__", "__init__"])
def test_scripts_import_nothing_of_ours(name: str) -> None:
    """What runs inside a peer's environment imports only what is there."""
    modules = imported_modules(HERE / f"{name}.py")
    ours = {each for each in modules if each.split(".")[0] in {"veiltab", "benchmarks", ""}}
    assert ours <= ALLOWED_OURS
    if name not in PEERS:
        foreign = {each.split(".")[0] for each in modules - ours} - sys.stdlib_module_names
        assert not foreign


def test_report_is_read() -> None:
    """A good report gives a row with its speed and its check."""
    (peer,) = read_report("x", report())
    assert (peer.name, peer.version, peer.kind, peer.records) == ("x", "1.2", "randomise", 1000)
    assert peer.records_per_second == 2000
    assert "expected 0.1057" in peer.note


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Segmentation fault",
        "[]",
        "null",
        "{}",
        '{"cells": 24, "epsilon": 1.0, "version": "1", "works": []}',
        '{"cells": 24, "epsilon": 1.0, "version": "1", "works": 3}',
        '{"cells": 2, "epsilon": 1.0, "version": "1", "works": []}',
        report() + report(),
        report(kind="guess"),
        report(records=0),
        report(records="many"),
        report(seconds=0.0),
        report(seconds=float("nan")),
        report(seconds=None),
        report(check={"what": "nothing"}),
        report(check={"what": "x", "value": "1", "expected": 1.0, "tolerance": 0.1}),
        report(check=None),
    ],
)
def test_garbage_is_refused(text: str) -> None:
    """Whatever is no report becomes one kind of error."""
    with pytest.raises(ReportError):
        read_report("x", text)


def test_wrong_output_is_no_reference() -> None:
    """A peer that computes something else has no speed, and its row says why."""
    check = {"what": "share of records kept", "value": 0.9, "expected": KEPT, "tolerance": 0.01}
    (peer,) = read_report("x", report(check=check))
    assert peer.records_per_second is None
    assert peer.note.startswith("wrong output: share of records kept: 0.9")


def test_not_installed_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that cannot be installed says so, and the others are still measured."""

    def python_for(peer: str) -> Path:
        if peer == "absent":
            raise NotInstalledError("no matching distribution")
        return Path(sys.executable)

    def run_script(_python: Path, _name: str) -> str:
        return report()

    monkeypatch.setattr(run, "python_for", python_for)
    monkeypatch.setattr(run, "run_script", run_script)
    absent, present = run.measure_peers(("absent", "present"))
    assert absent.note == "not installed: no matching distribution"
    assert absent.records_per_second is None
    assert present.records_per_second == 2000


def test_failing_script_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that ends with an error gives its last line as the reason."""
    monkeypatch.setattr(run, "python_for", lambda _peer: Path(sys.executable))
    (peer,) = run.measure_peer("no_such_script")
    assert peer.seconds is None
    assert peer.note.startswith("not measured: ")
    assert "no_such_script" in peer.note


def test_environment_is_reused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment is made once, and anew when its pins change or it was cut short."""
    commands: list[list[str]] = []
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    monkeypatch.setattr(environments, "HERE", tmp_path)
    (tmp_path / "made_up.txt").write_text("made-up==1.0\n")

    def run_command(command: list[str]) -> None:
        commands.append(command)
        (tmp_path / "made_up").mkdir(exist_ok=True)

    monkeypatch.setattr(environments, "_run", run_command)
    first = environments.python_for("made_up")
    made = len(commands)
    assert made == 3
    assert environments.python_for("made_up") == first
    assert len(commands) == made
    (tmp_path / "made_up.txt").write_text("made-up==1.1\n")
    environments.python_for("made_up")
    assert len(commands) == 2 * made
    (tmp_path / "made_up" / "installed.txt").unlink()
    environments.python_for("made_up")
    assert len(commands) == 3 * made


def test_reason_is_the_error_of_pip() -> None:
    """The reason is pip's first error, not one of its notices."""
    output = "WARNING: old\nERROR: No matching distribution\nERROR: more\n[notice] a new pip\n"
    assert environments.reason_of(output) == "No matching distribution"
    assert environments.reason_of("joblib requires cloudpickle\n") == "joblib requires cloudpickle"
    assert environments.reason_of("WARNING: old\n") == "no reason given"


def test_failed_command_is_not_installed() -> None:
    """A command that fails is turned into the reason it printed."""
    with pytest.raises(NotInstalledError, match="no disk"):
        environments._run([sys.executable, "-c", "import sys; sys.exit('no disk')"])


def test_fastest_of_a_kind() -> None:
    """The fastest row is chosen among those measured, of one library or of all."""
    slow, fast = row("a", "histogram", 2.0), row("b", "histogram", 1.0)
    rows = [slow, fast, row("c", "histogram", None), row("a", "link", 0.1)]
    assert fastest(rows, "histogram") is fast
    assert fastest(rows, "histogram", "a") is slow
    assert fastest(rows, "histogram", "c") is None
    assert fastest(rows, "estimate") is None


def test_checks_tell_right_from_wrong() -> None:
    """The checks pass for the truth, and fail for output without noise or without correction."""
    records = 1_000_000
    assert check_kept(round(KEPT * records), records).passed
    assert not check_kept(records, records).passed
    assert not check_kept(records // CELLS, records).passed
    other = (1 - KEPT) / (CELLS - 1)
    uncorrected = max(abs(share - other - share * (KEPT - other)) for share in workload.SHARES)
    assert check_estimate(0.005, records).passed
    assert not check_estimate(uncorrected, records).passed
    assert not workload.check_histogram(1000).passed


def test_report_survives_the_trip(capsys: pytest.CaptureFixture[str]) -> None:
    """What a script prints is what the reader takes."""
    check = Check("share of records kept", KEPT, KEPT, 0.01)
    work = workload.measure("estimate", "a sum", 10, lambda: sum(range(10)), lambda _: check)
    workload.print_report("numpy", [work])
    (peer,) = read_report("numpy", capsys.readouterr().out)
    assert (peer.kind, peer.work, peer.records) == ("estimate", "a sum", 10)
    assert peer.seconds == work.seconds


def test_one_thread_for_each_peer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A script runs with one thread, and without our modules on its path."""
    script = tmp_path / "benchmarks" / "peers" / "made_up.py"
    script.parent.mkdir(parents=True)
    script.write_text("import json, os\nprint(json.dumps(dict(os.environ)))\n")
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    seen = json.loads(run.run_script(Path(sys.executable), "made_up"))
    assert "PYTHONPATH" not in seen
    assert seen["POLARS_MAX_THREADS"] == seen["OMP_NUM_THREADS"] == "1"
