"""Homes: one identity each, one server, and studies that are found by what people remember."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.messages import filler, party, plain_contract
from veiltab.crypto import identity
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import fingerprint
from veiltab.errors import HomeError, KeyFileError, ParameterError, ServerChangedError
from veiltab.files.disk import UNFINISHED
from veiltab.files.private import write_private
from veiltab.party.home import Home
from veiltab.protocol.curator.agreement import public_identity, unsigned
from veiltab.wire.contract import PublicIdentity

NAME = "Krankenhaus Süd"
PASSPHRASE = "fünf kleine Wörter"  # noqa: S105 - a test's own
URL = "https://veiltab.example"


@pytest.fixture(autouse=True)
def _cheap_scrypt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower scrypt's cost."""
    monkeypatch.setattr(identity, "SCRYPT_COST", 1 << 4)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Return a new home with an identity that is not locked."""
    found = Home(tmp_path / "home")
    found.create(NAME, None, CipherEntropy(bytes(32)))
    return found


def test_where_a_home_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option, the variable, the user's folder; never a relative path."""
    monkeypatch.chdir(tmp_path)
    environ = {"VEILTAB_HOME": "/srv/veiltab", "HOME": "/home/ann"}
    assert Home.locate(Path("mine"), environ) == tmp_path / "mine"
    assert Home.locate(None, environ) == Path("/srv/veiltab")
    assert Home.locate(None, environ | {"VEILTAB_HOME": ""}) == Path("/home/ann/.veiltab")
    with pytest.raises(HomeError, match="neither VEILTAB_HOME nor HOME"):
        Home.locate(None, {})


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE])
def test_an_identity_comes_back(tmp_path: Path, passphrase: str | None) -> None:
    """With its passphrase; what others may know of it without."""
    home = Home(tmp_path / "deep" / "home")
    assert not Home(home.path).exists
    created = home.create(NAME, passphrase, CipherEntropy(bytes(32)))
    assert home.exists
    assert home.locked is (passphrase is not None)
    assert home.open(passphrase).party_id == created.party_id
    assert home.public == public_identity(created)
    assert home.path.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in home.path.iterdir()} == {"identity.key", "identity.json", "lock"}
    assert {path.stat().st_mode & 0o777 for path in home.path.iterdir()} == {0o600}


def test_a_locked_identity_needs_its_passphrase(tmp_path: Path) -> None:
    """Errors do not repeat it."""
    home = Home(tmp_path / "home")
    home.create(NAME, PASSPHRASE, CipherEntropy(bytes(32)))
    for wrong in (None, "fünf große Wörter"):
        with pytest.raises(KeyFileError) as caught:
            home.open(wrong)
        assert "Wörter" not in caught.value.message + caught.value.hint
    assert repr(home) == f"Home('{home.path}')"


def test_an_identity_is_never_replaced(home: Home) -> None:
    """Neither its key nor its public part changes."""
    before = {path: path.read_bytes() for path in home.path.iterdir() if path.name != "lock"}
    with pytest.raises(HomeError, match="already"):
        home.create("Another", None, CipherEntropy(bytes([1]) * 32))
    assert all(path.read_bytes() == data for path, data in before.items())


def test_a_name_that_cannot_be_used_makes_no_home(tmp_path: Path) -> None:
    """Nothing is left behind."""
    with pytest.raises(ParameterError):
        Home(tmp_path / "home").create("two\nlines", None, CipherEntropy(bytes(32)))
    assert not (tmp_path / "home").exists()


