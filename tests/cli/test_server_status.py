"""``veiltab server status``: of a server that runs, and of one that does not."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from tests.support.commands import assert_refused, run
from tests.support.servers import make_context
from tests.support.simulator import Simulator, Stage
from veiltab.crypto.entropy import SystemEntropy
from veiltab.hosting import start_server
from veiltab.party.keyfile import save_identity
from veiltab.server.context import ServiceContext
from veiltab.server.db.tables import MEMBERS
from veiltab.server.invitations import invite
from veiltab.server.limits import Settings
from veiltab.wire.messages import Upload


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> ServiceContext:
    """Return a server that does not run, with studies that have come to different stages."""
    simulator = Simulator()
    context = make_context(tmp_path_factory.mktemp("server") / "data", identity=simulator.server)
    save_identity(simulator.server, context.folders.key_file, None, SystemEntropy())
    for stage in (Stage.OPEN, Stage.OPEN, Stage.ONE_UPLOADED, Stage.UPLOADED):
        simulator.on_server(context, stage=stage)
    with context.database.transaction() as records:  # as if a signature of the first were missing
        lines = [line.study for line in records.study_lines() if line.state == "open"]
        first = next(study for study in lines if not records.digests(study, Upload.kind))
        missing = MEMBERS.c.party == records.named(first)[1].party
        unsigned = update(MEMBERS).where(MEMBERS.c.study == first, missing).values(signed=False)
        records._connection.execute(unsigned)
        records.change_study(first, state="proposed")
    invite(context, "Tax office")
    context.database.close()
    return context


def ask(data: Path) -> Any:  # noqa: ANN401 - whatever is printed
    """Run the command, and return what it prints."""
    outcome = run("server", "status", "--data", data, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(outcome.out)


def contents(data: Path) -> dict[str, str]:
    """Return the digest of each file of a server."""
    files = (path for path in data.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_everything_at_a_glance(stopped: ServiceContext) -> None:
    """Studies by state, who has to do what, and the disk; nothing in the folder changes."""
    data = stopped.folders.path
    before = contents(data)
    found = ask(data)
    assert contents(data) == before
    assert found["running"] is False
    assert found["studies"] == {"proposed": 1, "open": 2, "uploaded": 1}
    assert (found["vaults"], found["open_invitations"], found["banned"]) == ({}, 1, 0)
    assert found["parties"] >= 3
    waiting = {(wait["state"], wait["for"], len(wait["by"])) for wait in found["waiting"]}
    assert waiting == {
        ("proposed", "signature", 1),
        ("open", "upload", 2),
        ("open", "upload", 1),
        ("uploaded", "release", 0),
    }
    assert [wait["study"] for wait in found["waiting"] if not wait["by"]] == found["queue"]
    assert found["disk"]["reserve_bytes"] > 0
    text = run("server", "status", "--data", data).out
    for words in (
        "1 proposed, 2 open, 1 uploaded",
        "1 study to be released",
        "takes uploads",
        "no",
    ):
        assert words in text


def test_a_server_that_runs_is_not_disturbed(stopped: ServiceContext) -> None:
    """Its lock is seen and left alone, and one that starts meanwhile gets it."""
    with stopped.folders.lock():
        assert ask(stopped.folders.path)["running"] is True
    with stopped.folders.lock():
        assert stopped.folders.is_served()
    assert not stopped.folders.is_served()


def test_where_there_is_no_server_or_no_database(tmp_path: Path) -> None:
    """It is said, and none is made."""
    outcome = run("server", "status", "--data", tmp_path / "typo")
    assert "there is no server in" in assert_refused(outcome)
    assert not (tmp_path / "typo").exists()
    data = tmp_path / "data"
    context, _ = start_server(data, None, None, Settings())
    context.database.close()
    database = data / "veiltab.db"
    database.rename(tmp_path / "away.db")
    gone = run("server", "status", "--data", data)
    assert "its file is not there" in assert_refused(gone, code=1)
    assert not database.exists()
    database.write_bytes(b"")
    empty = run("server", "status", "--data", data)
    assert "is empty, or of an older version" in assert_refused(empty, code=1)
    database.write_bytes(b"not a database at all" * 100)
    other = run("server", "status", "--data", data)
    assert "is not an SQLite database" in assert_refused(other, code=1)
