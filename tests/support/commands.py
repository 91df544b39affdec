"""Running the command, in this process or as users do."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from veiltab.cli.main import main


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and what it printed where."""

    code: int
    out: str
    err: str


def run_here(capsys: pytest.CaptureFixture[str], *arguments: object) -> Outcome:
    """Run the command in this process: fast, and everything but the process is real."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    code = ended.value.code or 0  # None is Python's way to say 0 here
    assert isinstance(code, int)
    return Outcome(code, printed.out, printed.err)


def succeed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run a command that must succeed without a word on stderr; return what it prints."""
    outcome = run_here(capsys, *arguments)
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.out


def run_apart(
    *arguments: object, encoding: str = "utf-8", env: Mapping[str, str] | None = None
) -> Outcome:
    """Run the command as a process of its own."""
    done = subprocess.run(  # noqa: S603 - it is our own command
        [sys.executable, "-m", "veiltab", *map(str, arguments)],
        capture_output=True,
        check=False,
        encoding=encoding,
        env=env,
        timeout=60,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def assert_refused(outcome: Outcome, *, code: int = 2) -> str:
    """Check the form that every failure has, and return the line that says what is wrong."""
    assert (outcome.code, outcome.out) == (code, "")
    error, hint = outcome.err.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    assert len(hint) > len("hint: ")
    return error.removeprefix("error: ")
