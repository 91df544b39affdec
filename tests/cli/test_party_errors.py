"""What parties meet when something is not ready, not theirs, or not right: words, and no harm."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.commands import Office, assert_refused, open_office, run, write_csv, write_study
from tests.support.servers import Server, make_context, running

NETWORKED = [
    ("study", "list"),
    ("study", "show", "x"),
    ("study", "sign", "x", "--yes"),
    ("study", "status", "x"),
    ("study", "abort", "x", "--reason", "y", "--yes"),
    ("study", "check", "x", "--table", "t.csv", "--id", "nr"),
    ("push", "x", "--table", "t.csv", "--id", "nr"),
    ("grant", "x", "--to", "somebody"),
    ("estimate", "x"),
    ("publish", "x"),
    ("audit", "x"),
]


@dataclass(frozen=True)
class Scene:
    """A study that nobody but its proposer has signed, and one that is open."""

    server: Server
    folder: Path
    hospital: Office
    office: Office
    rivera: Office
    stranger: Office
    proposed: str
    opened: str

    def table(self, *rows: tuple[object, ...], header: tuple[str, ...] = ("nr", "smoker")) -> Path:
        """Write a table of the hospital's."""
        return write_csv(self.folder / "table.csv", header, rows)

    def propose(self, title: str, epsilon: float) -> Path:
        """Write a study file of the hospital's."""
        curators = {
            "me": {"smoker": ("no", "yes")},
            self.office.public.name: {"income": ("low", "high")},
        }
        path = self.folder / f"{title}.toml"
        return write_study(path, curators, title=title, epsilon=epsilon)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Set the scene by commands alone."""
    folder = tmp_path_factory.mktemp("scene")
    with running(make_context(folder / "server")) as server:
        names = ("Hospital", "Tax office", "Rivera", "Stranger")
        hospital, office, rivera, stranger = (open_office(folder, n, server) for n in names)
        titles = ("Only proposed", "Open")
        found = Scene(server, folder, hospital, office, rivera, stranger, *titles)
        for each in (found.hospital, found.office):
            each.succeed("ledger", "set", "people", "--epsilon", 3)
        for title in (found.proposed, found.opened):
            found.hospital.succeed("study", "propose", "--yes", found.propose(title, 1.0))
        found.office.succeed("study", "sign", found.opened, "--yes")
        yield found


@pytest.mark.parametrize("command", NETWORKED, ids=" ".join)
def test_without_a_home(tmp_path: Path, command: tuple[str, ...]) -> None:
    """Every command says where it looked, and how to make one."""
    outcome = run(*command, "--home", tmp_path / "nowhere")
    assert "there is no home in" in assert_refused(outcome, code=1)
    assert "--home or VEILTAB_HOME" in outcome.err
    assert not (tmp_path / "nowhere").exists()


def test_the_home_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """VEILTAB_HOME counts, and --home counts more."""
    office = open_office(tmp_path, "Tax office")
    monkeypatch.setenv("VEILTAB_HOME", str(office.home))
    assert "Tax office" in run("id", "show").out
    assert run("id", "show", "--home", tmp_path / "other").code == 1


@pytest.mark.parametrize("command", NETWORKED, ids=" ".join)
def test_before_registering(tmp_path: Path, command: tuple[str, ...]) -> None:
    """Every command says how to register."""
    outcome = open_office(tmp_path, "New").run(*command)
    assert "is not registered with a server yet" in assert_refused(outcome, code=1)
    assert "veiltab register SERVER" in outcome.err


def test_a_home_that_others_can_enter(tmp_path: Path) -> None:
    """It is not used until it is private again."""
    office = open_office(tmp_path, "Open house")
    office.home.chmod(0o755)
    assert "others can enter the home" in assert_refused(office.run("id", "show"), code=1)


def test_an_unknown_study(scene: Scene) -> None:
    """Those that there are are listed, to somebody who is in them only."""
    outcome = scene.hospital.run("study", "show", "Opne")
    assert outcome.code == 1
    assert "no study matches 'Opne'" in outcome.err
    assert scene.opened in outcome.err
    outcome = scene.stranger.run("study", "show", scene.opened)
    assert "there are none yet" in assert_refused(outcome, code=1)


def test_over_budget(scene: Scene) -> None:
    """A study that costs too much is not proposed, and nothing is charged."""
    before = scene.hospital.json("ledger")
    outcome = scene.hospital.run("study", "propose", "--yes", scene.propose("Dear", 1.5))
    assert "exceeds what is left of 'people': epsilon 1 of 3" in assert_refused(outcome, code=1)
    assert scene.hospital.json("ledger") == before
    titles = [each["title"] for each in scene.hospital.json("study", "list")["studies"]]
    assert "Dear" not in titles


def test_without_a_budget(scene: Scene, tmp_path: Path) -> None:
    """Somebody who has set none is told how."""
    curators = {"me": {"a": ("x", "y")}, str(scene.office.public): {"b": ("x", "y")}}
    path = write_study(tmp_path / "s.toml", curators, title="No budget")
    outcome = scene.stranger.run("study", "propose", "--yes", path)
    assert "no data set has a privacy budget yet" in assert_refused(outcome, code=1)
    assert "veiltab ledger set" in outcome.err
    named = scene.hospital.run("study", "propose", "--yes", path, "--dataset", "other")
    assert "there is no ledger for the data set 'other'" in assert_refused(named, code=1)


def test_a_study_file_with_a_mistake(scene: Scene, tmp_path: Path) -> None:
    """The error names the line; both a file and a table is one too many."""
    path = tmp_path / "wrong.toml"
    path.write_text('title = "x"\nepsilon = "much"\n')
    outcome = scene.hospital.run("study", "propose", "--yes", path)
    assert "wrong.toml, line 2: epsilon" in assert_refused(outcome)
    both = scene.hospital.run("study", "propose", path, "--from", "t.csv")
    assert "and not both" in assert_refused(both)
    neither = scene.hospital.run("study", "propose")
    assert "no table is named" in assert_refused(neither)


def test_signing_needs_a_yes(scene: Scene) -> None:
    """Without a terminal the terms are shown, and nothing is signed."""
    outcome = scene.office.run("study", "sign", scene.proposed)
    assert outcome.code == 2
    assert "there is no terminal to ask on" in outcome.err
    assert "ε = 1" in outcome.out
    status = scene.office.json("study", "status", scene.proposed)
    assert [each["signed"] for each in status["curators"]] == [True, False]


def test_push_before_everybody_has_signed(scene: Scene) -> None:
    """The error names who has not."""
    table = scene.table((1, "no"), (2, "yes"))
    outcome = scene.hospital.run("push", scene.proposed, "--table", table, "--id", "nr")
    assert "has signed; missing: 'Tax office'" in assert_refused(outcome, code=1)


def test_tables_that_are_not_there(scene: Scene) -> None:
    """A path, a kind of file, a database without a query, and no table at all."""
    for options, words in (
        (("--table", "absent.csv"), "there is no file 'absent.csv'"),
        (("--table", "data.doc"), "the form of 'data.doc' is not known"),
        (("--table", "data.xlsx"), "there is no file 'data.xlsx'"),
        (("--table", "sqlite:///x.db"), "a database has many tables"),
        (("--table", "a.csv", "--table-file", "b"), "and not both"),
        ((), "no table is named"),
    ):
        outcome = scene.hospital.run("push", scene.opened, "--id", "nr", *options)
        assert words in assert_refused(outcome)


def test_a_table_as_it_is(scene: Scene, tmp_path: Path) -> None:
    """How it is read is said, to people and to scripts, and each option says it instead."""
    table = tmp_path / "export.txt"
    table.write_text("Nr;Straße;smoker;Größe\n1;Süd;no;1,80\n2;Öd;yes;1,65\n", "cp1252")
    push = ("push", scene.opened, "--table", table, "--id", "Nr", "--dry-run")
    said = "CSV, semicolons, CP1252, decimal comma, header in line 1"
    outcome = scene.hospital.run(*push)
    assert outcome.code == 0
    assert said in outcome.out
    assert outcome.err.startswith("warning: the file is not UTF-8 (byte 7 in line 1, 0xdf)")
    named = ("--encoding", "cp1252", "--separator", "semicolon", "--decimal", "comma")
    found = scene.hospital.json(*push, *named)
    assert (found["table"]["read_as"], found["table"]["notes"]) == (said, [])
    draft = ("study", "propose", "--from", table, *named)
    assert scene.hospital.json(*draft)["table"] == found["table"]
    vault = ("vault", "propose", "--from", table, *named)
    assert scene.hospital.json(*vault)["table"] == found["table"]


def test_a_table_that_is_read_wrongly(scene: Scene, tmp_path: Path) -> None:
    """Each mistake has its cause and what to do, in the words of the command line."""
    table = tmp_path / "t.csv"
    table.write_text("Export of 2025\nnr;smoker\n1;no\n2;yes\n", "utf-8")
    push = ("push", scene.opened, "--table", table, "--id", "nr", "--dry-run")
    for options, words, hint in (
        ((), "the first line has one field, and those below have 2", "--skip-lines 1"),
        (("--separator", ","), "has no columns 'nr', 'smoker'", "its columns are 'Export of 2025'"),
        (
            ("--separator", ",", "--skip-lines", 1),
            "are probably separated by semicolons, not by commas",
            "--separator semicolon",
        ),
        (("--skip-lines", 2), "look like a row of data: '1', 'no'", "--no-header"),
        (("--skip-lines", 2, "--no-header"), "has no columns 'nr'", "'column_1', 'column_2'"),
        (("--encoding", "utf-16"), "is not UTF-16, or has no byte", "--encoding utf-16-le"),
        (("--encoding", "klingon"), "there is no encoding 'klingon'", "cp1252"),
        (("--sheet", "1"), "a text file has no sheet to name", "leave it out"),
        (("--skip-lines", 9), "there is nothing below the first 9 lines", "skip fewer lines"),
    ):
        outcome = scene.hospital.run(*push, *options)
        assert words in assert_refused(outcome)
        assert hint in outcome.err.partition("hint: ")[2]
    assert scene.hospital.json(*push, "--skip-lines", 1)["respondents"] == 2


def test_a_password_on_the_command_line(scene: Scene) -> None:
    """It is refused, and not repeated; the address may come in a file."""
    for url in (
        "postgresql://me:hunter2@localhost/people",
        "postgresql://me@localhost/people?password=hunter2",
    ):
        push = ("push", scene.opened, "--table", url, "--query", "people", "--id", "nr")
        outcome = scene.hospital.run(*push)
        assert "has a password" in assert_refused(outcome)
        assert "VEILTAB_TABLE_URL" in outcome.err
        assert "hunter2" not in outcome.err


def test_an_address_from_elsewhere(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file or the environment can hold the table's address."""
    table = scene.table((1, "no"), (2, "yes"))
    (tmp_path / "address").write_text(f"{table}\n")
    (tmp_path / "address").chmod(0o600)
    push = ("push", scene.opened, "--id", "nr", "--dry-run")
    found = scene.hospital.json(*push, "--table-file", tmp_path / "address")
    monkeypatch.setenv("VEILTAB_TABLE_URL", str(table))
    assert scene.hospital.json(*push) == found


