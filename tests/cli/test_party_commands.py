"""``veiltab party``, and what the other commands ask and show of parties."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.commands import Office, assert_refused, open_office, write_study
from tests.support.servers import Server, make_context, running

Answer = Callable[[Sequence[str]], list[str]]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Return what lets a person at a terminal type answers; it gives the questions back."""

    def at_a_terminal(answers: Sequence[str]) -> list[str]:
        left, asked = list(answers), list[str]()

        def type_answer(prompt: str) -> str:
            asked.append(prompt)
            return left.pop(0)

        for module in ("output", "party"):
            monkeypatch.setattr(f"veiltab.cli.{module}.on_terminal", lambda: True)
        monkeypatch.setattr("click.termui.visible_prompt_func", type_answer)
        return asked

    return at_a_terminal


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Office, Office]:
    """Return two parties without a server."""
    return open_office(tmp_path, "City hospital"), open_office(tmp_path, "Tax office")


def digits(office: Office) -> str:
    """Return the fingerprint that a party reads out."""
    shown: str = office.json("id", "show")["fingerprint"]
    return shown


def test_a_party_is_verified_by_its_digits(pair: tuple[Office, Office], answer: Answer) -> None:
    """Thirty of them; until there are thirty it is asked again, and wrong ones end it."""
    hospital, office = pair
    assert hospital.succeed("party", "list") == "You know nobody yet: veiltab party verify FILE\n"
    refused = hospital.run("party", "verify", office.public)
    assert "no terminal to ask for the fingerprint" in assert_refused(refused)
    asked = answer([digits(office)[-5:], digits(hospital), digits(office)])
    wrong = hospital.run("party", "verify", office.public)
    assert (wrong.code, len(asked)) == (1, 2)
    assert "this is not the party that you have asked" in wrong.err
    assert hospital.json("party", "list") == {"parties": [], "blocked": []}
    right = hospital.run("party", "verify", office.public)
    assert right.code == 0
    assert f"fingerprint   {digits(office)}" in right.out
    (known,) = hospital.json("party", "list")["parties"]
    assert (known["name"], known["verified"], known["blocked"]) == ("Tax office", True, False)
    assert known == hospital.json("party", "show", "Tax office")
    assert digits(office) in hospital.succeed("party", "list")


def test_parties_of_one_name(pair: tuple[Office, Office], tmp_path: Path) -> None:
    """The second gets another name; a party that has lost its key is forgotten first."""
    hospital, office = pair
    (tmp_path / "lyon").mkdir()
    lyon = open_office(tmp_path / "lyon", "City hospital")
    for one in (hospital, lyon):
        verify = ("party", "verify", one.public, "--fingerprint", digits(one))
        if one is hospital:
            office.succeed(*verify)
            continue
        outcome = office.run(*verify)
        assert "THE KEY HAS CHANGED" in assert_refused(outcome, code=1)
        known = office.json(*verify, "--as", "City hospital (Lyon)")
    assert (known["name"], known["calls_itself"]) == ("City hospital (Lyon)", "City hospital")
    refused = office.run("party", "forget", "City hospital (Lyon)")
    assert "there is no terminal" in assert_refused(refused)
    gone = office.json("party", "forget", "City hospital (Lyon)", "--yes")
    assert gone["forgotten"]["party"] == known["party"]
    assert len(office.json("party", "list")["parties"]) == 1


@dataclass(frozen=True)
class Town:
    """Three registered parties and a study file of the hospital's."""

    server: Server
    folder: Path
    hospital: Office
    office: Office
    rivera: Office

    def write(self, title: str, other: Office) -> Path:
        """Write a study file that names another curator and the researcher."""
        curators = {"me": {"smoker": ["no", "yes"]}, other.public: {"income": ["low", "high"]}}
        return write_study(
            self.folder / f"{title}.toml",
            {str(identity): attributes for identity, attributes in curators.items()},
            title=title,
            researchers=[str(self.rivera.public)],
        )


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """Start a server, and register everybody."""
    folder = tmp_path_factory.mktemp("town")
    with running(make_context(folder / "server")) as server:
        names = ("City hospital", "Tax office", "Dr. Rivera")
        offices = [open_office(folder, name, server) for name in names]
        for one in offices[:2]:
            one.succeed("ledger", "set", "people", "--epsilon", 100)
        yield Town(server, folder, *offices)


