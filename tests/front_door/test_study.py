"""A study over the network in Python, from identities to a report, through the front door."""

import asyncio
import gc
import math
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pandas as pd
import polars as pl
import pytest

import veiltab as vt
from tests.support.servers import running
from veiltab.hosting import existing_server
from veiltab.party.progress import Progress
from veiltab.server.directory import DataDirectory
from veiltab.server.invitations import invite
from veiltab.server.worker import Worker

TITLE = "Smoking and income"
PEOPLE = 4_000
STUDY = """\
title = "Smoking and income"
epsilon = 1.0
population = 4000
pads = "{pads}"

[linkage]
by = "ids"
columns = 1

[[curators]]
identity = "me"
attributes = [{{name = "smoker", categories = ["no", "yes"]}}]

[[curators]]
identity = "office.json"
attributes = [{{name = "income", categories = ["high", "low"]}}]
"""


@dataclass
class World:
    """A running service and three parties who know it."""

    folder: Path
    hospital: vt.Home
    office: vt.Home
    rivera: vt.Home

    def study_file(self, pads: str = "stream") -> Path:
        """Write the proposer's study file, and the identities that it names."""
        for home, name in ((self.office, "office"), (self.rivera, "rivera")):
            if not (self.folder / f"{name}.json").exists():
                home.write_public(self.folder / f"{name}.json")
        path = self.folder / "smoking.toml"
        path.write_text(STUDY.format(pads=pads), encoding="utf-8")
        return path


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Serve the application that the front door makes; let everybody register through it."""
    data = tmp_path / "data"
    app = vt.create_app(data, name="Statistics bureau", poll_seconds=0.1, rate=1e6, burst=10**6)
    context = existing_server(data, None)
    with running(context, app) as service:
        homes = []
        for name in ("City hospital", "Tax office", "Dr. Rivera"):
            home = vt.Home(tmp_path / name)
            home.create(name)
            with pytest.raises(vt.errors.MismatchError, match="has the fingerprint"):
                home.register(service.url, "0" * 16, fingerprint="12345 " * 6)
            pinned = home.register(
                service.url, invite(context, name), fingerprint=spelled(context.identity.party_id)
            )
            assert pinned.identity.name == "Statistics bureau"
            homes.append(home)
        yield World(tmp_path, *homes)


def spelled(party: bytes) -> str:
    """Return the fingerprint that the operator would read out."""
    from veiltab.crypto.identity import fingerprint  # noqa: PLC0415 - the operator's side

    return fingerprint(party)


def smokers() -> pl.DataFrame:
    """Return the hospital's table."""
    return pl.DataFrame({"id": range(PEOPLE), "smoker": ["no", "no", "no", "yes"] * 1_000})


def incomes() -> pd.DataFrame:
    """Return the office's table, in another order."""
    rows = range(PEOPLE - 1, -1, -1)
    return pd.DataFrame({"id": rows, "income": [["high", "low"][n % 2] for n in rows]})


def test_from_a_proposal_to_a_report(world: World) -> None:
    """Two curators push at the same time, one a polars and one a pandas frame."""
    world.hospital.set_budget("Patients 2025", epsilon=3)
    world.office.set_budget("Taxes 2025", epsilon=2)
    reports: list[Progress] = []
    with world.hospital.connect() as me, world.office.connect() as other:
        study = me.propose(world.study_file(), dataset="Patients 2025")
        assert study.title == TITLE
        assert study.status().state == "proposed"
        assert repr(study) == f"<Study {study.id[:16]} 'Smoking and income'>"
        theirs = other.study(TITLE)
        assert theirs.terms.epsilon == 1.0
        assert [each.numbers for each in theirs.coalitions()][:2] == ["ε = 1", "ε = 1"]
        assert theirs.sign().state == "open"
        (line,) = other.studies()
        assert (line.title, line.role) == (TITLE, "curator")
        preview = study.check(smokers(), ids="id")
        assert preview.respondents == PEOPLE
        assert isinstance(preview.plan, vt.Plan)
        assert preview.rows == round(preview.plan.expected_rows or 0)
        waiting = study.push(smokers(), ids="id", wait=False)
        assert [(c.aligned, c.uploaded) for c in waiting.curators] == [
            (True, False),
            (False, False),
        ]
        pushing = threading.Thread(target=theirs.push, args=(incomes(), ["id"]))
        pushing.start()
        status = study.push(smokers(), ids=["id"], timeout=60, progress=reports.append)
        pushing.join()
        assert status.state in ("open", "uploaded", "released")
        assert study.wait("released", timeout=60).state == "released"
        for curator in (study, theirs):
            with pytest.raises(vt.errors.ParameterError, match="cannot be good for 0 days"):
                curator.grant(world.folder / "rivera.json", days=0)
            given = curator.grant(world.folder / "rivera.json", days=7)
            assert given.researcher.name == "Dr. Rivera"
    assert world.hospital.budgets()[0].epsilon_left == 2
    steps = [report.step for report in reports]
    assert steps[0] == "reading rows"
    assert {"encrypting", "sending"} <= {*steps}
    assert reports[-1].done == reports[-1].total
    _estimate_and_publish(world, study.id)


