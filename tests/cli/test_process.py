"""The command as a process: fast to start, quiet when stopped, at home in any terminal."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.commands import assert_refused, run_apart
from veiltab.cli.main import RUN_AGAIN

pytestmark = pytest.mark.slow

HEAVY = (
    *("altair", "cryptography", "fastapi", "httpx", "numpy", "polars", "pydantic", "rich"),
    *("sqlalchemy", "uvicorn", "vl_convert"),
)
HELPED = [
    *(
        (),
        ("plan",),
        ("simulate",),
        ("reproduce",),
        ("serve",),
        ("server", "invite"),
        ("register",),
    ),
    *(("id",), ("id", "new"), ("id", "show"), ("id", "fingerprint"), ("ledger",)),
    *(("ledger", "show"), ("ledger", "set"), ("study",), ("study", "example")),
    *(
        ("study", "propose"),
        ("study", "list"),
        ("study", "show"),
        ("study", "check"),
        ("study", "sign"),
    ),
    *(("study", "status"), ("study", "abort"), ("push",), ("grant",), ("estimate",), ("audit",)),
]
LOADED = """
import sys
from veiltab.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    print(ended.code or 0, *(name for name in {heavy} if name in sys.modules), file=sys.stderr)
"""
INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from veiltab.cli.main import main
main(sys.argv[1:])
"""
"""Some test runners start their children deaf to Ctrl-C."""

STOPPED_IN_POLARS = """
from numpy.lib import NumpyVersion
NumpyVersion.__init__ = lambda *_: signal.raise_signal(signal.SIGINT)
"""
"""polars asks for the version when it makes its first array."""

PLAN = ("plan", "--population", "45222", "--cells", "24", "--epsilon", "0.5")


