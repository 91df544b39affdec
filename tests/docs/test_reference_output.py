"""The reference lists what commands really print, and what is really in their files.

A whole study is run once, by commands, with a server that is real.
"""

import json
import re
import stat
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.support.commands import Transcript, run, run_by_commands
from tests.support.demo import demo_results
from tests.support.documents import REFERENCE, ROOT, listed, paths, section
from veiltab.crypto import identity
from veiltab.data import recode_file
from veiltab.data.table_format import TableFormat
from veiltab.party import study_file
from veiltab.party.agent import policy
from veiltab.party.vaults import vault_file
from veiltab.wire.states import AuditEvent, State

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transcript]:
    """Run a whole study once."""
    yield from run_by_commands(tmp_path_factory.mktemp("stage"))


SECTIONS = (
    "veiltab serve",
    "Keys of an invitation",
    "Keys of the list of invitations",
    "Keys of an own identity",
    "Keys of a fingerprint",
    "veiltab register",
    "Keys of a party",
    "Keys of a blocked party",
    "Keys of a ledger",
    "veiltab study example",
    "Keys of a draft",
    "veiltab study list",
    "Keys of terms",
    "Keys of a list of grants",
    "Keys of revoked grants",
    "Keys of a status",
    "Keys of a push",
    "Keys of a preview",
    "Keys of a grant",
    "Keys of an estimate",
    "veiltab audit",
)
ELSEWHERE = re.compile(r"(plan|table)\..*|cells\[\]\.(smoker|income)")
"""Keys of plans and tables have a place of their own, and those of an attribute are the study's."""

WITH_A_TABLE = (
    "Keys of a draft",
    "Keys of a drafted recode file",
    "Keys of a push",
    "Keys of a preview",
)


def all_paths(values: list[Any]) -> list[str]:
    """Return the keys of several objects of one kind, each once."""
    return list(dict.fromkeys(path for value in values for path in paths(value)))


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_key_that_a_command_prints(stage: Transcript, heading: str) -> None:
    """The table lists the keys in their order, and no others."""
    real = all_paths(stage.printed[heading])
    if heading == "Keys of a ledger":
        real = _with_entries(stage, real)
    if heading in {"Keys of terms", "Keys of an estimate", "Keys of a status", *WITH_A_TABLE}:
        real = [path for path in real if not ELSEWHERE.fullmatch(path)]
    shown = listed(section(REFERENCE / "commands.md", heading), "key")
    assert shown == real


def test_every_key_of_a_table() -> None:
    """Of any table, as drafts, pushes and dry runs print them."""
    real = list(TableFormat("CSV").to_json())
    assert listed(section(REFERENCE / "commands.md", "Keys of a table"), "key") == real


def _with_entries(stage: Transcript, real: list[str]) -> list[str]:
    """Add what ``ledger show`` prints of studies, which a new ledger does not have yet."""
    shown = json.loads(run("ledger", "--home", stage.folder / "hospital-home", "--json").out)
    assert list(shown) == ["ledgers"]
    every = all_paths(shown["ledgers"])
    assert set(real) <= set(every)
    return every


def test_every_printed_object_is_checked(stage: Transcript) -> None:
    """Nothing is run here without being compared."""
    assert set(stage.printed) == set(SECTIONS)


def test_the_names_of_events_and_states() -> None:
    """All that can stand in an entry and in a status."""
    text = section(REFERENCE / "commands.md", "veiltab audit")
    for event in AuditEvent:
        assert f'`"{event}"`' in text
    text = section(REFERENCE / "commands.md", "Keys of a status")
    for state in State:
        assert f'`"{state}"`' in text


def test_every_key_of_a_demonstration() -> None:
    """Of the results that ``veiltab demo --json`` prints."""
    real = [path for path in paths(demo_results().as_dict("")) if not DEMO_ELSEWHERE.match(path)]
    assert listed(section(REFERENCE / "commands.md", "Keys of a demonstration"), "key") == real


DEMO_ELSEWHERE = re.compile(
    r"(decoys|with_delta)\.|.*cells\[\]\.(education|marital|gender|salary)"
    r"|ledgers\[\]\.(before|after)\."
)


