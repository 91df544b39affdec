"""The explorer: every choice, its link, its Python and its files; hostile names; and the lock."""

import re
import time
from collections.abc import Iterator
from html import unescape
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.console.test_guard import Pages
from tests.support.cases import for_each
from tests.support.documents import Element, read_page
from tests.support.estimates import adult_to_show, odd_estimate, released_estimate
from tests.support.http_simulator import HttpTerms, http_study
from tests.support.pages import ORIGIN
from tests.support.servers import make_context, running
from tests.support.simulator import Stage
from veiltab.console import explored
from veiltab.console.choice import Choice
from veiltab.console.estimates import Opened, open_study
from veiltab.console.forms import Form
from veiltab.console.views import SavedViews
from veiltab.core.schema import Attribute, CountTable, Schema
from veiltab.estimates import Estimate, Provenance
from veiltab.inference.quantities import Quantity
from veiltab.party import curator
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.in_process import LATER

HELD = {"salary": "Tax office", "education": "Registry", "smoker": "City <b>hospital</b>"}
RICH = "salary = '>50K'"


class Explorer(Pages):
    """A console with a saved estimate open."""

    def __init__(self, folder: Path, estimate: Estimate) -> None:
        """Save the estimate to a file, and open it in the explorer."""
        super().__init__(folder)
        self.enter()
        self.file = folder / "estimate.json"
        estimate.save(self.file)
        sent = self.post("/explore", data={"path": str(self.file)})
        assert sent.status_code == 303, sent.text
        self.path = sent.headers["location"]

    @property
    def opened(self) -> Opened:
        """What the console holds of it."""
        held = self.state.estimates.get(self.path.rpartition("/")[2])
        assert held is not None
        return held

    def look(self, status: int = 200, /, **fields: str) -> str:
        """Return the page of a choice."""
        answer = self.client.get(f"{self.path}?{urlencode(fields)}")
        assert answer.status_code == status, answer.text
        return answer.text

    def take(self, kind: str, **fields: str) -> bytes:
        """Download a view."""
        answer = self.client.get(f"{self.path}/download/{kind}?{urlencode(fields)}")
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-disposition"].startswith("attachment")
        return answer.content


@pytest.fixture(scope="module")
def adult(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    """Return a console with the Adult table open."""
    made = Explorer(tmp_path_factory.mktemp("adult"), adult_to_show())
    yield made
    made.client.close()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Explorer]:
    """Return a console of one test alone."""
    made = Explorer(tmp_path, adult_to_show())
    yield made
    made.client.close()


def by_id(text: str, wanted: str) -> Element:
    """Return the element of a page with an id."""
    [found] = [one for one in read_page(text).all() if one.attributes.get("id") == wanted]
    return found


STATES: list[dict[str, str]] = [
    {},
    {"rows": "gender", "columns": "salary"},
    {"rows": "gender", "columns": ""},
    {"rows": "gender", "columns": "salary", "layer": "education", "order": "largest"},
    {"rows": "gender", "columns": "salary", "simultaneous": "1", "level": "0.9"},
    {"rows": "gender", "columns": "salary", "show": "within", "level": "0.99"},
    {"rows": "gender", "columns": "salary", "layer": "marital", "show": "within"},
    {"rows": "gender", "columns": "salary", "show": "deviations"},
    {
        "rows": "gender",
        "columns": "marital",
        "condition": RICH,
        "given": "education = 'no college'",
    },
    {"rows": "gender", "columns": "salary", "condition": "salary = '>50K' and not gender='male'"},
]


def run(code: str) -> dict[str, Any]:
    """Run the Python that a page shows; its last lines are expressions, whose values are kept."""
    names: dict[str, Any] = {}
    lines = [line for line in code.splitlines() if line.startswith("estimate.")]
    exec(code, names)  # noqa: S102 - it is what a reader would do
    return names | {"answers": [eval(line, names) for line in lines]}  # noqa: S307 - as above


@pytest.mark.slow
@for_each("fields", STATES)
def test_the_python_gives_the_same_numbers(adult: Explorer, fields: dict[str, str]) -> None:
    """Run from the page as it stands: the same table to the last bit, and the same answers."""
    text = adult.look(**fields)
    ran = run(by_id(text, "python").text)
    choice = Choice.of(Form(fields.items()), adult.opened.estimate.schema)
    ours = explored.table(adult.opened, choice)
    if choice.given:
        numbers: list[Quantity] = ran["table"]
        assert ours["share"].to_list() == [one.value for one in numbers]
        assert ours["low"].to_list() == [one.low for one in numbers]
    else:
        assert_frame_equal(ours, ran["table"], check_exact=True)
    shown = unescape(by_id(text, "answers").text) if ran["answers"] else ""
    for answer in ran["answers"]:
        assert " ".join(str(answer).split()) in " ".join(shown.split())


