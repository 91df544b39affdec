"""An agent answers what its owner has signed and its policy names; whoever else asks gets nothing.

Each refusal is played as an attack: by the server, by a party, or by somebody at the files.
"""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tests.support.servers import Server, make_context, running, wait_for
from tests.support.stored import HELD, StoredParties
from veiltab.errors import (
    ConnectionFailedError,
    HomeError,
    StateError,
    StudyFileError,
    VeiltabError,
)
from veiltab.files.chunks import FolderChunks
from veiltab.party.agent.agent import Agent, only_agent
from veiltab.party.agent.log import AgentLog
from veiltab.party.remote import Status
from veiltab.party.session import Session
from veiltab.party.study import Study
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.verify import sign
from veiltab.wire.messages import RepadRequest
from veiltab.wire.packing import pack_positions
from veiltab.wire.signed import Signed


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a server for all tests here."""
    with running(make_context(tmp_path_factory.mktemp("server") / "data")) as server:
        yield server


@pytest.fixture(scope="module")
def joined(server: Server, tmp_path_factory: pytest.TempPathFactory) -> StoredParties:
    """Return parties whose tables are stored, for all tests here."""
    parties = StoredParties.join(server, tmp_path_factory.mktemp("homes"))
    parties.store()
    return parties


@pytest.fixture
def parties(joined: StoredParties, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoredParties]:
    """Return the parties; the studies that a test proposes end with it."""
    yield joined
    monkeypatch.undo()
    for line in joined.taxes.server.studies():
        if line.state in ("proposed", "sampled"):
            joined.taxes.server.abort(line.study, "the test is over")


def lines(agent: Agent, study: Study | None = None) -> list[dict[str, Any]]:
    """Return the lines of an agent's log, of one study only if one is named."""
    entries = [json.loads(line) for line in agent.log.path.read_text("utf-8").splitlines()]
    return [entry for entry in entries if study is None or entry.get("study") == study.id]


def reasons(agent: Agent, study: Study) -> list[str]:
    """Return why an agent has left a study to its owner; it must have answered nothing else."""
    entries = lines(agent, study)
    assert {entry["event"] for entry in entries} <= {"refused"}
    return [entry["reason"] for entry in entries]


def answered(study: Study) -> bool:
    """Tell whether the server has the hospital's answer."""
    return study.status().curators[0].uploaded


def test_an_agent_answers_and_grants(parties: StoredParties, tmp_path: Path) -> None:
    """New pads, and a grant after the release, each once and each in the log first."""
    study = parties.sampled("answered")
    identity = f'identity = "{parties.folder}/rivera.json"'
    with parties.agent(tmp_path, parties.researchers(identity)) as agent:
        agent.step()
        assert answered(study)
        Session(parties.taxes).study("answered").answer()
        wait_for(parties.hospital, bytes.fromhex(study.id), "released")
        for _ in range(3):
            agent.step()
        pads, grant = lines(agent, study)
    assert (pads["event"], grant["event"]) == ("new pads", "grant")
    assert pads["epsilon"] == 1.0
    assert grant["to"]["name"] == "rivera"
    assert grant["attributes"] == ["smoker"]
    Session(parties.taxes).study("answered").grant(parties.folder / "rivera.json")
    estimate = Session(parties.researcher).study(study.id).estimate()
    assert estimate.schema.names == ("smoker", "income")


def test_an_agent_lets_nobody_in_again_whom_its_owner_has_revoked(
    parties: StoredParties, tmp_path: Path
) -> None:
    """Not after a restart with a new log either, nor if the server hides the first grant."""
    study = parties.sampled("revoked")
    for party in (parties.hospital, parties.taxes):
        Session(party).study("revoked").answer()
    wait_for(parties.hospital, bytes.fromhex(study.id), "released")
    study.grant(parties.folder / "rivera.json")
    assert [one.state for one in study.revoke(parties.folder / "rivera.json")] == ["revoked"]
    policy = parties.researchers(f'identity = "{parties.folder}/rivera.json"')
    with parties.agent(tmp_path, policy) as agent:
        with mock.patch("veiltab.party.agent.agent.own_grants", return_value=[]):
            agent.step()
        agent.check()
        agent.step()
        assert lines(agent, study) == []
    assert [one.state for one in study.grants()] == ["revoked"]


