"""Making an identity, showing it, and registering it: who may read what, and who is believed."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import fail, null
from keyring.errors import KeyringLocked

from tests.support.commands import Office, assert_refused, open_office, run
from tests.support.servers import Server, make_context, running
from veiltab.crypto import identity
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity, fingerprint
from veiltab.party.home import Home
from veiltab.server.invitations import invite
from veiltab.wire.invitations import draw_code

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


def register_with(server: Server, folder: Path, code: str) -> tuple[object, ...]:
    """Return the command that registers with a code from a file."""
    path = folder / "given.code"
    path.write_text(code)
    return ("register", server.url, "--yes", "--invitation-file", path)


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
    """Twice for a new key, and again after a slip; what is typed is nowhere in the output."""
    monkeypatch.setattr("veiltab.cli.output.on_terminal", lambda: True)
    monkeypatch.setattr("veiltab.cli.identity.on_terminal", lambda: True)
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return "a slip" if len(asked) == 2 else PASSPHRASE

    monkeypatch.setattr("click.termui.hidden_prompt_func", answer)
    outcome = run("id", "new", "--name", "Klinik", "--home", tmp_path / "home")
    assert outcome.code == 0
    assert len(asked) == 4
    assert "warning: the two differ" in outcome.err
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
        (("--passphrase-file", "short"), "fewer than 8 characters"),
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


def test_a_wrong_fingerprint_moves_nobody_to_another_address(
    server: Server, newcomer: Office, tmp_path: Path
) -> None:
    """Whoever is registered goes on as before, though the server that answers is theirs."""
    home = Home(newcomer.home)
    home.pin_server("https://stats.example.org", server.context.identity)
    register = ("register", server.url, "--invitation-file", code_file(server, tmp_path))
    wrong = newcomer.run(*register, "--server-fingerprint", "12345 " * 6)
    assert "the server that answers has the fingerprint" in assert_refused(wrong, code=1)
    assert home.server is not None
    assert home.server.url == "https://stats.example.org"


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
    """A slip is found before anything is sent; nothing is pinned, and no code repeated."""
    code, right = tmp_path / "bad.code", draw_code(CipherEntropy.from_seed(3, "never given out"))
    slip = ("8" if right[0] == "7" else "7") + right[1:]
    used = invite(server.context, "used")
    open_office(tmp_path, "First").succeed(*register_with(server, tmp_path, used))
    old = invite(server.context, "old", days=-1)
    for text, said in (
        (right, "there is no such invitation here"),
        (slip, "there is a slip in the code"),
        (right[1], "this is not the code of an invitation"),
        (used, "the invitation was used already, and not by you"),
        (old, "the invitation has expired"),
    ):
        code.write_text(text)
        outcome = newcomer.run("register", server.url, "--yes", "--invitation-file", code)
        assert said in assert_refused(outcome, code=1)
        assert len(text) == 1 or text not in outcome.err
        assert "operator" in outcome.err
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


def test_a_code_is_seen_while_it_is_typed_and_may_be_typed_again(
    server: Server, newcomer: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can type sixteen letters unseen; case and groups do not matter."""
    code = invite(server.context, "typed")
    answers = iter(
        [f"{code[:-1]}{'0' if code[-1] != '0' else '1'}", code.lower().replace("-", " ")]
    )
    hidden: list[bool] = []

    def prompt(_: str, *, hide_input: bool = False, **__: object) -> str:
        hidden.append(hide_input)
        return next(answers)

    monkeypatch.setattr("click.prompt", prompt)
    monkeypatch.setattr("veiltab.cli.identity.on_terminal", lambda: True)
    outcome = newcomer.run("register", server.url, "--yes")
    assert (outcome.code, hidden) == (0, [False, False])
    assert "there is a slip in the code" in outcome.err


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://stats.example.org", "is not encrypted"),
        ("https://me:secret@stats.example.org", "has a user name or a password"),
        ("stats.example.org", "cannot read stats.example.org: No such file"),
    ],
)
def test_unsafe_urls(newcomer: Office, url: str, words: str) -> None:
    """They are refused before anything is sent, and never repeated."""
    outcome = newcomer.run("register", url, "--yes")
    assert words in assert_refused(outcome)
    assert "secret" not in outcome.err


