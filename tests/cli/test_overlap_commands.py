"""``veiltab overlap``, from the plan to the answer, over HTTP: two curators, then three."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support.commands import Office, Outcome, assert_refused, open_office, run, write_csv
from tests.support.servers import make_context, running
from veiltab.cli.main import main
from veiltab.errors import StateError
from veiltab.party.home import Home
from veiltab.party.remote import RemoteServer
from veiltab.wire.signed import Signed

pytestmark = pytest.mark.slow

PAIR, TRIPLE, OPEN = "Patients and taxpayers", "Three registers", "Never pushed"
SURE = 25.0
"""An ε so large that nearly everybody takes part, and the answer is right to a person or two."""


@dataclass(frozen=True)
class Town:
    """Three curators; the first two have counted, and all three have."""

    folder: Path
    hospital: Office
    taxes: Office
    schools: Office
    tables: dict[str, Path]
    proposed: dict[str, object]

    def push(self, who: Office, title: str, *options: object) -> Outcome:
        """Push a curator's ids."""
        return who.run("push", title, "--table", self.tables[who.name], "--id", "nr", *options)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """Return the curators, and go through both counts; the ids differ by case and spaces."""
    folder = tmp_path_factory.mktemp("town")
    with running(make_context(folder / "data")) as server:
        offices = [open_office(folder, name, server) for name in ("Hospital", "Taxes", "Schools")]
        hospital, taxes, schools = offices
        people = {"Hospital": range(300), "Taxes": range(100, 500), "Schools": range(0, 500, 2)}
        shown = {"Hospital": "P{}", "Taxes": " p{} ", "Schools": "p{}"}
        tables = {
            name: write_csv(
                folder / f"{name}.csv", ("nr",), [(shown[name].format(i),) for i in ids]
            )
            for name, ids in people.items()
        }
        for office in offices:
            office.succeed("ledger", "set", "people", "--epsilon", 60)
        alike = ("--normalise", "lowercase", "--normalise", "trim")
        proposed = hospital.json(
            "overlap", "propose", PAIR, "--with", taxes.public, "--epsilon", SURE, "--people", 200,
            *alike, "--yes",
        )  # fmt: skip
        found = Town(folder, hospital, taxes, schools, tables, proposed)
        taxes.succeed("study", "sign", PAIR, "--yes")
        assert found.push(hospital, PAIR, "--no-wait").code == 0
        assert found.push(taxes, PAIR, "--timeout", 30).code == 0
        assert found.push(hospital, PAIR, "--wait-release", "--timeout", 30).code == 0
        schools.succeed(
            "overlap", "propose", TRIPLE, "--with", taxes.public, "--with", hospital.public,
            "--epsilon", SURE, *alike, "--yes",
        )  # fmt: skip
        for office in (hospital, taxes):
            office.succeed("study", "sign", TRIPLE, "--yes")
        for office in (hospital, taxes):
            assert found.push(office, TRIPLE, "--no-wait").code == 0
        assert found.push(schools, TRIPLE, "--timeout", 30).code == 0
        assert found.push(hospital, TRIPLE, "--timeout", 30).code == 0
        assert found.push(taxes, TRIPLE, "--wait-release", "--timeout", 30).code == 0
        taxes.succeed("overlap", "propose", OPEN, "--with", "Hospital", "--epsilon", 0.1, "--yes")
        yield found


def test_two_curators_learn_how_many_they_have_in_common(town: Town) -> None:
    """Both the same, to a person or two, and again and again; for a table, with its share."""
    show = ("overlap", "show", PAIR, "--level", 1 - 1e-9)  # a right program fails this never
    answers = [who.json(*show) for who in (town.hospital, town.taxes) * 2]
    assert len({repr(sorted(answer.items())) for answer in answers}) == 1
    (answer,) = {answer["people"] for answer in answers}
    assert answer == pytest.approx(200, abs=100)  # the decoys of the plan blur it
    assert answers[0]["low"] <= 200 <= answers[0]["high"]
    own = town.hospital.json("overlap", "show", PAIR, "--table-size", 300)
    assert own["share"] == pytest.approx(min(1, answer / 300))
    text = town.hospital.succeed("overlap", "show", PAIR, "--table-size", 300)
    assert "in common" in text
    assert "tell nobody" in text


