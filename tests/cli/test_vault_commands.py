"""Stored tables by commands, from the vault to the grant, and the agent as people run it."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Office, assert_refused, open_office, run, write_csv
from tests.support.documents import REFERENCE, listed, paths, section
from tests.support.servers import Server, make_context, running
from veiltab.cli.output import read_secret
from veiltab.crypto.identity import fingerprint
from veiltab.errors import HomeError, StudyFileError
from veiltab.party.agent.policy import example_policy, read_policy
from veiltab.party.home import Home, read_identity

VAULT, STUDY = "Health and taxes", "Smoking and income"
VAULT_FILE = f"""\
title = "{VAULT}"
[linkage]
by = "ids"
[[curators]]
identity = "me"
attributes = [{{name = "smoker", categories = ["no", "yes"]}}]
[[curators]]
identity = "office.json"
attributes = [{{name = "income", categories = ["low", "high"]}}]
"""


@dataclass
class Stage:
    """Two curators with stored tables and a researcher, and what the commands have printed."""

    folder: Path
    hospital: Office
    office: Office
    rivera: Office
    printed: dict[str, Any]

    def policy(self, folder: Path, more: str = "") -> Path:
        """Write a policy that allows everything on the vault."""
        digits = fingerprint(read_identity(self.rivera.public).party_id)
        path = folder / "policy.toml"
        path.write_text(
            f'epsilon = 100\npoll_seconds = 1\nvaults = ["{VAULT}"]\n{more}\n[[researchers]]\n'
            f'fingerprint = "{digits}"\ndays = 30\nidentity = "{self.rivera.public}"\n',
            "utf-8",
        )
        path.chmod(0o600)
        return path

    def sampled(self, title: str) -> str:
        """Let both sign a study, and wait until its rows are drawn; return its id."""
        path = self.folder / f"{title}.toml"
        path.write_text(f'title = "{title}"\nepsilon = 1\n[vault]\nname = "{VAULT}"\n', "utf-8")
        self.office.json("study", "propose", path, "--yes")
        self.hospital.json("study", "sign", title, "--yes")
        waited = self.hospital.json("study", "status", title, "--wait", "sampled")
        study: str = waited["study"]
        return study


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a server for all tests here."""
    with running(make_context(tmp_path_factory.mktemp("server") / "data")) as server:
        yield server


