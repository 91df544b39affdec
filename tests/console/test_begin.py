"""The first page of a console whose home has no keys yet."""

from pathlib import Path

import pytest

from tests.support.pages import Browser, plain
from veiltab.cli.console import _party
from veiltab.cli.options import PartyOptions
from veiltab.console.keys import ConsoleParty
from veiltab.console.state import ConsoleState
from veiltab.errors import HomeError
from veiltab.party.home import Home

PASSPHRASE = "correct horse battery"  # noqa: S105 - of a test's own keys
GOOD = {"name": "City hospital", "passphrase": PASSPHRASE, "again": PASSPHRASE}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return where a home is to be."""
    return tmp_path / "home"


@pytest.fixture
def browser(folder: Path) -> Browser:
    """Return a browser at a console without keys."""
    return Browser(ConsoleState(ConsoleParty(folder)))


def test_keys_are_made_on_the_first_page(folder: Path, browser: Browser) -> None:
    """Every other page leads there until they are made; what is wrong makes none."""
    for path in ("/", "/ledger", "/unlock", "/nothing-here"):
        assert browser.client.get(path).headers["location"] == "/begin"
    assert str(folder) in plain(browser.get("/begin"))
    for wrong, words in (
        ({"name": ""}, "name is empty"),
        ({"again": f"{PASSPHRASE} "}, "the two passphrases differ"),
        ({"passphrase": "short", "again": "short"}, "fewer than 8 characters"),
        ({"passphrase": "", "again": ""}, "fewer than 8 characters"),
        ({"without": "1"}, "there is a passphrase"),
    ):
        refused = browser.fill_in("/begin", "/begin", **GOOD | wrong)
        assert refused.status_code == 422
        assert words in plain(refused.text).lower()
        assert f'name="name" required autocomplete="off" value="{(GOOD | wrong)["name"]}"' in (
            refused.text
        )
    unsure = browser.send("/begin", browser.form("/begin", "/begin") | GOOD)
    assert "the box was not ticked" in plain(unsure.text).lower()
    assert not Home(folder).exists

    form = browser.form("/begin", "/begin") | GOOD | {"sure": "on"}
    for _ in range(2):  # a double click
        done = browser.send("/begin", form)
        assert "Your keys are made" in plain(done.text)
    assert "Lock keys" in done.text
    assert Home(folder).open(PASSPHRASE).name == "City hospital"
    assert browser.client.get("/begin").headers["location"] == "/"
    assert [path for path, text in browser.seen.items() if PASSPHRASE in text] == []


def test_keys_are_never_made_twice(folder: Path, browser: Browser) -> None:
    """A page that somebody has left open replaces none."""
    form = browser.form("/begin", "/begin") | {"name": "Again", "without": "1", "sure": "on"}
    first = Home(folder).create("City hospital")
    refused = browser.send("/begin", form)
    assert "there is an identity in" in plain(refused.text).lower()
    assert Home(folder).open().party_id == first.party_id


def test_the_command_starts_without_keys(tmp_path: Path) -> None:
    """With a home that is not there or empty; not with one that others can enter."""
    empty, entered, file = (tmp_path / name for name in ("empty", "entered", "file"))
    empty.mkdir(mode=0o700)
    entered.mkdir(mode=0o755)
    file.touch(mode=0o600)
    for home in (tmp_path / "none", empty):
        assert not _party(PartyOptions(home, None), 15).party.has_identity
    for home, passphrase in ((entered, None), (file, None), (tmp_path / "none", file)):
        with pytest.raises(HomeError):
            _party(PartyOptions(home, passphrase), 15)
    assert not (tmp_path / "none").exists()
    Home(empty).create("City hospital")
    assert _party(PartyOptions(empty, None), 15).party.unlocked