def test_a_home_cut_off_while_it_was_made_can_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the public part and the key: there is no identity yet."""
    home = Home(tmp_path / "home")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "hardlink_to", _cut_off)
        with pytest.raises(KeyboardInterrupt):
            home.create(NAME, None, CipherEntropy(bytes(32)))
    assert not home.exists
    with pytest.raises(HomeError, match="no identity"):
        home.open(None)
    created = home.create("Another", None, CipherEntropy(bytes([1]) * 32))
    assert home.public == public_identity(created)


def _cut_off(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_missing_public_part_is_written_again(home: Home) -> None:
    """By opening the identity; one of another identity is refused."""
    path = home.path / "identity.json"
    before = path.read_bytes()
    path.unlink()
    with pytest.raises(HomeError, match=r"identity\.json is missing"):
        home.public  # noqa: B018 - reading it fails
    home.open(None)
    assert path.read_bytes() == before
    write_private(path, before.replace(b"S\xc3\xbcd", b"Nord"))
    with pytest.raises(HomeError, match="different identities"):
        home.open(None)


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o701])
def test_an_unsafe_home_is_refused_for_everything(home: Home, mode: int) -> None:
    """Also for reading: whoever else can enter may have changed it."""
    home.path.chmod(mode)
    for use in (
        lambda: home.open(None),
        lambda: home.public,
        lambda: home.server,
        lambda: home.locked,
        lambda: home.pin_server(URL, party("Cloud")),
        home.studies,
        lambda: home.create(NAME, None, CipherEntropy(bytes(32))),
    ):
        with pytest.raises(HomeError, match="others can enter") as caught:
            use()
        assert "chmod 700" in caught.value.hint


def test_no_home_at_all(tmp_path: Path) -> None:
    """A plain error with a way out."""
    with pytest.raises(HomeError, match="there is no home"):
        Home(tmp_path / "none").open(None)
    assert not (tmp_path / "none").exists()


def test_a_server_is_pinned(home: Home) -> None:
    """Its address and its name may change; its keys may not."""
    assert Home(home.path).server is None
    cloud = party("Cloud")
    home.pin_server(URL, cloud)
    found = Home(home.path).server
    assert found is not None
    assert (found.url, found.identity) == (URL, cloud)
    renamed = PublicIdentity("Cloud Ltd", cloud.signing_key, cloud.sealing_key)
    assert home.pin_server("https://new.example", renamed).identity.name == "Cloud Ltd"
    for thief in (
        party("Thief"),
        PublicIdentity("Cloud", cloud.signing_key, filler("mine", 1216)),
        PublicIdentity("Cloud", filler("mine"), cloud.sealing_key),
    ):
        with pytest.raises(ServerChangedError, match="THE SERVER HAS CHANGED") as caught:
            home.pin_server(URL, thief)
        for shown in (thief, cloud):
            assert fingerprint(shown.party_id) in caught.value.message
    kept = home.server
    assert kept is not None
    assert kept.identity == renamed
    home.forget_server()
    assert Home(home.path).server is None
    assert home.pin_server(URL, party("Another")).identity == party("Another")


def test_damaged_files_are_named(home: Home) -> None:
    """Cut off anywhere, of another kind, or of another version."""
    home.pin_server(URL, party("Cloud"))
    for name, read in (
        ("server.json", lambda: home.server),
        ("identity.json", lambda: home.public),
    ):
        path = home.path / name
        content = path.read_bytes()
        for data in (*(content[:end] for end in range(0, len(content), 5)), b"[]", b"\xff", b"{}"):
            write_private(path, data)
            with pytest.raises(HomeError, match=f"{name} is damaged"):
                read()
        write_private(path, content)
    fields = json.loads((home.path / "server.json").read_bytes())
    write_private(home.path / "server.json", json.dumps(fields).encode())
    with pytest.raises(HomeError, match="damaged"):
        home.server  # noqa: B018 - reading it fails
    newer = (home.path / "server.json").read_bytes().replace(b": ", b":").replace(b", ", b",")
    write_private(home.path / "server.json", newer.replace(b'"version":1', b'"version":2'))
    with pytest.raises(HomeError, match="another version"):
        home.server  # noqa: B018 - reading it fails


def test_one_command_at_a_time(home: Home) -> None:
    """A second one waits a little and then says why; the same one may nest."""
    second = Home(home.path)
    with home.lock(), home.lock():
        with pytest.raises(HomeError, match="another command is at work"), second.lock(wait=0.1):
            pass
        home.pin_server(URL, party("Cloud"))
    with second.lock(wait=0):
        pass


TITLES = ("Smoking and income", "Smoking and income", "abcd", "Übergewicht")


@pytest.fixture
def studies(home: Home) -> list[bytes]:
    """Return the ids of studies in the home, two of them with the same title."""
    contracts = [
        plain_contract(title=title, nonce=filler(f"nonce {number}", 16))
        for number, title in enumerate(TITLES)
    ]
    for contract in contracts:
        home.study(contract.study_id).save_contract(unsigned(contract))
    return [contract.study_id for contract in contracts]


def test_studies_are_found_by_title_and_by_id(home: Home, studies: list[bytes]) -> None:
    """The exact title, or four digits of the id and more, in any case."""
    assert home.studies() == sorted(studies)
    assert home.find_study("Übergewicht") == studies[3]
    assert home.find_study("abcd") == studies[2]
    for study in studies:
        for length in (8, 63, 64):
            assert home.find_study(study.hex()[:length]) == study
        assert home.find_study(study.hex().upper()) == study


def test_what_does_not_name_one_study_is_refused(home: Home, studies: list[bytes]) -> None:
    """The error lists those that are meant, or all."""
    with pytest.raises(HomeError, match="2 studies match") as caught:
        home.find_study("Smoking and income")
    assert all(study.hex()[:16] in caught.value.message for study in studies[:2])
    assert studies[3].hex()[:16] not in caught.value.message
    for text in (studies[0].hex()[:3], "", " ", "0" * 64, "bergewicht"):
        with pytest.raises(HomeError, match="no study matches") as caught:
            home.find_study(text)
        assert all(study.hex()[:16] in caught.value.message for study in studies)


def test_case_and_the_beginning_of_a_title_are_enough(home: Home, studies: list[bytes]) -> None:
    """If they mean one study; else all that they could mean are named, and no other."""
    for text in ("übergewicht", "  ÜBERGEWICHT ", "Über", "u\u0308ber"):
        assert home.find_study(text) == studies[3]
    for text in ("smoking and  INCOME", "Smok"):
        with pytest.raises(HomeError, match="2 studies match") as caught:
            home.find_study(text)
        assert all(study.hex()[:16] in caught.value.message for study in studies[:2])
    whole = filler("whole")
    assert (
        home.find_study("übergewich", [(whole, "Übergewich")]) == whole
    )  # before one that goes on


def test_a_proposal_nobody_has_looked_at_takes_no_name_away(
    home: Home, studies: list[bytes]
) -> None:
    """Its title counts if nothing else is meant; where a title is only begun, both are named."""
    unseen = filler("unseen")

    def find(text: str, title: str) -> bytes:
        return home.find_study(text, (), lambda: [(unseen, title)])

    assert find("Übergewicht", "Übergewicht") == studies[3]
    assert find("Über", "Übergewicht") == studies[3]
    assert find("other", "Other") == find("Oth", "Other") == unseen
    with pytest.raises(HomeError, match="2 studies match") as caught:
        find("Über", "Über")
    assert all(study.hex()[:16] in caught.value.message for study in (studies[3], unseen))
    assert caught.value.hint == "give at least 4 digits of its id"  # there is no more of the title


def test_studies_that_only_the_server_knows(home: Home, studies: list[bytes]) -> None:
    """They are found like the home's own, and can make a text ambiguous."""
    new = filler("new")
    assert home.find_study("New", [(new, "New"), (studies[3], "Übergewicht")]) == new
    assert home.find_study(new.hex()[:6], [(new, "New")]) == new
    twin = studies[3][:16] + bytes(16)
    with pytest.raises(HomeError, match="2 studies"):
        home.find_study(twin.hex()[:8], [(twin, "Twin")])
    with pytest.raises(HomeError, match="there are none yet"):
        _emptied(home).find_study("New")


