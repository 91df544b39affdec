"""Registering by the operator's file: what is refused, before anything secret is sent."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import pytest

import veiltab as vt
from tests.support.documents import REFERENCE, listed, section
from tests.support.servers import Server, make_context, running
from veiltab.crypto.identity import fingerprint
from veiltab.errors import (
    InputError,
    InvitationError,
    MismatchError,
    ParameterError,
    ServerChangedError,
)
from veiltab.party.registration import meet, read_invitation, write_invitation
from veiltab.party.remote import RemoteServer
from veiltab.server.invitations import invite
from veiltab.wire.invitations import Invitation

OTHER_DIGITS = "12345 67890 12345 67890 12345 67890"


@dataclass(frozen=True)
class Mail:
    """A server, and the invitation that its operator has written."""

    server: Server
    path: Path
    sent: Invitation
    digits: str

    def taken(self) -> int:
        """Count the invitations of the server that somebody has used."""
        with self.server.context.database.reading() as records:
            return sum(line.party is not None for line in records.invitations())

    def change(self, **fields: object) -> Path:
        """Write the invitation with other fields, as whoever reads the mail could."""
        changed = self.path.with_name("changed.json")
        changed.write_text(json.dumps(self.sent.to_json() | fields))
        return changed


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run one server for all tests."""
    with running(make_context(tmp_path_factory.mktemp("server"))) as found:
        yield found


@pytest.fixture
def mail(server: Server, tmp_path: Path) -> Mail:
    """Invite somebody by a file."""
    path, digits = tmp_path / "klinik.json", fingerprint(server.context.identity.party_id)
    made: list[Invitation] = []

    def hand_over(code: str, expires: int) -> None:
        about = {"name": "Klinik", "url": server.url, "server": "Statistics"}
        made.append(Invitation(**about, fingerprint=digits, code=code, expires=expires))
        write_invitation(path, made[0])

    invite(server.context, "Klinik", 14, hand_over)
    return Mail(server, path, made[0], digits)


@pytest.fixture
def home(tmp_path: Path) -> vt.Home:
    """Return somebody who is not registered yet."""
    home = vt.Home(tmp_path / "home")
    home.create("Klinik")
    return home


def test_one_file_is_enough(mail: Mail, home: vt.Home) -> None:
    """It is private, and the fingerprint is compared by voice all the same; again is no harm."""
    assert mail.path.stat().st_mode & 0o777 == 0o600
    documented = listed(section(REFERENCE / "files.md", "Invitation"), "key")
    assert list(json.loads(mail.path.read_text())) == documented
    assert mail.sent.code not in repr(meet(home, mail.path))
    with pytest.raises(MismatchError, match="the server that answers has the fingerprint"):
        home.register(mail.path, fingerprint=OTHER_DIGITS)
    assert home.server is None
    for _ in range(2):
        pinned = home.register(mail.path, fingerprint=mail.digits)
    assert (pinned.url, pinned.identity) == (mail.server.url, mail.server.context.identity)
    with pytest.raises(MismatchError, match="the server that answers has the fingerprint"):
        home.register(mail.path, fingerprint=OTHER_DIGITS)  # also if registered already
    with home.connect() as session:
        assert session.studies() == []


def test_a_wrong_fingerprint_changes_nothing_of_a_home_that_is_registered(
    mail: Mail, home: vt.Home
) -> None:
    """Not even where it finds its server."""
    home.pin_server("https://stats.example.org", mail.server.context.identity)
    with pytest.raises(MismatchError, match="the server that answers has the fingerprint"):
        home.register(mail.server.url, mail.sent.code, fingerprint=OTHER_DIGITS)
    pinned = home.server
    assert pinned is not None
    assert pinned.url == "https://stats.example.org"