def test_grant_before_the_release(scene: Scene) -> None:
    """And to nobody whom the contract could mean."""
    outcome = scene.hospital.run("grant", scene.opened, "--to", scene.rivera.public)
    assert "the study is open, not released" in assert_refused(outcome, code=1)
    assert "--wait released" in outcome.err
    unknown = scene.hospital.run("grant", scene.opened, "--to", "Rivera")
    assert "there is no identity file 'Rivera'" in assert_refused(unknown)
    broken = scene.hospital.run("grant", scene.opened, "--to", scene.folder / "Open.toml")
    assert "is not a public identity" in assert_refused(broken)


def test_estimate_without_a_grant(scene: Scene) -> None:
    """A researcher whom nobody has named sees no study; a curator has no grant."""
    outcome = scene.rivera.run("estimate", scene.opened)
    assert "no study matches" in assert_refused(outcome, code=1)
    outcome = scene.hospital.run("estimate", scene.opened)
    assert "the study is open, not released" in assert_refused(outcome, code=1)
    broken = scene.rivera.run("estimate", scene.opened, "--grant", scene.rivera.public)
    assert "is not a grant" in assert_refused(broken)


@pytest.mark.slow
def test_a_server_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some patience, and then an error that says that nothing is lost."""
    with running(make_context(tmp_path / "server")) as server:
        office = open_office(tmp_path, "Tax office", server)
    monkeypatch.setattr("veiltab.cli.options.PATIENCE", 0.1)
    outcome = office.run("study", "list")
    assert "the server did not answer (it cannot be reached)" in assert_refused(outcome, code=1)