def _estimate_and_publish(world: World, study: str) -> None:
    with world.rivera.connect() as researcher:
        estimate = researcher.study(study[:8]).estimate(["income", "smoker"])
        assert estimate.schema.names == ("income", "smoker")
        assert researcher.study(TITLE).estimate("smoker").schema.names == ("smoker",)
        share = estimate.probability("smoker = 'yes'", given="income = 'low'")
        assert share.value is not None
        copy = researcher.study(TITLE).publish()
        assert (estimate.publish().counts == copy.marginal(["income", "smoker"]).counts).all()
        entries = researcher.study(TITLE).audit().entries
        events = [entry.event for entry in entries]
        assert (events.count("granted"), events.count("published")) == (2, 1)
        unpublished = researcher.study(TITLE).estimate("smoker")
    with pytest.raises(vt.errors.ConnectionFailedError, match="was closed"):
        unpublished.publish()
    copy.report(world.folder / "report.html")
    assert "Smoking and income" in (world.folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_one_time_pads_and_other_tables(world: World) -> None:
    """A CSV file with a recode file, and a database; grants are handed over as files."""
    for home in (world.hospital, world.office):
        home.set_budget("Data", epsilon=3)
    raw = smokers().with_columns(pl.col("smoker").replace({"yes": "Y"}))
    twice = pl.concat([raw, raw.head(3)]).rename({"smoker": "raucht"})
    twice.write_csv(world.folder / "patients.csv")
    recode = world.folder / "recode.toml"
    recode.write_text(
        'duplicates = "identical"\nids = {columns = ["id"]}\n'
        '[attributes.smoker]\ncolumn = "raucht"\ncategories = {yes = "Y"}\n'
    )
    steps: list[tuple[str, int]] = []
    with sqlite3.connect(world.folder / "taxes.db") as database:
        database.execute("CREATE TABLE taxes (id INTEGER, income TEXT)")
        rows = incomes().itertuples(index=False)
        database.executemany("INSERT INTO taxes VALUES (?, ?)", [tuple(row) for row in rows])
    address = f"sqlite:///{world.folder / 'taxes.db'}"
    grants = []
    with world.hospital.connect() as me, world.office.connect() as other:
        study = me.propose(world.study_file("one-time"))
        theirs = other.study(study.id)
        theirs.sign("Data")
        theirs.push(address, "id", query="taxes", wait=False)
        table = str(world.folder / "patients.csv")
        with pytest.raises(vt.errors.LinkageError, match="6 rows share an id"):
            study.check(table, recode=recode, duplicates="refuse").raise_problems()
        with pytest.raises(vt.errors.ParameterError, match="'id' in the recode file"):
            study.check(table, "nr", recode=recode)
        preview = study.check(table, recode=recode)
        assert (preview.respondents, preview.dropped) == (PEOPLE, 3)
        study.push(table, recode=recode, progress=lambda at: steps.append((at.step, at.done)))
        assert ("dropping repeated rows", 3) in steps
        theirs.push(lambda: vt.open_table(address, "taxes"), "id")
        study.wait()
        with pytest.raises(vt.errors.ParameterError, match="one-time pads"):
            study.grant(world.folder / "rivera.json")
        for curator, name in ((study, "smoker.grant"), (theirs, "income.grant")):
            file = curator.grant(world.folder / "rivera.json", file=world.folder / name).file
            assert file is not None
            assert file.stat().st_mode & 0o077 == 0
            grants.append(file)
        with pytest.raises(vt.errors.OutputError, match="exists already"):
            study.grant(world.folder / "rivera.json", file=grants[0])
    with world.rivera.connect() as researcher:
        estimate = researcher.study(TITLE).estimate(grants=grants)
    smoking = estimate.marginal(["smoker"]).table("unbiased")["share"].to_list()
    assert abs(smoking[1] - 0.25) < 0.2


def test_mistakes_are_typed_and_lose_nothing(world: World) -> None:
    """At every step: the error says what is wrong, and the step can be taken again."""
    with pytest.raises(vt.errors.HomeError, match="there is no home"):
        vt.Home(world.folder / "nobody").connect()
    with world.hospital.connect() as me, world.office.connect() as other:
        with pytest.raises(vt.errors.HomeError, match="no data set has a privacy budget"):
            me.propose(world.study_file())
        world.hospital.set_budget("Data", epsilon=0.5)
        with pytest.raises(vt.errors.BudgetError):
            me.propose(world.study_file())
        world.hospital.set_budget("Data", epsilon=3)
        study = me.propose(world.study_file())
        assert me.propose(world.study_file()).id == study.id
        assert world.hospital.budgets()[0].epsilon_left == 2
        with pytest.raises(vt.errors.HomeError, match="no study matches"):
            me.study("Smoking and wealth")
        with pytest.raises(vt.errors.StateError, match="not every curator has signed"):
            study.push(smokers(), "id")
        world.office.set_budget("Taxes", epsilon=3)
        other.study(TITLE).sign()
        with pytest.raises(vt.errors.TableError, match="no column 'person'"):
            study.check(smokers(), "person")
        with pytest.raises(vt.errors.MismatchError, match="states 4,000 respondents, not 10"):
            study.push(smokers().head(10), "id", wait=False)
        assert not any(curator.aligned for curator in study.status().curators)
        _check_a_table_that_does_not_fit(world, study)
        with pytest.raises(vt.errors.StateError, match=r"after 0\.2 seconds, not released"):
            study.wait("released", timeout=0.2)
        with pytest.raises(vt.errors.ParameterError, match="no study ever becomes 'relaesed'"):
            study.wait("relaesed", timeout=0.2)
        with pytest.raises(vt.errors.StateError, match="the study is open, not released"):
            study.grant(world.folder / "rivera.json")
        study.abort("the wrong table")
        with pytest.raises(vt.errors.StateError, match="aborted"):
            study.wait("released")
        with pytest.raises(vt.errors.StateError, match="aborted"):
            study.push(smokers(), "id")
        file = world.study_file()
        file.write_text(file.read_text("utf-8").replace(TITLE, "Never signed"), "utf-8")
        never = me.propose(file)
        never.abort("nobody else wants it")
        with pytest.raises(vt.errors.StateError, match="nobody else wants it"):
            never.push(smokers(), "id")


def _check_a_table_that_does_not_fit(world: World, study: vt.Study) -> None:
    """See that a check says what a push raises, also a check of the study file."""
    table, file = smokers().with_columns(smoker=pl.lit("maybe")), world.folder / "offenders.csv"
    with pytest.raises(vt.errors.ValueNotInSchemaError, match="'maybe'") as refused:
        study.push(table, "id")
    preview = study.check(table, "id", offenders=file)
    assert (preview.fits, dict(preview.offenders)) == (False, {"no category": PEOPLE})
    assert preview.offenders_file == file
    assert pl.read_csv(file).height == PEOPLE
    with pytest.raises(vt.errors.ValueNotInSchemaError) as raised:
        preview.raise_problems()
    assert raised.value.message == refused.value.message
    of_file = world.hospital.check(world.study_file(), table.head(1), "id")
    assert [problem.code for problem in of_file.problems] == ["value_not_in_schema", "mismatch"]
    with pytest.raises(vt.errors.MisfitError, match="for 2 reasons"):
        of_file.raise_problems()


def test_a_session_closes_its_connections(world: World) -> None:
    """After the block nothing can be asked any more, and nothing is left open."""
    with world.hospital.connect() as me:
        assert me.studies() == []
        assert repr(me) == "<Session of 'City hospital' with 'Statistics bureau'>"
    with pytest.raises(vt.errors.ConnectionFailedError, match="was closed"):
        me.studies()


@pytest.mark.slow
def test_homes_may_be_named_as_people_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By a text with a tilde, by the environment, or not at all."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("VEILTAB_HOME", raising=False)
    assert vt.Home().path == vt.Home("~/.veiltab").path == tmp_path / ".veiltab"
    monkeypatch.setenv("VEILTAB_HOME", str(tmp_path / "other"))
    assert vt.Home().path == tmp_path / "other"
    with pytest.raises(vt.errors.HomeError, match="nobody on this computer has that name"):
        vt.Home("~no-such-user/.veiltab")
    home = vt.Home()
    with pytest.raises(vt.errors.HomeError, match="there is no home in"):
        home.register("https://127.0.0.1:1", "unused", fingerprint="unused")
    home.create("A hospital", "a passphrase")
    assert home.locked
    assert len(home.fingerprint.replace(" ", "")) == 30
    with pytest.raises(vt.errors.KeyFileError):
        home.open("another one")


def test_limits_of_an_application(tmp_path: Path) -> None:
    """A limit that is misspelled, or limits nothing, is refused before anything is made."""
    with pytest.raises(vt.errors.ParameterError, match="there is no limit called 'rates'"):
        vt.create_app(tmp_path / "data", rate=3, rates=3)
    for limit in (0, -1, math.nan, "3"):
        with pytest.raises(vt.errors.ParameterError, match="the limit rate must be a number"):
            vt.create_app(tmp_path / "data", rate=limit)  # type: ignore[arg-type]
    assert not (tmp_path / "data" / "server.key").exists()


def test_what_cannot_be_a_fingerprint_or_an_invitation_is_not_sent(tmp_path: Path) -> None:
    """Nobody is asked, and no other secret that was given by mistake leaves the house."""
    home = vt.Home(tmp_path / "home")
    home.create("A hospital")
    nowhere = "https://127.0.0.1:1"
    for wrong in ("", "12345", "x" * 30, "1" * 31):
        with pytest.raises(vt.errors.ParameterError, match="is not a fingerprint"):
            home.register(nowhere, "0" * 16, fingerprint=wrong)
    for wrong in ("", "a secret", "0" * 41, "id,smoker\n1,yes"):
        with pytest.raises(vt.errors.InvitationError) as caught:
            home.register(nowhere, wrong, fingerprint="12345 " * 6)
        assert not wrong or wrong not in f"{caught.value.message} {caught.value.hint}"


def test_tables_of_pandas_can_be_encoded() -> None:
    """Whatever is no data frame is refused."""
    schema = vt.Schema([vt.Attribute("income", ["high", "low"])])
    (codes,) = vt.encode_table(incomes(), schema)
    assert codes[:4].tolist() == [1, 0, 1, 0]
    for other in (None, "incomes.csv", 3):
        with pytest.raises(vt.errors.TableError, match="cannot encode an object of type"):
            vt.encode_table(other, schema)


@pytest.mark.parametrize("outlasts", [False, True])
def test_a_release_that_outlasts_the_application_keeps_the_folder(
    tmp_path: Path, *, outlasts: bool
) -> None:
    """A second server must not tidy up under its hands; otherwise the folder is free again."""
    app = vt.create_app(tmp_path / "data")

    async def run() -> None:
        async with app.router.lifespan_context(app):
            pass

    with mock.patch.object(Worker, "is_running", outlasts):
        asyncio.run(run())
    gc.collect()
    refused = pytest.raises(vt.errors.StateError, match="another server is using")
    with refused if outlasts else nullcontext(), DataDirectory(tmp_path / "data").lock():
        pass
