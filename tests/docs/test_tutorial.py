"""The tutorial of a whole study, typed line by line with real processes and a real server."""

import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.documents import ROOT, Block, blocks, commands
from tests.support.terminal import PlayError, Terminal, compare, same_words

TUTORIAL = ROOT / "docs" / "tutorial" / "first-study.md"
PORT, FOLDER = "8750", "/home/ada/first-study"
"""What stands on the page for a port that is free and for the reader's folder."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a new folder with a short name: where the window ends, long paths are broken."""
    short = Path("/tmp")  # noqa: S108 - the folders in it are private
    with tempfile.TemporaryDirectory(dir=short if short.is_dir() else None) as name:
        place = Path(name).resolve() / "study"
        place.mkdir()
        yield place


@pytest.fixture
def terminal(folder: Path) -> Iterator[Terminal]:
    """Return a terminal in that folder; whatever is left running in it ends with the test."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    # The port for metrics that goes with the page's may be another server's.
    elsewhere = {f"--port {PORT}": f"--port {port} --metrics-port 0", PORT: str(port)}
    found = Terminal(folder, elsewhere | {FOLDER: str(folder)})
    with ExitStack() as stack:
        stack.callback(found.stop)
        yield found


def play(block: Block, terminal: Terminal) -> None:
    """Do what the reader does with a block."""
    if block.remark == "file":
        (terminal.folder / block.reason).write_text(block.text, "utf-8")
    elif block.language == "console" and block.remark == "terminal":
        ((command, shown),) = commands(block)
        terminal.leave_running(command, shown)
    elif block.language == "console" and block.remark is None:
        for command, shown in commands(block):
            terminal.play(command, shown)
    else:
        assert block.remark == "not run" or block.language == "text", block.place


@pytest.mark.slow
def test_the_tutorial_from_the_first_line_to_the_last(terminal: Terminal) -> None:
    """Every command prints the page's words, and ends as the page lets one expect."""
    for block in blocks(TUTORIAL):
        try:
            play(block, terminal)
        except PlayError as error:
            pytest.fail(f"{block.place}: {error}", pytrace=False)
    terminal.stop()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("id   52d40689d1e1b1eb46b814ff", "id  (hex)"),
        ("fingerprint   60845 84260 73804 77212 60955 75587", "fingerprint  (fingerprint)"),
        ("since       2026-11-16 07:10 UTC", "since  (time)"),
        ("07:08:52 info listening", "(clock) info listening"),
        ("yes     high    11.36%        1.16%", "yes  high  (share) (error)"),
        ("no      high    -0.21%        0.73%", "no  high  (share) (error)"),
        ("no  low  18.85%   16.47–21.29     1.23      0.56     1.09", "no  low  (share) (error)"),
        ("sample    4,296 of 20,000 respondents", "sample  4,296 of 20,000 respondents"),
        ("ε          2: 1 spent, 1 left", "ε  2: 1 spent, 1 left"),
    ],
)
def test_what_may_differ(line: str, words: str) -> None:
    """Ids, fingerprints, times and noisy shares do; words and exact numbers do not."""
    assert same_words(line) == words


@pytest.mark.parametrize(
    ("shown", "real"),
    [
        (["state  open"], ["state  released"]),
        (["ε = 1"], ["ε = 2"]),
        (["state  open"], ["state  open", "more"]),
        (["no  20.00%  1.00%"], ["no  33.00%  1.00%"]),
        (["no  20.00%  1.00%"], ["yes  20.00%  1.00%"]),
    ],
)
def test_other_words_are_found(shown: list[str], real: list[str]) -> None:
    """A page that is out of date fails; so does one whose shares noise cannot explain."""
    with pytest.raises(PlayError):
        compare("a command", shown, real)


def test_noise_is_no_difference() -> None:
    """Two releases of the same data differ, by what their standard errors say."""
    compare(
        "a command",
        ["no  20.00%  1.00%", "id  0123456789abcdef"],
        ["no   9.50%  0.99%", "the study is uploaded; wait", "id  fedcba9876543210"],
    )


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("echo yes; false", ["yes"]),
        ("echo error: no", ["error: no"]),
        ("printf 'Really? [y/N]: '; read a; echo \"<$a>\"", ["Really? [y/N]: n", "<y>"]),
    ],
)
def test_how_a_command_ends_counts(terminal: Terminal, command: str, shown: list[str]) -> None:
    """A command that fails where none should, or the other way round, or is told something else."""
    with pytest.raises(PlayError):
        terminal.play(command, shown)


def test_questions_are_answered_from_the_page(terminal: Terminal) -> None:
    """What stands behind a question is typed when it is asked."""
    command = "printf 'Really? [y/N]: '; read a; echo \"<$a>\"; test -t 0 && test -t 1"
    terminal.play(command, ["Really? [y/N]: y", "<y>"])