@for_each("fields", STATES[3:6])
def test_each_state_has_a_link(adult: Explorer, fields: dict[str, str]) -> None:
    """The page at its link is the same page."""
    text = adult.look(**fields)
    link = by_id(text, "link").attributes["href"]
    again = adult.client.get(link).text
    assert by_id(again, "view").text == by_id(text, "view").text


def test_a_fragment_is_the_part_of_the_page(adult: Explorer) -> None:
    """With the script, only the view is sent."""
    headers = {"hx-request": "true"}
    part = adult.client.get(f"{adult.path}?rows=gender&columns=salary", headers=headers).text
    assert "<html" not in part
    assert part.strip() in adult.look(rows="gender", columns="salary")


def test_tests_and_odds_ratios(adult: Explorer) -> None:
    """Of two attributes with two categories each, and within layers."""
    text = by_id(adult.look(rows="gender", columns="salary", layer="marital"), "answers").text
    for words in (
        "Cramér's V",
        "independence of gender and salary given marital",
        "Odds ratio",
        "Mantel",
    ):
        assert words in text
    assert "Odds ratio" not in by_id(adult.look(rows="education", columns="salary"), "answers").text


def test_answers_begin_with_what_is_read_first(adult: Explorer) -> None:
    """Shares in per cent, people as whole numbers, small p-values as such; the rest is below."""
    fields = {"rows": "gender", "columns": "salary", "condition": RICH}
    text = by_id(adult.look(**fields), "answers").text
    for words in (
        r"Share *24\.86%, 95% interval 21\.58–28\.20P\(",
        r"Number of people *11,242, 95% interval [0-9,]+–[0-9,]+people",
        r"Strength of association *0\.213, 95% interval 0\.131–0\.305Cram",
        r"Test of independence *p < 0\.001independence",
    ):
        assert re.search(words, text), text
    text = by_id(adult.look(rows="education", columns="gender"), "answers").text
    assert re.search(r"Test of independence *p = 0\.\d{3}independence", text), text


def test_what_the_grants_lack(fresh: Explorer) -> None:
    """Which attributes are missing, and whom to ask: not granted yet, or no more."""
    estimate = fresh.opened.estimate
    origin = Provenance(title="A study", holders=HELD)
    told = Estimate.from_counts(estimate.marginal(["gender", "salary"]), provenance=origin)
    ended = SimpleNamespace(state="expired", attributes=("education",), ended="expired in May")
    study = SimpleNamespace(estimate=lambda **_: told, grants=lambda: [_Hashed(ended)])
    session: Any = SimpleNamespace(study=lambda _: study, home=fresh.party.home)
    fresh.state.estimates.keep("ab" * 32, open_study(session, "ab" * 32), 0)
    text = by_id(fresh.client.get(f"/explore/{'ab' * 32}").text, "missing").text
    assert "2 of 4 attributes are missing" in text
    assert "education, held by Registry: its grant has expired in May" in text
    assert "smoker, held by City <b>hospital</b>: not granted yet" in text


class _Hashed:
    """A grant by what the explorer looks at."""

    def __init__(self, values: SimpleNamespace) -> None:
        """Take its values."""
        self.__dict__ |= vars(values)


def test_tables_are_downloaded_with_their_status(adult: Explorer) -> None:
    """The same table, and in each of its rows whether it may be passed on."""
    fields = {"rows": "gender", "columns": "salary", "show": "within"}
    expected = adult.opened.estimate.conditional("salary", ["gender"])
    csv = pl.read_csv(BytesIO(adult.take("csv", **fields)))
    assert csv["share"].to_list() == expected["share"].to_list()
    assert set(csv["status"]) == {adult.opened.estimate.status}
    file = BytesIO(adult.take("parquet", **fields))
    assert_frame_equal(pl.read_parquet(file), expected, check_exact=True)
    assert "not for passing on" in pl.read_parquet_metadata(file)["veiltab"]
    assert adult.client.get(f"{adult.path}/download/exe").status_code == 422


