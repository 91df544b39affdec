"""A messy run by commands: three offices with tables as they are, and a mistake at every step.

A hospital's CSV file, taxes in PostgreSQL and a workbook of schools are about overlapping people;
nobody edits a table.  Three contracts follow each other:

* an overlap count tells whether a study is worth it;
* a study in which the server matches: there only digests of decoys are compared, so a wrong export
  shows to nobody but its owner.  The hospital notices by itself, before anything but a digest was
  sent, and pushes the right one;
* a study of a cohort whom two of them hold.  Here respondents are compared, so the wrong export
  shows to everybody, and is corrected.

The parties draw their own randomness, so every statistical check says how often a correct program
fails it.  All of them together: less than once in 10,000 runs.
"""

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.commands import Office, Outcome, assert_refused, open_office, run
from tests.support.messy import (
    COMMON,
    HOSPITAL,
    People,
    write_hospital,
    write_schools,
    write_taxes,
)
from tests.support.servers import Server, make_context, running
from tests.support.storage import LocalPostgreSQL
from veiltab.hosting import server_identity
from veiltab.server.directory import DataDirectory

pytestmark = pytest.mark.slow

COUNT, STUDY, COHORT, SLIP = "In common", "Illness and income", "The cohort", "The chohort"
ERRORS, PRIVACY_ERRORS = 5, 15
"""How far off an answer may be, in standard errors.

Sampling is nearly normal, and exceeds five once in 1.7 million.  The number of decoys in a cell is
geometric, with a mean of 0.44 and 0.59 in the two studies: fifteen standard errors are 12 and 15
records, which it exceeds less than once in four million.  There are 56 cells."""

AGES = ["<40", "40 to <65", ">=65", "unknown"]
IDS = ["trim", "lowercase"]
IN_COHORT = "SELECT * FROM returns WHERE taxpayer BETWEEN 'ABC-001500' AND 'ABC-006499'"

HOSPITAL_RECODE = """\
duplicates = "identical"

[attributes.diagnosis]
column = "Hauptdiagnose"
fold = ["trim", "lowercase"]
else = "other"
[attributes.diagnosis.categories]
cancer = "C*"

[attributes.age]
column = "Alter"
bins = [40, 65]
missing = "unknown"
missing_values = ["n/a"]
"""
SCHOOLS_RECODE = """\
[attributes.degree]
column = "Abschluss"
fold = ["trim", "lowercase"]
else = "no"
[attributes.degree.categories]
yes = "degree"
"""


@dataclass(frozen=True)
class Run:
    """The parties, in the order of the study file, and how each names its table."""

    folder: Path
    people: People
    hospital: Office
    taxes: Office
    schools: Office
    rivera: Office
    tables: Mapping[str, tuple[object, ...]]

    def recode(self, who: Office, text: str) -> None:
        """Write the recode file of an office, as its data officer would."""
        (self.folder / f"{who.home.name}.toml").write_text(text, "utf-8")

    def table(self, who: Office, *instead: object, recoded: bool = True) -> tuple[object, ...]:
        """Return the options that name a table: the office's own, or another one."""
        named = self.tables[who.name]
        recode = ("--recode", self.folder / f"{who.home.name}.toml") if recoded else ()
        return (*(instead or named[:-2]), *named[-2:], *recode)

    def check(self, who: Office, study: object, *options: object) -> Outcome:
        """Check a table against a study."""
        return who.run("study", "check", study, *options)

    def push(self, who: Office, study: str, *options: object) -> Any:  # noqa: ANN401 - JSON
        """Push a table, which must be taken."""
        outcome = who.run("push", study, *options, "--timeout", 60, "--json")
        assert outcome.code == 0, outcome.err
        return json.loads(outcome.out)

    def left(self, who: Office) -> float:
        """Return the ε that is left to an office."""
        (ledger,) = who.json("ledger")["ledgers"]
        return float(ledger["epsilon_left"])


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory, postgresql: LocalPostgreSQL) -> Iterator[Run]:
    """Return everybody with a table, registered by a file that the operator has mailed."""
    folder, people = tmp_path_factory.mktemp("messy"), People.draw()
    identity = server_identity(DataDirectory(folder / "data"), None)
    with (
        postgresql.new_database() as address,
        running(make_context(folder / "data", identity=identity)) as server,
    ):
        write_taxes(address, people)
        secret = folder / "taxes.url"
        secret.write_text(f"{address}\n")
        secret.chmod(0o600)
        names = ("City hospital", "Tax office", "School board", "Dr. Rivera")
        export = write_hospital(folder / "export.csv", people)
        workbook = write_schools(folder / "schools.xlsx", people)
        tables = {
            names[0]: ("--table", export, "--id", "Patienten-Nr"),
            names[1]: ("--table-file", secret, "--query", "returns", "--id", "taxpayer"),
            names[2]: ("--table", workbook, "--id", "Schüler"),
        }
        hospital, taxes, schools, rivera = (_enrol(folder, server, name) for name in names)
        for office in (hospital, taxes, schools):
            office.succeed("ledger", "set", "everybody", "--epsilon", 20)
        yield Run(folder, people, hospital, taxes, schools, rivera, tables)