@pytest.fixture(scope="module")
def stage(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Store two tables, by commands alone."""
    folder = tmp_path_factory.mktemp("offices")
    hospital, office, rivera = (
        open_office(folder, name, server) for name in ("Hospital", "Office", "Rivera")
    )
    (folder / "vault.toml").write_text(VAULT_FILE, "utf-8")
    printed: dict[str, Any] = {}
    printed["propose"] = hospital.json("vault", "propose", folder / "vault.toml", "--yes")
    printed["list"] = office.json("vault", "list", "--inbox")
    printed["sign"] = office.json("vault", "sign", VAULT, "--yes")
    for who, column, values in ((hospital, "smoker", "no yes"), (office, "income", "low high")):
        words = values.split()
        rows = [(f"p{i}", words[i % 2]) for i in range(60)]
        table = write_csv(folder / f"{column}.csv", ("id", column), rows)
        who.json("ledger", "set", "people", "--epsilon", 100)
        printed["push"] = who.json("vault", "push", VAULT, "--table", table, "--id", "id")
    printed["show"] = hospital.json("vault", "show", VAULT)
    return Stage(folder, hospital, office, rivera, printed)


def test_the_reference_lists_what_is_printed(stage: Stage, tmp_path: Path) -> None:
    """Every key of a vault, a list and a check, in order, and no others."""
    commands = REFERENCE / "commands.md"
    keys = listed(section(commands, "Keys of a vault"), "key")
    for name in ("propose", "sign"):
        assert keys == paths(stage.printed[name])
    pushed = {**stage.printed["push"]}
    assert pushed.pop("table")["kind"] == "CSV"
    assert keys == paths(pushed)
    terms = {**stage.printed["show"]}
    assert terms.pop("terms")["kind"] == "vault"
    assert keys == paths(terms)
    assert listed(section(commands, "veiltab vault list"), "key") == paths(stage.printed["list"])
    study = stage.sampled("checked")
    check = stage.hospital.json("agent", "check", "--policy", stage.policy(tmp_path))
    assert listed(section(commands, "Keys of a check"), "key") == paths(check)
    assert [(line["study"], line["action"]) for line in check["studies"]] == [
        (study, "send new pads")
    ]
    stage.hospital.json("study", "abort", study, "--reason", "the test is over", "--yes")


def test_people_see_what_they_sign(stage: Stage) -> None:
    """The cost, the server's part, and who has stored a table; each command has an example."""
    shown = stage.hospital.succeed("vault", "show", VAULT)
    assert "none; only studies on it are charged" in shown
    assert "it can link them from study to study" in shown
    assert "the table of Hospital, Office" in shown
    assert run("vault", "example").out.startswith("# A vault file")
    assert run("agent", "example").out == example_policy()
    assert VAULT in stage.hospital.succeed("vault", "list")


def test_a_study_is_answered_by_hand_and_by_cron(stage: Stage, tmp_path: Path) -> None:
    """`--once` says what it does, and nothing where there is nothing to do."""
    study, policy = stage.sampled(STUDY), stage.policy(tmp_path)
    once = ("agent", "run", "--policy", policy, "--once")
    said = stage.hospital.succeed(*once)
    assert f"rows of '{STUDY}' ({study[:16]}), ε = 1\n" in said
    assert stage.hospital.succeed(*once) == ""
    pushed = stage.office.run("push", STUDY, "--table", stage.folder / "any.csv")
    assert "reads stored tables" in assert_refused(pushed, code=1)
    assert f"veiltab vault answer {study[:16]}" in pushed.err
    assert "answered" in stage.office.succeed("vault", "answer", STUDY)
    stage.office.json("study", "status", STUDY, "--wait", "released")
    granted = json.loads(stage.hospital.succeed(*once, "--json"))
    assert (granted["event"], granted["to"]["name"]) == ("grant", "Rivera")
    assert stage.hospital.succeed(*once) == ""
    log = Home(stage.hospital.home).path / "agent.jsonl"
    assert log.stat().st_mode & 0o777 == 0o600
    rows = section(REFERENCE / "files.md", "agent.jsonl")
    keys = {name.strip("`") for key in listed(rows, "key") for name in key.split(", ")}
    for line in log.read_text("utf-8").splitlines():
        assert set(json.loads(line)) <= keys


def start_agent(stage: Stage, policy: Path) -> "subprocess.Popen[str]":
    """Start the agent as its unit does: it cannot make memory executable."""
    unit = run("agent", "unit", "--policy", policy, "--home", stage.hospital.home).out
    assert "MemoryDenyWriteExecute=yes" in unit
    given = [line.removeprefix("Environment=") for line in unit.splitlines() if "POLARS" in line]
    environment = os.environ | dict(line.split("=", 1) for line in given if "=" in line)
    options = ["--policy", str(policy), "--home", str(stage.hospital.home), "--json"]
    return subprocess.Popen(  # noqa: S603 - it is our own command
        [sys.executable, "-m", "veiltab", "agent", "run", *options],
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env=environment,
        preexec_fn=deny_executable_memory,  # noqa: PLW1509 - it calls one function of the system
    )


PR_SET_MDWE, REFUSE_EXEC_GAIN, NO_INHERIT = 65, 1, 2


def deny_executable_memory() -> None:
    """Do what MemoryDenyWriteExecute does, where the system can (Linux 6.3)."""
    ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0)


@pytest.mark.slow
def test_an_agent_answers_until_it_is_told_to_end(stage: Stage, tmp_path: Path) -> None:
    """As a process with a unit's rights; a second one is refused, and SIGTERM is a good end."""
    policy = stage.policy(tmp_path)
    with start_agent(stage, policy) as process:
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        assert (started["event"], started["policy"]) == ("started", str(policy))
        second = stage.hospital.run("agent", "run", "--policy", policy, "--once")
        assert second.code == 1
        assert "another command is at work" in second.err
        study = stage.sampled("by the agent")
        answer = json.loads(process.stdout.readline())
        assert (answer["event"], answer["study"]) == ("new pads", study)
        start = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert json.loads(process.stdout.readline())["event"] == "stopped"
        assert process.wait(30) == 0
        assert time.monotonic() - start < 20


