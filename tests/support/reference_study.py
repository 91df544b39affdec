"""A whole study by commands, for what they print and what they leave behind."""

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.offices import Office, open_office, run, write_csv, write_study
from tests.support.reference import COMMANDS
from tests.support.service import Running, make_context, running
from veiltab.cli.serve import _announce
from veiltab.hosting import server_identity
from veiltab.server.directory import DataDirectory

TITLE = "Smoking and income"
PEOPLE = 40
OUTPUTS = ("report", "csv", "parquet", "figures", "save")
"""Options of ``veiltab estimate`` that write something."""


@dataclass
class Stage:
    """What the commands of a study have printed, and what they have left behind."""

    folder: Path
    printed: dict[str, list[Any]] = field(default_factory=dict)

    def keep(self, name: str, value: object) -> None:
        """Remember an object that a command has printed."""
        self.printed.setdefault(name, []).append(value)

    def act(self, who: Office, *arguments: object, heading: str | None = None) -> None:
        """Run a command of a party, and keep its object under the command's name."""
        words = ["veiltab", *map(str, arguments)]
        name = next(n for n in (" ".join(words[:end]) for end in (3, 2)) if n in COMMANDS)
        self.keep(heading or name, who.json(*arguments))


def run_study(folder: Path) -> Iterator[Stage]:
    """Run a whole study, from the first identity to the estimate; the server runs meanwhile."""
    found = Stage(folder)
    identity, _ = server_identity(DataDirectory(folder / "data"), None)
    with running(make_context(folder / "data", identity=identity)) as server:
        found.keep("veiltab serve", _announced(server))
        offices = [_enrol(found, name, server.url) for name in ("Hospital", "Office", "Rivera")]
        _agree(found, *offices)
        _work(found, *offices)
        found.keep("Keys of the list of invitations", _operator(folder, "--list"))
        yield found


def _announced(server: Running) -> object:
    """Return what ``veiltab serve`` prints when it can answer."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        _announce(server.context, server.url, as_json=True)
    return json.loads(out.getvalue())


def _operator(folder: Path, *arguments: object) -> Any:  # noqa: ANN401 - whatever is printed
    outcome = run("invite", "--data", folder / "data", *arguments, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(outcome.out)


def _enrol(stage: Stage, name: str, url: str) -> Office:
    office = open_office(stage.folder, name)
    invitation = _operator(stage.folder, name)
    code = stage.folder / f"{name}.code"
    code.write_text(invitation["code"])
    stage.keep("Keys of an invitation", invitation)
    stage.act(office, "register", url, "--invitation-file", code, "--yes")
    stage.act(office, "id", "show", heading="Keys of an own identity")
    shown = run("id", "fingerprint", office.public, "--json")
    stage.keep("Keys of a fingerprint", json.loads(shown.out))
    return office


def _agree(stage: Stage, hospital: Office, office: Office, rivera: Office) -> None:
    for curator in (hospital, office):
        stage.act(curator, "ledger", "set", "people", "--epsilon", 100, heading="Keys of a ledger")
    curators = {
        "me": {"smoker": ["no", "yes"]},
        office.public.name: {"income": ["low", "high"]},
    }
    path = write_study(
        stage.folder / "study.toml",
        curators,
        title=TITLE,
        epsilon=50.0,
        researchers=[rivera.public.name],
        lines=f"population = {PEOPLE}",
    )
    other = stage.folder / "other.toml"
    other.write_text(path.read_text("utf-8").replace(TITLE, "Another"), "utf-8")
    for each in (path, other):
        stage.act(hospital, "study", "propose", each, heading="Keys of a status")
    stage.act(office, "study", "sign", TITLE, "--yes", heading="Keys of a status")
    reason = ("--reason", "no need", "--yes")
    stage.act(hospital, "study", "abort", "Another", *reason, heading="Keys of a status")
    stage.act(office, "study", "show", TITLE, heading="Keys of terms")
    stage.act(office, "study", "list")
    example = json.loads(run("study", "example", "--json").out)
    stage.keep("veiltab study example", example)


def _work(stage: Stage, hospital: Office, office: Office, rivera: Office) -> None:
    tables = {}
    for who, column, values in ((hospital, "smoker", "no yes"), (office, "income", "low high")):
        texts = values.split()
        lines = [(f"p{i}", texts[i % 3 % 2]) for i in range(PEOPLE)]
        tables[who.name] = write_csv(stage.folder / f"{who.name}.csv", ("id", column), lines)
    draft = ("study", "propose", "--from", tables[hospital.name])
    stage.act(hospital, *draft, heading="Keys of a draft")
    for who, *options in (
        (hospital, "--dry-run"),
        (hospital, "--no-wait"),
        (office, "--no-wait"),
        (hospital, "--wait-release"),
    ):
        push = ("push", TITLE, "--table", tables[who.name], "--id", "id", *options)
        dry = "Keys of a dry run" if "--dry-run" in options else "Keys of a push"
        stage.act(who, *push, heading=dry)
    for who in (hospital, office):
        out = stage.folder / f"{who.name}.grant"
        grant = ("grant", TITLE, "--to", rivera.public, "--out", out)
        stage.act(who, *grant, heading="Keys of a grant")
        stage.act(who, "audit", TITLE)
    stage.act(rivera, "study", "status", TITLE, heading="Keys of a status")
    files = [part for name in OUTPUTS for part in (f"--{name}", stage.folder / f"estimate.{name}")]
    question = ("--where", "smoker = 'yes'")
    stage.act(rivera, "estimate", TITLE, *question, *files, heading="Keys of an estimate")
