"""Making an identity, showing it, and registering it: who may read what, and who is believed."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import Office, assert_refused, open_office, run
from tests.support.servers import Server, make_context, running
from veiltab.crypto import identity
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity, fingerprint
from veiltab.server.http.auth import invite

PASSPHRASE = "korrekt Pferd Batterie ñ"  # noqa: S105 - of a test


@pytest.fixture(autouse=True)
def cheap_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not spend half a second on every passphrase."""
    monkeypatch.setattr(identity, "SCRYPT_COST", 1 << 4)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run one server for all tests."""
    with running(make_context(tmp_path_factory.mktemp("server"))) as found:
        yield found


@pytest.fixture
def newcomer(tmp_path: Path) -> Office:
    """Somebody with an identity who is not registered anywhere."""
    return open_office(tmp_path, "Finanzamt")


@pytest.fixture
def locked(tmp_path: Path) -> tuple[Office, Path]:
    """Somebody whose identity is locked, and the file with its passphrase."""
    secret = tmp_path / "secret.txt"
    secret.write_text(f"{PASSPHRASE}\n", "utf-8")
    secret.chmod(0o600)
    office = Office("Klinik", tmp_path / "home", tmp_path / "klinik.json")
    office.succeed("id", "new", "--name", "Klinik", "--passphrase-file", secret)
    return office, secret


def code_file(server: Server, folder: Path) -> Path:
    """Write a new invitation to a file."""
    path = folder / "invitation.code"
    path.write_text(invite(server.context, "somebody") + "\n")
    return path


def server_fingerprint(server: Server) -> str:
    """Return what the operator would say on the telephone."""
    return fingerprint(server.context.identity.party_id)


def test_a_new_identity_is_private(newcomer: Office) -> None:
    """Nobody else can enter the home or read a file in it."""
    assert newcomer.home.stat().st_mode & 0o777 == 0o700
    for path in newcomer.home.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_the_public_identity_has_no_secret(newcomer: Office) -> None:
    """Exactly a name and two public keys; the fingerprint fits."""
    printed = newcomer.succeed("id", "show", "--public")
    assert newcomer.public.read_text("utf-8") == printed
    found = json.loads(printed)
    assert set(found) == {"name", "signing_key", "sealing_key"}
    (key,) = json.loads((newcomer.home / "identity.key").read_text())["keys"]
    assert key["signing_key"] not in printed
    assert key["sealing_key"] not in printed
    shown = newcomer.json("id", "show")
    other = json.loads(run("id", "fingerprint", newcomer.public, "--json").out)
    assert (other["fingerprint"], other["party"]) == (shown["fingerprint"], shown["party"])
    assert (shown["name"], shown["home"]) == ("Finanzamt", str(newcomer.home))
    assert shown["fingerprint"] in run("id", "fingerprint", newcomer.public).out


def test_an_identity_is_never_replaced(newcomer: Office) -> None:
    """Neither the key nor the file that others have."""
    again = newcomer.run("id", "new", "--name", "Other", "--no-passphrase")
    assert "there is an identity" in assert_refused(again, code=1)
    shown = newcomer.run("id", "show", "--public", "--out", newcomer.public)
    assert "exists already" in assert_refused(shown, code=1)


def test_a_passphrase_locks_the_key(locked: tuple[Office, Path], server: Server) -> None:
    """What is public needs none; everything else needs the right one, or says so."""
    office, secret = locked
    assert json.loads((office.home / "identity.key").read_text())["kind"] == "locked-identity"
    assert office.json("id", "show")["locked"] is True
    register = ("register", server.url, "--yes", "--invitation-file")
    code = code_file(server, office.home.parent)
    without = office.run(*register, code)
    assert "is locked, and there is no terminal" in assert_refused(without, code=1)
    wrong = office.home.parent / "wrong.txt"
    wrong.write_text("falsch")
    readable = office.run(*register, code, "--passphrase-file", wrong)
    assert "others can open" in assert_refused(readable, code=1)
    assert f"chmod 600 {wrong}" in readable.err
    wrong.chmod(0o600)
    refused = office.run(*register, code, "--passphrase-file", wrong)
    assert "does not unlock" in assert_refused(refused, code=1)
    office.succeed(*register, code, "--passphrase-file", secret)
    office.succeed("study", "list", "--passphrase-file", secret)
    for outcome in (without, refused):
        assert PASSPHRASE not in outcome.err
        assert "falsch" not in outcome.err
    absent = office.run("estimate", "x", "--grant", office.home / "no.grant")
    assert "cannot read" in assert_refused(absent)  # before a passphrase is needed


def test_a_lost_public_identity_is_written_again(
    locked: tuple[Office, Path], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whatever command opens the key next, also if a person types the passphrase."""
    office, secret = locked
    code = code_file(server, office.home.parent)
    register = ("register", server.url, "--yes", "--invitation-file", code)
    office.succeed(*register, "--passphrase-file", secret)
    (office.home / "identity.json").unlink()
    monkeypatch.setattr("veiltab.cli.options.on_terminal", lambda: True)
    monkeypatch.setattr("click.termui.hidden_prompt_func", lambda _: PASSPHRASE)
    assert office.run("study", "list").code == 0
    assert office.json("id", "show")["name"] == "Klinik"