@pytest.mark.slow
def test_pictures_and_reports_are_downloaded(adult: Explorer) -> None:
    """Of what is shown; the report says that it is the researcher's own view."""
    svg = adult.take("svg", rows="gender", columns="salary").decode()
    assert svg.startswith("<svg")
    assert "the researcher's own view" in unescape(svg)
    assert adult.take("png", rows="education", columns="").startswith(b"\x89PNG")
    report = adult.take("report", rows="gender", columns="", condition=RICH).decode()
    assert "Not for passing on" in report
    text = read_page(report).text
    assert RICH in text
    assert "education" not in text


def test_views_are_saved_listed_and_deleted(fresh: Explorer) -> None:
    """In a private file of the home; the name of another view is not taken."""
    view = {"rows": "gender", "columns": "salary", "show": "within", "view": "Women & <men>"}
    assert fresh.post(f"{fresh.path}/views", data=view).status_code == 303
    taken = fresh.post(f"{fresh.path}/views", data=view | {"rows": "marital"})
    assert taken.status_code == 422
    assert "there is a view" in taken.text.lower()
    assert by_id(taken.text, "view-name").attributes["value"] == "Women & <men>"
    assert (fresh.party.home.path / "views.json").stat().st_mode & 0o777 == 0o600
    fresh.state.estimates.forget()
    fresh.state.estimates._paths.clear()
    listed = fresh.client.get("/explore").text
    assert 'aria-current="page">Explorer' in listed
    assert "Women &amp; &lt;men&gt;" in listed
    [saved] = SavedViews(fresh.party.home).all()
    assert "salary within gender" in read_page(fresh.client.get(saved.link).text).text
    assert fresh.post("/explore/views/delete", data={"name": saved.name}).status_code == 303
    assert SavedViews(fresh.party.home).all() == []


MISTAKES = [
    ({"condition": "salary = '>50K"}, "never closed"),
    ({"condition": "salery = 'x'"}, "did you mean"),
    ({"condition": "(" * 10_000}, "parentheses"),
    ({"rows": "nothing"}, "there is no attribute"),
    ({"show": "<b>"}, "there is no choice"),
    ({"level": "2"}, "there is no choice"),
    ({"page": "x"}, "must be a number"),
    ({"columns": "", "show": "deviations"}, "two attributes"),
    ({"rows": "gender", "columns": "salary", "layer": "marital", "show": "deviations"}, "layers"),
    ({"given": "gender='male'", "show": "within"}, "for everybody"),
]


@for_each("case", MISTAKES)
def test_mistakes_keep_what_was_typed(adult: Explorer, case: tuple[dict[str, str], str]) -> None:
    """The page says what is wrong, and its form is as it was."""
    fields, words = case
    text = adult.look(422, **({"given": "gender = 'male'"} | fields))
    assert words in unescape(text).lower()
    if "condition" in fields:
        assert by_id(text, "condition").attributes["value"] == fields["condition"]
    if fields.get("show") == "deviations":
        [chosen] = [
            one.attributes["value"]
            for one in by_id(text, "show").every("option")
            if "selected" in one.attributes
        ]
        assert chosen == "deviations"


def hostile_estimate() -> Estimate:
    """Return an estimate whose names are markup, quotes, expressions, formulas and very long."""
    names = ["<script>alert(1)</script>" * 30, "^.*$", 'a\' or "b" עברית', "share"]
    kinds = ["<img src=x onerror=alert(1)>", "=it's", 'say "x"', "طويل" + "x" * 900]
    kinds.reverse()
    schema = Schema(Attribute(name, kinds[: 2 + (name == "share")]) for name in names)
    counts = np.arange(1, schema.domain_size + 1) * 40
    return released_estimate(CountTable(schema, counts), 3.0)


@pytest.mark.slow
@pytest.mark.parametrize("make", [hostile_estimate, odd_estimate])
def test_hostile_names_stay_text(tmp_path: Path, make: Any) -> None:  # noqa: ANN401 - a function
    """In every mode, as rows and as columns, on the page and in the Python."""
    estimate: Estimate = make()
    made = Explorer(tmp_path, estimate)
    first = made.look()
    options = [one.attributes["value"] for one in by_id(first, "rows").every("option")]
    assert len(options) == len(estimate.schema.names)
    for show in ("joint", "within", "deviations"):
        for rows, columns in ((options[0], options[1]), (options[-2], options[0])):
            text = made.look(rows=rows, columns=columns, show=show)
            page = read_page(text)
            assert {one.attributes.get("src") for one in page.every("script")} == {
                "/static/htmx.min.js",
                "/static/console.js",
            }
            assert not page.every("img")
            assert not any(name.startswith("on") for one in page.all() for name in one.attributes)
            run(by_id(text, "python").text)
    table = pl.read_csv(BytesIO(made.take("csv", rows=options[0], columns=options[-1])))
    assert not any(str(value).startswith("=") for row in table.rows() for value in row)
    view = {"rows": options[0], "columns": options[1], "view": "<b>"}
    assert made.post(f"{made.path}/views", data=view).status_code == 303
    assert "<b>" not in made.client.get("/explore").text.replace("<bdi>", "")