def test_a_server_that_is_away_is_an_error_of_one_round(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--once` the exit code says so, for cron."""
    monkeypatch.setattr("veiltab.cli.agent.PATIENCE", 0.0)
    home = Home(stage.hospital.home)
    pinned = home.server
    assert pinned is not None
    home.pin_server("http://127.0.0.1:9", pinned.identity)
    outcome = stage.hospital.run("agent", "run", "--policy", stage.policy(tmp_path), "--once")
    home.pin_server(pinned.url, pinned.identity)
    assert (outcome.code, outcome.out) == (1, "")
    assert "did not answer" in outcome.err


def test_policies_are_read_strictly(tmp_path: Path) -> None:
    """The example is complete; what is missing, unknown or empty is refused."""
    path = tmp_path / "policy.toml"

    def read(text: str) -> Any:  # noqa: ANN401 - a policy
        path.write_text(text, "utf-8")
        path.chmod(0o600)
        return read_policy(path)

    policy = read(example_policy())
    assert (policy.epsilon, policy.poll_seconds) == (3, 60)
    assert policy.researchers[0].attributes == ("smoker", "age")
    researcher = '[[researchers]]\nfingerprint = "1"\ndays = 1\n'
    for text, problem in (
        ("epsilon = 1", "allows nothing"),
        ('vaults = ["x"]', "epsilon: is missing"),
        ('epsilon = 0\nvaults = ["x"]', "must be a number above 0"),
        ('epsilon = inf\nvaults = ["x"]', "must be a number above 0"),
        ('epsilon = nan\nvaults = ["x"]', "must be a number above 0"),
        ('epsilon = true\nvaults = ["x"]', "must be a number above 0"),
        ('epsilon = 1\nvault = ["x"]', "there is no such key"),
        (f'epsilon = 1\nvaults = ["x"]\n{researcher}', "must have thirty digits"),
    ):
        with pytest.raises(StudyFileError, match=problem):
            read(text)


def test_a_unit_names_its_files_as_systemd_reads_them(tmp_path: Path) -> None:
    """Spaces, percent signs and quotes are words' own; the passphrase is a credential."""
    policy = tmp_path / "my policy 100%.toml"
    unit = run(
        *("agent", "unit", "--policy", policy, "--home", tmp_path / "home", "--user", "curator"),
        *("--passphrase", tmp_path / "secret"),
    ).out
    lines = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line)
    assert f'--policy "{tmp_path}/my policy 100%%.toml"' in lines["ExecStart"]
    assert lines["ExecStart"].endswith(" --passphrase-file %d/passphrase")
    assert lines["LoadCredential"] == f"passphrase:{tmp_path}/secret"
    assert lines["User"] == "curator"
    assert lines["ReadWritePaths"] == str(tmp_path / "home")
    assert (lines["LimitCORE"], lines["NoNewPrivileges"]) == ("0", "yes")
    bare = run("agent", "unit", "--policy", policy, "--home", tmp_path).out
    assert "LoadCredential" not in bare


def test_a_passphrase_that_systemd_hands_over_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mask of its access list looks like rights of a group; only there is that no danger."""
    folder = tmp_path / "credentials"
    folder.mkdir(mode=0o700)
    path = folder / "passphrase"
    path.write_text("correct horse\n", "utf-8")
    path.chmod(0o440)
    with pytest.raises(HomeError, match="others can open"):
        read_secret(path, "passphrase")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder))
    assert read_secret(path, "passphrase") == "correct horse"
    path.chmod(0o444)
    with pytest.raises(HomeError, match="others can open"):
        read_secret(path, "passphrase")
    path.chmod(0o440)
    folder.chmod(0o705)
    with pytest.raises(HomeError, match="others can open"):
        read_secret(path, "passphrase")
