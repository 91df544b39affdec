"""A whole study in real browsers, from the operator's invitation to the researcher's report.

It is played once.  At every page the browser's errors, its layout at several widths, axe-core and
what the page holds are noted; each test asks one question about what was noted.
"""

import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

import polars as pl
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from playwright.sync_api import Browser

from tests.support.browsing import Visitor, chromium
from tests.support.mistakes import Mistaken
from tests.support.pages import study_secrets
from tests.support.pictures import PICTURES
from tests.support.servers import QUICK, KilledServer, Server, make_context, running
from tests.support.story import HOSPITAL, OFFICE, RIVERA, Story, playing
from tests.support.thorough import Thorough
from veiltab.console.app import create_console
from veiltab.hosting import open_server, server_identity
from veiltab.party.remote import Retry
from veiltab.server.directory import DataDirectory

pytestmark = pytest.mark.slow

SETTINGS = dataclasses.replace(QUICK, poll_seconds=0.5)
"""The server looks for work twice a second: more often only takes time from the browser."""


@dataclass
class Played:
    """The story when it is over, and the pages that were looked at."""

    story: Story | None = None
    seen: set[str] = field(default_factory=set)

    def look(self, visitor: Visitor, name: str) -> None:
        """Look closely at a page, if it is the first of its kind."""
        if name in self.seen:
            return
        self.seen.add(name)
        for home in self.story.homes.values() if self.story else ():
            visitor.secrets |= study_secrets(home)
        visitor.look(name)

    @property
    def people(self) -> Story:
        """Everybody in it."""
        assert self.story is not None
        return self.story

    def faults(self, kind: str) -> list[str]:
        """Return what was wrong of this kind."""
        noted = [fault for visitor in self.people.everybody for fault in visitor.faults]
        return [fault for fault in noted if fault.startswith(kind)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return the browser, one for all."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def played(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Play the story."""
    folder, made = tmp_path_factory.mktemp("story"), Played()
    context = make_context(folder / "data", settings=SETTINGS)
    with (
        running(context) as server,
        server.context.folders.lock(),
        playing(folder, browser, server, made.look, make=Thorough) as story,
    ):
        made.story = story
        story.play()
        yield made


@pytest.fixture(scope="module")
def mistaken(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Play it with a mistake at every step, and a server that is killed in the middle."""
    folder, made = tmp_path_factory.mktemp("mistakes"), Played()
    killed = KilledServer(folder / "data", seed=1)
    killed.start()
    try:
        folders = DataDirectory(folder / "data")
        context = open_server(folders, None, server_identity(folders, None))
        server = Server(
            url=killed.url, context=context, retry=Retry(total=30), metrics_url="http://127.0.0.1:0"
        )
        make = functools.partial(Mistaken, killed=killed)
        with (
            context.database,
            playing(folder, browser, server, lambda *_: None, make=make) as story,
        ):
            made.story = story
            story.play()
            yield made
    finally:
        killed.kill()


@pytest.mark.parametrize("kind", ["browser", "layout", "secret"])
def test_mistakes_at_every_step_lose_nothing(mistaken: Played, kind: str) -> None:
    """The same table comes out, each data set is charged once, and no page is the worse for it."""
    story = mistaken.people
    for name in (HOSPITAL, OFFICE):
        [budget] = story.homes[name].budgets()
        assert [entry.epsilon for entry in budget.ledger.entries] == [2]
    table = pl.read_csv(story.folder / "result.csv")
    assert table.height == 6
    assert story.homes[RIVERA].server is not None
    assert mistaken.faults(kind) == []


def test_the_researcher_has_a_table_that_is_about_right(played: Played) -> None:
    """In a file and in a report: fewer of the rich smoke, and the shares of all are whole."""
    table = pl.read_csv(played.people.folder / "result.csv")
    shares = {tuple(row[:2]): row[2] for row in table.select("smoker", "income", "share").rows()}
    assert len(shares) == 6
    assert sum(shares[smoker, "low"] for smoker in ("no", "yes")) > 0
    report = (played.people.folder / "result.html").read_text("utf-8")
    assert "<title>" in report
    assert "smoker" in report


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("browser", id="nothing the browser complains of, and nothing from elsewhere"),
        pytest.param("layout", id="nothing is cut off, broken or wider than the window"),
        pytest.param("axe", id="no serious fault of accessibility, in light and in dark"),
        pytest.param("secret", id="no key, pad, passphrase, code or one-time link on any page"),
    ],
)
def test_nothing_is_wrong_with_any_page(played: Played, kind: str) -> None:
    """Each page was looked at closely, at all widths."""
    assert len(played.seen) > 30
    assert played.faults(kind) == []


def routes(app: FastAPI, method: str) -> list[APIRoute]:
    """Return the routes of an application for a method."""
    found = [one.original_route for one in iter_route_contexts(app.routes)]
    return [one for one in found if isinstance(one, APIRoute) and method in (one.methods or ())]


def consoles(people: Story) -> Iterator[tuple[FastAPI, list[Visitor]]]:
    """Return both kinds of console, each with those who were at one."""
    party = create_console(people.states[HOSPITAL])
    party.state.other_pages.load()
    yield party, list(people.visitors.values())
    yield create_console(people.operator_state), [people.operator]


def missed(app: FastAPI, method: str, paths: set[str]) -> list[str]:
    """Return the routes for a method that none of these paths leads to."""
    known = routes(app, method)
    return [one.path for one in known if not any(map(one.path_regex.match, paths))]


def test_no_page_was_forgotten(played: Played) -> None:
    """Each page of both kinds of console was looked at: whoever adds one adds it to the story."""
    for app, visitors in consoles(played.people):
        paths = {path for visitor in visitors for path in visitor.looked_at}
        assert set(missed(app, "GET", paths)) <= NO_PAGES


NO_PAGES = {"/static/{name}", "/explore/{key}/download/{kind}", "/identity/public.json"}
"""What is loaded, but no page."""


def test_no_picture_is_of_a_page_that_is_gone(played: Played) -> None:
    """The script that draws them for the documentation finds each of its pages in the story."""
    assert played.seen >= PICTURES.keys()


def test_no_form_was_forgotten(played: Played) -> None:
    """A browser has sent each of them: whoever adds one adds it to the thorough story."""
    sent: set[str] = set()
    for app, visitors in consoles(played.people):
        paths = {path for one in visitors for method, path in one.asked if method == "POST"}
        assert missed(app, "POST", paths) == []
        sent |= paths
    steps = {path.rpartition("/")[2] for path in sent if "/table/" in path}
    assert steps == {"map", "file", "save", "check", "push"}