def test_a_terminal_is_asked_without_echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice for a new key; what is typed is nowhere in the output."""
    monkeypatch.setattr("veiltab.cli.output.on_terminal", lambda: True)
    monkeypatch.setattr("veiltab.cli.identity.on_terminal", lambda: True)
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return PASSPHRASE

    monkeypatch.setattr("click.termui.hidden_prompt_func", answer)
    outcome = run("id", "new", "--name", "Klinik", "--home", tmp_path / "home")
    assert outcome.code == 0
    assert len(asked) == 2
    assert PASSPHRASE not in outcome.out + outcome.err
    assert json.loads((tmp_path / "home" / "identity.key").read_text())["kind"] == "locked-identity"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "there is no terminal to ask for a passphrase"),
        (("--no-passphrase", "--passphrase-file", "x"), "and not both"),
        (("--passphrase-file", "absent"), "cannot read the passphrase from absent"),
        (("--passphrase-file", "empty"), "there is no passphrase in empty"),
        (("--passphrase-file", "latin"), "the passphrase in latin is not UTF-8"),
        (("--passphrase-file", "short"), "less than 8 characters"),
        (("--passphrase-file", "repeated"), "one character repeated"),
    ],
)
def test_a_new_key_needs_a_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], words: str
) -> None:
    """And nothing is made before it is clear."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "latin").write_bytes(b"pa\xdfwort")
    (tmp_path / "short").write_text("geheim")
    (tmp_path / "repeated").write_text("a" * 30)
    for path in tmp_path.iterdir():
        path.chmod(0o600)
    outcome = run("id", "new", "--name", "x", "--home", tmp_path / "home", *options)
    assert words in assert_refused(outcome, code=1 if "character" in words else 2)
    assert "wort" not in outcome.err.replace("passphrase", "")
    assert not (tmp_path / "home").exists()


def test_keys_are_replaced_and_revoked(
    server: Server, locked: tuple[Office, Path], tmp_path: Path
) -> None:
    """The fingerprint stays; then a certificate that was made before ends the identity."""
    office, secret = locked
    by = ("--passphrase-file", secret)
    office.succeed(
        "register", server.url, "--yes", "--invitation-file", code_file(server, tmp_path), *by
    )
    certificate = tmp_path / "revocation.json"
    made = office.json("id", "revoke", "--out", certificate, "--reason", "stolen", *by)
    assert (made["revoked"], made["reason"]) == (False, "stolen")
    shown = office.json("id", "show")
    assert "confirmed" in assert_refused(office.run("id", "rotate", *by))
    found = office.json("id", "rotate", "--yes", *by)
    assert found["fingerprint"] == shown["fingerprint"]
    assert (found["rotations"], found["told"]) == (1, True)
    office.succeed("study", "list", *by)
    both = office.run("id", "revoke", "--out", tmp_path / "x", "--certificate", certificate)
    assert "nothing is sent" in assert_refused(both)
    stranger = open_office(tmp_path / "elsewhere", "Somebody")
    send = ("id", "revoke", "--certificate", certificate, "--yes")
    assert "there is nobody to tell" in assert_refused(stranger.run(*send), code=1)
    stranger.succeed(
        "register", server.url, "--yes", "--invitation-file", code_file(server, tmp_path)
    )
    assert "not signed by" in assert_refused(stranger.run(*send), code=1)
    office.succeed("study", "list", *by)
    assert stranger.json(*send, "--server", server.url)["revoked"] is True
    assert office.json(*send)["revoked"] is True
    assert "error" in office.run("study", "list", *by).err


