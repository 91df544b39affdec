"""Everything that is wrong with a command: two lines on stderr, an exit code, and no file."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.support.commands import assert_refused, run_apart, run_here
from veiltab.cli.main import veiltab

Capture = pytest.CaptureFixture[str]

FILES = {
    "good.csv": "a,b,count\nx,u,10\nx,v,20\ny,u,30\ny,v,40\n",
    "negative.csv": "a,count\nx,-1\ny,2\n",
    "fractional.csv": "a,count\nx,1.5\ny,2\n",
    "blank.csv": "a,count\nx,\ny,2\n",
    "missing.csv": "a,b,count\nx,u,1\nx,v,2\ny,u,3\n",
    "duplicate.csv": "a,count\nx,1\ny,2\nx,3\n",
    "zero.csv": "a,count\nx,0\ny,0\n",
    "single.csv": "a,count\nx,7\n",
    "large.csv": "a,count\nx,999999999\ny,1\n",
    "empty.csv": "",
    "header.csv": "a,count\n",
}
PLAN = "plan --population 1000 --cells 6 "
SIMULATE = "simulate --runs 10 --seed 1 "
COUNTS = SIMULATE + "--epsilon 1 --counts "
REPRODUCE = "reproduce --runs 10 --out new "


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with tables of every kind."""
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Return everything below a folder, with the files' contents."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


