"""A whole study by commands alone: two curators, a researcher, and a server that is real."""

import csv
import json
import os
import pty
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support.commands import (
    SAID,
    Office,
    assert_refused,
    open_office,
    run,
    write_csv,
    write_study,
)
from tests.support.servers import Server, make_context, running
from veiltab.protocol.verify import sign
from veiltab.protocol.witness import verify_equivocation
from veiltab.wire.audit import AuditHead, Equivocation
from veiltab.wire.bundles import unbundle
from veiltab.wire.codec import load

pytestmark = pytest.mark.slow

PEOPLE = 120
SMOKES = "Raucht er/sie, “heute”?"
INCOME = "Einkommen (T€)"
SMOKER = ("nein", "ja", "weiß nicht")
LEVELS = ("niedrig", "hoch")
INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from veiltab.cli.main import main
main(sys.argv[1:])
"""
"""Some test runners start their children deaf to Ctrl-C."""


@dataclass(frozen=True)
class Cast:
    """The parties of the tests, their tables, and how many people are in each cell."""

    server: Server
    folder: Path
    hospital: Office
    office: Office
    rivera: Office
    patients: Path
    taxes: Path
    truth: Counter[tuple[str, str]]

    def propose(self, title: str, **changes: object) -> str:
        """Let the hospital propose and the tax office sign a study; return its id."""
        options: dict[str, object] = {"researchers": [self.rivera.public.name]} | changes
        path = self.write(title, **options)
        found: str = self.hospital.json("study", "propose", "--yes", path)["study"]
        assert self.office.json("study", "sign", title, "--yes")["state"] == "open"
        return found

    def write(self, title: str, **changes: object) -> Path:
        """Write a study file of the hospital's."""
        curators = {
            "me": {SMOKES: SMOKER},
            self.office.public.name: {INCOME: LEVELS},
        }
        # With so large an ε nothing is left to chance: everybody is sampled, nobody perturbed.
        settings: dict[str, object] = {"epsilon": 50.0} | changes
        path = self.folder / f"{title}.toml"
        return write_study(path, curators, title=title, **settings)  # type: ignore[arg-type]

    def push(self, who: Office, study: str, *options: object) -> dict[str, object]:
        """Push a party's own table."""
        table, column = (
            (self.patients, "Pat. №") if who is self.hospital else (self.taxes, "person")
        )
        recode = ("--recode", self.folder / "recode.toml") if who is self.hospital else ()
        found: dict[str, object] = who.json(
            "push", study, "--table", table, "--id", column, *recode, *options
        )
        return found

    def release(self, study: str) -> None:
        """Push both tables and wait for the release."""
        assert self.push(self.hospital, study, "--no-wait")["pushed"] is False
        done = self.push(self.office, study)
        assert done["pushed"] is True
        done = self.push(self.hospital, study, "--wait-release", "--timeout", 30)
        assert done["state"] == "released"


@pytest.fixture(scope="module")
def cast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cast]:
    """Start a server, open three offices, and write the curators' tables."""
    folder = tmp_path_factory.mktemp("cast")
    with running(make_context(folder / "server")) as server:
        hospital = open_office(folder, "Krankenhaus Süd", server)
        office = open_office(folder, "Finanzamt", server)
        rivera = open_office(folder, "Dr. Rivera", server)
        for each in (hospital, office):
            each.succeed("ledger", "set", "people", "--epsilon", 10_000, "--delta", 0.01)
        yield _with_tables(server, folder, hospital, office, rivera)


def _with_tables(
    server: Server, folder: Path, hospital: Office, office: Office, rivera: Office
) -> Cast:
    smokers = [("0", "1", "")[(7 * i) % 5 % 3] for i in range(PEOPLE)]
    incomes = [LEVELS[(3 * i) % 7 % 2] for i in range(PEOPLE)]
    names = {"0": "nein", "1": "ja", "": "weiß nicht"}
    truth = Counter((names[s], level) for s, level in zip(smokers, incomes, strict=True))
    patients = write_csv(
        folder / "Patienten.csv",
        ("Pat. №", "SMK,2", "Straße"),
        [(f"p{i:03}", smokers[i], f"Weg {i}") for i in range(PEOPLE)],
    )
    patients.write_text(patients.read_text("utf-8").replace('""', ""), "utf-8")
    taxes = write_csv(
        folder / "taxes.csv",
        (INCOME, "person"),
        [(incomes[i], f"p{i:03}") for i in reversed(range(PEOPLE))],
    )
    (folder / "recode.toml").write_text(
        f'[attributes.{json.dumps(SMOKES, ensure_ascii=False)}]\ncolumn = "SMK,2"\n'
        'missing = "weiß nicht"\ncategories = {nein = "0", ja = "1"}\n',
        "utf-8",
    )
    return Cast(server, folder, hospital, office, rivera, patients, taxes, truth)