def wide_estimate() -> Estimate:
    """Return an estimate of 10⁵ cells."""
    sizes = {"a": 100, "b": 100, "c": 10}
    schema = Schema(Attribute(name, [f"{name}{i}" for i in range(n)]) for name, n in sizes.items())
    return released_estimate(CountTable(schema, np.full(10**5, 3)), 3.0)


def test_too_many_cells_are_refused_before_they_are_made(
    adult: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page says how many they are, and what to choose instead."""
    monkeypatch.setattr(explored, "MOST_CELLS", 3)
    monkeypatch.setattr(Estimate, "table", None)
    refusal = adult.look(422, rows="marital", columns="gender", level="0.9")
    assert "this table has 4 cells, more than the 3 that are shown" in refusal.lower()
    assert "Choose fewer attributes" in refusal


@pytest.mark.slow
def test_a_hundred_thousand_cells_are_computed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page has sixty rows of them; nothing is tested, and a table is computed once."""
    made = Explorer(tmp_path, wide_estimate())
    tables: list[tuple[str, ...]] = []
    compute = Estimate.table

    def counted(self: Estimate, *options: Any, **more: Any) -> pl.DataFrame:
        tables.append(self.schema.names)
        return compute(self, *options, **more)

    def refused(*_: object, **__: object) -> None:
        pytest.fail("a test of so many cells takes too long")

    monkeypatch.setattr(Estimate, "table", counted)
    monkeypatch.setattr(Estimate, "independence_test", refused)
    monkeypatch.setattr(Estimate, "cramers_v", refused)
    fields = {"rows": "a", "columns": "b", "layer": "c"}
    for changes in ({}, {"page": "2"}, {"page": "1667"}, {"page": "999999"}, {"order": "largest"}):
        text = made.look(**fields, **changes)
        assert len(text) < 200_000
        rows = by_id(text, "table").every("tr")
        assert len([row for row in rows if row.every("svg")]) <= explored.PAGE_ROWS + 1
    assert tables == [("c", "a", "b")]
    assert "100,000 cells" in text
    refusal = made.look(422, rows="a", columns="b", show="deviations")
    assert "10,000 cells, more than the 1,000" in refusal


def test_nothing_is_shown_after_the_lock(fresh: Explorer) -> None:
    """Neither by any of its pages nor in memory; the link works again once keys are unlocked."""
    link = f"{fresh.path}?rows=gender&columns=salary"
    assert fresh.post("/lock").status_code == 303
    for path in (link, f"{fresh.path}/download/csv", "/explore"):
        sent = fresh.client.get(path, follow_redirects=False)
        assert sent.headers["location"].startswith("/unlock?next=/explore")
        assert "download" not in sent.headers["location"]  # a page, and the file from there
        assert "gender" not in sent.text
    assert fresh.state.estimates.get(fresh.path.rpartition("/")[2]) is None
    back = fresh.post("/unlock", data={"next": link}).headers["location"]
    assert back == link
    assert "gender and salary" in read_page(fresh.client.get(back).text).text


def test_estimates_are_forgotten_when_the_idle_time_is_over(fresh: Explorer) -> None:
    """As soon as anybody looks at the keys, as the server does all the time."""
    assert fresh.opened.code
    fresh.clock.now += 61
    assert not fresh.party.unlocked
    assert fresh.state.estimates.get(fresh.path.rpartition("/")[2]) is None


def test_what_was_fetched_before_the_lock_is_not_kept_after_it(fresh: Explorer) -> None:
    """A study that took longer to fetch than somebody stayed."""
    since = fresh.state.estimates.since
    opened = fresh.opened
    fresh.party.lock()
    fresh.state.estimates.keep("abc", opened, since)
    assert fresh.state.estimates.get("abc") is None


def test_a_page_closes_itself(fresh: Explorer) -> None:
    """After the idle time, by its script or without; looking whether it must is no use of keys."""
    text = fresh.look(rows="gender")
    assert by_id(text, "view").attributes["data-idle"] == "61"
    [where] = re.findall('content="61;url=([^"]*)"', text)
    fresh.clock.now += 30
    closed = fresh.client.get(unescape(where))
    assert "This page has closed itself" in closed.text
    assert "female" not in closed.text
    assert by_id(closed.text, "back").attributes["href"].startswith(fresh.path)
    fresh.clock.now += 31
    sent = fresh.client.get(unescape(where), follow_redirects=False)
    assert sent.headers["location"].startswith("/unlock?next=/explore/")


def test_other_sites_cannot_download(fresh: Explorer) -> None:
    """Nor save a view, without this session's secret."""
    headers = {"sec-fetch-site": "cross-site"}
    refused = fresh.client.get(f"{fresh.path}/download/csv", headers=headers)
    assert refused.status_code == 403
    forged = fresh.client.post(
        f"{fresh.path}/views", data={"view": "x"}, headers={"origin": ORIGIN}
    )
    assert forged.status_code == 403


@pytest.mark.slow
def test_a_study_is_fetched_with_what_is_granted(tmp_path: Path) -> None:
    """The page waits for it, and then says who has not granted anything yet."""
    with running(make_context(tmp_path / "data")) as server:
        study = http_study(server, tmp_path, Stage.RELEASED)
        first, researcher = study.curators[0], study.researcher
        curator.give_grant(first, study.contract, public_identity(researcher.identity), None, LATER)
        made = Pages(tmp_path / "console", researcher.home.path)
        made.enter()
        made.party.take(researcher.identity)
        link = f"/explore/{study.study.hex()}?condition="
        assert "Fetching and decrypting" in made.client.get(link).text
        task = made.state.tasks.get(f"estimate {study.study.hex()}")
        assert task is not None
        end = time.monotonic() + 20
        while not task.finished and time.monotonic() < end:
            time.sleep(0.02)
        assert task.failure is None
        page = made.client.get(link)
        made.client.close()
        held = {one.name for one in study.contract.body.curators[1].attributes}
    text = by_id(page.text, "missing").text
    assert f"{len(held)} of" in text
    assert all(f"{name}, held by curator 2: not granted yet" in text for name in held)


@pytest.mark.slow
def test_one_time_pads_come_from_files(tmp_path: Path) -> None:
    """A study opens with the paths of the grants; no page has anything of what is in them."""
    with running(make_context(tmp_path / "data")) as server:
        study = http_study(server, tmp_path, Stage.RELEASED, terms=HttpTerms(pads="one-time"))
        researcher, files = study.researcher, []
        for number, session in enumerate(study.curators):
            files.append(str(tmp_path / f"grant {number}.json"))
            to = public_identity(researcher.identity)
            contract = session.contract(study.study)
            curator.grant(session, contract, to, None, days=30, file=Path(files[-1]))
        made = Pages(tmp_path / "console", researcher.home.path)
        made.enter()
        made.party.take(researcher.identity)
        page, seen = f"/explore/{study.study.hex()}", []

        def open_with(given: list[str]) -> str:
            sent = made.post(f"{page}/grants", data={"files": "\r\n".join(given)})
            seen.append(sent.text)
            return _wait(made, page) if sent.status_code == 303 else sent.text

        without = _wait(made, page)
        assert "Grant files" in without
        assert "not_granted" in without or "no_grant" in without, without
        wrong = open_with([str(tmp_path / "none.json")])
        assert "none.json" in wrong
        assert "cannot read" in wrong.lower()
        Path(files[1]).chmod(0o644)
        readable = open_with(files)
        assert files[1] in by_id(readable, "files").text
        Path(files[1]).chmod(0o600)
        one = open_with(files[:1])
        assert f"{page}/grants" in one  # the other curator's attributes are missing
        both = open_with(files)
        assert 'id="missing"' not in both
        assert f"grants={files!r}" in unescape(both)
        made.client.close()
        for text in (without, wrong, readable, one, both, *filter(None, seen)):
            assert not any(Path(file).read_text() in text for file in files)
            assert len(max(re.findall("[0-9a-zA-Z+/=]+", text), key=len)) < 200  # no sealed pad


def _wait(made: Pages, page: str) -> str:
    """Load a page until the study is fetched."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        text = made.client.get(page).text
        if "Fetching and decrypting" not in text:
            return text
        time.sleep(0.05)
    raise AssertionError(text)