def _emptied(home: Home) -> Home:
    (home.path / "studies").rename(home.path / "elsewhere")
    return home


def test_many_candidates_are_cut_short(home: Home) -> None:
    """A long list helps nobody."""
    known = [(filler(f"study {number}"), f"Study {number}") for number in range(30)]
    with pytest.raises(HomeError, match="and 20 more"):
        home.find_study("none of them", known)


def test_one_damaged_study_does_not_hide_the_others(home: Home, studies: list[bytes]) -> None:
    """And it can still be named by its id; other folders are no studies."""
    write_private(home.study(studies[2]).path / "contract.json", b"{")
    (home.path / "studies" / "notes").mkdir()
    assert home.find_study("Übergewicht") == studies[3]
    assert home.find_study(studies[2].hex()[:10]) == studies[2]


def test_the_home_has_ledgers(home: Home) -> None:
    """They live in its folder."""
    home.ledgers.set_limits("patients", 1.0)
    ledger = replace(home.ledgers.open_ledger("patients").ledger)
    assert ledger.epsilon_limit == 1.0
    assert len(list((home.path / "ledgers").iterdir())) == 1


def test_a_second_name_of_the_key_does_not_stay(tmp_path: Path) -> None:
    """A crash between naming the key and removing its first name leaves both of them."""
    home = Home(tmp_path / "home")
    home.create("hospital")
    leftover = home.path / f"{UNFINISHED}abc"
    leftover.hardlink_to(home.path / "identity.key")
    with home.lock():
        assert not leftover.exists()
    assert home.open().name == "hospital"