def loaded_by(*arguments: str) -> list[str]:
    """Run a command and return which heavy libraries it has loaded by its end."""
    command = [sys.executable, "-c", LOADED.format(heavy=HEAVY), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    code, *names = done.stderr.split()
    assert code == "0"
    return names


def test_planning_as_json_loads_nothing_heavy() -> None:
    """No arrays, tables, charts, colours or ciphers: it starts at once."""
    assert loaded_by(*PLAN, "--json") == []


def test_a_target_error_loads_nothing_heavy() -> None:
    """The search for ε needs no library either."""
    target = ("plan", "--population", "45222", "--cells", "24", "--target-rmse", "0.1", "--json")
    assert loaded_by(*target) == []


def test_help_loads_nothing_heavy() -> None:
    """Asking how to do it is instant, whatever it is."""
    code = (
        "import sys; from veiltab.cli.main import veiltab\n"
        f"for command in {HELPED}:\n"
        "    veiltab.main([*command, '--help'], standalone_mode=False)\n"
        f"    print(*(n for n in {HEAVY} if n in sys.modules), file=sys.stderr, end='')\n"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout.count("Usage: ") == len(HELPED)


def test_a_party_that_does_not_estimate_loads_no_statistics_and_no_tables() -> None:
    """They would be half of the time that its commands take to start."""
    heavy = ("veiltab.estimates", "veiltab.inference", "veiltab.report", "polars", "scipy")
    code = (
        f"import sys, veiltab.party.session as _;print(*(n for n in {heavy} if n in sys.modules))"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_planning_loads_no_other_command() -> None:
    """Each command is imported when it is asked for."""
    code = (
        "import sys; from veiltab.cli.main import veiltab;"
        "veiltab.main(sys.argv[1:], standalone_mode=False);"
        "print(*(n for n in sys.modules if n.startswith('veiltab.cli.')), file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, *PLAN, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    names = {name.removeprefix("veiltab.cli.") for name in done.stderr.split()}
    assert names == {"explaining", "main", "output", "plan"}


def test_planning_for_people_loads_the_table_printer_alone() -> None:
    """Which also shows that the test can see what is loaded."""
    assert loaded_by(*PLAN) == ["rich"]


def test_the_module_is_the_command() -> None:
    """``python -m veiltab`` prints what the function does."""
    outcome = run_apart(*PLAN, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads(outcome.out)["mechanism"] == "decoys"


@pytest.mark.parametrize(
    "arguments",
    [
        ("simulate", "--runs", "5", "--epsilon", "1"),
        ("simulate", "--runs", "5", "--epsilon", "1", "--json"),
        (*PLAN, "--json"),
        PLAN,
        ("--help",),
    ],
)
def test_a_closed_pipe_is_no_error_to_talk_about(arguments: tuple[str, ...]) -> None:
    """As in ``veiltab simulate … | head -1``: no traceback, and not a word."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "veiltab", *arguments]
    with subprocess.Popen(  # noqa: S603
        command, stdout=writer, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(writer)
        _, error = process.communicate(timeout=60)
    assert error == ""
    assert process.returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
@pytest.mark.parametrize("arguments", [PLAN, (*PLAN, "--json"), ("--help",)])
def test_a_full_disk_is_an_error_with_a_hint(arguments: tuple[str, ...]) -> None:
    """Where the output was redirected to."""
    command = [sys.executable, "-m", "veiltab", *arguments]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(  # noqa: S603
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    said = "the system refused: No space left on device"
    if "--json" in arguments:
        assert json.loads(done.stderr)["error"]["message"] == said
        return
    error, hint = done.stderr.splitlines()
    assert error == f"error: {said}"
    assert hint.startswith("hint: ")


def test_ctrl_c_ends_it_without_a_traceback(tmp_path: Path) -> None:
    """Exit code 130, a word and a hint, and no file that is half-written."""
    folder = tmp_path / "paper"
    arguments = ["reproduce", "--out", str(folder), "--runs", "1000000"]
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", INTERRUPTIBLE, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 60
        while not folder.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert error.splitlines()[-2:] == ["error: stopped", f"hint: {RUN_AGAIN}"]
    assert list(folder.iterdir()) == []


def test_ctrl_c_inside_polars_is_no_other_failure(tmp_path: Path) -> None:
    """Where its compiled code is about to use arrays, it panics at what Python raises."""
    code = INTERRUPTIBLE.replace("main(sys", STOPPED_IN_POLARS + "main(sys")
    command = [sys.executable, "-c", code, "reproduce", "--out", str(tmp_path), "--runs", "10"]
    quiet = os.environ | {"RUST_BACKTRACE": "0"}
    done = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)  # noqa: S603
    assert "KeyboardInterrupt" in done.stderr.splitlines()[2]
    assert done.returncode == 130
    assert done.stderr.splitlines()[-2:] == ["error: stopped", f"hint: {RUN_AGAIN}"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_terminals_without_greek_letters(encoding: str) -> None:
    """They show a question mark; numbers and JSON are the same everywhere."""
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    outcome = run_apart(*PLAN, env=environment, encoding=encoding)
    assert (outcome.code, outcome.err) == (0, "")
    assert "24 cells, ? = 0.5" in outcome.out
    as_json = run_apart(*PLAN, "--json", env=environment, encoding=encoding)
    assert json.loads(as_json.out)["epsilon"] == 0.5


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_file_name_may_be_any_bytes(tmp_path: Path, flags: list[str]) -> None:
    """A table whose name is no UTF-8 is simulated like any other."""
    path = tmp_path / os.fsdecode(b"caf\xe9.csv")
    path.write_text("a,count\nx,10\ny,20\n")
    outcome = run_apart("simulate", "--counts", path, "--epsilon", 1, "--runs", 5, *flags)
    assert (outcome.code, outcome.err) == (0, "")
    assert "caf\ufffd.csv" in outcome.out


def test_a_missing_file_with_any_name_is_refused(tmp_path: Path) -> None:
    """The error can be printed, whatever the bytes."""
    path = tmp_path / os.fsdecode(b"caf\xe9.csv")
    error = assert_refused(run_apart("simulate", "--counts", path, "--epsilon", 1))
    assert error.startswith("there is no file ")


def test_progress_is_shown_on_a_terminal_and_kept_out_of_the_output() -> None:
    """A bar on stderr, one JSON object on stdout."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "veiltab", "simulate", "--runs", "5", "--epsilon", "1"]
    done = subprocess.run(  # noqa: S603
        [*command, "--json"], stdout=subprocess.PIPE, stderr=slave, text=True, check=True
    )
    os.close(slave)
    shown = os.read(master, 1 << 16).decode()
    os.close(master)
    assert "Simulating" in shown
    assert len(json.loads(done.stdout)["rows"]) == 1