def _enrol(folder: Path, server: Server, name: str) -> Office:
    """Invite a party by a file; it registers only with what it was told by telephone."""
    office = open_office(folder, name)
    file = folder / f"{office.home.name}.invitation"
    invite = ("server", "invite", "--data", folder / "data", name, "--url", server.url)
    told = json.loads(run(*invite, "--out", file, "--json").out)["server_fingerprint"]
    wrong = ("--server-fingerprint", "0" * 30)
    assert "not 00000" in assert_refused(office.run("register", file, *wrong), code=1)
    office.succeed("register", file, "--server-fingerprint", told)
    return office


def write_terms(path: Path, title: str, lines: str, *curators: str) -> Path:
    """Write a study file as the hospital would."""
    ages = json.dumps(AGES)
    own = f"""\
title = "{title}"
epsilon = 6.0
{lines}
normalisation = {json.dumps(IDS)}
[[curators]]
identity = "me"
attributes = [
    {{name = "diagnosis", categories = ["cancer", "other"]}},
    {{name = "age", categories = {ages}}},
]
"""
    path.write_text(own + "".join(curators) + '[[researchers]]\nidentity = "drrivera.json"\n')
    return path


def curator(file: str, name: str, *categories: str) -> str:
    """Return another curator's part of a study file."""
    attribute = f'{{name = "{name}", categories = {json.dumps(categories)}}}'
    return f'[[curators]]\nidentity = "{file}"\nattributes = [{attribute}]\n'


TAXES = curator("taxoffice.json", "income", "<40000", ">=40000")
ALIGNED = 'expected_population = 5000\n[linkage]\nby = "ids"'
MATCHED = f'{ALIGNED}\nmode = "matched"'