RECODE_FILE_KEYS = recode_file.RECODE_KEYS | recode_file.RECODE_IDS_KEYS | recode_file.RECODED_KEYS
FILE_KEYS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "STUDY_KEYS": ("Keys at the top", study_file.STUDY_KEYS),
    "VAULT_KEYS": ("Keys of vault", study_file.VAULT_KEYS),
    "VAULT_FILE_KEYS": ("Vault file", vault_file.VAULT_FILE_KEYS),
    "POLICY_KEYS": ("Policy", policy.POLICY_KEYS | policy.ALLOWANCE_KEYS),
    "ALLOWANCE_KEYS": ("Keys of a researcher in a policy", policy.ALLOWANCE_KEYS),
    "LINKAGE_KEYS": ("Keys of linkage", study_file.LINKAGE_KEYS),
    "CURATOR_KEYS": ("Keys of a curator", study_file.CURATOR_KEYS),
    "ATTRIBUTE_KEYS": ("Keys of an attribute", study_file.ATTRIBUTE_KEYS),
    "RESEARCHER_KEYS": ("Keys of a researcher", study_file.RESEARCHER_KEYS),
    "IDENTITY_KEYS": ("Identity file", study_file.IDENTITY_KEYS),
    "RECODE_KEYS": ("Recode file", RECODE_FILE_KEYS),
    "RECODE_IDS_KEYS": ("Keys of ids", recode_file.RECODE_IDS_KEYS),
    "RECODED_KEYS": ("Keys of a recoded attribute", recode_file.RECODED_KEYS),
}


@pytest.mark.parametrize(("heading", "keys"), FILE_KEYS.values(), ids=FILE_KEYS)
def test_every_key_of_a_file_that_people_write(heading: str, keys: Mapping[str, str]) -> None:
    """The tables list the keys that the readers know, in their order."""
    assert listed(section(REFERENCE / "files.md", heading), "key") == list(keys)


def test_no_table_of_keys_is_forgotten() -> None:
    """Whatever a reader accepts is compared above."""
    modules = (study_file, vault_file, policy, recode_file)
    tables = {name for module in modules for name in vars(module) if name.endswith("_KEYS")}
    assert sorted(tables) == sorted(FILE_KEYS)


OF_MESSAGES = ("upload.", "identity.", "parties[].identity.")


@pytest.mark.parametrize(
    ("heading", "pattern"),
    [
        ("Keys of server.json", "server.json"),
        ("Keys of known.json", "known.json"),
        ("Keys of a ledger file", "ledgers/*.json"),
        ("Keys of contribution.json", "studies/*/contribution.json"),
        ("Keys of secret.json", "studies/*/secret.json"),
        ("Keys of table.json", "studies/*/table.json"),
        ("Keys of prepared.json", "studies/*/prepared.json"),
        ("Keys of audit.json", "studies/*/audit.json"),
    ],
)
def test_every_key_of_a_file_in_a_home(stage: Transcript, heading: str, pattern: str) -> None:
    """Without those of messages, and of an identity, which are described elsewhere."""
    files = (stage.folder / "hospital-home").glob(pattern)
    texts = sorted((path.read_text() for path in files), key=len, reverse=True)
    real = all_paths([json.loads(text) for text in texts])  # the order is that of the fullest one
    real = [path for path in real if not path.startswith(OF_MESSAGES)]
    assert listed(section(REFERENCE / "files.md", heading), "key") == real


def test_every_key_of_a_key_file(stage: Transcript) -> None:
    """Of either kind; the stage has one without a passphrase."""
    unlocked = json.loads((stage.folder / "hospital-home" / "identity.key").read_text())
    assert unlocked["kind"] == identity.PLAIN
    keys = listed(section(REFERENCE / "files.md", "Keys of identity.key"), "key")
    assert sorted(keys) == sorted(set(paths(unlocked)) | identity.FIELDS[identity.LOCKED])


@pytest.mark.parametrize(
    ("heading", "folder"),
    [("Home directory", f"{who}-home") for who in ("hospital", "office", "rivera")]
    + [("Data directory", "data")],
)
def test_every_file_of_a_directory(stage: Transcript, heading: str, folder: str) -> None:
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