@pytest.fixture(scope="module")
def released(cast: Cast) -> str:
    """Release a study, and grant it to the researcher; return its title."""
    title = "Rauchen und Einkommen"
    study = cast.propose(title)
    cast.release(study)
    for curator in (cast.hospital, cast.office):
        curator.succeed("grant", title, "--to", cast.rivera.public)
    return title


def test_the_estimate_is_the_joint_table(cast: Cast, released: str, tmp_path: Path) -> None:
    """Every share is right, in the right cell, in JSON and in the CSV file."""
    path = tmp_path / "table.csv"
    found = cast.rivera.warned("estimate", released, "--csv", path)
    assert found["attributes"] == [
        {"name": SMOKES, "categories": list(SMOKER)},
        {"name": INCOME, "categories": list(LEVELS)},
    ]
    assert (found["population_size"], found["sample_size"]) == (PEOPLE, PEOPLE)
    assert (found["epsilon"], found["delta"]) == (50, 0)
    assert 40 < found["epsilon_with_curator"] < 50
    assert (found["mechanism"], found["published"]) == ("paper", None)
    cells = {(cell[SMOKES], cell[INCOME]): cell["share"] for cell in found["cells"]}
    assert len(cells) == 6
    for cell, share in cells.items():
        assert share == pytest.approx(cast.truth[cell] / PEOPLE, abs=1e-9)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["share"]) for row in rows] == [cell["share"] for cell in found["cells"]]


def test_the_estimate_for_people(cast: Cast, released: str) -> None:
    """The cells with their errors, and the promise beside them."""
    text = cast.rivera.succeed("estimate", released)
    assert "not for passing on" in text
    assert "120 of 120 respondents" in text
    assert "ε = 50" in text
    share = 100 * cast.truth["weiß nicht", "hoch"] / PEOPLE
    [line] = [line for line in text.splitlines() if line.split()[:3] == ["weiß", "nicht", "hoch"]]
    assert f"{share:.2f}%" in line


def test_one_attribute_alone(cast: Cast, released: str) -> None:
    """The marginal of the joint table."""
    found = cast.rivera.json("estimate", released, "--attribute", INCOME)
    shares = {cell[INCOME]: cell["share"] for cell in found["cells"]}
    high = sum(count for (_, level), count in cast.truth.items() if level == "hoch")
    assert shares["hoch"] == pytest.approx(high / PEOPLE, abs=1e-9)


def test_the_terms_are_shown_in_words(cast: Cast, released: str) -> None:
    """Everybody with a fingerprint, every category, the promise, and the budget."""
    found = cast.office.json("study", "show", released)
    assert [each["name"] for each in found["curators"]] == ["Krankenhaus Süd", "Finanzamt"]
    assert all(each["signed"] for each in found["curators"])
    assert found["curators"][0]["attributes"][0]["categories"] == list(SMOKER)
    assert (found["cells"], found["epsilon"], found["plan"]) == (6, 50, None)
    assert found["budgets"][0]["charged"] is True
    shown = cast.hospital.json("id", "show")
    assert found["curators"][0]["fingerprint"] == shown["fingerprint"]
    text = cast.office.succeed("study", "show", released)
    for word in (shown["fingerprint"], "weiß nicht", "ε = 50", "Dr. Rivera", "people: ε = "):
        assert word in text


def test_a_known_population_has_a_plan(cast: Cast) -> None:
    """The terms then say what will be sampled."""
    study = cast.propose("Mit Anzahl", lines=f"population = {PEOPLE}", epsilon=1.0)
    found = cast.hospital.json("study", "show", study)
    assert found["plan"]["population_size"] == PEOPLE
    sample = found["plan"]["sample_size"]
    assert f"{sample:,} rows" in cast.hospital.succeed("study", "show", study)


