"""A table is checked before anything is signed, and a push refuses exactly what a check finds."""

import csv
import json
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.commands import (
    Office,
    Outcome,
    assert_refused,
    open_office,
    write_csv,
    write_study,
)
from tests.support.servers import make_context, running
from veiltab.party.connection import Call, Connection

FITS = [("A1", "no"), ("A2", "yes"), ("A3", "no")]
BY_IDS = 'by = "ids"\nnormalisation = ["trim", "lowercase"]'
NR = ("--id", "nr")


@dataclass(frozen=True)
class Scene:
    """A study that is open, one that its proposer alone has signed, and one in a file."""

    folder: Path
    hospital: Office
    opened: str
    proposed: str
    file: Path

    def table(self, *rows: tuple[object, ...]) -> Path:
        """Write a table of the hospital's."""
        return write_csv(self.folder / "table.csv", ("nr", "smoker"), rows)

    def check(self, study: object, *options: object, rows: object = FITS) -> Outcome:
        """Check a table against a study or a file."""
        table = self.table(*rows) if isinstance(rows, list) else rows
        return self.hospital.run("study", "check", study, "--table", table, *options)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Set the scene by commands alone."""
    folder = tmp_path_factory.mktemp("scene")
    with running(make_context(folder / "server")) as server:
        hospital, office = (open_office(folder, n, server) for n in ("Hospital", "Tax office"))
        curators = {
            "me": {"smoker": ("no", "yes")},
            office.public.name: {"income": ("low", "high")},
        }
        for each in (hospital, office):
            each.succeed("ledger", "set", "people", "--epsilon", 10)
        hospital.succeed("ledger", "set", "few", "--epsilon", 0.5)
        for title in ("Open", "Proposed", "File"):
            path = folder / f"{title}.toml"
            write_study(
                path, curators, title=title, lines="population = 3", linkage=BY_IDS, epsilon=2.0
            )
            if title != "File":
                hospital.succeed("study", "propose", path, "--yes", "--dataset", "people")
        office.succeed("study", "sign", "Open", "--yes")
        yield Scene(folder, hospital, "Open", "Proposed", path)


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Work in a folder of its own: that is where offenders are written."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the requests that could change something on the server, as they are sent."""
    changing: list[str] = []
    send = Connection.send

    def watch(self: Connection, call: Call, sign: object) -> bytes:
        if call.method != "GET":
            changing.append(f"{call.method} {call.path}")
        return send(self, call, sign)  # type: ignore[arg-type]

    monkeypatch.setattr(Connection, "send", watch)
    return changing