def test_a_study_that_the_owner_did_not_sign_is_not_answered(
    parties: StoredParties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one that the home has never seen, nor one that it has looked at, whatever is said."""
    unseen, seen = parties.proposed("unseen"), parties.proposed("seen")
    Session(parties.hospital).study("seen").contract()
    real = parties.hospital.server.studies
    claimed = [
        replace(line, state="sampled")
        for line in (*real(), *real(inbox=True))
        if line.title in ("unseen", "seen")
    ]
    assert len(claimed) == 2
    asked: list[bytes] = []
    fetch = parties.hospital.server.contract

    def contract(study: bytes) -> object:
        asked.append(study)
        return fetch(study)

    monkeypatch.setattr(parties.hospital.server, "studies", lambda: claimed)
    monkeypatch.setattr(parties.hospital.server, "contract", contract)
    with parties.agent(tmp_path) as agent:
        agent.step()
        assert lines(agent, unseen) == []
        assert len(reasons(agent, seen)) == 1
    assert asked == [bytes.fromhex(seen.id)]  # what nobody has looked at is not even fetched


def test_a_study_that_was_not_charged_is_not_answered(
    parties: StoredParties, tmp_path: Path
) -> None:
    """As when the ledger was restored from an old copy."""
    folder = parties.hospital.home.path / "ledgers"
    before = {path: path.read_bytes() for path in folder.iterdir()}
    study = parties.sampled("uncharged")
    after = {path: path.read_bytes() for path in folder.iterdir()}
    for path, content in before.items():
        path.write_bytes(content)
    with parties.agent(tmp_path) as agent:
        agent.step()
        assert ["charged" in reason for reason in reasons(agent, study)] == [True]
    assert not answered(study)
    for path, content in after.items():
        path.write_bytes(content)


def ask_for(
    parties: StoredParties, server: Server, monkeypatch: pytest.MonkeyPatch, **changes: Any
) -> None:
    """Let the server ask the hospital for something else than it should, signed and logged.

    ``rows`` are other positions; the rest are fields of the request.
    """
    if changes.pop("logged", True):  # who lies can write the lie into the log, too
        monkeypatch.setattr("veiltab.party.vaults.answers.check_requested", lambda *_: None)
    vaults = parties.hospital.server.vaults
    real, real_chunks = vaults.repad_request, vaults.repad_chunks
    rows = changes.pop("rows", None)
    chunk = b"" if rows is None else pack_positions(np.asarray(rows, dtype=np.int64))

    def repad_request(study: bytes) -> Signed[RepadRequest]:
        body = replace(real(study).body, **changes)
        if rows is not None:
            digest = FolderChunks(parties.folder / "made up").put(chunk)
            body = replace(body, positions=(digest,))
        return sign(body, server.context.key)

    def repad_chunks(study: bytes, digests: list[bytes]) -> list[bytes]:
        return real_chunks(study, digests) if rows is None else [chunk]

    monkeypatch.setattr(vaults, "repad_request", repad_request)
    monkeypatch.setattr(vaults, "repad_chunks", repad_chunks)


@pytest.mark.parametrize("attack", ["population", "sample", "twice", "beyond", "unlogged"])
def test_a_server_that_asks_for_other_rows_than_agreed_gets_nothing(
    parties: StoredParties,
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    attack: str,
) -> None:
    """More people than the table has, another sample size, one row many times, no row at all.

    And rows that could be right, but are not those of the server's own log.
    """
    study = parties.sampled(f"other rows: {attack}", "sample_size = 20")
    if attack == "population":
        ask_for(parties, server, monkeypatch, population=HELD + 1)
    elif attack == "sample":
        ask_for(parties, server, monkeypatch, sample_size=19, rows=range(19))
    elif attack == "twice":
        ask_for(parties, server, monkeypatch, rows=[7] * 20)
    elif attack == "unlogged":
        ask_for(parties, server, monkeypatch, rows=range(20), logged=False)
    else:
        ask_for(parties, server, monkeypatch, rows=range(HELD - 10, HELD + 10))
    with parties.agent(tmp_path) as agent:
        agent.step()
        agent.step()
        assert len(reasons(agent, study)) == 1  # not once for each poll
    assert not answered(study)


def test_a_server_gets_one_answer_for_one_request(
    parties: StoredParties, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If an answer was lost: the same request gets the same bytes again, and others get none."""
    study = parties.sampled("asks again", "sample_size = 20")
    vaults = parties.hospital.server.vaults
    sent: list[bytes] = []

    def lost(signed: Signed[Any]) -> None:
        sent.append(signed.dumps())
        raise ConnectionFailedError("gone", hint="wait")

    monkeypatch.setattr(vaults, "repad", lost)
    with parties.agent(tmp_path) as agent:
        for _ in range(2):
            with pytest.raises(ConnectionFailedError):
                agent.step()
        ask_for(parties, server, monkeypatch, rows=range(20))
        agent.step()
        entries = lines(agent, study)
    assert len(sent) == 2
    assert sent[0] == sent[1]
    assert [entry["event"] for entry in entries] == ["new pads", "new pads", "refused"]
    assert entries[0]["answer"] == entries[1]["answer"]
    assert "for other rows" in entries[2]["reason"]


def test_a_budget_is_used_up_over_restarts(parties: StoredParties, tmp_path: Path) -> None:
    """Three times 0.1 is 0.3, and not one bit more; what was answered before counts."""
    studies = [parties.sampled(f"tenth {number}", epsilon=0.1) for number in range(4)]
    for _ in range(3):
        with parties.agent(tmp_path, epsilon=0.3) as agent:
            agent.step()
    with parties.agent(tmp_path, epsilon=0.3) as agent:
        assert sum(agent.log.answered.values()) * 10 == 3
        left = [study for study in studies if not answered(study)]
        assert len(left) == 1
        assert "budget" in reasons(agent, left[0])[0]


@pytest.mark.parametrize("covers", ['vaults = ["Health"]', 'studies = ["not it"]'])
def test_a_study_that_the_policy_does_not_name_is_left(
    parties: StoredParties, tmp_path: Path, covers: str
) -> None:
    """A part of a title is not a title."""
    study = parties.sampled(f"unnamed {covers[:4]}")
    with parties.agent(tmp_path, covers=covers) as agent:
        agent.step()
        assert "the policy names neither" in reasons(agent, study)[0]
    assert not answered(study)
    with parties.agent(tmp_path, covers=f'studies = ["{study.id[:16]}"]') as agent:
        agent.step()
    assert answered(study)


def test_a_researcher_who_is_not_in_the_policy_is_granted_nothing(
    parties: StoredParties, tmp_path: Path
) -> None:
    """Also if the contract names it; and others get no more than the policy says."""
    identity = f'[[researchers]]\nidentity = "{parties.folder}/rivera.json"\n'
    path = parties.study_file("named")
    path.write_text(path.read_text("utf-8") + identity, "utf-8")
    Session(parties.taxes).propose(path)
    study = Session(parties.hospital).study("named")
    study.sign()
    wait_for(parties.hospital, bytes.fromhex(study.id), "sampled")
    study.answer()
    Session(parties.taxes).study("named").answer()
    study.wait()
    other = '[[researchers]]\nfingerprint = "00000 11111 22222 33333 44444 55555"\ndays = 3\n'
    for allowed in (other, parties.researchers('attributes = ["income"]')):
        with parties.agent(tmp_path, allowed) as agent:
            agent.step()
            assert lines(agent, study) == []
    assert parties.hospital.server.grants(bytes.fromhex(study.id)) == []


def test_a_party_that_was_blocked_or_forgotten_gets_no_answer(
    parties: StoredParties, tmp_path: Path
) -> None:
    """The agent gets to know nobody by itself."""
    study, known = parties.sampled("blocked"), parties.hospital.home.known
    office = parties.taxes.identity.party_id
    known.block(public_identity(parties.taxes.identity))
    with parties.agent(tmp_path) as agent:
        agent.step()
        known.unblock(office)
        known.forget("taxes")
        agent.step()
        blocked, forgotten = reasons(agent, study)
    assert "blocked" in blocked
    assert "does not know 'taxes'" in forgotten
    assert not answered(study)
    known.verify(parties.folder / "taxes.json", Session(parties.taxes).home.fingerprint)
    with parties.agent(tmp_path) as agent:
        agent.step()
    assert answered(study)


@pytest.mark.parametrize(("file", "folder"), [(0o620, 0o700), (0o602, 0o700), (0o600, 0o777)])
def test_a_policy_that_others_can_write_is_refused(
    parties: StoredParties, tmp_path: Path, file: int, folder: int
) -> None:
    """Or replace: each round reads it again, so it need not be so at the start."""
    with parties.agent(tmp_path) as agent:
        agent.step()
        agent.policy_file.chmod(file)
        tmp_path.chmod(folder)
        with pytest.raises(StudyFileError, match="others can change"):
            agent.step()


def test_what_cannot_be_logged_is_not_answered(parties: StoredParties, tmp_path: Path) -> None:
    """A full disk, for example; and the agent ends instead of going on without a log."""
    study = parties.sampled("unlogged")
    with parties.agent(tmp_path) as agent:
        real = agent.log._file
        with Path("/dev/full").open("wb") as full:
            agent.log._file = full.fileno()
            with pytest.raises(HomeError, match="cannot write the agent's log"):
                agent.run()
            agent.log._file = real
        assert lines(agent) == []
        agent.log.broken = False
        assert not answered(study)
        agent.step()
        assert answered(study)


def test_one_bad_study_does_not_keep_others_from_their_answers(
    parties: StoredParties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is refused, or the server does not answer about it."""
    bad, good = parties.sampled("bad"), parties.sampled("good")
    vaults = parties.hospital.server.vaults
    real = vaults.repad_request

    def repad_request(study: bytes) -> Signed[RepadRequest]:
        if study == bytes.fromhex(bad.id):
            raise failure
        return real(study)

    monkeypatch.setattr(vaults, "repad_request", repad_request)
    with parties.agent(tmp_path) as agent:
        failure: VeiltabError = ConnectionFailedError("away", hint="wait")
        with pytest.raises(ConnectionFailedError):
            agent.step()
        assert answered(good)
        failure = HomeError("broken", hint="mend it")
        agent.step()
        assert reasons(agent, bad) == ["broken"]


def test_the_log_is_whole_or_the_agent_does_not_start(tmp_path: Path) -> None:
    """A last line that was cut off answered nothing; damage anywhere else is an error."""
    path = tmp_path / "agent.jsonl"
    log = AgentLog(path)
    log.write("new pads", time.time(), study="ab", epsilon=0.5)
    log.close()
    whole = path.read_bytes()
    unfinished = whole + b'{"event": "new pads", "study": "cd", "epsi'
    path.write_bytes(unfinished)
    reader = AgentLog(path, writing=False)  # an agent may be in the middle of writing it
    assert set(reader.answered) == {"ab"}
    reader.close()
    assert path.read_bytes() == unfinished
    log = AgentLog(path)
    assert set(log.answered) == {"ab"}
    log.close()
    assert path.read_bytes() == whole
    for damage in (b"?\n" + whole, b"[]\n", b'{"event": "grant", "study": "ab"}\n'):
        path.write_bytes(damage)
        with pytest.raises(HomeError, match="damaged"):
            AgentLog(path)


def test_a_servers_long_refusal_does_not_end_the_agent(
    parties: StoredParties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is read again at the next start, and no line of it may be too long for that."""
    study = parties.sampled("long refusal")

    def refuse(_: bytes) -> Status:
        raise StateError("x" * 65_000, hint="y" * 65_000)

    monkeypatch.setattr(parties.hospital.server, "status", refuse)
    with parties.agent(tmp_path) as agent:
        agent.step()
        assert len(reasons(agent, study)) == 1
    monkeypatch.undo()
    with parties.agent(tmp_path) as agent:
        agent.step()
    assert answered(study)


def test_a_home_has_one_agent(parties: StoredParties) -> None:
    """The second one is refused at once."""
    with only_agent(parties.hospital.home):
        start = time.monotonic()
        with (
            pytest.raises(HomeError, match="another command is at work"),
            only_agent(parties.hospital.home),
        ):
            pass
        assert time.monotonic() - start < 4


def test_an_agent_waits_for_its_server_and_ends_when_told(
    parties: StoredParties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With longer and longer pauses; each outage is one line of the log."""
    study = parties.sampled("after an outage")
    real, tries = parties.hospital.server.studies, []

    def studies() -> object:
        tries.append(time.monotonic())
        if len(tries) < 3:
            raise ConnectionFailedError("no answer", hint="wait")
        return real()

    monkeypatch.setattr(parties.hospital.server, "studies", studies)
    with parties.agent(tmp_path) as agent:
        waits: list[float] = []

        def wait(seconds: float | None = None) -> bool:
            waits.append(seconds or 0)
            if len(waits) == 4:
                agent.stop.set()
            return agent.stop.is_set()

        monkeypatch.setattr(agent.stop, "wait", wait)
        thread = threading.Thread(target=agent.run)
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
        events = [entry["event"] for entry in lines(agent)]
    assert waits == [2, 4, 1, 1]
    assert answered(study)
    assert (events[:2], events[-1]) == (["started", "refused"], "stopped")
    assert events.count("refused") == 1