def test_the_messy_run(messy: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first count to the last estimate; offenders' files go to the working folder."""
    monkeypatch.chdir(messy.folder)
    _count(messy)
    _agree(messy)
    _push_matched(messy)
    _estimate(messy)
    _abort_and_refund(messy)
    _cohort(messy)
    assert [messy.left(who) for who in (messy.hospital, messy.taxes, messy.schools)] == [
        7.5,
        7.5,
        13.5,
    ]
    _tables_are_as_they_were(messy)


def _count(messy: Run) -> None:
    """Count first: repeated ids are refused with their rows, until a rule is named."""
    others = ("--with", messy.taxes.public, "--with", messy.schools.public)
    alike = ("--normalise", "trim", "--normalise", "lowercase")
    propose = ("overlap", "propose", COUNT, *others, *alike, "--epsilon", 0.5, "--people", 4000)
    messy.hospital.succeed(*propose, "--yes")
    for who in (messy.taxes, messy.schools):
        who.succeed("study", "sign", COUNT, "--yes")
    hospital, taxes, schools = (
        messy.table(who, recoded=False) for who in (messy.hospital, messy.taxes, messy.schools)
    )
    refused = messy.hospital.run("push", COUNT, *hospital, "--no-wait")
    assert (refused.code, refused.out) == (2, "")
    assert "1,300 rows share an id with another row, such as rows 1, 2" in refused.err
    hospital += ("--duplicates", "identical")
    messy.push(messy.hospital, COUNT, *hospital, "--no-wait")
    messy.push(messy.taxes, COUNT, *taxes, "--no-wait")
    messy.push(messy.schools, COUNT, *schools)
    messy.push(messy.hospital, COUNT, *hospital)
    messy.push(messy.taxes, COUNT, *taxes, "--wait-release")
    answers = [who.json("overlap", "show", COUNT) for who in (messy.hospital, messy.schools)]
    assert answers[0] == answers[1]
    people, error = answers[0]["people"], answers[0]["standard_error"]
    assert abs(people - len(COMMON)) <= ERRORS * error
    assert error < 150
    assert answers[0]["low"] <= people <= answers[0]["high"]


def _agree(messy: Run) -> None:
    """Draft, complete and check, by the file first; nothing is charged before all of it fits."""
    schools = curator("FILL-IN.json", "degree", "no", "yes")
    file = write_terms(messy.folder / "study.toml", STUDY, MATCHED, TAXES, schools)
    hospital, export = messy.hospital, messy.folder / "export.csv"
    bare = messy.table(hospital, recoded=False)
    assert "it says FILL IN on line" in assert_refused(messy.check(hospital, file, *bare))
    file.write_text(file.read_text().replace("FILL-IN", "schoolboard"))
    refused = messy.check(hospital, file, *bare)
    assert "the table has no columns 'diagnosis', 'age'" in refused.err
    assert "`veiltab recode draft` writes one" in refused.err

    draft = hospital.run("recode", "draft", export, "--study", file)
    assert draft.out.count('column = "FILL IN"') == 2
    for words in ("read as CP1252", "normalisation trim", "normalisation lowercase"):
        assert words in draft.err
    messy.recode(hospital, draft.out)
    assert "it says FILL IN" in messy.check(hospital, file, *messy.table(hospital)).err
    messy.recode(hospital, HOSPITAL_RECODE)
    _offenders(messy, file)
    messy.recode(hospital, HOSPITAL_RECODE.replace('"n/a"', '"n/a", "unbekannt"'))
    checked = messy.check(hospital, file, *messy.table(hospital))
    assert checked.code == 0
    for words in (
        "CSV, semicolons, CP1252, decimal comma, header in line 1",
        "6,500 respondents, and every row fits",
        "650 rows with an id that repeats",
        "everybody: ε = 19.5 of 20 left before this study, 13.5 after",
    ):
        assert words in checked.out
    assert messy.left(hospital) == 19.5

    unasked = assert_refused(hospital.run("study", "propose", file))
    assert "needs to be confirmed" in unasked
    hospital.succeed("study", "propose", file, "--yes")
    _check_before_signing(messy)


def _offenders(messy: Run, file: Path) -> None:
    """Every row that does not fit is in a file, for the hospital alone."""
    refused = messy.check(messy.hospital, file, *messy.table(messy.hospital))
    assert refused.code == 2
    assert "'unbekannt' in 199 rows" in refused.err
    with (messy.folder / "export-offenders.csv").open(newline="", encoding="utf-8") as lines:
        found = list(csv.DictReader(lines))
    assert len(found) == 199
    assert {(row["column"], row["value"], row["problem"]) for row in found} == {
        ("Alter", "unbekannt", "no category")
    }


def _check_before_signing(messy: Run) -> None:
    """Let the others draft from the proposal, and check; what is certain needs no completion."""
    source = messy.table(messy.taxes, recoded=False)[:-2]
    messy.recode(
        messy.taxes,
        messy.taxes.json("recode", "draft", *source, "--study", "illness")["recode_file"],
    )
    wrong = messy.check(messy.schools, STUDY, *messy.table(messy.schools, recoded=False))
    assert "the table has no column 'degree'" in wrong.err
    messy.recode(messy.schools, SCHOOLS_RECODE.replace('else = "no"\n', ""))
    wrong = messy.check(messy.schools, STUDY, *messy.table(messy.schools))
    for words in ("'none' in 1,", "'School' in 1,", "' school' in 1,"):
        assert words in wrong.err
    messy.recode(messy.schools, SCHOOLS_RECODE)
    for who, respondents, form in (
        (messy.taxes, 6_500, "PostgreSQL"),
        (messy.schools, 6_000, "XLSX, sheet 'Sheet1', header in row 1"),
    ):
        checked = messy.check(who, STUDY, *messy.table(who))
        assert (checked.code, checked.err) == (0, "")
        assert f"{respondents:,} respondents, and every row fits" in checked.out
        assert form in checked.out
        assert messy.left(who) == 19.5
    early = messy.hospital.run("push", STUDY, *messy.table(messy.hospital), "--no-wait")
    assert "missing: 'Tax office', 'School board'" in assert_refused(early, code=1)
    assert "you have signed" in early.err
    for who in (messy.taxes, messy.schools):
        who.succeed("study", "sign", STUDY, "--yes")


def _push_matched(messy: Run) -> None:
    """Push a wrong export, and notice before more than a digest has left; later is too late."""
    healthy = replace(messy.people, ill=~messy.people.ill)
    export = write_hospital(messy.folder / "wrong.csv", healthy)
    wrong = messy.table(messy.hospital, "--table", export)
    assert messy.push(messy.hospital, STUDY, *wrong, "--no-wait")["pushed"] is False
    messy.push(messy.taxes, STUDY, *messy.table(messy.taxes), "--no-wait")
    assert (
        messy.push(messy.hospital, STUDY, *messy.table(messy.hospital), "--no-wait")["pushed"]
        is False
    )
    messy.push(messy.schools, STUDY, *messy.table(messy.schools))
    assert messy.push(messy.hospital, STUDY, *messy.table(messy.hospital))["pushed"] is True
    late = messy.hospital.run("push", STUDY, *wrong)
    assert late.code == 1
    assert "not the table that was pushed to this study before" in late.err
    messy.push(messy.taxes, STUDY, *messy.table(messy.taxes), "--wait-release")


def _estimate(messy: Run) -> None:
    """Find every share right; without a grant of each curator the server serves nothing."""
    for who in (messy.hospital, messy.taxes):
        who.succeed("grant", STUDY, "--to", "Dr. Rivera")
    missing = assert_refused(messy.rivera.run("estimate", STUDY), code=1)
    assert "you have none that is good now from: School board" in missing
    messy.schools.succeed("grant", STUDY, "--to", "Dr. Rivera")
    estimate = messy.rivera.json("estimate", STUDY)
    in_common = estimate["people_in_common"]
    assert abs(in_common["value"] - len(COMMON)) <= ERRORS * in_common["standard_error"]
    _check_shares(messy.people, estimate)
    messy.taxes.succeed("revoke", STUDY, "--from", "Dr. Rivera")
    for options in ((), ("--partial",)):
        ended = messy.rivera.run("estimate", STUDY, *options)
        assert "no grant is good any more for 'income' of 'Tax office' (revoked" in ended.err
        assert "read without a grant of every curator" in ended.err
        assert "--partial" not in ended.err
        assert (ended.code, ended.out) == (1, "")


def _abort_and_refund(messy: Run) -> None:
    """End a study with a slip in its title: it costs nothing; one that was released does."""
    file = write_terms(messy.folder / "slip.toml", SLIP, ALIGNED, TAXES)
    messy.hospital.succeed("study", "propose", file, "--yes")
    messy.taxes.succeed("study", "sign", SLIP, "--yes")
    assert (messy.left(messy.hospital), messy.left(messy.taxes)) == (7.5, 7.5)
    reason = ("--reason", "a slip in the title", "--yes")
    early = messy.hospital.run("ledger", "refund", SLIP, *reason)
    assert early.code == 1
    messy.hospital.succeed("study", "abort", SLIP, *reason)
    for who in (messy.hospital, messy.taxes):
        who.succeed("ledger", "refund", SLIP, *reason)
        assert messy.left(who) == 13.5
        never = assert_refused(who.run("ledger", "refund", STUDY, *reason), code=1)
        assert "cannot be refunded" in never


def _cohort(messy: Run) -> None:
    """Compare respondents, so that a wrong export shows, to both; then revoke one grant."""
    file = write_terms(messy.folder / "cohort.toml", COHORT, ALIGNED, TAXES)
    messy.hospital.succeed("study", "propose", file, "--yes")
    messy.taxes.succeed("study", "sign", COHORT, "--yes")
    taxes = messy.table(messy.taxes, *messy.tables["Tax office"][:2], "--query", IN_COHORT)
    exports = {
        holds: messy.table(
            messy.hospital,
            "--table",
            write_hospital(messy.folder / f"cohort-{holds.stop}.csv", messy.people, holds=holds),
        )
        for holds in (range(COMMON.start, COMMON.stop - 100), COMMON)
    }
    early, right = exports.values()
    messy.push(messy.taxes, COHORT, *taxes, "--no-wait")
    differs = "City hospital: 4,900 respondents, Tax office: 5,000"
    refused = messy.hospital.run("push", COHORT, *early, "--no-wait")
    assert refused.code == 1
    assert differs in refused.err
    assert differs in " ".join(messy.taxes.succeed("study", "status", COHORT).split())
    assert messy.push(messy.hospital, COHORT, *right, "--no-wait")["pushed"] is False
    messy.push(messy.taxes, COHORT, *taxes)
    messy.push(messy.hospital, COHORT, *right, "--wait-release")
    for who in (messy.hospital, messy.taxes):
        who.succeed("grant", COHORT, "--to", "Dr. Rivera")
    _check_shares(messy.people, messy.rivera.json("estimate", COHORT))
    messy.taxes.succeed("revoke", COHORT, "--from", "Dr. Rivera")
    ended = assert_refused(messy.rivera.run("estimate", COHORT), code=1)
    assert "no grant is good any more for 'income' of 'Tax office' (revoked" in ended
    partial = messy.rivera.run("estimate", COHORT, "--partial", "--json")
    assert partial.code == 0
    assert "warning: without 'income' of 'Tax office'" in partial.err
    cells = json.loads(partial.out)
    assert [attribute["name"] for attribute in cells["attributes"]] == ["diagnosis", "age"]
    _check_shares(messy.people, cells)


def _check_shares(people: People, estimate: Any) -> None:  # noqa: ANN401 - JSON
    """Compare every cell with the truth about those in common."""
    truth = {
        "diagnosis": {"cancer": people.ill, "other": ~people.ill},
        "age": _ages(people),
        "income": {"<40000": ~people.rich, ">=40000": people.rich},
        "degree": {"no": ~people.schooled, "yes": people.schooled},
    }
    names = [attribute["name"] for attribute in estimate["attributes"]]
    assert len(estimate["cells"]) == np.prod([len(truth[name]) for name in names])
    cells = {tuple(cell[name] for name in names): cell for cell in estimate["cells"]}
    for values in product(*(truth[name] for name in names)):
        share = people.share(*(truth[n][value] for n, value in zip(names, values, strict=True)))
        cell = cells[values]
        most = ERRORS * cell["sampling_error"] + PRIVACY_ERRORS * cell["privacy_error"]
        assert abs(cell["share"] - share) <= most, values
        assert most < 0.015


def _ages(people: People) -> dict[str, np.ndarray]:
    known, age = people.known, people.age
    middle = (age >= 40) & (age < 65)
    return dict(
        zip(AGES, (known & (age < 40), known & middle, known & (age >= 65), ~known), strict=True)
    )


def _tables_are_as_they_were(messy: Run) -> None:
    """Nobody has edited a table."""
    again = write_hospital(messy.folder / "again.csv", messy.people, holds=HOSPITAL)
    assert (messy.folder / "export.csv").read_bytes() == again.read_bytes()
