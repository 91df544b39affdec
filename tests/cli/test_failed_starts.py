"""Starts that fail: in plain words, with an exit code, and nothing is left behind."""

import os
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import assert_refused, run
from tests.support.servers import make_context, write_certificate
from tests.support.simulator import Simulator, Stage
from veiltab.crypto.entropy import SystemEntropy
from veiltab.errors import ParameterError
from veiltab.hosting import start_server
from veiltab.party.keyfile import load_identity, save_identity
from veiltab.server.limits import Settings


@pytest.fixture
def taken() -> Iterator[int]:
    """Return a port that another program uses."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_a_port_that_is_taken_leaves_nothing_behind(tmp_path: Path, taken: int) -> None:
    """Neither folder nor key: the next start is the first one; of both ports."""
    data = tmp_path / "new" / "server"
    for options in (("--port", taken), ("--port", 0, "--metrics-port", taken)):
        outcome = run("serve", "--data", data, *options)
        assert f"port {taken}" in assert_refused(outcome)
        assert "another program uses this port" in outcome.err
        assert list(tmp_path.iterdir()) == []


def test_hosts_and_privileged_ports_in_plain_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the system says by a number is said in words."""
    proxy = ("--behind-proxy", "--port", 0)
    for host, words in (
        ("no such host", "there is no computer of this name"),
        ("x" * 300, "there is no computer of this name"),
        ("192.0.2.1", "this is not an address of this computer"),
    ):
        outcome = run("serve", "--data", tmp_path / "data", "--host", host, *proxy)
        assert words in assert_refused(outcome)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "create_server", refuse)
    outcome = run("serve", "--data", tmp_path / "data", "--port", 80)
    assert "ports below 1024" in assert_refused(outcome)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "words", "code"),
    [
        ("sqlite:////nowhere/at/all.db", "making the database failed: No such file", 1),
        ("postgresql://veiltab@127.0.0.1:9/x", "nothing listens at its host and port", 1),
        ("postgresql://veiltab@no.such.host.invalid/x", "no computer with the name", 1),
        ("postgresql://localhost:port/x", "cannot be read", 2),
        ("mysql://localhost/x", "neither SQLite nor PostgreSQL", 2),
    ],
)
def test_databases_that_cannot_be_used(tmp_path: Path, address: str, words: str, code: int) -> None:
    """A first start that fails at its database leaves no key and no folder."""
    outcome = run("serve", "--data", tmp_path / "data", "--port", 0, "--database", address)
    assert words in assert_refused(outcome, code=code)
    assert list(tmp_path.iterdir()) == []


def test_a_database_of_a_newer_version_or_none(tmp_path: Path) -> None:
    """What was there before stays as it was; what the start has made goes."""
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere.db"
    with sqlite3.connect(elsewhere) as database:
        database.execute("CREATE TABLE alembic_version (version_num TEXT)")
        database.execute("INSERT INTO alembic_version VALUES ('9999')")
    database.close()
    use = ("--port", 0, "--database", f"sqlite:///{elsewhere}")
    outcome = run("serve", "--data", data, *use)
    assert "made by a newer veiltab (schema 9999)" in assert_refused(outcome, code=1)
    elsewhere.write_bytes(b"no database at all" * 100)
    outcome = run("serve", "--data", data, *use)
    assert "is not an SQLite database" in assert_refused(outcome, code=1)
    assert list(tmp_path.iterdir()) == [elsewhere]


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    """With what others have put there; and a server that has started once keeps its key."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "README").write_text("ours")
    bad = ("--port", 0, "--database", "sqlite:////nowhere/at/all.db")
    assert_refused(run("serve", "--data", data, *bad), code=1)
    assert [path.name for path in data.iterdir()] == ["README"]
    context, new = start_server(data, None, None, Settings())
    context.database.close()
    assert new
    key = (data / "server.key").read_bytes()
    assert_refused(run("serve", "--data", data, *bad), code=1)
    assert (data / "server.key").read_bytes() == key


def test_bad_certificates_and_keys_leave_nothing_behind(tmp_path: Path) -> None:
    """They are looked at first."""
    certificate, key = write_certificate(tmp_path)
    before = sorted(tmp_path.iterdir())
    for pair in ((certificate, certificate), (tmp_path / "none.pem", key), (key, certificate)):
        tls = ("--tls-cert", pair[0], "--tls-key", pair[1])
        outcome = run("serve", "--data", tmp_path / "data", "--port", 0, *tls)
        assert "cannot be used with the key" in assert_refused(outcome)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """As on a disk that is mounted for reading."""
    tmp_path.chmod(0o500)
    outcome = run("serve", "--data", tmp_path / "data", "--port", 0)
    tmp_path.chmod(0o700)
    assert "making the data directory failed" in assert_refused(outcome, code=1)


def test_a_name_may_change_until_the_first_contract(tmp_path: Path) -> None:
    """Keys and fingerprint stay; then the name is refused, with the contract that has it."""
    simulator = Simulator()
    data = tmp_path / "data"
    context = make_context(data, identity=simulator.server)
    save_identity(simulator.server, context.folders.key_file, None, SystemEntropy())
    renamed, new = start_server(data, None, "Statistics", Settings())
    assert (renamed.identity.name, new) == ("Statistics", False)
    assert renamed.identity.party_id == simulator.server.party_id
    assert load_identity(context.folders.key_file, None).name == "Statistics"
    again, _ = start_server(data, None, simulator.server.name, Settings())
    Simulator().on_server(context, stage=Stage.PROPOSED)
    same, _ = start_server(data, None, simulator.server.name, Settings())
    for opened in (renamed, again, same, context):
        opened.database.close()
    with pytest.raises(ParameterError, match="and contracts name it") as caught:
        start_server(data, None, "Another", Settings())
    assert "until the first proposal" in caught.value.hint
    assert load_identity(context.folders.key_file, None).name == simulator.server.name