def test_three_curators_learn_about_all_of_them(town: Town) -> None:
    """Those whom all three hold: even numbers from 100 to 298."""
    show = ("overlap", "show", TRIPLE, "--level", 1 - 1e-9)  # a right program fails this never
    answers = [town.hospital.json(*show), town.schools.json(*show)]
    assert answers[0] == answers[1]
    assert answers[0]["low"] <= 100 <= answers[0]["high"]


def test_it_is_charged_like_a_study(town: Town) -> None:
    """At the signature, by its name and its kind; what does not fit is refused."""
    (ledger,) = town.hospital.json("ledger")["ledgers"]
    charged = {
        entry["title"]: (entry["epsilon"], entry["accounting"]) for entry in ledger["entries"]
    }
    assert charged == {PAIR: (SURE, "overlap-1"), TRIPLE: (SURE, "overlap-1")}
    refused = town.hospital.run(
        "overlap",
        "propose",
        "Too dear",
        "--with",
        town.taxes.public,
        "--epsilon",
        20,
        "--yes",
        "--json",
    )
    assert "exceeds what is left" in assert_refused(refused, code=1)
    assert len(town.hospital.json("ledger")["ledgers"][0]["entries"]) == 2


def test_a_count_is_shown_and_asked_for(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its budget, and who could learn what; what does not fit is not even asked."""
    propose = ("overlap", "propose", "Asked", "--with", town.taxes.public, "--epsilon")
    refused = assert_refused(town.hospital.run(*propose, 0.1))
    assert "needs to be confirmed" in refused
    monkeypatch.setattr("veiltab.cli.output.on_terminal", lambda: True)
    monkeypatch.setattr("veiltab.cli.party.on_terminal", lambda: False)
    asked: list[str] = []

    def refuse(question: str, **_: object) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr("click.confirm", refuse)
    dear = town.hospital.run(*propose, 20)
    assert "exceeds what is left" in assert_refused(dear, code=1)
    assert asked == []
    shown = town.hospital.run(*propose, 0.1)
    assert (shown.code, asked) == (130, ["Propose 'Asked', and sign it?"])
    assert "ε = 10 of 60 left before this study, 9.9 after" in shown.out
    assert "could learn" in shown.out
    assert "Asked" not in town.hospital.succeed("study", "list")


def test_what_is_proposed_says_what_to_expect(town: Town) -> None:
    """The plan, with its error, and who could learn what."""
    plan = town.proposed["plan"]
    assert isinstance(plan, dict)
    assert plan["people"] == 200
    assert plan["standard_error"] > 0
    terms = town.hospital.json("study", "show", OPEN)
    assert [coalition["who"] for coalition in terms["coalitions"]] == [
        "server",
        "curator",
        "server and curator",
    ]
    assert terms["plan"] is None
    text = town.hospital.succeed("study", "show", OPEN)
    assert "how many people do all curators have in common" in text
    assert "10,000 ±" in text


def test_a_dry_run_says_what_would_be_sent(town: Town) -> None:
    """Tokens, and no values; also before it is signed."""
    outcome = town.push(town.hospital, OPEN, "--dry-run")
    assert outcome.code == 0
    assert "tokens" in outcome.out
    assert "no values are sent" in outcome.out
    seen = json.loads(town.push(town.hospital, OPEN, "--dry-run", "--json").out)
    assert seen["plan"]["curators"] == 2


def test_there_is_no_number_before_everybody_has_pushed(town: Town) -> None:
    """It says what is missing; and a study of values has no such number."""
    refused = town.taxes.run("overlap", "show", OPEN)
    assert "proposed, and there is no number yet" in assert_refused(refused, code=1)


def test_nobody_can_be_granted_anything(town: Town) -> None:
    """An overlap count has no values and no researcher."""
    rivera = open_office(town.folder, "Rivera")
    refused = town.hospital.run("grant", PAIR, "--to", rivera.public)
    assert "no values to grant" in assert_refused(refused, code=1)
    refused = town.hospital.run("estimate", PAIR)
    assert "it has none" in assert_refused(refused, code=1)


def test_the_log_has_the_number(town: Town) -> None:
    """An audit compares it, with the uploads that it comes from."""
    audit = town.hospital.json("audit", PAIR)
    assert [entry["event"] for entry in audit["entries"]][-1] == "released"


def test_a_number_that_is_not_the_logged_one_is_refused(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that tells another number now than then is found out by anybody who asks twice."""
    honest = RemoteServer.overlap

    def lie(server: RemoteServer, study: bytes) -> object:
        signed = honest(server, study)
        return Signed(replace(signed.body, number=signed.body.number + 1), signed.signatures)

    monkeypatch.setattr(RemoteServer, "overlap", lie)
    monkeypatch.setattr("veiltab.party.evidence.verify_overlap", lambda *_: None)
    refused = town.hospital.run("overlap", "show", PAIR)
    assert "not the one in the study's audit log" in assert_refused(refused, code=1)


BAD = {
    "nobody": (("--epsilon", 1), "Missing option '--with'"),
    "no epsilon": (("--with", "Taxes"), "Missing option '--epsilon'"),
    "oneself": (("--with", "me.json", "--epsilon", 1), "no party"),
    "twice": (("--with", "Taxes", "--with", "Taxes", "--epsilon", 1), "named twice"),
    "epsilon zero": (("--with", "Taxes", "--epsilon", 0), "epsilon must be"),
    "epsilon too small": (("--with", "Taxes", "--epsilon", 1e-9), "too long to draw"),
    "nobody expected": (("--with", "Taxes", "--epsilon", 1, "--people", 0), "population"),
    "an unknown rule": (("--with", "Taxes", "--epsilon", 1, "--normalise", "upper"), "upper"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_proposals_cost_nothing(town: Town, name: str) -> None:
    """Each is refused with its cause, before anything is charged or sent."""
    options, problem = BAD[name]
    before = town.hospital.json("ledger")
    outcome = town.hospital.run("overlap", "propose", "Bad", *options, "--yes")
    assert outcome.code in (1, 2)
    assert problem in outcome.err
    assert "Traceback" not in outcome.err
    assert town.hospital.json("ledger") == before
    assert "Bad" not in town.hospital.succeed("study", "list")


def test_a_bad_push_sends_nothing(town: Town) -> None:
    """A column that is not there, an id twice, two columns for one."""
    town.hospital.succeed("study", "sign", OPEN, "--yes")
    twice = write_csv(town.folder / "twice.csv", ("nr",), [("p1",), ("p1",)])
    for options, problem in (
        (("--table", twice, "--id", "nr"), "share an id"),
        (("--table", town.tables["Hospital"], "--id", "none"), "none"),
        (("--table", town.tables["Hospital"], "--id", "nr", "--id", "nr"), "and you named 2"),
    ):
        refused = town.hospital.run("push", OPEN, *options, "--no-wait")
        assert (refused.code, refused.out) == (2, "")
        assert problem in refused.err.partition("hint: ")[0]
    status = town.hospital.json("study", "status", OPEN)
    assert not any(curator["aligned"] for curator in status["curators"])


def test_the_same_in_python(town: Town) -> None:
    """``Session.propose_overlap`` and ``Study.overlap``; the same proposal again is the same."""
    with Home(town.taxes.home).connect() as me:
        estimate = me.study(PAIR).overlap()
        asked = [me.propose_overlap("Again", ["Hospital"], 0.1) for _ in range(2)]
        assert asked[0].id == asked[1].id
        with pytest.raises(StateError, match="no number yet"):
            asked[0].overlap()
    assert estimate.as_dict()["people"] == town.taxes.json("overlap", "show", PAIR)["people"]


def test_a_plan_needs_no_home(capsys: pytest.CaptureFixture[str]) -> None:
    """What to expect of which ε, before anybody is asked."""
    with pytest.raises(SystemExit):
        main(["overlap", "plan", "--people", "10000", "--epsilon", "0.1"])
    assert "10,000 ± 744" in capsys.readouterr().out
    warned = run("overlap", "plan", "--people", "100", "--epsilon", "0.01")
    assert "Warning" in warned.out
    assert_refused(run("overlap", "plan", "--epsilon", "0.1", "--curators", "1"))