def test_a_study_that_says_less_than_a_guess_is_refused(cast: Cast) -> None:
    """Before anything is charged; whoever insists can propose it, and those who sign are told."""
    path = cast.write("Ein Mensch", lines=f"population = {PEOPLE}\nsample_size = 1", epsilon=0.1)
    refused = assert_refused(cast.hospital.run("study", "propose", "--yes", path))
    assert "would say less than a guess" in refused
    shown = cast.hospital.succeed("study", "propose", "--yes", path, "--anyway")
    warning = "to name the same share for every cell would be nearer to the truth than this release"
    assert f"Warning: {warning}." in " ".join(shown.split())
    shown = cast.office.succeed("study", "show", "Ein Mensch")
    assert f"Warning: {warning}." in " ".join(shown.split())
    assert cast.office.json("study", "show", "Ein Mensch")["warnings"] == [warning]
    assert cast.office.json("study", "sign", "Ein Mensch", "--yes")["warnings"] == [warning]


def test_a_delta_is_named_with_its_price_and_its_gain(cast: Cast) -> None:
    """Signing takes δ as well; with a δ nobody has to be left out."""
    lines = f"delta = 1e-6\npopulation = {PEOPLE}"
    path = cast.write("Mit δ", mechanism="decoys", lines=lines, epsilon=1.0)
    cast.hospital.succeed("study", "propose", "--yes", path)
    text = " ".join(cast.office.succeed("study", "show", "Mit δ").split())
    assert " and δ = 0.01 of 0.01 left before this study, " in text
    assert " and 0.009999 after" in text
    assert "invented records that only the curators can tell: every respondent takes part" in text


def test_whoever_signs_is_warned_of_a_large_delta_too(cast: Cast) -> None:
    """The contract does not say how many respondents the proposer expects."""
    for mechanism, about in (("decoys", f"expected_population = {PEOPLE}"), ("shuffle", "")):
        title, lines = f"Viel δ, {mechanism}", f"delta = 1e-3\n{about}"
        path = cast.write(title, mechanism=mechanism, lines=lines, epsilon=1.0)
        proposed = cast.hospital.json("study", "propose", "--yes", path)["warnings"]
        (warning,) = cast.office.json("study", "show", title)["warnings"]
        assert proposed == ([] if about else [warning])
        assert warning.startswith("δ = 0.001 is above 1/n for more than 1,000 respondents: ")
        text = " ".join(cast.office.succeed("study", "show", title).split())
        assert f"Warning: {warning}." in text


def test_studies_are_listed_and_found(cast: Cast, released: str) -> None:
    """By title, by id and by the first digits of the id."""
    [study] = [
        each for each in cast.rivera.json("study", "list")["studies"] if each["title"] == released
    ]
    assert (study["state"], study["role"]) == ("released", "researcher")
    for name in (released, study["study"], study["study"][:12]):
        found = cast.hospital.json("study", "status", name)
        assert found["study"] == study["study"]
        assert all(each["uploaded"] for each in found["curators"])
    assert released in cast.office.succeed("study", "list")
    assert "pushed" in cast.office.succeed("study", "status", released)
    assert cast.rivera.json("study", "status", released)["granted"] == [SMOKES, INCOME]


def test_waiting_for_a_state(cast: Cast, released: str) -> None:
    """One that is reached is not waited for; one that is not ends after the timeout."""
    found = cast.hospital.json("study", "status", released, "--wait", "open")
    assert found["state"] == "released"
    study = cast.propose("Niemand kommt")
    outcome = cast.hospital.run("study", "status", study, "--wait", "released", "--timeout", 0.2)
    assert "the study is open after 0.2 seconds" in assert_refused(outcome, code=1)
    assert "not pushed yet by: Krankenhaus Süd, Finanzamt" in outcome.err


def test_the_log_names_everybody(cast: Cast, released: str) -> None:
    """From the proposal to the grants, verified, and remembered."""
    found = cast.rivera.json("audit", released)
    events = [(each["name"], each["event"]) for each in found["entries"]]
    assert events[:2] == [("Krankenhaus Süd", "proposed"), ("Krankenhaus Süd", "signed")]
    assert ("server", "released") in events
    assert events[-1] == ("Finanzamt", "granted")
    assert found["length"] == len(events)
    assert "The log is whole." in cast.rivera.succeed("audit", released)


