"""The reference lists what commands really print, and what is really in their files.

A whole study is run once, by commands, with a server that is real.
"""

import contextlib
import io
import json
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import veiltab
from tests.support.offices import Office, open_office, run, write_csv, write_study
from tests.support.reference import COMMANDS, REFERENCE, ROOT, listed, paths, section
from tests.support.service import Running, make_context, running
from veiltab.cli.serve import _announce
from veiltab.cli.server_options import server_identity
from veiltab.client import recode_file, study_file
from veiltab.crypto import keyfile
from veiltab.report.demo_results import (
    Cell,
    Column,
    DemoResults,
    LedgerChange,
    SecondResearcher,
    ServerView,
    StudyResult,
)
from veiltab.storage.folders import DataDirectory
from veiltab.wire.audit import EVENTS, STATES

TITLE = "Smoking and income"
PEOPLE = 40


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


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Run a whole study, from the first identity to the estimate."""
    folder = tmp_path_factory.mktemp("stage")
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
    stage.act(rivera, "estimate", TITLE, heading="Keys of an estimate")


SECTIONS = (
    "veiltab serve",
    "Keys of an invitation",
    "Keys of the list of invitations",
    "Keys of an own identity",
    "Keys of a fingerprint",
    "veiltab register",
    "Keys of a ledger",
    "veiltab study example",
    "Keys of a draft",
    "veiltab study list",
    "Keys of terms",
    "Keys of a status",
    "Keys of a push",
    "Keys of a dry run",
    "Keys of a grant",
    "Keys of an estimate",
    "veiltab audit",
)
ELSEWHERE = re.compile(r"plan\..*|cells\[\]\.(smoker|income)")
"""Keys of a plan have a table of their own, and those of an attribute are the study's own."""


def all_paths(values: list[Any]) -> list[str]:
    """Return the keys of several objects of one kind, each once."""
    return list(dict.fromkeys(path for value in values for path in paths(value)))


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_key_that_a_command_prints(stage: Stage, heading: str) -> None:
    """The table lists the keys in their order, and no others."""
    real = all_paths(stage.printed[heading])
    if heading == "Keys of a ledger":
        real = _with_entries(stage, real)
    if heading in {"Keys of terms", "Keys of an estimate"}:
        real = [path for path in real if not ELSEWHERE.fullmatch(path)]
    shown = listed(section(REFERENCE / "commands.md", heading), "key")
    assert shown == real


def _with_entries(stage: Stage, real: list[str]) -> list[str]:
    """Add what ``ledger show`` prints of studies, which a new ledger does not have yet."""
    shown = json.loads(run("ledger", "--home", stage.folder / "hospital-home", "--json").out)
    assert list(shown) == ["ledgers"]
    every = all_paths(shown["ledgers"])
    assert set(real) < set(every)
    return every


def test_every_printed_object_is_checked(stage: Stage) -> None:
    """Nothing is run here without being compared."""
    assert set(stage.printed) == set(SECTIONS)


def test_the_names_of_events_and_states() -> None:
    """All that can stand in an entry and in a status."""
    text = section(REFERENCE / "commands.md", "veiltab audit")
    for event in EVENTS:
        assert f'`"{event}"`' in text
    text = section(REFERENCE / "commands.md", "Keys of a status")
    for state in STATES:
        assert f'`"{state}"`' in text


def test_every_key_of_a_demonstration() -> None:
    """Of the results that ``veiltab demo --json`` prints."""
    real = [path for path in paths(_demo_results().as_dict("")) if not DEMO_ELSEWHERE.match(path)]
    assert listed(section(REFERENCE / "commands.md", "Keys of a demonstration"), "key") == real


DEMO_ELSEWHERE = re.compile(r"with_delta\.|.*cells\[\]\.smoker|ledgers\[\]\.(before|after)\.")


def _demo_results() -> DemoResults:
    plan = veiltab.plan(population_size=10, domain_size=2, epsilon=1.0).as_dict()
    cells = (Cell(("no",), 0.5, 0.5, 0.1), Cell(("yes",), 0.5, 0.5, 0.1))
    study = StudyResult("", "", plan, ("smoker",), cells)
    server = ServerView(
        received=(),
        received_later=(),
        released=(),
        ids_found=0,
        column=Column("smoker", (), (), (), 0.5),
        entries=(),
        head="",
        verified_by=(),
    )
    second = SecondResearcher(
        name="", granted=("smoker",), cells=cells, asked=(), error="", hint=""
    )
    return DemoResults(
        studies=(study, study),
        holders={},
        server=server,
        second=second,
        ledgers=(LedgerChange("", {"dataset": ""}, {"dataset": ""}),),
        commands=0,
        seconds=0.0,
    )


