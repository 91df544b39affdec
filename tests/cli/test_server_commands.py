"""The operator's commands: a server as a process of its own, and invitations to it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from tests.support.commands import assert_refused, open_office, run
from tests.support.servers import write_certificate
from veiltab.cli.serve import is_loopback
from veiltab.server.limits import Settings


@dataclass
class Served:
    """A server that has said that it is ready, and what it said."""

    process: subprocess.Popen[str]
    said: str
    errors: str = ""

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it as a process manager does, and return its exit code."""
        self.process.send_signal(number)
        _, self.errors = self.process.communicate(timeout=30)
        return self.process.returncode


@contextmanager
def serving(data: Path, *options: object, **environment: str) -> Iterator[Served]:
    """Run ``veiltab serve`` on a free port."""
    command = [sys.executable, "-m", "veiltab", "serve", "--data", data, "--port", 0, *options]
    with subprocess.Popen(  # noqa: S603 - it is our own command
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    ) as process:
        assert process.stdout is not None
        found = Served(process, process.stdout.readline())
        try:
            yield found
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the folder of a server that was started and stopped once."""
    folder = tmp_path_factory.mktemp("data") / "server"
    with serving(folder, "--name", "Statistics", "--json") as served:
        about = json.loads(served.said)
        assert served.stop() == 0
    (folder.parent / "about.json").write_text(json.dumps(about))
    return folder


def about(data: Path) -> dict[str, str]:
    """Return what the server has said of itself."""
    found: dict[str, str] = json.loads((data.parent / "about.json").read_text())
    return found


@pytest.mark.slow
def test_the_first_start_makes_an_identity(data: Path) -> None:
    """Private, and the same at every start."""
    assert set(about(data)) == {"url", "party", "fingerprint", "data", "metrics"}
    assert about(data)["data"] == str(data)
    assert data.stat().st_mode & 0o777 == 0o700
    for path in data.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    with serving(data, "--json") as served:
        again = json.loads(served.said)
        assert (again["party"], again["fingerprint"]) == (
            about(data)["party"],
            about(data)["fingerprint"],
        )
        assert served.stop(signal.SIGINT) == 0
    lines = [json.loads(line) for line in served.errors.splitlines()]
    assert any(again["fingerprint"] == line.get("fingerprint") for line in lines)
    assert not any("trace" in line for line in lines)


@pytest.mark.slow
def test_a_second_server_in_the_same_folder(data: Path) -> None:
    """It is refused before it does anything."""
    with serving(data) as served:
        assert served.said.startswith("veiltab is listening on http://127.0.0.1:")
        outcome = run("serve", "--data", data, "--port", 0)
        assert outcome.code == 1
        assert "another server is using the data directory" in outcome.err
        assert served.stop() == 0


@pytest.mark.slow
def test_invitations_while_the_server_runs(data: Path, tmp_path: Path) -> None:
    """The code alone goes to stdout; the list shows who has used one, and no code."""
    with serving(data) as served:
        url = served.said.split()[-1]
        printed = run("server", "invite", "--data", data, "Tax office")
        assert (printed.code, printed.err) == (0, "")
        code = tmp_path / "code"
        code.write_text(printed.out)
        office = open_office(tmp_path, "Tax office")
        shown = about(data)["fingerprint"]
        office.succeed(*("register", url, "--invitation-file", code, "--server-fingerprint", shown))
        party = office.json("id", "show")["party"]
        other = json.loads(
            run("server", "invite", "--data", data, "Klinik", "--days", 3, "--json").out
        )
        listed = run("server", "invite", "--data", data, "--list", "--json").out
        served.stop()
    lines = {each["name"]: each for each in json.loads(listed)["invitations"]}
    assert (lines["Tax office"]["state"], lines["Tax office"]["party"]) == ("used", party)
    assert (lines["Klinik"]["state"], lines["Klinik"]["party"]) == ("open", None)
    assert lines["Klinik"]["expires"] - lines["Klinik"]["created"] == 3 * 86_400
    assert other["expires"] == pytest.approx(lines["Klinik"]["expires"], abs=2)
    text = run("server", "invite", "--data", data, "--list").out
    for secret in (printed.out.strip(), other["code"]):
        assert secret not in listed + text
        assert secret not in served.errors
    assert "Klinik" in text


@pytest.mark.slow
def test_tls_with_an_authority_of_its_own(data: Path, tmp_path: Path) -> None:
    """Only who names the authority gets through, and names it once."""
    certificate, key = write_certificate(tmp_path)
    tls = ("--host", "127.0.0.1", "--tls-cert", certificate, "--tls-key", key)
    key.chmod(0o644)
    refused = run("serve", "--data", data, *tls)
    assert "every user of this computer can open the key" in assert_refused(refused)
    key.chmod(0o640)
    with serving(data, *tls) as served:
        url = served.said.split()[-1]
        assert url.startswith("https://127.0.0.1:")
        code = tmp_path / "code"
        code.write_text(run("server", "invite", "--data", data, "Klinik").out)
        office = open_office(tmp_path, "Klinik")
        register = ("register", url, "--invitation-file", code, "--yes")
        refused = office.run(*register)
        assert "certificate is not one that this computer trusts" in assert_refused(refused, code=1)
        office.succeed(*register, "--ca-file", certificate)
        assert office.json("study", "list") == {"studies": []}
        served.stop()


@pytest.mark.slow
def test_a_database_with_a_password(data: Path, tmp_path: Path) -> None:
    """Not on the command line, and never in an error."""
    url = "postgresql://veiltab:hunter2@localhost:1/veiltab"
    for command in (("serve", "--port", 0), ("server", "invite", "x")):
        outcome = run(*command, "--data", data, "--database", url)
        assert "has a password" in assert_refused(outcome)
        assert "VEILTAB_DATABASE" in outcome.err
        assert "hunter2" not in outcome.err
    (tmp_path / "address").write_text(url)
    outcome = run("server", "invite", "x", "--data", data, "--database-file", tmp_path / "address")
    assert "others can open" in assert_refused(outcome, code=1)
    (tmp_path / "address").chmod(0o600)
    outcome = run("server", "invite", "x", "--data", data, "--database-file", tmp_path / "address")
    assert "the database does not answer" in assert_refused(outcome, code=1)
    assert "hunter2" not in outcome.err


@pytest.mark.slow
def test_a_database_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address can stand where passwords may."""
    address = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    with serving(tmp_path / "server", VEILTAB_DATABASE=address) as served:
        assert served.stop() == 0
    assert (tmp_path / "elsewhere.db").exists()
    assert not (tmp_path / "server" / "veiltab.db").exists()
    monkeypatch.setenv("VEILTAB_DATABASE", address)
    assert run("server", "invite", "--data", tmp_path / "server", "x").code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--host", "0.0.0.0"), "there is no certificate"),  # noqa: S104 - refused
        (("--host", "::"), "there is no certificate"),
        (("--host", "stats.example.org"), "there is no certificate"),
        (("--tls-cert", "cert.pem"), "TLS needs a certificate and its key"),
        (("--tls-cert", "absent.pem", "--tls-key", "absent.pem"), "No such file"),
        (("--tls-cert", __file__, "--tls-key", __file__), "cannot be used with the key"),
        (("--database", "mysql://localhost/x"), "neither SQLite nor PostgreSQL"),
        (("--database", "x", "--database-file", "y"), "and not both"),
        (("--port", "65536"), "65536"),
        (("--rate", "0"), "--rate"),
    ],
)
def test_servers_that_are_refused(data: Path, options: tuple[str, ...], words: str) -> None:
    """Two lines, exit code 2, and no server."""
    outcome = run("serve", "--data", data, "--port", 0, *options)
    assert words in assert_refused(outcome)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_addresses_of_this_computer(host: str) -> None:
    """They need no certificate."""
    assert is_loopback(host)


def test_an_invitation_to_no_server(tmp_path: Path) -> None:
    """A mistyped folder does not become a server."""
    outcome = run("server", "invite", "--data", tmp_path / "typo", "x")
    assert "there is no server in" in assert_refused(outcome)
    assert not (tmp_path / "typo").exists()


def test_an_invitation_or_a_list(data: Path) -> None:
    """One of the two, and a name that fits on a line."""
    assert "either a name or --list" in assert_refused(run("server", "invite", "--data", data))
    both = run("server", "invite", "--data", data, "x", "--list")
    assert "either a name or --list" in assert_refused(both)
    assert "the name" in assert_refused(run("server", "invite", "--data", data, "a\nb"))


def test_the_help_states_the_true_limits() -> None:
    """Its defaults are those of the service."""
    text = " ".join(run("serve", "--help").out.split())
    defaults = {field.name: field.default for field in fields(Settings)}
    for name in (
        "rate",
        "burst",
        "stranger_rate",
        "stranger_burst",
        "shutdown_seconds",
        "connections",
        "proposal_days",
        "archive_days",
    ):
        _, _, after = text.partition(f"--{name.replace('_', '-')} ")
        assert f"The default is {defaults[name]:g}." in after.partition(" --")[0]