class MemoryKeyring(KeyringBackend):
    """A keyring that forgets everything at the end of the process."""

    priority = 1
    name = "memory"

    def __init__(self) -> None:
        """Hold nothing yet."""
        self.held: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        """Return what was given."""
        return self.held.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        """Take a password."""
        self.held[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        """Drop a password."""
        del self.held[service, username]


@pytest.fixture
def backend() -> Iterator[MemoryKeyring]:
    """Put a keyring in the place of the system's."""
    before, memory = keyring.get_keyring(), MemoryKeyring()
    keyring.set_keyring(memory)
    yield memory
    keyring.set_keyring(before)


def type_passphrases(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """Let a person at a terminal type these; return those that are not typed yet."""
    left = list(answers)
    monkeypatch.setattr("veiltab.cli.options.on_terminal", lambda: True)
    monkeypatch.setattr("veiltab.cli.options.ask_secret", lambda _: left.pop(0))
    return left


@pytest.mark.parametrize("wrong", [0, 1, 2, 3])
def test_a_passphrase_may_be_typed_three_times(
    locked: tuple[Office, Path], monkeypatch: pytest.MonkeyPatch, wrong: int
) -> None:
    """The third wrong one ends the command, which has done nothing."""
    office, _ = locked
    left = type_passphrases(monkeypatch, *["falsch falsch"] * wrong, *[PASSPHRASE] * (4 - wrong))
    outcome = office.run("id", "rotate", "--yes")
    assert len(left) == (1 if wrong == 3 else 3 - wrong)
    said = outcome.err.splitlines()
    warnings = ["2 more tries", "1 more try"][:wrong]
    assert said[: len(warnings)] == [
        f"warning: this is not the passphrase; {more}" for more in warnings
    ]
    assert outcome.code == (1 if wrong == 3 else 0)
    if wrong == 3:
        assert "does not unlock" in said[2]
        assert not list(office.home.glob("*.next*"))


def test_the_keyring_keeps_a_passphrase_at_wish(
    locked: tuple[Office, Path], backend: MemoryKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing asks it before, and nothing after it was told to forget."""
    office, secret = locked
    backend.held["veiltab", office.json("id", "show")["party"]] = PASSPHRASE
    assert "is locked" in assert_refused(office.run("id", "rotate", "--yes"), code=1)
    backend.held.clear()
    kept = office.json("id", "keyring", "--passphrase-file", secret)
    assert kept["kept_by"] == "memory"
    assert backend.held == {("veiltab", kept["party"]): PASSPHRASE}
    assert PASSPHRASE not in (office.home / "keyring").read_text()
    office.succeed("id", "rotate", "--yes")
    backend.held["veiltab", kept["party"]] = "another one"
    type_passphrases(monkeypatch, PASSPHRASE)
    fitting = office.run("id", "rotate", "--yes")
    assert (fitting.code, "the keyring has another passphrase" in fitting.err) == (0, True)
    assert office.json("id", "keyring", "--forget")["kept_by"] is None
    assert not backend.held
    assert "is not kept" in assert_refused(office.run("id", "keyring", "--forget"), code=1)


def test_a_keyring_that_is_locked_is_not_in_the_way(
    locked: tuple[Office, Path], backend: MemoryKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner types the passphrase; giving and forgetting say that it has refused."""
    office, secret = locked
    office.succeed("id", "keyring", "--passphrase-file", secret)

    def refuse(*_: str) -> str:
        raise KeyringLocked(PASSPHRASE)  # backends may quote anything

    for name in ("get_password", "set_password"):
        monkeypatch.setattr(backend, name, refuse)
    left = type_passphrases(monkeypatch, PASSPHRASE)
    office.succeed("id", "rotate", "--yes")
    assert not left
    for options in (("--forget",), ("--passphrase-file", secret)):
        said = assert_refused(office.run("id", "keyring", *options), code=1)
        assert said == "the system's keyring refused (KeyringLocked)"
    monkeypatch.undo()
    monkeypatch.setattr("veiltab.cli.options.on_terminal", lambda: False)
    backend.held.clear()  # the keyring of another computer
    assert "is locked" in assert_refused(office.run("id", "rotate", "--yes"), code=1)


def test_what_cannot_be_given_to_a_keyring(
    locked: tuple[Office, Path], newcomer: Office, backend: MemoryKeyring, tmp_path: Path
) -> None:
    """A wrong passphrase, none at all, and a keyring that keeps nothing safe."""
    office, secret = locked
    wrong = tmp_path / "wrong"
    wrong.write_text("not this one")
    wrong.chmod(0o600)
    refused = office.run("id", "keyring", "--passphrase-file", wrong)
    assert "does not unlock" in assert_refused(refused, code=1)
    assert "has no passphrase" in assert_refused(newcomer.run("id", "keyring"))
    makers: list[Callable[[], KeyringBackend]] = [null.Keyring, fail.Keyring]
    for make in makers:
        keyring.set_keyring(make())
        refused = office.run("id", "keyring", "--passphrase-file", secret)
        assert "no keyring here that keeps secrets safely" in assert_refused(refused, code=1)
    assert not backend.held
    assert not (office.home / "keyring").exists()
