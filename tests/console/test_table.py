"""The table wizard, from a messy file to a push, with a mistake before each step."""

import html
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from tests.support.http_simulator import HttpStudy, HttpTerms, http_study
from tests.support.pages import ORIGIN, Browser, party_browser, plain
from tests.support.servers import make_context, running
from tests.support.simulator import Stage
from tests.support.slow_tables import SlowTable, SlowTables
from veiltab.console import mapping
from veiltab.console.forms import check_location
from veiltab.console.mapping import ChosenTable
from veiltab.console.pages import actions
from veiltab.core.schema import Attribute, Schema
from veiltab.data.encoding import encode_column
from veiltab.errors import ValueNotInSchemaError

pytestmark = pytest.mark.slow

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpStudy]:
    """Return an open study of two curators."""
    folder = tmp_path_factory.mktemp("wizard")
    terms = HttpTerms(
        population=60, sample_size=30, shares=({"smoker": 2, "age": 3}, {"income": 2})
    )
    with running(make_context(folder / "data")) as server:
        yield http_study(server, folder, Stage.OPEN, terms=terms)


@pytest.fixture(scope="module")
def office(study: HttpStudy) -> Iterator[Browser]:
    """Return the first curator's browser."""
    with party_browser(study.curators[0].home.path) as browser:
        yield browser


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a table with semicolons, values in several spellings, numbers and gaps."""
    path = tmp_path_factory.mktemp("tables") / f"export {SCRIPT[:7]}.csv"
    spellings = ("Ja", "nein", "JA", SCRIPT)
    rows = (f"p{i};{spellings[i % 4]};{'' if i % 7 == 0 else 20 + i}" for i in range(60))
    path.write_text("\n".join(["Nr;Raucher;Alter", *rows]))
    return path


def wait_for(office: Browser, page: str, words: str) -> str:
    """Load a page until it says something."""
    for _ in range(600):
        text = plain(office.get(page))
        if words in text:
            return text
        time.sleep(0.05)
    raise AssertionError(text)


def wait_for_status(office: Browser, page: str, status: int) -> str:
    """Load a page until it answers with this status."""
    for _ in range(600):
        answer = office.client.get(page, follow_redirects=True)
        if answer.status_code == status:
            return answer.text
        time.sleep(0.05)
    raise AssertionError(answer.text)


def save_and_use(
    office: Browser, page: str, fields: dict[str, str | list[str]], export: Path, yes: str
) -> None:
    """Save what was clicked as a recode file, and use that instead of clicking, and back."""
    progress = page.replace("/table", "/progress")
    few = {name: fields[name] for name in ("form_token", "id", "duplicates")}
    recode = export.with_name("recode.toml")
    saved = office.send(f"{page}/save", fields | {"file": str(recode)})
    assert "The recode file is in" in plain(saved.text)
    assert stat.S_IMODE(recode.stat().st_mode) == 0o600
    assert "[attributes.smoker]" in recode.read_text()
    again = office.send(f"{page}/save", fields | {"file": str(recode)})
    assert "must be a new one" in plain(again.text)

    copy = recode.with_name("copy.toml")
    copy.write_text(recode.read_text())
    for wrong_path, words in (("", "No recode file is named"), ("no.toml", "annot read")):
        refused = office.send(f"{page}/file", fields | {"recode": wrong_path})
        assert refused.status_code == 422
        assert words in plain(refused.text)
    named = office.send(f"{page}/file", fields | {"recode": str(copy)})
    assert f"mapped as {copy} says" in plain(named.text)
    assert "0:column" not in named.text
    office.send(f"{page}/check", few)
    wait_for(office, f"{progress}/check", "The table fits: 60 respondents")
    back = office.send(f"{page}/file", few | {"recode": ""})
    assert f'value="{yes}" selected' in back.text  # what was clicked before is still there


def say_how_it_is_written(office: Browser, page: str, export: Path) -> None:
    """Say it wrong, and it stays to be mended; say it right, and it overrides what is found."""
    for wrong, words in (
        ({"encoding": "klingon"}, "klingon"),
        ({"skip_lines": "many"}, "the number of lines above the header must be a number"),
        ({"skip_lines": "-1"}, "-1 lines cannot be skipped"),
        ({"decimal": "comma", "thousands": "comma"}, "before decimals and between thousands"),
        ({"header": "maybe"}, "no choice 'maybe'"),
        ({"sheet": "May"}, "sheet"),
    ):
        refused = office.fill_in(page, page, location=str(export), **wrong)
        assert refused.status_code == 422
        assert words.lower() in plain(refused.text).lower()
        kept = [f'value="{value}"' in refused.text for value in wrong.values()]
        assert all(kept) or "header" in wrong
    opened = office.fill_in(page, page, location=str(export), separator="comma", header="no")
    assert "column_1" in opened.text
    assert "column_2" not in opened.text


def test_from_a_file_to_a_push(study: HttpStudy, office: Browser, export: Path) -> None:
    """Nothing is sent before the box is ticked, and what was chosen is never lost."""
    page = f"/studies/{study.study.hex()}/table"
    assert "Choose your table" in plain(office.get(page))
    missing = office.fill_in(page, page, location=str(export.with_name("absent.csv")))
    assert missing.status_code == 422
    assert "absent.csv" in missing.text
    listed = plain(office.get(f"{page}?other=1&folder={export.parent}"))
    assert export.name in listed
    say_how_it_is_written(office, page, export)
    opened = office.fill_in(f"{page}?other=1", page, location=str(export))
    assert "Read as CSV, semicolons" in plain(opened.text)
    attributes = study.contract.body.curators[0].attributes
    smoker, age = (attribute.categories for attribute in attributes)

    hidden: dict[str, str | list[str]] = {**office.form(page, f"{page}/map")}
    early = office.send(f"{page}/check", hidden | {"id": "Nr"})
    assert "no column is chosen for 'smoker'" in plain(early.text).lower()
    chosen: dict[str, str | list[str]] = {"id": "Nr", "duplicates": "refuse"}
    chosen |= {"0:column": "Raucher", "1:column": "Alter"}
    shown = plain(office.send(f"{page}/map", hidden | chosen).text)
    assert "4 values have no category yet, in 60 rows" in shown
    chosen |= {"0:value:Ja": smoker[1], "0:value:JA": smoker[1], "0:value:nein": smoker[0]}
    chosen |= {"0:rest": smoker[0], "1:edges": "x", "1:missing": age[2]}
    wrong = office.send(f"{page}/check", hidden | chosen)
    assert "the edges of bins are numbers" in plain(wrong.text).lower()
    assert f'value="{smoker[1]}" selected' in wrong.text  # what was chosen is still there
    chosen["1:edges"] = "40"
    drawn = office.send(f"{page}/map", hidden | chosen).text
    assert drawn.count('class="edge"') == 1
    assert "&lt;40: 17 · &gt;=40: 34" in drawn
    office.send(f"{page}/check", hidden | chosen)
    progress = page.replace("/table", "/progress")
    assert "The table fits: 60 respondents" in wait_for(
        office, f"{progress}/check", "Back to the t"
    )

    save_and_use(office, page, hidden | chosen, export, smoker[1])
    unsure = office.send(f"{page}/push", hidden | chosen)
    assert "the box was not ticked" in plain(unsure.text).lower()
    assert not any(one.aligned for one in study.curators[0].server.status(study.study).curators)
    office.send(f"{page}/push", hidden | chosen | {"sure": "on"})
    assert "You may close this page" in wait_for(office, f"{progress}/push", "You may close")
    stop = f"{progress}/push/stop"
    office.send(stop, office.form(f"{progress}/push", stop))
    assert "Nothing is lost" in wait_for(office, f"{progress}/push", "Stopped")
    resume = page.replace("/table", "/resume")
    office.send(resume, office.form(f"{progress}/push", resume))  # the table is read once more
    assert "You may close this page" in wait_for(office, f"{progress}/push", "You may close")
    assert "Your table is on its way" in plain(office.get(page.removesuffix("/table")))
    office.send(stop, office.form(f"{progress}/push", stop))
    wait_for(office, f"{progress}/push", "Stopped")
    assert SCRIPT not in "".join(office.seen.values())


def test_a_table_in_a_database(study: HttpStudy, office: Browser, tmp_path: Path) -> None:
    """By its address and a query; a query that the database refuses comes back as it was typed."""
    page, file = f"/studies/{study.study.hex()}/table", tmp_path / "people.db"
    smoker, age = (one.categories for one in study.contract.body.curators[0].attributes)
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE people (nr TEXT, smoker TEXT, age TEXT)")
        rows = [(f"p{i}", smoker[i % 2], age[i % 3]) for i in range(90)]
        database.executemany("INSERT INTO people VALUES (?, ?, ?)", rows)
    where = {"location": f"sqlite:///{file}"}
    wrong = office.fill_in(f"{page}?other=1", page, **where, query="SELECT nr FROM patients")
    assert wrong.status_code == 422
    assert "no such table: patients" in plain(wrong.text)
    assert 'value="SELECT nr FROM patients"' in wrong.text
    query = "SELECT * FROM people WHERE CAST(substr(nr, 2) AS INTEGER) < 60"
    opened = office.fill_in(f"{page}?other=1", page, **where, query=query)
    assert "Read as SQLite" in plain(opened.text)
    hidden = office.form(page, f"{page}/map")
    office.send(f"{page}/check", hidden | {"id": "nr", "0:column": "smoker", "1:column": "age"})
    progress = page.replace("/table", "/progress/check")
    assert "The table fits: 60 respondents" in wait_for(office, progress, "Back to the table")


def test_no_page_holds_the_password_of_a_database(study: HttpStudy, office: Browser) -> None:
    """An address with one is refused, and comes back without it."""
    page = f"/studies/{study.study.hex()}/table"
    office.seen.clear()
    for address, shown in (
        ("postgresql://me:s3cret@db.example/health", "postgresql://me@db.example/health"),
        ("postgresql://me:s3/cr@s3cret@db/x?a=b", "postgresql://me@db/x?a=b"),
        ("postgresql://db/x?sslmode=require&password=s3cret", "postgresql://db/x?sslmode=require"),
    ):
        for path, action in ((f"{page}?other=1", page), ("/propose", "/propose/draft")):
            form = office.form(path, action if action == page else "/propose/terms")
            refused = office.send(action, form | {"location": address, "c0:party": "me"})
            assert refused.status_code == 422
            assert "the address has a password in it" in plain(refused.text).lower()
            assert f'value="{html.escape(shown)}"' in refused.text
    assert "s3cret" not in "".join(office.seen.values())
    for fine in ("/data/a:b@c.csv", "sqlite:////data/a:b@c.db", "postgresql://me@db/x?sslmode=a"):
        assert check_location(fine) == fine


def test_a_table_is_forgotten_with_the_keys(
    study: HttpStudy, office: Browser, export: Path
) -> None:
    """Whoever unlocks them later begins anew."""
    page = f"/studies/{study.study.hex()}/table"
    office.fill_in(f"{page}?other=1", page, location=str(export))
    party = office.state.party  # type: ignore[union-attr]
    party.lock()
    for step in ("open", "check"):
        locked = office.client.get(page.replace("/table", f"/progress/{step}"))
        assert locked.headers["location"].startswith("/unlock")
    party.unlock(None)
    assert "Choose your table" in plain(office.get(page))


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowTables]:
    """Have tables read only as far as a test lets them."""
    tables = SlowTables()
    monkeypatch.setattr(mapping, "open_table", tables)
    monkeypatch.setattr(actions, "MOMENT", 0.01)
    yield tables
    for opened in tables.opened:
        opened.go_on()


def test_a_large_table_is_read_behind_the_page(
    study: HttpStudy, office: Browser, export: Path, slow: SlowTables
) -> None:
    """The page answers at once and says how far it is; it can be left, stopped and begun anew."""
    page = f"/studies/{study.study.hex()}/table"
    progress = page.replace("/table", "/progress/open")
    form = office.form(f"{page}?other=1", page) | {"location": str(export), "decimal": "comma"}

    def begin() -> SlowTable:
        before = len(slow.opened)
        answer = office.client.post(page, data=form, headers={"origin": ORIGIN})
        assert answer.headers["location"] == page
        wait_for(office, page, "Reading rows: 10.")
        assert len(slow.opened) == before + 1
        return slow.opened[-1]

    reading = begin()
    part = office.client.get(progress, headers={"hx-request": "true"})
    assert "Reading rows: 10." in plain(part.text)
    assert "<h1>" not in part.text
    reading.go_on(2)
    wait_for(office, progress, "Reading rows: 30.")
    other = office.client.post(page, data=form, headers={"origin": ORIGIN}, follow_redirects=True)
    assert "Another table is being read" in plain(other.text)
    assert len(slow.opened) == 1

    office.client.post(f"{progress}/stop", data=form, headers={"origin": ORIGIN})
    assert "Stopping" in office.get(progress)
    reading.go_on(1)
    stopped = wait_for_status(office, page, 422)
    assert "not read to its end: you have stopped that" in plain(stopped)
    assert f'value="{html.escape(str(export))}"' in stopped
    assert 'value="comma"' in stopped  # as it was typed
    assert "you have stopped that" not in office.get(page)  # it is said once

    reading = begin()
    reading.broken = True
    reading.go_on()
    broken = wait_for_status(office, page, 422)
    assert "The disk was unplugged Plug it in again." in plain(broken)
    assert f'value="{html.escape(str(export))}"' in broken

    reading = begin()
    party = office.state.party  # type: ignore[union-attr]
    party.lock()
    reading.go_on()  # whatever is found now is nobody's
    sent = office.client.get(progress, headers={"hx-request": "true"})
    assert sent.headers["hx-redirect"].startswith("/unlock")
    party.unlock(None)
    assert "Choose your table" in plain(office.get(page))

    reading = begin()
    reading.go_on()
    assert "Map your table" in wait_for(office, page, "Map your table")
    assert reading.most_held <= 2
    assert "Raucher" in office.get(page)


def test_a_draft_to_start_from(tmp_path: Path) -> None:
    """Intervals and missing values are read from the categories' names; nothing else is guessed."""
    age = Attribute("Age", ["<40", "40 to <65", ">=65", "unknown"])
    smoker = Attribute("smoker", ["no", "yes"])
    table = tmp_path / "table.csv"
    table.write_text(
        "nr;age;Smoker\n"
        + "".join(f"{i};{20 + i};{'NO' if i % 2 else 'ja'}\n" for i in range(60))
        + "60;k.A.;ja\n"
    )
    schema = Schema((age, smoker))
    chosen = ChosenTable.open(str(table), None, schema, {})
    ages, smokers = (chosen.attribute(attribute) for attribute in schema.attributes)
    assert (ages.column, ages.edges, ages.missing, ages.words) == (
        "age",
        "40 65",
        "unknown",
        ("k.A.",),
    )
    assert ages.histogram is not None
    assert [rows for _, rows in ages.histogram.bins] == [20, 25, 15]
    assert [(value.text, value.category) for value in smokers.values] == [("ja", ""), ("NO", "no")]
    assert smokers.unmapped_rows == 31
    rules = chosen.recode(schema).rules
    frame = pl.read_csv(table, separator=";")
    assert encode_column(frame["age"], age, rules["Age"]).tolist()[-2:] == [2, 3]
    with pytest.raises(ValueNotInSchemaError, match="ja"):
        encode_column(frame["Smoker"], smoker, rules["smoker"])
    chosen.choices["smoker"] |= {"value:ja": "yes"}
    rule = chosen.recode(schema).rules["smoker"]
    assert encode_column(frame["Smoker"], smoker, rule).tolist()[:2] == [1, 0]
