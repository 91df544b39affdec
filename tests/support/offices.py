"""Parties who work by commands alone: each has a home, and runs ``veiltab`` in this process."""

import contextlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Outcome
from tests.support.service import Running
from veiltab.cli.main import main
from veiltab.server.auth import invite

SAID: list[str] = []
"""Everything that commands have printed here, to look for secrets in."""


def run(*arguments: object) -> Outcome:
    """Run a command in this process, and catch what it prints; any fixture can use it."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main([str(argument) for argument in arguments])
    code = ended.value.code or 0
    assert isinstance(code, int)
    SAID.extend((out.getvalue(), err.getvalue()))
    return Outcome(code, out.getvalue(), err.getvalue())


@dataclass(frozen=True)
class Office:
    """A party with a home; ``public`` is the identity file that others have of it."""

    name: str
    home: Path
    public: Path

    def run(self, *arguments: object) -> Outcome:
        """Run a command in this home."""
        return run(*arguments, "--home", self.home)

    def succeed(self, *arguments: object) -> str:
        """Run a command that must succeed without a word on stderr."""
        outcome = self.run(*arguments)
        assert (outcome.code, outcome.err) == (0, "")
        return outcome.out

    def json(self, *arguments: object) -> Any:  # noqa: ANN401 - whatever a command prints
        """Run a command that must succeed, and return its JSON object."""
        return json.loads(self.succeed(*arguments, "--json"))


def open_office(folder: Path, name: str, server: Running | None = None) -> Office:
    """Make an identity and, if there is a server, register with it: all by commands."""
    folder.mkdir(exist_ok=True)
    short = "".join(filter(str.isalnum, name)).lower()
    office = Office(name, folder / f"{short}-home", folder / f"{short}.json")
    office.succeed("id", "new", "--name", name, "--no-passphrase")
    office.succeed("id", "show", "--public", "--out", office.public)
    if server is not None:
        code = folder / f"{short}.code"
        code.write_text(f"{invite(server.context, name)}\n")
        office.succeed("register", server.url, "--invitation-file", code, "--yes")
    return office


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    """Write a table; quotes stand around every field, for odd names."""
    lines = [header, *rows]
    text = "\n".join(",".join(f'"{cell}"' for cell in line) for line in lines)
    path.write_text(f"{text}\n", "utf-8")
    return path


def write_study(
    path: Path,
    curators: Mapping[str, Mapping[str, Sequence[str]]],
    *,
    title: str,
    epsilon: float = 1.0,
    researchers: Sequence[str] = (),
    lines: str = "",
    linkage: str = 'by = "ids"',
    sampling: str = 'by = "curators"',
) -> Path:
    """Write a study file: for each curator's identity, its attributes with their categories."""
    text = f'title = "{title}"\nepsilon = {epsilon}\n{lines}\n'
    text += f"[linkage]\n{linkage}\n[sampling]\n{sampling}\n"
    for identity, attributes in curators.items():
        named = ", ".join(
            f"{{name = {json.dumps(name, ensure_ascii=False)},"
            f" categories = {json.dumps(list(categories), ensure_ascii=False)}}}"
            for name, categories in attributes.items()
        )
        text += f'[[curators]]\nidentity = "{identity}"\nattributes = [{named}]\n'
    for identity in researchers:
        text += f'[[researchers]]\nidentity = "{identity}"\n'
    path.write_text(text, "utf-8")
    return path