def test_registering_pins_the_server(server: Server, newcomer: Office, tmp_path: Path) -> None:
    """The right fingerprint, in any spacing, is a yes; registering again changes nothing."""
    shown = server_fingerprint(server)
    code = code_file(server, tmp_path)
    register = ("register", server.url, "--invitation-file", code)
    spelt = shown.replace(" ", "")
    found = newcomer.json(*register, "--server-fingerprint", spelt)
    assert found["server"]["fingerprint"] == shown
    assert found["party"] == newcomer.json("id", "show")["party"]
    assert newcomer.json(*register) == found
    wrong = newcomer.run(*register, "--server-fingerprint", "12345 " * 6)
    assert "the server that answers has the fingerprint" in assert_refused(wrong, code=1)
    assert newcomer.json("study", "list") == {"studies": []}


def test_a_wrong_fingerprint_ends_it(server: Server, newcomer: Office, tmp_path: Path) -> None:
    """Before the invitation is sent, and nothing is remembered."""
    code = code_file(server, tmp_path)
    register = ("register", server.url, "--invitation-file", code)
    outcome = newcomer.run(*register, "--server-fingerprint", "12345 " * 6)
    assert "the server that answers has the fingerprint" in assert_refused(outcome, code=1)
    assert not (newcomer.home / "server.json").exists()
    refused = newcomer.run(*register)
    assert "there is no terminal to ask on" in assert_refused(refused)
    newcomer.succeed(*register, "--yes")


@pytest.mark.slow
def test_another_server_is_refused(server: Server, newcomer: Office, tmp_path: Path) -> None:
    """Loudly, even with --yes; --replace is for those who know."""
    newcomer.succeed(
        "register", server.url, "--yes", "--invitation-file", code_file(server, tmp_path)
    )
    other = PrivateIdentity.create("other", CipherEntropy.from_seed(9, "other"))
    with running(make_context(tmp_path / "other", identity=other)) as impostor:
        code = code_file(impostor, tmp_path)
        register = ("register", impostor.url, "--yes", "--invitation-file", code)
        outcome = newcomer.run(*register)
        assert "THE SERVER HAS CHANGED" in assert_refused(outcome, code=1)
        assert newcomer.json(*register, "--replace")["server"]["name"] == "other"


def test_a_bad_invitation(server: Server, newcomer: Office, tmp_path: Path) -> None:
    """The server does not say which of its faults it has; nothing is pinned."""
    code = tmp_path / "bad.code"
    for text, said in (
        ("01234abcde" * 4, "the invitation is unknown, expired or used"),
        ("0123456789abcdef", "this is not an invitation"),
    ):
        code.write_text(text)
        outcome = newcomer.run("register", server.url, "--yes", "--invitation-file", code)
        assert said in assert_refused(outcome, code=1)
        assert text not in outcome.err
        assert not (newcomer.home / "server.json").exists()


def test_a_fingerprint_of_another_form_is_refused_before_anybody_is_asked(
    newcomer: Office,
) -> None:
    """Nobody listens at this address, and nobody is tried."""
    outcome = newcomer.run("register", "https://127.0.0.1:1", "--server-fingerprint", "12345")
    assert "'12345' is not a fingerprint" in assert_refused(outcome)


def test_the_invitation_can_be_piped_in(
    server: Server, newcomer: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in ``veiltab register URL --yes < invitation``; nothing at all is an error."""
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    refused = newcomer.run("register", server.url, "--yes")
    assert "there is no invitation" in assert_refused(refused)
    monkeypatch.setattr("sys.stdin", io.StringIO(invite(server.context, "piped") + "\n"))
    newcomer.succeed("register", server.url, "--yes")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://stats.example.org", "is not encrypted"),
        ("https://me:secret@stats.example.org", "has a user name or a password"),
        ("stats.example.org", "does not begin with https://"),
    ],
)
def test_unsafe_urls(newcomer: Office, url: str, words: str) -> None:
    """They are refused before anything is sent, and never repeated."""
    outcome = newcomer.run("register", url, "--yes")
    assert words in assert_refused(outcome)
    assert "secret" not in outcome.err