EPSILONS = [
    *(f"--epsilon {value}" for value in ("0", "-1", "-0.0", "nan", "inf", "-inf", "50.1", "1e400")),
]
NUMBERS = [
    *((PLAN + epsilon, "epsilon must be") for epsilon in EPSILONS),
    *((SIMULATE + epsilon, "epsilon must be") for epsilon in EPSILONS),
    (SIMULATE + "--epsilon 1 --epsilon 0", "epsilon must be"),
    (PLAN + "--epsilon 1e-17", "nothing but noise"),
    (PLAN + "--epsilon 5e-324 --plot new.svg", "nothing but noise"),
    (SIMULATE + "--epsilon 1e-17 --distribution peaky --population 10", "nothing but noise"),
    ("plan --population 0 --cells 6 --epsilon 1", "population must be"),
    ("plan --population -1 --cells 6 --epsilon 1", "population must be"),
    ("plan --population 9007199254740993 --cells 6 --epsilon 1", "population must be"),
    (SIMULATE + "--epsilon 1 --distribution uniform --population 0", "population must be"),
    (PLAN + "--epsilon 1 --sample-size 0", "sample size must be"),
    (PLAN + "--epsilon 1 --sample-size -3", "sample size must be"),
    (PLAN + "--epsilon 1 --sample-size 1001", "sample size must be"),
    (PLAN + "--target-rmse 0.5 --sample-size 1001", "sample size must be"),
    (SIMULATE + "--epsilon 1 --sample-size 0", "sample size must be"),
    (SIMULATE + "--epsilon 1 --sample-size 5 --sample-size 45223", "sample size must be"),
    (COUNTS + "good.csv --sample-size 101", "sample size must be"),
    ("plan --population 10 --cells 1 --epsilon 1", "number of cells must be"),
    ("plan --population 10 --cells 0 --epsilon 1", "number of cells must be"),
    ("plan --population 10 --cells 281474976710657 --epsilon 1", "number of cells must be"),
    (SIMULATE + "--epsilon 1 --distribution linear --cells 1", "number of cells must be"),
    (SIMULATE + "--epsilon 1 --distribution linear --cells 65537", "cannot be arranged"),
    (SIMULATE + "--epsilon 1 --cells 25", "no version with 25 cells"),
    (SIMULATE + "--epsilon 1 --population 45221", "has 45222 respondents, not 45221"),
    (PLAN, "and not both"),
    (PLAN + "--epsilon 1 --target-rmse 0.1", "and not both"),
    *((PLAN + f"--target-rmse {v}", "target RMSE must be") for v in ("0", "1", "-0.1", "nan")),
    (PLAN + "--target-rmse 1e-12", "no epsilon up to 50"),
    (PLAN + "--epsilon 1 --delta 0.02", "delta must be 0, or a number from"),
    (PLAN + "--epsilon 1 --delta -1e-6", "delta must be 0, or a number from"),
    (PLAN + "--epsilon 1 --delta nan", "delta must be 0, or a number from"),
    (PLAN + "--epsilon 1 --mechanism shuffle", "shuffling gains nothing without a delta"),
    (PLAN + "--epsilon 1 --mechanism decoys --sample-size 10", "the sample cannot be fixed"),
    (PLAN + "--epsilon 1 --mechanism decoys --delta 1e-20", "whole weights out of 2^64"),
    *(
        (PLAN + f"--epsilon 1 --epsilon-with-curator {v}", "epsilon_with_curator must be")
        for v in (0, -1, "nan")
    ),
    *(
        (PLAN + f"--epsilon 1 --epsilon-public {v}", "epsilon_public must be")
        for v in (0, -1, "inf")
    ),
    (PLAN + "--epsilon 1 --curator-cells 3,3", "curators' cells are 3, 3"),
    (PLAN + "--epsilon 1 --max-decoys 0", "the most decoys must be"),
    (
        "plan --population 9 --cells 20000000 --epsilon 1 --mechanism decoys",
        "20,000,000 patterns of cells",
    ),
    *((SIMULATE + f"--epsilon 1 --runs {v}", "number of runs") for v in (0, -5, 10**7 + 1)),
    *((REPRODUCE + f"--runs {v}", "number of runs") for v in (9, 0, -5, 10**7 + 1)),
    (SIMULATE + "--epsilon 1 --seed -1", "seed must be"),
    (SIMULATE + "--epsilon 1 --delta 1e-6", "the paper's way has no use for a delta"),
    (SIMULATE + "--epsilon 1 --mechanism shuffle", "shuffling gains nothing without a delta"),
    (SIMULATE + "--epsilon 1 --mechanism decoys --delta 0.5", "delta must be 0, or a number from"),
    (SIMULATE + "--epsilon 1 --mechanism decoys --sample-size 9", "each respondent has a coin"),
    (SIMULATE + "--epsilon 1 --epsilon-with-curator 3", "the server's noise beside decoys"),
    (REPRODUCE + "--seed -1", "seed must be"),
]
WORDS = [
    ("plan --population many --cells 6 --epsilon 1", "'many' is not a whole number"),
    ("plan --population 10.5 --cells 6 --epsilon 1", "'10.5' is not a whole number"),
    ("plan --population 10 --cells x --epsilon 1", "'x' is not a whole number"),
    (PLAN + "--epsilon high", "'high' is not a number"),
    (PLAN + "--epsilon 1 --sample-size half", "'half' is not a whole number"),
    (PLAN + "--target-rmse low", "'low' is not a number"),
    (PLAN + "--epsilon 1 --mechanism hope", "'hope' is not one of 'auto'"),
    (PLAN + "--epsilon 1 --linkage loose", "'loose' is not one of 'aligned'"),
    (PLAN + "--epsilon 1 --curator-cells 6,x", "'6,x' is not a list of whole numbers"),
    (PLAN + "--epsilon 1 --epsilon-with-curator none", "'none' is not a number"),
    (SIMULATE + "--epsilon 1 --runs 1e3", "'1e3' is not a whole number"),
    (SIMULATE + "--epsilon 1 --seed x", "'x' is not a whole number"),
    (REPRODUCE + "--runs x", "'x' is not a whole number"),
    (REPRODUCE + "--seed 1.5", "'1.5' is not a whole number"),
    ("nonsense", "No such command 'nonsense'"),
    ("--nonsense", "No such option"),
    (PLAN + "--epsilon 1 --nonsense", "No such option"),
    (PLAN + "--epsilo 1", "--epsilon"),
    (PLAN + "--epsilon 1 extra", "unexpected extra argument (extra)"),
    (PLAN + "--epsilon", "requires an argument"),
    ("plan --cells 6 --epsilon 1", "Missing option '--population'"),
    ("plan --population 6 --epsilon 1", "Missing option '--cells'"),
    ("simulate", "Missing option '--epsilon'"),
    ("reproduce", "Missing option '--out'"),
    (SIMULATE + "--epsilon 1 --distribution gaussian", "'gaussian' is not one of 'adult'"),
    (SIMULATE + "--epsilon 1 --engine diesel", "'diesel' is not one of 'counts'"),
    (SIMULATE + "--epsilon 1 --mechanism magic", "'magic' is not one of 'paper'"),
]
TABLES = [
    (COUNTS + "negative.csv", "negative.csv has a negative count"),
    (COUNTS + "fractional.csv", "fractional.csv has a fractional count"),
    (COUNTS + "blank.csv", "blank.csv has no count"),
    (COUNTS + "missing.csv", "missing.csv lacks 1 of 4 cells, such as y / v"),
    (COUNTS + "duplicate.csv", "duplicate.csv lists the cell x more than once"),
    (COUNTS + "zero.csv", "every count in zero.csv is zero"),
    (COUNTS + "single.csv", "number of cells must be"),
    (COUNTS + "large.csv", "takes at most 999999999 respondents"),
    (COUNTS + "empty.csv", "empty.csv is empty"),
    (COUNTS + "header.csv", "header.csv has a header but no rows"),
    (COUNTS + "absent.csv", "there is no file absent.csv"),
    (COUNTS + "folder", "'folder' is a directory"),
    (COUNTS + "good.csv --population 99", "good.csv has 100 respondents, not 99"),
    (COUNTS + "good.csv --cells 24", "good.csv has 4 cells, not 24"),
    (COUNTS + "good.csv --distribution adult", "either --distribution or --counts"),
    (COUNTS + "good.csv --engine records --epsilon 0", "epsilon must be"),
]
PICTURES = [
    (PLAN + "--epsilon 1 --plot new.pdf", "must end in .svg or .png, not 'new.pdf'"),
    (PLAN + "--epsilon 1 --plot new --json", "must end in .svg or .png, not 'new'"),
    (PLAN + "--epsilon 0 --plot new.svg", "epsilon must be"),
    (PLAN + "--epsilon 1 --plot folder", "'folder' is a directory"),
    ("reproduce --runs 10 --out good.csv", "'good.csv' is a file"),
]


