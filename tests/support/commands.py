"""Server the commands: one at a time, as parties with homes, and through a whole study."""

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.documents import COMMANDS
from tests.support.explained import assert_screens_explained
from tests.support.servers import Server, make_context, running
from veiltab.cli.main import main
from veiltab.cli.serve import _announce
from veiltab.hosting import server_identity
from veiltab.server.directory import DataDirectory
from veiltab.server.http.app import Address
from veiltab.server.invitations import invite


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
    assert_screens_explained(tuple(map(str, arguments)), printed.out, printed.err)
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
    if outcome.err.startswith("{"):
        failure = json.loads(outcome.err)["error"]
        assert failure.keys() == {"code", "message", "hint"}
        assert all(failure.values())
        return str(failure["message"])
    error, hint, *notes = outcome.err.splitlines()
    assert all(note.startswith("note: ") for note in notes)
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    assert len(hint) > len("hint: ")
    return error.removeprefix("error: ")


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
    assert_screens_explained(tuple(map(str, arguments)), out.getvalue(), err.getvalue())
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

    def warned(self, *arguments: object) -> Any:  # noqa: ANN401 - as above
        """Run a command that writes files which are not for others, and says so."""
        outcome = self.run(*arguments, "--json")
        assert outcome.code == 0
        assert outcome.err.startswith("warning: the researcher's own view: not for passing on")
        return json.loads(outcome.out)


def open_office(folder: Path, name: str, server: Server | None = None) -> Office:
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
    mechanism: str = "paper",
    lines: str = "",
    linkage: str = 'by = "ids"',
) -> Path:
    """Write a study file: for each curator's identity, its attributes with their categories."""
    text = f'title = "{title}"\nepsilon = {epsilon}\nmechanism = "{mechanism}"\n{lines}\n'
    text += f"[linkage]\n{linkage}\n"
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


TITLE = "Smoking and income"
PEOPLE = 40
OUTPUTS = ("report", "csv", "parquet", "figures", "save")
"""Options of ``veiltab estimate`` that write something."""


@dataclass
class Transcript:
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


def run_by_commands(folder: Path) -> Iterator[Transcript]:
    """Run a whole study, from the first identity to the estimate; the server runs meanwhile."""
    found = Transcript(folder)
    identity = server_identity(DataDirectory(folder / "data"), None)
    with running(make_context(folder / "data", identity=identity)) as server:
        found.keep("veiltab serve", _announced(server))
        offices = [_enrol(found, name, server.url) for name in ("Hospital", "Office", "Rivera")]
        _agree(found, *offices)
        _work(found, *offices)
        found.keep("Keys of the list of invitations", _operator(folder, "--list"))
        yield found


def _announced(server: Server) -> object:
    """Return what ``veiltab serve`` prints when it can answer."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        _announce(server.context, server.url, Address(metrics_port=8751), as_json=True)
    return json.loads(out.getvalue())


def _operator(folder: Path, *arguments: object) -> Any:  # noqa: ANN401 - whatever is printed
    outcome = run("server", "invite", "--data", folder / "data", *arguments, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(outcome.out)


def _enrol(said: Transcript, name: str, url: str) -> Office:
    office = open_office(said.folder, name)
    invitation = _operator(said.folder, name)
    code = said.folder / f"{name}.code"
    code.write_text(invitation["code"])
    said.keep("Keys of an invitation", invitation)
    said.act(office, "register", url, "--invitation-file", code, "--yes")
    said.act(office, "id", "show", heading="Keys of an own identity")
    shown = run("id", "fingerprint", office.public, "--json")
    said.keep("Keys of a fingerprint", json.loads(shown.out))
    return office


def _agree(said: Transcript, hospital: Office, office: Office, rivera: Office) -> None:
    for curator in (hospital, office):
        said.act(curator, "ledger", "set", "people", "--epsilon", 100, heading="Keys of a ledger")
    curators = {
        "me": {"smoker": ["no", "yes"]},
        office.public.name: {"income": ["low", "high"]},
    }
    path = write_study(
        said.folder / "study.toml",
        curators,
        title=TITLE,
        epsilon=50.0,
        researchers=[rivera.public.name],
        mechanism="decoys",
        lines=f"population = {PEOPLE}",
    )
    other = said.folder / "other.toml"
    other.write_text(path.read_text("utf-8").replace(TITLE, "Another"), "utf-8")
    for each in (path, other):
        said.act(hospital, "study", "propose", "--yes", each, heading="Keys of a status")
    said.act(office, "study", "sign", TITLE, "--yes", heading="Keys of a status")
    reason = ("--reason", "no need", "--yes")
    said.act(hospital, "study", "abort", "Another", *reason, heading="Keys of a status")
    refund = ("ledger", "refund", "Another", *reason)
    said.act(hospital, *refund, heading="Keys of a ledger")
    said.act(office, "study", "show", TITLE, heading="Keys of terms")
    said.act(office, "study", "list")
    rivera_digits = rivera.json("id", "show")["fingerprint"]
    verify = ("party", "verify", rivera.public, "--fingerprint", rivera_digits)
    said.act(hospital, *verify, heading="Keys of a party")
    blocked = open_office(said.folder, "Pushy")
    said.act(hospital, "party", "block", blocked.public, heading="Keys of a blocked party")
    example = json.loads(run("study", "example", "--json").out)
    said.keep("veiltab study example", example)


def _work(said: Transcript, hospital: Office, office: Office, rivera: Office) -> None:
    tables = {}
    for who, column, values in ((hospital, "smoker", "no yes"), (office, "income", "low high")):
        texts = values.split()
        lines = [(f"p{i}", texts[i % 3 % 2]) for i in range(PEOPLE)]
        tables[who.name] = write_csv(said.folder / f"{who.name}.csv", ("id", column), lines)
    draft = ("study", "propose", "--from", tables[hospital.name])
    said.act(hospital, *draft, heading="Keys of a draft")
    for who, *options in (
        (hospital, "--dry-run"),
        (hospital, "--no-wait"),
        (office, "--no-wait"),
        (hospital, "--wait-release"),
    ):
        push = ("push", TITLE, "--table", tables[who.name], "--id", "id", *options)
        dry = "Keys of a preview" if "--dry-run" in options else "Keys of a push"
        said.act(who, *push, heading=dry)
        said.act(who, "study", "status", TITLE, heading="Keys of a status")
    for who in (hospital, office):
        out = said.folder / f"{who.name}.grant"
        grant = ("grant", TITLE, "--to", rivera.public, "--out", out)
        said.act(who, *grant, heading="Keys of a grant")
        said.act(who, "audit", TITLE)
    said.act(rivera, "study", "status", TITLE, heading="Keys of a status")
    said.act(rivera, "grants", TITLE, heading="Keys of a list of grants")
    files = [part for name in OUTPUTS for part in (f"--{name}", said.folder / f"estimate.{name}")]
    question = ("--where", "smoker = 'yes'")
    said.act(rivera, "publish", TITLE, *question, *files, heading="Keys of an estimate")
    said.act(rivera, "estimate", TITLE, *question, heading="Keys of an estimate")
    said.act(hospital, "revoke", TITLE, "--from", "Rivera", heading="Keys of revoked grants")
