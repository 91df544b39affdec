"""``veiltab server``: the operator looks after the parties, studies and disk of a server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import assert_refused, run
from tests.support.proposals import Threesome, proposal, threesome
from tests.support.servers import make_context
from veiltab.crypto.entropy import SystemEntropy
from veiltab.crypto.identity import fingerprint
from veiltab.errors import InvitationError, UnauthenticatedError, UnknownPartyError
from veiltab.hosting import server_identity
from veiltab.party.context import PartyContext
from veiltab.party.remote import RemoteServer
from veiltab.protocol import rotating
from veiltab.server.directory import DataDirectory
from veiltab.server.http import auth
from veiltab.server.invitations import invite


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threesome]:
    """One running server, whose key file the commands find."""
    folder = tmp_path_factory.mktemp("operator")
    identity = server_identity(DataDirectory(folder / "data"), None)
    context = make_context(folder / "data", identity=identity)
    with threesome(folder, context=context) as made:
        yield made


@pytest.fixture(autouse=True)
def no_memory_of_parties(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server look every party up at once: the time of these tests stands still."""
    monkeypatch.setattr(auth, "REMEMBERED_SECONDS", -1)


def operate(parties: Threesome, *arguments: object) -> Any:  # noqa: ANN401 - whatever is printed
    """Run a command of the operator, and return what it prints."""
    data = parties.context.folders.path
    outcome = run("server", *arguments, "--data", data, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(outcome.out)


def identify(party: PartyContext) -> str:
    """Return a party's id as commands print it."""
    return party.identity.party_id.hex()


def test_parties_are_listed_with_what_they_use(parties: Threesome) -> None:
    """By name, fingerprint and id, each can be shown alone."""
    listed = operate(parties, "party", "list")["parties"]
    assert {party["name"] for party in listed} == {"attacker", "victim", "other"}
    parties.other.server.propose(proposal(parties.other, parties.victim, title="Other's"))
    party = parties.other.identity.party_id
    for name in ("other", fingerprint(party), party.hex()[:8]):
        shown = operate(parties, "party", "show", name)
        assert shown["party"] == identify(parties.other)
        assert shown["open_proposals"] == 1
        assert shown["message_bytes"] > 4096
        assert [study["title"] for study in shown["studies"]] == ["Other's"]


def test_a_banned_party_is_refused_like_an_unknown_one(parties: Threesome) -> None:
    """It cannot ask, register or be proposed to, until it is allowed again."""
    attacker, victim = parties.attacker, parties.victim
    assert operate(parties, "party", "ban", "attacker")["banned"] is True
    with pytest.raises(UnauthenticatedError):
        attacker.server.studies()
    with pytest.raises(InvitationError):
        attacker.server.register(invite(parties.context, "again"))
    with pytest.raises(UnknownPartyError):
        victim.server.propose(proposal(victim, attacker, number=50))
    assert operate(parties, "party", "show", "attacker")["banned"] is not None
    assert operate(parties, "party", "unban", "attacker")["banned"] is False
    assert attacker.server.studies() == []


def test_a_removed_party_needs_a_new_invitation(parties: Threesome, tmp_path: Path) -> None:
    """Its proposals end, and the invitation that it has used is no longer good."""
    code = invite(parties.context, "short guest")
    guest = parties.service.join("guest", tmp_path / "guest")
    guest.server._clock = parties.time.clock
    study = guest.server.propose(proposal(guest, parties.victim, title="Guest's")).study
    refused = run("server", "party", "remove", "guest", "--data", parties.context.folders.path)
    assert_refused(refused)
    removed = operate(parties, "party", "remove", "guest", "--yes")
    assert removed["ended"] == [study.hex()]
    status = parties.victim.server.status(study)
    assert (status.state, status.reason) == ("aborted", "the server: its proposer was removed")
    with pytest.raises(UnauthenticatedError):
        guest.server.studies()
    guest.server.register(code)
    assert guest.server.studies()[0].state == "aborted"


def test_a_party_with_new_keys_can_be_removed(parties: Threesome, tmp_path: Path) -> None:
    """Its rotations go with it; it comes back with all of them, or not at all."""
    changer = parties.service.join("changer", tmp_path / "changer")
    newer = rotating.rotate(changer.identity, SystemEntropy(), changer.now)
    with RemoteServer(parties.service.url, changer.server.pinned, newer) as server:
        server.rotate()
        operate(parties, "party", "remove", "changer", "--yes")
        server.register(invite(parties.context, "changer"))
    keys = parties.victim.server.party_keys(newer.party_id)
    assert keys.rotations == newer.signing.proof


def test_a_revoked_party_stays_refused_after_its_removal(
    parties: Threesome, tmp_path: Path
) -> None:
    """Else whoever has its stolen keys could register them again, with an invitation."""
    robbed = parties.service.join("robbed", tmp_path / "robbed")
    robbed.server._clock = parties.time.clock
    certificate = rotating.revoke(robbed.identity, parties.context.now, "stolen")
    RemoteServer.revoke(parties.service.url, certificate)
    operate(parties, "party", "remove", "robbed", "--yes")
    with pytest.raises(InvitationError):
        robbed.server.register(invite(parties.context, "robbed"))
    with pytest.raises(UnauthenticatedError):
        robbed.server.studies()
    assert parties.victim.server.party_keys(robbed.identity.party_id).revocation == certificate


def test_studies_are_listed_and_ended(parties: Threesome) -> None:
    """With the reason that the operator gives, which all who are named see."""
    server = parties.victim.server
    study = server.propose(proposal(parties.victim, parties.other, title="Ended")).study
    listed = {line["study"]: line for line in operate(parties, "study", "list")["studies"]}
    assert listed[study.hex()]["state"] == "proposed"
    shown = operate(parties, "study", "show", "Ended")
    assert [party["name"] for party in shown["parties"]] == ["victim", "other"]
    ended = operate(parties, "study", "abort", study.hex()[:12], "--reason", "no room", "--yes")
    assert ended == {"ended": [study.hex()]}
    assert server.status(study).reason == "the server: no room"
    assert operate(parties, "study", "archive", "Ended", "--yes") == {"archived": [study.hex()]}
    assert operate(parties, "study", "show", "Ended")["archived"] is not None


def test_old_proposals_and_studies_are_ended_at_once(parties: Threesome) -> None:
    """With the days that the operator gives, whatever the server waits for by itself."""
    study = parties.victim.server.propose(proposal(parties.victim, parties.other, number=60)).study
    parties.time.sleep(10)
    assert study.hex() in operate(parties, "study", "expire", "--days", 0)["expired"]
    parties.time.sleep(10)
    assert study.hex() in operate(parties, "study", "archive", "--days", 0, "--yes")["archived"]
    assert operate(parties, "study", "archive", "--days", 0, "--yes")["archived"] == []


def test_the_disk_is_shown(parties: Threesome) -> None:
    """With what stays free, and who uses how much."""
    shown = operate(parties, "disk")
    assert 0 < shown["reserve_bytes"] <= shown["total_bytes"] // 20
    assert {"attacker", "victim", "other"} <= {party["name"] for party in shown["parties"]}


@pytest.mark.parametrize(
    "command", [("party", "list"), ("party", "show", "other"), ("study", "list"), ("disk",)]
)
def test_the_same_for_people(parties: Threesome, command: tuple[str, ...]) -> None:
    """Tables and facts name the parties too."""
    if "study" in command:
        parties.victim.server.propose(proposal(parties.victim, title="victim's study"))
    outcome = run("server", *command, "--data", parties.context.folders.path)
    assert (outcome.code, outcome.err) == (0, "")
    assert ("victim's study" if "study" in command else "other") in outcome.out


@pytest.mark.parametrize("command", [("party", "show", "nobody"), ("study", "show", "nothing")])
def test_what_is_not_there_is_said(parties: Threesome, command: tuple[str, ...]) -> None:
    """With the command that lists what there is."""
    outcome = run("server", *command, "--data", parties.context.folders.path)
    assert outcome.code == 1
    assert f"veiltab server {command[0]} list" in outcome.err
