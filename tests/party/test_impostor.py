"""An impostor registers under a name that the others know; nobody signs, pushes or grants."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest

import veiltab as vt
from tests.support.servers import Server, make_context, running
from veiltab.crypto.identity import fingerprint
from veiltab.errors import KeyChangedError, NotFoundError, RevokedError
from veiltab.party import rotation
from veiltab.party.context import PartyContext
from veiltab.party.home import Home
from veiltab.party.known.known import KnownParties
from veiltab.party.remote import RemoteServer

STUDY = """\
title = "{title}"
epsilon = 1.0
population = 40
mechanism = "paper"
[linkage]
by = "ids"
[[curators]]
identity = "me"
attributes = [{{name = "smoker", categories = ["no", "yes"]}}]
[[curators]]
identity = "{other}"
attributes = [{{name = "income", categories = ["low", "high"]}}]
"""
RESEARCHER = '[[researchers]]\nidentity = "{name}"\n'

LOOK_ALIKES = {
    "the same name": "City hospital",
    "case and a zero-width space": "City\N{ZERO WIDTH SPACE} Hospital",
    "Cyrillic letters": "\N{CYRILLIC CAPITAL LETTER ES}ity hospit\N{CYRILLIC SMALL LETTER A}l",
}
"""Names that look like the hospital's; ``test_names.py`` has many more."""


@dataclass
class Town:
    """A server, the honest parties, and an impostor with an invitation of its own."""

    server: Server
    folder: Path

    def join(self, name: str, folder: str) -> Home:
        """Register a party under any name, with a budget and an identity file."""
        context: PartyContext = self.server.join(name, self.folder / folder)
        context.home.set_budget("people", 100.0)
        context.home.write_public(self.folder / f"{folder}.json")
        return context.home

    def study_file(self, title: str, other: str, researcher: str | None = None) -> Path:
        """Write a study file that names the others by their identity files."""
        path = self.folder / f"{title}.toml"
        named = "" if researcher is None else RESEARCHER.format(name=f"{researcher}.json")
        path.write_text(STUDY.format(title=title, other=f"{other}.json") + named, "utf-8")
        return path


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """Start a server; the hospital proposes a study, and the tax office signs it."""
    folder = tmp_path_factory.mktemp("town")
    with running(make_context(folder / "data")) as server:
        yield Town(server, folder)


@pytest.fixture(scope="module")
def hospital(town: Town) -> Home:
    """Return the honest party whose name others use."""
    return town.join("City hospital", "hospital")


@pytest.fixture(scope="module")
def office(town: Town, hospital: Home) -> Home:
    """Return a curator that has signed a study of the hospital's."""
    home = town.join("Tax office", "office")
    with hospital.connect() as first, home.connect() as second:
        first.propose(town.study_file("First", "office"))
        second.study("First").sign()
    return home


@pytest.mark.parametrize("name", LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_an_impostor_with_a_known_name_is_refused(
    town: Town, hospital: Home, office: Home, name: str, request: pytest.FixtureRequest
) -> None:
    """It proposes over HTTP; the curator who knows the real one does not sign, nor is charged."""
    title = f"Study of {request.node.callspec.id}"
    impostor = town.join(name, f"impostor of {request.node.callspec.id}")
    left = office.budgets()[0].epsilon_left
    with impostor.connect() as attacker, office.connect() as victim:
        attacker.propose(town.study_file(title, "office"))
        with pytest.raises(KeyChangedError, match="THE KEY HAS CHANGED") as refused:
            victim.study(title).sign()
    for party in (hospital, impostor):
        assert fingerprint(party.public.party_id) in refused.value.message
    assert office.budgets()[0].epsilon_left == left


def test_an_impostors_identity_file_is_refused(town: Town, hospital: Home, office: Home) -> None:
    """A forged mail brings the proposer an identity file; nothing is signed or sent."""
    assert hospital.known.find("Tax office").identity == office.public
    town.join("Tax Office", "forged")
    with hospital.connect() as session:
        before = len(session.studies())
        with pytest.raises(KeyChangedError, match="THE KEY HAS CHANGED"):
            session.propose(town.study_file("With a forged file", "forged"))
        assert len(session.studies()) == before


def test_two_parties_of_one_name_in_a_contract_are_refused(town: Town) -> None:
    """Nobody could tell which of them is meant; not even where both are new."""
    proposer = town.join("Registry", "registry")
    town.join("Land office", "land office")
    town.join("LAND OFFICE", "land office 2")
    with proposer.connect() as session:
        path = town.study_file("Twice", "land office", "land office 2")
        with pytest.raises(KeyChangedError, match="two parties"):
            session.propose(path)
    assert proposer.known.parties() == []


def test_a_name_like_ones_own_is_refused(town: Town, office: Home) -> None:
    """Who signs as "Tax office" is not to be doubted, by nobody else of that name."""
    impostor = town.join("Tax offıce", "another office")
    with impostor.connect() as attacker, office.connect() as victim:
        with (  # an impostor's program does not mind
            mock.patch.object(KnownParties, "remember"),
            mock.patch.object(KnownParties, "newest", lambda _, __, keys: keys),
        ):
            attacker.propose(town.study_file("Myself", "office"))
        with pytest.raises(KeyChangedError, match="your own name"):
            victim.study("Myself").sign()


def test_push_and_grant_refuse_a_changed_key(town: Town, hospital: Home, office: Home) -> None:
    """A study that was signed before the real party was known goes no further."""
    town.join("Registry of births", "births")
    impostor = town.join("Registry of deaths", "deaths")
    with impostor.connect() as attacker, office.connect() as victim:
        attacker.propose(town.study_file("Deaths", "office"))
        study = victim.study("Deaths")
        study.sign()
        office.known.forget("Registry of deaths")
        real = vt.Home(town.folder / "births").public
        office.known.verify(real, fingerprint(real.party_id), name="Registry of deaths")
        with pytest.raises(KeyChangedError, match="THE KEY HAS CHANGED"):
            study.push({"id": ["1"], "income": ["low"]}, ids="id")
        with pytest.raises(KeyChangedError, match="THE KEY HAS CHANGED"):
            study.grant(hospital.public)


def test_a_server_cannot_hide_new_keys_or_a_revocation(town: Town, office: Home) -> None:
    """What was seen once is remembered; nothing is signed, and nothing charged."""
    thief = town.join("Careless clinic", "clinic")
    path, left = town.study_file("Careless", "clinic"), office.budgets()[0].epsilon_left
    with office.connect() as session:
        first = thief.public
        old = session._context.server.party_keys(first.party_id)
        thief.rotate()
        session._context.sealing_key(first)
        hidden = mock.patch.object(RemoteServer, "party_keys", return_value=old)
        nothing = mock.patch.object(
            RemoteServer, "party_keys", side_effect=NotFoundError("no", hint="no")
        )
        for lie in (hidden, nothing):
            with lie, pytest.raises(KeyChangedError, match="THE KEY HAS CHANGED"):
                session.propose(path)
        RemoteServer.revoke(town.server.url, rotation.make_certificate(thief, None, "stolen"))
        for truth in (nullcontext(), hidden):
            with truth, pytest.raises(RevokedError, match="stolen"):
                session.propose(path)
    assert office.budgets()[0].epsilon_left == left