def test_parties_compare_what_they_were_shown(cast: Cast, released: str, tmp_path: Path) -> None:
    """By file and through the server; a head that the server has signed otherwise is a proof."""
    head, proof = tmp_path / "head.json", tmp_path / "proof.json"
    cast.hospital.succeed("audit", released, "--head-out", head)
    found = cast.rivera.json("audit", released, "--compare", head, "--proof", proof)
    seen = {witness["who"]: witness["verdict"] for witness in found["witnesses"]}
    assert seen[str(head)] == seen["Krankenhaus Süd"] == "same"
    assert "Krankenhaus Süd was shown the same log." in cast.rivera.succeed("audit", released)
    said = cast.rivera.succeed("audit", released, "--compare", head)
    assert f"Whoever wrote {head} was shown the same log." in said
    assert not proof.exists()
    signed = AuditHead.loads(head.read_bytes())
    other = sign(replace(signed.body, hash=bytes(32)), cast.server.context.key)
    lie = tmp_path / "lie.json"
    lie.write_bytes(other.dumps())
    outcome = cast.rivera.run("audit", released, "--compare", lie, "--proof", proof)
    error = assert_refused(outcome, code=1)
    assert "two different logs" in error
    assert signed.body.hash.hex() in error
    proved = Equivocation.from_json(load(proof.read_bytes()))
    verify_equivocation(proved, cast.server.context.identity.signing_key)


def test_a_log_that_was_cut_is_an_error(cast: Cast) -> None:
    """The home remembers how far the log went."""
    study = cast.propose("Gekürzt")
    cast.hospital.succeed("audit", study)
    path = cast.hospital.home / "studies" / study / "audit.json"
    seen = json.loads(path.read_text())
    path.write_text(json.dumps(seen | {"length": 99}, separators=(",", ":"), sort_keys=True))
    error = assert_refused(cast.hospital.run("audit", study), code=1)
    assert "audit log is broken" in error


def test_a_dry_run_sends_nothing(cast: Cast) -> None:
    """The server has no alignment and no chunk; the numbers are those of the push itself."""
    study = cast.propose("Probe")
    found = cast.push(cast.office, study, "--dry-run")
    check = ("study", "check", study, "--table", cast.taxes, "--id", "person")
    assert cast.office.json(*check) == found
    status = cast.office.json("study", "status", study)
    assert not any(each["aligned"] or each["uploaded"] for each in status["curators"])
    folder = cast.server.context.folders.path / "studies" / study
    assert not folder.exists()
    plan = found["plan"]
    assert isinstance(plan, dict)
    assert (found["respondents"], plan["sample_size"]) == (PEOPLE, PEOPLE)
    shown = cast.office.json("study", "show", study)
    assert (found["budgets"], found["coalitions"]) == (shown["budgets"], shown["coalitions"])
    assert (found["fits"], found["problems"], found["offenders"]) == (True, [], [])
    cast.push(cast.hospital, study, "--no-wait")
    assert cast.push(cast.office, study)["state"] == "open"
    files = [path for path in (folder / "received").rglob("*") if path.is_file()]
    sent = [chunk for path in files for _, chunk in unbundle(path.read_bytes())]
    size = sum(map(len, sent))
    assert (len(sent), size) == (found["expected_chunks"], found["expected_bytes"])


def test_a_dry_run_for_people(cast: Cast) -> None:
    """What would leave, at what cost, and that nothing did."""
    study = cast.propose("Probe, gelesen")
    text = cast.office.succeed("push", study, "--table", cast.taxes, "--id", "person", "--dry-run")
    for words in ("120 respondents", "120 encrypted rows in 1 chunk,", "ε = 50", "nothing"):
        assert words in text


def test_pushing_again_changes_nothing(cast: Cast, released: str) -> None:
    """The same command after the release says so; it needs no table, but takes no other."""
    text = cast.office.succeed("push", released, "--table", cast.taxes, "--id", "person")
    assert "read as CSV, commas, UTF-8, decimal point, header in line 1" in " ".join(text.split())
    found = cast.office.json("push", released)
    assert (found["state"], found["pushed"], found["waiting_for"]) == ("released", True, [])
    assert {**cast.push(cast.office, released), "table": None} == found
    rows = [("hoch", f"p{i:03}") for i in range(PEOPLE)]
    other = write_csv(cast.folder / "other.csv", (INCOME, "person"), rows)
    outcome = cast.office.run("push", released, "--table", other, "--id", "person")
    assert "not the table that was pushed" in assert_refused(outcome, code=1)