FILE_KEYS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "STUDY_KEYS": ("Keys at the top", study_file.STUDY_KEYS),
    "SAMPLING_KEYS": ("Keys of sampling", study_file.SAMPLING_KEYS),
    "LINKAGE_KEYS": ("Keys of linkage", study_file.LINKAGE_KEYS),
    "CURATOR_KEYS": ("Keys of a curator", study_file.CURATOR_KEYS),
    "ATTRIBUTE_KEYS": ("Keys of an attribute", study_file.ATTRIBUTE_KEYS),
    "RESEARCHER_KEYS": ("Keys of a researcher", study_file.RESEARCHER_KEYS),
    "IDENTITY_KEYS": ("Identity file", study_file.IDENTITY_KEYS),
    "RECODE_KEYS": ("Recode file", recode_file.RECODE_KEYS | recode_file.BINS_KEYS),
    "BINS_KEYS": ("Keys of bins", recode_file.BINS_KEYS),
}


@pytest.mark.parametrize(("heading", "keys"), FILE_KEYS.values(), ids=FILE_KEYS)
def test_every_key_of_a_file_that_people_write(heading: str, keys: Mapping[str, str]) -> None:
    """The tables list the keys that the readers know, in their order."""
    assert listed(section(REFERENCE / "files.md", heading), "key") == list(keys)


def test_no_table_of_keys_is_forgotten() -> None:
    """Whatever a reader accepts is compared above."""
    tables = [name for name in (*vars(study_file), *vars(recode_file)) if name.endswith("_KEYS")]
    assert sorted(tables) == sorted(FILE_KEYS)


@pytest.mark.parametrize(
    ("heading", "pattern"),
    [
        ("Keys of server.json", "server.json"),
        ("Keys of a ledger file", "ledgers/*.json"),
        ("Keys of secret.json", "studies/*/secret.json"),
        ("Keys of prepared.json", "studies/*/prepared.json"),
        ("Keys of audit.json", "studies/*/audit.json"),
    ],
)
def test_every_key_of_a_file_in_a_home(stage: Stage, heading: str, pattern: str) -> None:
    """Without those of messages, and of an identity, which are described elsewhere."""
    files = list((stage.folder / "hospital-home").glob(pattern))
    real = all_paths([json.loads(path.read_text()) for path in files])
    real = [path for path in real if not path.startswith(("upload.", "identity."))]
    assert listed(section(REFERENCE / "files.md", heading), "key") == real


def test_every_key_of_a_key_file() -> None:
    """Of either kind."""
    keys = listed(section(REFERENCE / "files.md", "Keys of identity.key"), "key")
    assert sorted(keys) == sorted(keyfile._FIELDS[keyfile.PLAIN] | keyfile._FIELDS[keyfile.LOCKED])


@pytest.mark.parametrize(
    ("heading", "folder"),
    [("Home directory", f"{who}-home") for who in ("hospital", "office", "rivera")]
    + [("Data directory", "data")],
)
def test_every_file_of_a_directory(stage: Stage, heading: str, folder: str) -> None:
    """Each that a study has left there is in the table, and is its owner's alone."""
    shown = listed(section(REFERENCE / "files.md", heading), "path")
    patterns = [re.compile(re.sub("<[^>]*>", "[^/]+", re.sub(r"\.", r"\\.", p))) for p in shown]
    files = [path for path in (stage.folder / folder).rglob("*") if path.is_file()]
    assert len(files) >= 4
    for path in files:
        name = path.relative_to(stage.folder / folder).as_posix()
        assert any(pattern.fullmatch(name) for pattern in patterns), name
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, name
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700, name


def test_every_environment_variable() -> None:
    """The table lists those that the code reads, and no others."""
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    real = set(re.findall(r"\bVEILTAB_[A-Z_]+\b", sources)) | {"HOME"}
    shown = listed(section(REFERENCE / "commands.md", "Environment variables"), "variable")
    assert sorted(shown) == sorted(real)