def test_what_is_asked_and_shown_before_a_signature(town: Town, answer: Answer) -> None:
    """Whoever is not verified is asked for; Enter goes on without."""
    hospital, office, rivera = town.hospital, town.office, town.rivera
    path = town.write("Asked", office)
    wrong = ("--verified", digits(hospital)[::-1], "--json")
    nobody = hospital.run("study", "propose", "--yes", path, *wrong)
    assert "nobody here has the fingerprint" in assert_refused(nobody)
    proposed = hospital.json("study", "propose", "--yes", path, "--verified", digits(office))
    assert [one["verified"] for one in proposed["curators"]] == [True, True]
    assert [one["verified"] for one in proposed["researchers"]] == [False]
    waiting = office.succeed("study", "list")
    assert "You have no study yet." in waiting
    assert "In your inbox: 1 proposal." in waiting
    assert [one["title"] for one in office.json("study", "list", "--inbox")["studies"]] == ["Asked"]
    shown = office.json("study", "show", "Asked")
    assert [one["standing"] for one in shown["curators"]] == ["new", "you"]
    assert "Your inbox is empty." in office.succeed("study", "list", "--inbox")
    assert office.json("party", "list")["parties"] == []  # looking remembers nobody
    asked = answer([digits(hospital), "", "y"])
    signed = office.run("study", "sign", "Asked")
    assert signed.code == 0
    assert [prompt.partition("'")[2].partition("'")[0] for prompt in asked] == [
        "City hospital",
        "Dr. Rivera",
        "Asked",
    ]
    assert "Not verified: City hospital, Dr. Rivera." in signed.out
    known = {one["name"]: one["verified"] for one in office.json("party", "list")["parties"]}
    assert known == {"City hospital": True, "Dr. Rivera": False}
    log = office.json("audit", "Asked")["entries"]
    assert {one["name"]: one["verified"] for one in log} == {
        "City hospital": True,
        "Tax office": True,
        "server": None,
    }
    status = office.succeed("study", "status", "Asked")
    assert "City hospital  yes       yes" in status
    assert "Tax office     you       yes" in status
    text = office.succeed("study", "show", "Asked")
    assert f"{digits(rivera)}  no" in text
    assert "Not verified: Dr. Rivera." in text


def test_a_changed_key_is_shown_and_refused(town: Town, tmp_path: Path) -> None:
    """``--yes`` does not help, nor does ``--verified``."""
    impostor = open_office(tmp_path, "City\N{ZERO WIDTH SPACE} hospital", town.server)
    impostor.succeed("ledger", "set", "people", "--epsilon", 100)
    office, title = town.office, "Forged"
    office.succeed("party", "verify", town.hospital.public, "--fingerprint", digits(town.hospital))
    path = town.write(title, office)
    impostor.succeed("study", "propose", "--yes", path)
    shown = office.succeed("study", "show", title)
    assert "CHANGED" in shown
    assert "THE KEY HAS CHANGED: 'City\\u200b hospital'" in shown
    assert r"City\u200b hospital" in shown
    for options in ((), ("--verified", digits(impostor))):
        outcome = office.run("study", "sign", title, "--yes", *options)
        assert "THE KEY HAS CHANGED" in assert_refused(outcome, code=1)


def test_a_forged_researcher_gets_no_grant(town: Town, tmp_path: Path) -> None:
    """An identity file with the name of a researcher who is known is refused first of all."""
    forged = open_office(tmp_path, "DR RIVERA", town.server)
    office = town.office
    office.succeed("party", "verify", town.rivera.public, "--fingerprint", digits(town.rivera))
    path = town.write("Granted", office)
    town.hospital.succeed("study", "propose", "--yes", path)
    outcome = office.run("grant", "Granted", "--to", forged.public, "--yes")
    assert "THE KEY HAS CHANGED" in assert_refused(outcome, code=1)


def test_a_blocked_party_is_kept_away(town: Town, tmp_path: Path) -> None:
    """Its proposals reach nobody who has blocked it, and no signature goes under the old ones."""
    pushy = open_office(tmp_path, "Pushy research", town.server)
    pushy.succeed("ledger", "set", "people", "--epsilon", 100)
    office = town.office
    pushy.succeed("study", "propose", "--yes", town.write("Pushed", office))
    unknown = office.run("party", "block", "Pushy research")
    assert "you know no party" in assert_refused(unknown)
    blocked = office.json("party", "block", "Pushy research", "--study", "Pushed")
    assert blocked["party"] == pushy.json("id", "show")["party"]
    signed = office.run("study", "sign", "Pushed", "--yes")
    assert "you have blocked 'Pushy research'" in assert_refused(signed, code=1)
    again = pushy.run("study", "propose", "--yes", town.write("Again", office), "--json")
    assert assert_refused(again, code=1)
    assert pushy.json("id", "show")["fingerprint"] in office.succeed("party", "list")
    office.succeed("party", "unblock", "Pushy research")
    assert office.json("party", "list")["blocked"] == []
    pushy.succeed("study", "propose", "--yes", town.folder / "Again.toml")
    said = office.succeed("party", "block", pushy.public)
    assert pushy.json("id", "show")["fingerprint"] in said  # names can look alike
    refused = office.run("party", "block", office.public)
    assert "is you" in assert_refused(refused)