def test_one_time_pads_go_by_hand(cast: Cast, tmp_path: Path) -> None:
    """The grant needs a file, which is private, and the estimate needs all of them."""
    study = cast.propose("Einmal", lines='pads = "one-time"')
    cast.release(study)
    refused = cast.office.run("grant", study, "--to", "Dr. Rivera")
    assert "one-time pads" in assert_refused(refused)
    files = [tmp_path / "a.grant", tmp_path / "b.grant"]
    for curator, path in zip((cast.hospital, cast.office), files, strict=True):
        found = curator.json("grant", study, "--to", "Dr. Rivera", "--out", path)
        assert found["file"] == str(path)
        assert path.stat().st_mode & 0o777 == 0o600
    again = cast.office.run("grant", study, "--to", "Dr. Rivera", "--out", files[0])
    assert "exists already" in assert_refused(again, code=1)
    estimated = cast.rivera.json("estimate", study, "--grant", files[0], "--grant", files[1])
    for cell in estimated["cells"]:
        expected = cast.truth[cell[SMOKES], cell[INCOME]] / PEOPLE
        assert cell["share"] == pytest.approx(expected, abs=1e-9)
    alone = cast.rivera.run("estimate", study, "--attribute", INCOME, "--grant", files[0])
    assert f"you have no grant for: '{INCOME}'" in assert_refused(alone, code=1)


def test_the_server_matches(cast: Cast) -> None:
    """Nobody waits for anybody, and the release has those whom all curators hold."""
    study = cast.propose("Server verbindet", linkage='by = "ids"\nmode = "matched"')
    assert cast.push(cast.office, study)["waiting_for"] == ["Krankenhaus Süd"]
    assert cast.push(cast.hospital, study, "--wait-release")["state"] == "released"


def test_waiting_for_the_others_has_an_end(cast: Cast) -> None:
    """Nothing is lost: the same command later does it."""
    study = cast.propose("Warten")
    push = ("push", study, "--table", cast.taxes, "--id", "person")
    outcome = cast.office.run(*push, "--timeout", 0.2)
    error = assert_refused(outcome, code=1)
    assert "still waiting for 'Krankenhaus Süd' to push, after 0.2 seconds" in error
    found = cast.office.json(*push, "--no-wait")
    assert (found["pushed"], found["waiting_for"]) == (False, ["Krankenhaus Süd"])
    assert cast.push(cast.hospital, study)["pushed"] is True
    assert cast.office.json(*push, "--wait-release")["state"] == "released"


def test_ctrl_c_while_waiting_is_safe(cast: Cast) -> None:
    """A terminal is told so; no scratch file stays, and the same command goes on later."""
    study = cast.propose("Strg-C")
    push = ("push", study, "--table", cast.taxes, "--id", "person")
    master, slave = pty.openpty()
    arguments = map(str, (*push, "--home", cast.office.home))
    command = [sys.executable, "-c", INTERRUPTIBLE, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave) as process:  # noqa: S603
        os.close(slave)
        shown = b""
        while b"Ctrl-C is safe" not in shown:
            shown += os.read(master, 1 << 16)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    os.close(master)
    assert b"Waiting for Krankenhaus" in shown
    assert (process.returncode, out) == (130, b"")
    assert not list(cast.office.home.rglob("partition-*"))
    cast.push(cast.hospital, study)
    assert cast.office.json(*push)["pushed"] is True


