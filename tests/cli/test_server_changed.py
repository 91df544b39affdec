"""Another server answers where the known one was: every command says so, and sends it nothing."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click
import pytest

from tests.support.commands import Office, assert_refused, open_office, write_study
from tests.support.servers import Server, make_context, running
from veiltab.cli.main import veiltab
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity, fingerprint
from veiltab.party.agent.policy import example_policy
from veiltab.party.home import Home
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.rotating import rotate
from veiltab.wire.invitations import draw_code

VAULT_FILE = """\
title = "Patients"
[linkage]
by = "ids"
[[curators]]
identity = "me"
attributes = [{name = "smoker", categories = ["no", "yes"]}]
[[curators]]
identity = "partner.json"
attributes = [{name = "income", categories = ["low", "high"]}]
"""
COMMANDS: dict[str, tuple[str, ...]] = {
    "id rotate": ("--yes",),
    "id revoke": ("--yes",),
    "register": ("URL", "--yes", "--invitation-file", "code"),
    "party block": ("partner.json",),
    "party unblock": ("Pushy",),
    "study propose": ("study.toml", "--yes"),
    "study check": ("Smoking", "--table", "table.csv", "--id", "id"),
    "study list": (),
    "study show": ("Smoking",),
    "study sign": ("Smoking", "--yes"),
    "study status": ("Smoking",),
    "study abort": ("Smoking", "--reason", "x", "--yes"),
    "push": ("Smoking", "--table", "table.csv", "--id", "id"),
    "grant": ("Smoking", "--to", "partner.json"),
    "grants": ("Smoking",),
    "revoke": ("Smoking", "--from", "Partner"),
    "ledger refund": ("Smoking", "--reason", "x", "--yes"),
    "overlap propose": ("Both", "--with", "partner.json", "--epsilon", "0.1", "--yes"),
    "overlap show": ("Smoking",),
    "recode draft": ("table.csv", "--study", "Smoking"),
    "vault propose": ("vault.toml",),
    "vault list": (),
    "vault show": ("Patients",),
    "vault sign": ("Patients", "--yes"),
    "vault push": ("Patients", "--table", "table.csv", "--id", "id"),
    "vault answer": ("Smoking",),
    "vault close": ("Patients", "--reason", "x", "--yes"),
    "agent check": ("--policy", "policy.toml"),
    "agent run": ("--policy", "policy.toml", "--once"),
    "estimate": ("Smoking",),
    "publish": ("Smoking", "--report", "report.html"),
    "audit": ("Smoking",),
}
"""Every command that talks to a server."""

LOCAL = {
    *("demo", "plan", "simulate", "reproduce", "serve", "console"),
    *("id new", "id show", "id fingerprint", "id keyring"),
    *("party list", "party show", "party verify", "party forget"),
    *(
        "overlap plan",
        "ledger show",
        "ledger set",
        "study example",
        "vault example",
        "agent example",
        "agent unit",
    ),
}
"""Every command that does not; those of ``veiltab server`` open its folder."""


def somebody(name: str) -> PrivateIdentity:
    """Return an identity that is the same every time."""
    return PrivateIdentity.create(name, CipherEntropy.from_seed(9, name))


TRUSTED = somebody("trusted")


@dataclass(frozen=True)
class Changed:
    """A party that trusts one server, and finds another one at its address."""

    folder: Path
    office: Office
    impostor: Server

    def asked(self) -> set[tuple[str, str]]:
        """Return what the impostor was asked so far, and how often."""
        return set(re.findall(r"veiltab_requests_total{(.*?)} (.*)", self.impostor.metrics()))

    def copy(self, folder: Path) -> Office:
        """Return the same party in a home that a command may spoil."""
        shutil.copytree(self.office.home, folder / "home")
        return Office(self.office.name, folder / "home", self.office.public)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Changed]:
    """Pin an identity to the address of a server that has another one."""
    folder = tmp_path_factory.mktemp("changed")
    office, _ = open_office(folder, "Klinik"), open_office(folder, "Partner")
    home = Home(office.home)
    home.set_budget("patients", 10.0)
    home.known.block(public_identity(somebody("Pushy")))
    curators = {"me": {"smoker": ["no", "yes"]}, "partner.json": {"income": ["low", "high"]}}
    write_study(folder / "study.toml", curators, title="Smoking", lines="population = 40")
    (folder / "vault.toml").write_text(VAULT_FILE)
    (folder / "table.csv").write_text("id,smoker\n1,no\n")
    (folder / "code").write_text(draw_code(CipherEntropy.from_seed(1, "code")))
    (folder / "policy.toml").write_text(example_policy())
    (folder / "policy.toml").chmod(0o600)
    with running(make_context(folder / "data")) as impostor:
        home.pin_server(impostor.url, public_identity(TRUSTED))
        yield Changed(folder, office, impostor)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_that_the_server_has_changed(
    changed: Changed, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With both fingerprints and a code for scripts; nothing is charged, kept or sent."""
    monkeypatch.chdir(changed.folder)
    office = changed.copy(tmp_path)
    url = changed.impostor.url
    before = changed.asked()
    options = [url if option == "URL" else option for option in COMMANDS[command]]
    outcome = office.run(*command.split(), *options, "--json")
    said = assert_refused(outcome, code=1)
    assert json.loads(outcome.err)["error"]["code"] == "server_changed"
    assert "THE SERVER HAS CHANGED" in said
    for shown in (TRUSTED.party_id, changed.impostor.context.identity.party_id):
        assert fingerprint(shown) in said
    asked = {what for what, _ in changed.asked() - before}
    assert asked == {'method="GET",route="/v1/server",status="200"'}
    home = Home(office.home)
    assert (home.studies(), home.vaults()) == ([], [])
    assert home.budgets()[0].epsilon_left == 10.0


def test_no_command_is_forgotten() -> None:
    """A new command talks to a server, and is tested above, or is among those that do not."""
    every: set[str] = set()

    def collect(group: click.Group, path: tuple[str, ...]) -> None:
        for name in group.list_commands(click.Context(group)):
            command = group.get_command(click.Context(group), name)
            if isinstance(command, click.Group):
                collect(command, (*path, name))
            else:
                every.add(" ".join((*path, name)))

    collect(veiltab, ())
    assert {c for c in every if not c.startswith("server ")} == LOCAL | COMMANDS.keys()


def test_older_keys_of_the_same_server_are_refused(changed: Changed, tmp_path: Path) -> None:
    """A home that has seen the server's newer keys does not go back; newer ones are in order."""
    office, server = changed.copy(tmp_path), changed.impostor
    home = Home(office.home)
    home.forget_server()
    home.pin_server(server.url, server.context.identity)
    refused = office.run("study", "list")
    assert "not signed by a registered party" in assert_refused(
        refused, code=1
    )  # it is the right server
    own = PrivateIdentity.create("server", CipherEntropy.from_seed(1, "server"))
    home.follow_server(rotate(own, CipherEntropy.from_seed(2, "new"), 5).signing.proof)
    outcome = office.run("study", "list", "--json")
    assert json.loads(outcome.err)["error"]["code"] == "server_changed"
    assert "works with a key that it had replaced" in assert_refused(outcome, code=1)


def test_a_new_name_is_followed(changed: Changed, tmp_path: Path) -> None:
    """It proves nothing, and contracts must have the one that the server has now."""
    office, server = changed.copy(tmp_path), changed.impostor
    home = Home(office.home)
    home.forget_server()
    home.pin_server(server.url, replace(server.context.identity, name="an older name"))
    assert office.run("study", "list").code == 1
    pinned = home.server
    assert pinned is not None
    assert pinned.identity == server.context.identity