def test_an_expired_invitation_is_refused_before_anybody_is_asked(
    mail: Mail, home: vt.Home
) -> None:
    """With whom to ask for a new one."""
    path = mail.change(expires=int(time.time()) - 1, url="https://127.0.0.1:1")
    nobody = mock.patch.object(RemoteServer, "discover", side_effect=AssertionError("it was asked"))
    with nobody, pytest.raises(InvitationError, match="expired on") as caught:
        home.register(path, fingerprint=mail.digits)
    assert "'Statistics' (https://127.0.0.1:1)" in caught.value.hint


def test_an_invitation_for_another_server_is_refused(mail: Mail, home: vt.Home) -> None:
    """The code stays unused: it was not sent."""
    path, before = mail.change(fingerprint=OTHER_DIGITS), mail.taken()
    with pytest.raises(MismatchError, match="the invitation is for the server with") as caught:
        meet(home, path)
    assert mail.digits in caught.value.message
    assert "operator by telephone" in caught.value.hint
    assert mail.taken() == before
    home.register(mail.path, fingerprint=mail.digits)  # as it was written, it still serves
    assert mail.taken() == before + 1


def test_a_used_invitation_is_refused(mail: Mail, home: vt.Home, tmp_path: Path) -> None:
    """By somebody else: whoever was invited learns that a stranger had the code."""
    thief = vt.Home(tmp_path / "thief")
    thief.create("Thief")
    thief.register(mail.path, fingerprint=mail.digits)
    with pytest.raises(InvitationError, match="used already, and not by you") as caught:
        home.register(mail.path, fingerprint=mail.digits)
    assert "tell the operator" in caught.value.hint
    assert home.server is None


def test_a_home_that_trusts_another_server_is_not_led_away(mail: Mail, home: vt.Home) -> None:
    """Unless its owner says so."""
    known = replace(mail.server.context.identity, signing_key=bytes(32))
    home.pin_server("https://stats.example.org", known)
    with pytest.raises(ServerChangedError, match="THE SERVER HAS CHANGED"):
        home.register(mail.path, fingerprint=mail.digits)
    home.register(mail.path, fingerprint=mail.digits, replace=True)
    pinned = home.server
    assert pinned is not None
    assert pinned.identity == mail.server.context.identity


def test_what_is_no_invitation_is_refused_and_not_repeated(mail: Mail, tmp_path: Path) -> None:
    """Damaged, of another kind, cut off, or a code instead of a file."""
    text, code = mail.path.read_text(), mail.sent.code
    slip = ("8" if code[0] == "7" else "7") + code[1:]
    contents = {
        "cut": text[:-20],
        "slip": text.replace(code, slip),
        "kind": text.replace('"invitation"', '"contract"'),
        "version": text.replace('"version": 1', '"version": 2'),
        "more": text.replace("{", '{"more": 1,', 1),
        "digits": text.replace(mail.digits, "12345"),
        "list": "[]",
        "deep": "[" * 100_000,
        "binary": "\x00\x01",
        "empty": "",
    }
    for name, content in contents.items():
        path = tmp_path / f"{name}.json"
        path.write_text(content)
        with pytest.raises(InputError, match=r"is not an invitation, or is damaged") as caught:
            read_invitation(path)
        assert caught.value.__cause__ is None
        assert slip not in str(caught.value)
        assert "operator" in caught.value.hint
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(InputError, match="cannot read"):
            read_invitation(path)
    with pytest.raises(InputError, match="on the command line") as caught:
        read_invitation(Path(code))
    assert code not in caught.value.message + caught.value.hint


def test_a_url_needs_a_code(mail: Mail, home: vt.Home) -> None:
    """Which a file has."""
    with pytest.raises(ParameterError, match="needs the code"):
        home.register(mail.server.url, fingerprint=mail.digits)
    home.register(mail.server.url, mail.sent.code.lower(), fingerprint=mail.digits)


def test_a_file_whose_name_could_be_a_code_is_read(
    mail: Mail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen letters and digits beside points and hyphens, such as these."""
    monkeypatch.chdir(tmp_path)
    path = Path("rivera.invite.json")
    write_invitation(path, mail.sent)
    assert read_invitation(path) == mail.sent