def test_tables_of_different_people(cast: Cast, tmp_path: Path) -> None:
    """The curators find out before anything is encrypted or sent."""
    study = cast.propose("Andere Leute")
    cast.push(cast.hospital, study, "--no-wait")
    table = write_csv(tmp_path / "t.csv", (INCOME, "person"), [("hoch", "p001"), ("hoch", "x")])
    outcome = cast.office.run("push", study, "--table", table, "--id", "person")
    counts = f"Krankenhaus Süd: {PEOPLE} respondents, Finanzamt: 2"
    assert counts in assert_refused(outcome, code=1)
    status = cast.office.json("study", "status", study)
    assert not any(each["uploaded"] for each in status["curators"])
    assert status["alignment"]["aligned"] is False
    assert counts in status["alignment"]["difference"]
    assert [each["respondents"] for each in status["alignment"]["curators"]] == [PEOPLE, 2]
    shown = " ".join(cast.hospital.succeed("study", "status", study).split())
    assert f"not aligned the curators do not hold the same respondents. {counts}" in shown
    assert cast.rivera.json("study", "status", study)["alignment"] is None
    assert cast.push(cast.office, study, "--no-wait")["pushed"] is False  # corrected
    assert cast.push(cast.hospital, study)["pushed"] is True
    assert cast.push(cast.office, study)["pushed"] is True


def test_half_of_the_grants(cast: Cast) -> None:
    """What one curator has granted can be estimated; the rest names whom to ask."""
    study = cast.propose("Halb")
    cast.release(study)
    outcome = cast.rivera.run("estimate", study)
    assert "no grant of yours is good now" in assert_refused(outcome, code=1)
    granted = cast.hospital.json("grant", study, "--to", "Dr. Rivera", "--attribute", SMOKES)
    assert granted["attributes"] == [SMOKES]
    assert len(cast.rivera.json("estimate", study)["cells"]) == len(SMOKER)
    outcome = cast.rivera.run("estimate", study, "--attribute", INCOME)
    assert f"'{INCOME}' (Finanzamt)" in assert_refused(outcome, code=1)
    stranger = cast.hospital.run("grant", study, "--to", cast.office.public)
    assert "cannot be its researcher" in assert_refused(stranger, code=1)


def test_a_study_is_ended(cast: Cast) -> None:
    """With a reason that everybody sees; pushing to it is refused before the table is read."""
    study = cast.propose("Schluss")
    refused = cast.office.run("study", "abort", study, "--reason", "falsche Tabelle")
    assert "there is no terminal" in assert_refused(refused)
    cast.office.succeed("study", "abort", study, "--reason", "falsche Tabelle", "--yes")
    assert "falsche Tabelle" in cast.hospital.json("study", "status", study)["reason"]
    pushed = cast.hospital.run("push", study, "--table", "absent.csv", "--id", "x")
    assert "the study is aborted: Finanzamt: falsche Tabelle" in assert_refused(pushed, code=1)
    waited = cast.hospital.run("study", "status", study, "--wait", "released")
    assert "aborted and will not be released" in assert_refused(waited, code=1)
    refund = ("ledger", "refund", study, "--reason", "falsche Tabelle")
    assert "there is no terminal" in assert_refused(cast.hospital.run(*refund))
    [before] = cast.hospital.json("ledger")["ledgers"]
    after = cast.hospital.json(*refund, "--yes")
    assert after["epsilon_left"] == before["epsilon_left"] + 50
    [entry] = [each for each in after["entries"] if each["study"] == study]
    assert (entry["refund"]["basis"], entry["refund"]["done"]) == ("nothing-sent", True)
    assert "Schluss: falsche Tabelle (nothing of the table" in cast.hospital.succeed("ledger")
    again = assert_refused(cast.hospital.run(*refund, "--yes"), code=1)
    assert "refunded already" in again
    signed = cast.hospital.run("study", "sign", study, "--yes")
    assert "the study is aborted" in signed.err


def test_the_same_proposal_again_is_the_same_study(cast: Cast) -> None:
    """An interrupted proposal is taken up, and charged once."""
    path = cast.write("Zweimal")
    first, again = (
        cast.hospital.json("study", "propose", "--yes", path)["study"] for _ in range(2)
    )
    assert first == again
    [ledger] = cast.hospital.json("ledger")["ledgers"]
    assert [each["title"] for each in ledger["entries"]].count("Zweimal") == 1