@pytest.mark.parametrize(("command", "words"), [*NUMBERS, *WORDS, *TABLES, *PICTURES])
def test_bad_input_is_refused(capsys: Capture, folder: Path, command: str, words: str) -> None:
    """Exit code 2, an error and a hint, nothing on stdout, and nothing written anywhere."""
    before = snapshot(folder)
    assert words in assert_refused(run_here(capsys, *command.split()))
    assert snapshot(folder) == before


@pytest.mark.slow
@pytest.mark.parametrize("command", [NUMBERS[0], WORDS[0], WORDS[10], TABLES[0], PICTURES[0]])
def test_the_real_process_refuses_too(folder: Path, command: tuple[str, str]) -> None:
    """The same two lines and the same exit code from a process of its own."""
    before = snapshot(folder)
    assert command[1] in assert_refused(run_apart(*command[0].split()))
    assert snapshot(folder) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (PLAN + "--epsilon 1 --plot absent/new.svg", "No such file or directory"),
        (PLAN + "--epsilon 1 --plot good.csv/new.png --json", "Not a directory"),
        ("reproduce --runs 10 --out good.csv/new", "Not a directory"),
    ],
)
def test_places_that_cannot_be_written_to(
    capsys: Capture, folder: Path, command: str, reason: str
) -> None:
    """The input is fine, so the exit code is 1; nothing is printed before it is written."""
    before = snapshot(folder)
    error = assert_refused(run_here(capsys, *command.split()), code=1)
    assert re.fullmatch(f"cannot write [a-z./]+: {reason}", error)
    assert snapshot(folder) == before


def _leaves(group: click.Group, *words: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _leaves(command, *words, name)
        yield (*words, name)


def test_wrong_usage_of_every_command_is_json_with_json(capsys: Capture) -> None:
    """One line on stderr with the stable code, nothing on stdout, and exit code 2."""
    commands = list(_leaves(veiltab))
    assert len(commands) > 50
    for words in commands:
        for wrong in (("--no-such-option", "--json"), ("--json", "--home=x", "y", "z", "--wrong")):
            outcome = run_here(capsys, *words, *wrong)
            error = json.loads(outcome.err)["error"]
            assert (outcome.code, outcome.out, error["code"]) == (2, "", "usage"), words
            assert error["message"]
            assert "--help" in error["hint"]


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("nonsense", "'veiltab --help' lists every command"),
        ("study nonsense", "'veiltab study --help' lists every command"),
        (PLAN + "--nonsense", "'veiltab plan --help' explains every option"),
        ("reproduce", "'veiltab reproduce --help' explains every option"),
        (PLAN + "--epsilon 0,5", "write a point before decimals, and nothing between thousands;"),
        ("plan --population 45.222 --cells 6", "write a point before decimals, and nothing"),
        ("study abort x --reason", "'veiltab study abort --help' explains every option"),
        ("push push --table", "'veiltab push --help' explains every option"),
        ("server --data", "'veiltab server --help' explains every option"),
    ],
)
def test_wrong_usage_points_to_the_right_help(capsys: Capture, command: str, hint: str) -> None:
    """It names the command whose help explains the option, and says how numbers are written."""
    assert run_here(capsys, *command.split()).err.splitlines()[1].startswith(f"hint: {hint}")
