"""Bad input to every command: words, an exit code and a stable code, and nothing else happens.

``bad_input.txt`` has the cases: what somebody types, and what it comes to.  They are played
against one scene (``tests.support.bad_input``), in which studies stand at every stage.
"""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from tests.support.bad_input import PASSWORD, PERSON, Scene, bad_input_scene
from tests.support.commands import Outcome, run
from veiltab.cli.main import veiltab

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("bad input")]

ODD = {
    "long": "x" * 10_000,
    "turned": "a\u202eb",
    "nul": "a\0b",
    "emoji": "🚬",
    "bytes": "\udcff\udcfe",
    "open": "(" * 5_000,
}
"""What cannot be written well in a file of cases."""


@dataclass(frozen=True)
class Case:
    """Who types what, and what it comes to."""

    who: str
    line: str
    exit_code: int
    code: str
    words: str
    plain: bool
    """Whether it is played as people type it; scripts add ``--json``."""

    def arguments(self, scene: Scene) -> list[str]:
        """Return the command line; a party's commands work in its home."""
        known = {**ODD, "data": str(scene.data), "url": scene.server.url}
        words = [word.format(**known) for word in shlex.split(self.line)]
        if self.who == "nobody":
            return words
        where = words.index("--") if "--" in words else len(words)
        return [*words[:where], "--home", str(scene.offices[self.who].home), *words[where:]]


def read_cases() -> dict[str, Case]:
    """Read pairs of lines: a prompt with a command, then exit code, error code and some words."""
    text = Path(__file__).with_name("bad_input.txt").read_text("utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    cases: dict[str, Case] = {}
    for typed, expected in zip(lines[::2], lines[1::2], strict=True):
        who, _, line = typed.partition("$ ")
        exit_code, code, words = expected.strip().split(maxsplit=2)
        plain = " -- " in line or len(cases) % 4 == 0
        cases[typed] = Case(who, line, int(exit_code), code, words, plain)
    assert len(cases) == len(lines) // 2  # none stands there twice
    return cases


CASES = read_cases()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Set the scene once."""
    with bad_input_scene(tmp_path_factory.mktemp("bad")) as found:
        yield found


@pytest.fixture(autouse=True)
def _here(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work among the bad files, without much patience."""
    monkeypatch.chdir(scene.folder)
    monkeypatch.delenv("VEILTAB_TABLE_URL", raising=False)
    monkeypatch.setattr("veiltab.cli.options.PATIENCE", 0.1)


@pytest.mark.parametrize("name", CASES)
def test_nothing_happens(scene: Scene, name: str) -> None:
    """No traceback, no half-written file, no wrong exit code, no charge, and no secret."""
    case = CASES[name]
    before = scene.state()
    outcome = run(*case.arguments(scene), *(() if case.plain else ("--json",)))
    assert scene.state() == before
    assert outcome.code == case.exit_code
    message = as_people_read_it(outcome) if case.plain else as_scripts_read_it(outcome, case.code)
    assert case.words in message
    said = outcome.out + outcome.err
    assert "Traceback" not in said
    assert PASSWORD not in said
    assert PERSON not in said or case.who == "hospital"


def as_scripts_read_it(outcome: Outcome, code: str) -> str:
    """Return the message of one line of JSON with this code; warnings may stand above."""
    failure = json.loads(outcome.err.splitlines()[-1])["error"]
    assert failure.keys() == {"code", "message", "hint"}
    assert failure["code"] == code
    assert failure["hint"]
    return str(failure["message"])


def as_people_read_it(outcome: Outcome) -> str:
    """Return what stands behind ``error:``, above ``hint:``; warnings may stand above."""
    lines = outcome.err.splitlines()
    while lines and lines[0].startswith("warning: "):
        del lines[0]
    error, separator, hint = "\n".join(lines).rpartition("\nhint: ")
    assert error.startswith("error: ")
    assert separator
    assert hint
    return error.removeprefix("error: ")


def test_every_command_has_a_case() -> None:
    """Whoever adds a command thinks of what could be wrong with what people type."""
    played = [shlex.split(case.line) for case in CASES.values()]
    commands = list(_commands(veiltab, ()))
    assert len(commands) > 60
    for command in commands:
        assert any(tuple(words[: len(command)]) == command for words in played), command


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        yield path
        return
    for name, inner in command.commands.items():
        yield from _commands(inner, (*path, name))