ALL = {
    "unknown value": ([("A1", "no"), ("A2", "maybe"), ("A3", "no")], NR, "'maybe' in 1 row: 2"),
    "missing value": ([("A1", "no"), ("A2", ""), ("A3", "no")], NR, "(missing)"),
    "empty id": ([("A1", "no"), (" ", "yes"), ("A3", "no")], NR, "1 row has an empty id"),
    "odd id": ([("A1", "no"), ("A\t2", "yes"), ("A3", "no")], NR, "a control character in column"),
    "repeated id": ([("A1", "no"), ("A2", "no"), ("a1 ", "yes")], NR, "  row 3: 'a1 '"),
    "too few": ([("A1", "no"), ("A2", "yes")], NR, "states 3 respondents, not 2"),
    "too many": ([*FITS, ("A4", "no")], NR, "states 3 respondents, not 4"),
    "nobody": ([], NR, "no respondents"),
    "all at once": ([("A1", "?"), ("", "no"), ("A1", "no")], NR, "does not fit, for 3 reasons"),
    "values and number": ([("A1", "?"), ("A2", "no")], NR, "does not fit, for 2 reasons"),
    "no such id column": (FITS, ("--id", "number"), "no column 'number'"),
    "no id": (FITS, (), "an id has 1 column here, and you named none"),
    "two ids": (FITS, (*NR, "--id", "smoker"), "and you named 2"),
    "no recode file": (FITS, (*NR, "--recode", "absent.toml"), "absent.toml"),
    "a query for a file": (FITS, (*NR, "--query", "x"), "only a database takes a query"),
}
"""Mistakes: the rows, the options, and some words of the error."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_a_push_refuses_what_a_check_finds_and_nothing_else(
    scene: Scene, sent: list[str], name: str
) -> None:
    """With the same words, of a study that is not signed yet and of a file; nothing has left."""
    rows, options, words = ALL[name]
    before = scene.hospital.json("ledger")
    push = ("push", "Open", "--table", scene.table(*rows), *options, "--no-wait")
    pushed = scene.hospital.run(*push)
    assert pushed.out == ""
    assert words in pushed.err.partition("hint: ")[0]
    for study in (scene.proposed, scene.file):
        checked = scene.check(study, *options, rows=rows)
        assert (checked.code, checked.err) == (pushed.code, pushed.err)
    assert sent == []
    assert scene.hospital.json("ledger") == before
    assert not list(scene.hospital.home.rglob("partition-*"))
    assert not list(scene.hospital.home.rglob("repeated-*"))


def test_a_table_that_fits(scene: Scene, sent: list[str], tmp_path: Path) -> None:
    """What would leave, what it costs, and what everybody could learn; and no file is left."""
    found = {}
    for study in (scene.opened, scene.proposed, scene.file):
        outcome = scene.check(study, *NR, "--json")
        assert (outcome.code, outcome.err) == (0, "")
        found[study] = json.loads(outcome.out)
        assert found[study]["fits"]
        assert (found[study]["respondents"], found[study]["expected_rows"]) == (3, 3)
        assert found[study]["coalitions"][0]["epsilon"] == 2
    few, people = found[scene.opened]["budgets"]
    assert (people["charged"], people["epsilon_before"], people["epsilon_after"]) == (True, 8, 6)
    assert (few["fits"], few["epsilon_before"], few["epsilon_after"]) == (False, 0.5, 0.5)
    assert "exceeds what is left of 'few'" in few["refusal"]
    people = found[scene.file]["budgets"][1]
    assert (people["charged"], people["epsilon_before"], people["epsilon_after"]) == (False, 6, 4)
    assert found[scene.file]["study"] is None
    assert found[scene.opened]["study"] == scene.hospital.json("study", "show", "Open")["study"]
    assert sent == []
    assert not list(tmp_path.iterdir())


def test_the_same_for_people(scene: Scene) -> None:
    """In words, for one data set, and without asking for a passphrase or a server."""
    text = scene.check(scene.file, *NR, "--dataset", "people").out
    for words in (
        "3 respondents, and every row fits",
        "3 encrypted rows in 1 chunk, 1 byte",
        "people: ε = 6 of 10 left before this study, 4 after",
        "could learn",
        "a researcher alone",
    ):
        assert words in text
    assert "few:" not in text
    charged = scene.check(scene.opened, *NR).out
    assert "people: ε = 8 of 10 left before this study, 6 after; it is charged already" in charged
    absent = scene.check(scene.file, *NR, "--dataset", "fwe")
    assert "there is no ledger for the data set 'fwe'" in assert_refused(absent, code=1)


def test_ids_that_others_may_write_otherwise_are_pointed_out(scene: Scene) -> None:
    """What the study leaves as it is: before it is signed, when its terms can still be changed."""
    path = scene.folder / "strict.toml"
    text = scene.file.read_text("utf-8")
    path.write_text(text.replace('["trim", "lowercase"]', '["lowercase"]'), "utf-8")
    rows = [("A1 ", "no"), ("a2", "yes"), ("A3", "no")]
    checked = scene.check(path, *NR, "--json", rows=rows)
    assert checked.code == 0
    (warning,) = json.loads(checked.out)["id_warnings"]
    assert "'nr' have spaces at their ends, and the study compares them as they are" in warning
    assert warning in " ".join(scene.check(path, *NR, rows=rows).out.split())
    assert json.loads(scene.check(scene.file, *NR, "--json", rows=rows).out)["id_warnings"] == []


def test_dates_in_ids_that_others_may_write_otherwise_are_pointed_out(scene: Scene) -> None:
    """Unless the recode file says how they are written; then all write them alike."""
    rows = [("01.02.1980", "no"), ("03.04.1981", "yes"), ("05.06.1982", "no")]
    seen = json.loads(scene.check(scene.file, *NR, "--json", rows=rows).out)
    (warning,) = seen["id_warnings"]
    assert "the ids in 'nr' are dates written DD.MM.YYYY" in warning
    dates = warning.rpartition("; ")[2].partition(" under [ids]")[0]
    recode = scene.folder / "dates.toml"
    recode.write_text(f'[ids]\ncolumns = ["nr"]\n{dates}\n', "utf-8")
    seen = json.loads(scene.check(scene.file, "--recode", recode, "--json", rows=rows).out)
    assert (seen["fits"], seen["id_warnings"]) == (True, [])


def test_what_is_unwise_for_a_table_like_this_is_said(scene: Scene) -> None:
    """Also where nobody knows how many are in common: at most, all of this table."""
    path = scene.folder / "matched.toml"
    curators = {"me": {"smoker": ("no", "yes")}, "taxoffice.json": {"income": ("low", "high")}}
    lines, linkage = "expected_population = 1000", f'{BY_IDS}\nmode = "matched"'
    write_study(path, curators, title="Few", mechanism="decoys", lines=lines, linkage=linkage)
    (warning,) = json.loads(scene.check(path, *NR, "--json").out)["warnings"]
    assert warning.startswith("with all of your respondents in common, to name the same share for")
    assert f"Warning: {warning}." in " ".join(scene.check(path, *NR).out.split())


def test_every_row_that_does_not_fit_is_written_down(scene: Scene, tmp_path: Path) -> None:
    """With its number, value and problem, in a new file that nobody else can read."""
    rows = [("A1", "?"), ("", "no"), ("a1", "no"), ("A2", ""), ("A3", "?"), ("A1 ", "yes")]
    outcome = scene.check(scene.file, *NR, "--json", rows=rows)
    assert outcome.code == 2
    assert json.loads(outcome.err)["error"]["code"] == "table_misfit"
    found = json.loads(outcome.out)
    assert (found["fits"], found["respondents"], found["expected_bytes"]) == (False, 6, None)
    assert [problem["code"] for problem in found["problems"]] == ["value_not_in_schema"] + [
        "bad_ids"
    ] * 2
    assert found["offenders"] == [
        {"problem": "empty id", "rows": 1},
        {"problem": "no category", "rows": 3},
        {"problem": "repeated id", "rows": 3},
    ]
    path = tmp_path / "table-offenders.csv"
    assert found["offenders_file"] == path.name
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with path.open(newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    assert header == ["row", "column", "value", "problem", "first_row"]
    assert sorted(lines, key=lambda line: (line[3], int(line[0]))) == [
        ["2", "nr", "", "empty id", ""],
        ["1", "smoker", "?", "no category", ""],
        ["4", "smoker", "", "no category", ""],
        ["5", "smoker", "?", "no category", ""],
        ["1", "nr", "A1", "repeated id", "1"],
        ["3", "nr", "a1", "repeated id", "1"],
        ["6", "nr", "A1 ", "repeated id", "1"],
    ]


def test_offenders_overwrite_nothing(scene: Scene, tmp_path: Path) -> None:
    """The default takes the next free name; a name that was given must be new."""
    rows = [("A1", "?"), ("A2", "no"), ("A3", "no")]
    for _ in range(2):
        outcome = scene.check(scene.file, *NR, rows=rows)
        assert outcome.code == 2
    assert "in table-offenders-2.csv, for you alone" in outcome.out
    assert "nothing: a push refuses this table" in outcome.out
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["table-offenders-2.csv", "table-offenders.csv"]
    (tmp_path / "mine.csv").write_text("keep")
    taken = scene.check(scene.file, *NR, "--offenders", "mine.csv", rows=rows)
    assert "mine.csv exists already" in assert_refused(taken, code=1)
    assert (tmp_path / "mine.csv").read_text() == "keep"
    nowhere = scene.check(scene.file, *NR, "--offenders", "no/where.csv", rows=rows)
    assert "there is no such folder" in assert_refused(nowhere, code=1)


def test_studies_and_files_that_are_not_there(scene: Scene) -> None:
    """Said as such; a file is a file by its name."""
    absent = scene.check("absent.toml", *NR)
    assert "cannot read the study file absent.toml" in assert_refused(absent)
    unknown = scene.check("Nothing", *NR)
    assert (unknown.code, unknown.out) == (1, "")
    assert "no study matches 'Nothing'" in unknown.err
    for missing in ("absent.csv", "table.doc"):
        outcome = scene.check(scene.file, *NR, rows=missing)
        assert missing in assert_refused(outcome)


def test_nothing_is_needed_but_a_home_and_the_file(scene: Scene, tmp_path: Path) -> None:
    """No server, no registration, no budget and no passphrase."""
    alone = open_office(tmp_path, "Alone")
    office = scene.folder / "taxoffice.json"
    curators = {"me": {"smoker": ("no", "yes")}, str(office): {"income": ("low", "high")}}
    path = write_study(tmp_path / "own.toml", curators, title="Own")
    found = alone.json("study", "check", path, "--table", scene.table(*FITS), *NR)
    assert (found["fits"], found["budgets"]) == (True, [])


def test_a_draft_that_is_not_complete(scene: Scene, tmp_path: Path) -> None:
    """Every line is named that still says FILL IN, in a value or at the start of a comment."""
    text = scene.file.read_text().replace('"File"', '"FILL IN: a title"')
    text = text.replace('"taxoffice.json"', '"FILL-IN.json"  # as agreed')
    path = scene.folder / "draft.toml"
    path.write_text(f"{text}# FILL IN: the researchers\n# complete it where it says FILL IN\n")
    for command in (
        ("check", path, "--table", scene.table(*FITS), *NR),
        ("propose", path, "--yes"),
    ):
        message = assert_refused(scene.hospital.run("study", *command))
        assert "says FILL IN on line 1 (title); line " in message
        assert "(curators no. 2, identity)" in message
        assert message.endswith(f"line {len(text.splitlines()) + 1} (a comment)")
    assert not list(tmp_path.iterdir())


def test_a_proposal_is_shown_and_asked_for(
    scene: Scene, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Terms, plan and cost first; without a terminal or a yes nothing is written or sent."""
    propose = ("study", "propose", scene.file, "--dataset", "people")
    before = {path: path.stat().st_mtime_ns for path in scene.hospital.home.rglob("*")}
    message = assert_refused(scene.hospital.run(*propose))
    assert "needs to be confirmed, and there is no terminal" in message
    monkeypatch.setattr("veiltab.cli.output.on_terminal", lambda: True)
    asked: list[str] = []

    def refuse(question: str, **_: object) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr("click.confirm", refuse)
    outcome = scene.hospital.run(*propose)
    assert (outcome.code, asked) == (130, ["Propose and sign 'File' on these terms?"])
    for words in ("ε = 2", "people: ε = 6 of 10 left before this study, 4 after", "Tax office"):
        assert words in outcome.out
    assert "few:" not in outcome.out
    assert sent == []
    assert before == {path: path.stat().st_mtime_ns for path in scene.hospital.home.rglob("*")}
    monkeypatch.setattr("click.confirm", lambda *_, **__: True)
    assert "proposed" in scene.hospital.succeed(*propose)
    again = scene.hospital.succeed(*propose)
    assert "people: ε = 6 of 10 left before this study, 4 after; it is charged already" in again
    assert scene.hospital.json("ledger")["ledgers"][1]["epsilon_left"] == 4


def test_a_proposal_over_budget_is_refused_before_anybody_is_asked(scene: Scene) -> None:
    """And so is one for which no data set is named."""
    for options, words in (
        (("--dataset", "few"), "exceeds what is left of 'few'"),
        ((), "there are ledgers for"),
    ):
        outcome = scene.hospital.run("study", "propose", scene.file, "--yes", *options)
        assert words in assert_refused(outcome, code=1)