def test_a_study_file_is_drafted(cast: Cast, tmp_path: Path) -> None:
    """From the columns of a table; nothing is sent, and the recode file is private."""
    table = write_csv(
        tmp_path / "t.csv", ("nr", "größe"), [(i, ("S", "M", "")[i % 3]) for i in range(30)]
    )
    table.write_text(table.read_text("utf-8").replace('""', ""), "utf-8")
    before = cast.hospital.json("study", "list")
    study, recode = tmp_path / "s.toml", tmp_path / "r.toml"
    draft = ("study", "propose", "--from", table)
    cast.hospital.succeed(*draft, "--out", study, "--recode-out", recode)
    assert '{name = "größe", categories = ["M", "S", "(missing)"]}' in study.read_text("utf-8")
    assert "(missing)" in recode.read_text("utf-8")
    assert recode.stat().st_mode & 0o777 == 0o600
    assert cast.hospital.succeed(*draft) == study.read_text("utf-8")
    assert cast.hospital.json(*draft)["recode_file"] == recode.read_text("utf-8")
    refused = cast.hospital.run(*draft, "--out", study)
    assert "exists already" in assert_refused(refused, code=1)
    assert cast.hospital.json("study", "list") == before


def test_a_recode_file_is_drafted_for_a_study(cast: Cast, tmp_path: Path) -> None:
    """From the contract or its file; it is private, complete where nothing is left to decide."""
    path = cast.write("Entwurf")
    study = cast.hospital.json("study", "propose", path, "--yes")["study"]
    table = write_csv(
        tmp_path / "t.csv", ("Nr ", SMOKES), [(f"A{i} ", ("JA", "Nein")[i % 2]) for i in range(30)]
    )
    recode = tmp_path / "r.toml"
    draft = ("recode", "draft", table)
    outcome = cast.hospital.run(*draft, "--study", study, "--out", recode)
    assert outcome.code == 0
    assert "warning: some ids in 'Nr ' have spaces at their ends" in outcome.err
    assert recode.stat().st_mode & 0o777 == 0o600
    written = recode.read_text("utf-8")
    assert 'fold = ["nfc", "trim", "lowercase"]' in written
    assert "FILL IN" not in written
    found = cast.hospital.json(*draft, "--study", path)
    assert found["recode_file"] == written
    assert len(found["warnings"]) == 1
    assert f"name = {json.dumps(SMOKES, ensure_ascii=False)}" in cast.hospital.run(*draft).out
    mine = cast.hospital.json(*draft, "--study", study, "--column", f"{SMOKES}=Nr ")
    assert 'column = "Nr "' in mine["recode_file"]
    for options, problem in (
        (("--study", study, "--attribute", "x"), "either --study or --attribute"),
        (("--attribute", "x"), "has no column 'x'"),
        (("--study", "absent.toml"), "absent.toml"),
        (("--out", recode), "exists already"),
    ):
        refused = cast.hospital.run(*draft, *options)
        assert problem in assert_refused(refused, code=1 if "--out" in options else 2)
    assert "no table is named" in assert_refused(cast.hospital.run("recode", "draft"), code=2)
    cast.hospital.succeed("study", "abort", study, "--reason", "nur ein Entwurf", "--yes")


def test_the_example_is_a_study_file() -> None:
    """It is printed as it is, to be redirected into a file."""
    outcome = run("study", "example")
    assert (outcome.code, outcome.err) == (0, "")
    assert 'title = "Smoking and income"' in outcome.out
    assert json.loads(run("study", "example", "--json").out)["study_file"] == outcome.out


def test_no_secret_was_ever_printed(cast: Cast, released: str) -> None:
    """Neither keys, nor studies' secrets, nor pads, nor invitations; and files are private."""
    study = cast.hospital.json("study", "status", released)["study"]
    folder = cast.hospital.home / "studies" / study
    (key,) = json.loads((cast.hospital.home / "identity.key").read_text())["keys"]
    files = [
        json.loads((folder / f"{name}.json").read_text()) for name in ("secret", "contribution")
    ]
    secrets = [key["signing_key"], key["sealing_key"], *(file["secret"] for file in files)]
    secrets += json.loads((folder / "prepared.json").read_text())["keys"]
    secrets += [path.read_text().strip() for path in cast.folder.glob("*.code")]
    assert len(secrets) == 8
    printed = "".join(SAID)
    assert released in printed
    assert not [secret for secret in secrets if secret in printed]
    for office in (cast.hospital, cast.office, cast.rivera):
        for path in office.home.rglob("*"):
            assert path.stat().st_mode & 0o077 == 0, path
