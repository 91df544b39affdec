"""The operator's pages, over a server that runs: they read, and two things can be done."""

import base64
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.support.http_simulator import HttpStudy, HttpTerms, http_study
from tests.support.pages import Browser, operator_browser, plain
from tests.support.servers import Server, make_context, running
from tests.support.simulator import Stage
from veiltab.console.once import REPEATED_SECONDS
from veiltab.console.state import OperatorState
from veiltab.crypto.fingerprint import fingerprint
from veiltab.party.home import Home
from veiltab.party.registration import read_invitation

SCRIPT = "<script>alert(1)</script>"
MARK = "\N{RIGHT-TO-LEFT MARK}"
PAGES = ("/", "/studies", "/parties", "/invitations", "/requests", "/log")


@dataclass
class Operated:
    """A server that runs, a study on it, and the browser of its operator."""

    server: Server
    study: HttpStudy
    browser: Browser
    log: Path

    @property
    def page(self) -> str:
        """The page of the study."""
        return f"/studies/{self.study.study.hex()}"

    @property
    def invitations(self) -> list[str]:
        """The names on the operator's list."""
        with self.server.context.database.reading() as records:
            return [line.name for line in records.invitations()]


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    """Return a server with a proposal, whose title and parties are hostile."""
    folder = tmp_path_factory.mktemp("operated")
    log = folder / "server.log"
    with running(make_context(folder / "data")) as server, server.context.folders.lock():
        names = [f"{SCRIPT}{MARK}", "office", "researcher"]
        parties = [server.join(name, folder / str(at)) for at, name in enumerate(names)]
        terms = HttpTerms(title=f"{SCRIPT}{MARK}{'long ' * 150}end")
        study = http_study(server, folder, Stage.PROPOSED, terms=terms, parties=parties)
        port = int(httpx.URL(server.metrics_url).port or 0)
        state = OperatorState(server.context, log, port)
        with operator_browser(state) as browser:
            yield Operated(server, study, browser, log)


@pytest.fixture(autouse=True)
def _nothing_leaks(operated: Operated) -> Iterator[None]:
    """After every test: no page has run a script, or shown the server's key."""
    yield
    pages, operated.browser.seen = operated.browser.seen, {}
    for path, text in pages.items():
        assert SCRIPT not in text, path
        assert MARK not in text, path


def test_every_page_says_what_is_there(operated: Operated) -> None:
    """States, parties with their fingerprints, what waits for whom, the disk and the requests."""
    browser = operated.browser
    first = plain(browser.get("/"))
    assert "The server is running" in first
    assert "1 proposed" in first
    assert fingerprint(operated.server.context.identity.party_id) in first
    assert re.search(r"study signature office", first)
    assert "free" in first
    parties = plain(browser.get("/parties"))
    assert operated.study.curators[1].home.fingerprint in parties
    assert "proposed" in plain(browser.get("/studies"))
    study = plain(browser.get(operated.page))
    assert re.search(r"curator office [\d ]+ no", study)
    assert "POST /v1/studies 201" in plain(browser.get("/requests"))
    assert browser.client.get("/studies/ffff").status_code == 404
    for path in ("/ledger", "/identity", "/unlock", "/explore"):
        assert browser.client.get(path).status_code == 404, path


def test_an_invitation_is_shown_once(operated: Operated, tmp_path: Path) -> None:
    """With its file; two clicks make one, and the code is on no page afterwards."""
    browser, before = operated.browser, Counter(operated.invitations)
    good = {"name": "New clinic", "url": operated.server.url, "days": "3"}
    for wrong, words in (
        ({"name": ""}, "is empty"),
        ({"name": "x" * 10_000}, "10,000 characters"),
        ({"days": "0"}, "cannot be good for"),
        ({"days": "soon"}, "must be a number"),
        ({"url": "ftp://nowhere"}, ""),
    ):
        refused = browser.fill_in("/invitations", "/invitations", **good | wrong)
        assert refused.status_code == 422
        assert words in plain(refused.text)
        assert 'value="3"' in refused.text or "days" in wrong
    form = browser.form("/invitations", "/invitations")
    assert browser.send("/invitations", {**form, **good}).status_code == 422  # not ticked
    assert Counter(operated.invitations) == before
    first, again = (browser.send("/invitations", {**form, **good, "sure": "on"}) for _ in range(2))
    code = re.search(r'class="big digits">([0-9A-Z -]+)<', first.text)
    assert code is not None
    assert code[1] in again.text
    # Those of one second are in no order.
    assert Counter(operated.invitations) - before == Counter(["New clinic"])
    link = re.search(
        r'href="data:application/json;base64,([^"]+)" download="new-clinic.json"', first.text
    )
    assert link is not None
    file = tmp_path / "invitation.json"
    file.write_bytes(base64.b64decode(link[1]))
    assert read_invitation(file).code == code[1]
    browser.clock.now += REPEATED_SECONDS
    late = browser.send("/invitations", {**form, **good, "sure": "on"})
    assert "nothing was done again" in plain(late.text)
    for path in PAGES:
        assert code[1] not in browser.get(path), path
    assert code[1] not in late.text
    home = Home(tmp_path / "home")
    home.create("New clinic")
    digits = fingerprint(operated.server.context.identity.party_id)
    home.register(file, fingerprint=digits)
    assert "New clinic used" in plain(browser.get("/invitations"))


def test_without_an_address_there_is_a_code_alone(operated: Operated) -> None:
    """And nothing to save."""
    shown = operated.browser.fill_in("/invitations", "/invitations", name=f"{SCRIPT}", url="")
    assert "Read them the code" in plain(shown.text)
    assert "data:application" not in shown.text


def test_the_log(operated: Operated) -> None:
    """Its last lines, the newest first; whoever wrote them."""
    browser, log = operated.browser, operated.log
    assert "cannot be read" in plain(browser.get("/log"))
    lines = [{"time": "10:00", "level": "info", "event": "listening", "url": SCRIPT}]
    text = "\n".join(
        [*(json.dumps(line) for line in lines), f"Traceback {SCRIPT}{MARK}", "x" * 10**6]
    )
    log.write_text(text, "utf-8")
    assert "listening" not in browser.get("/log")  # the last quarter of a megabyte is one line
    log.write_text(text[: -(10**6)], "utf-8")
    page = plain(browser.get("/log"))
    assert page.index("Traceback") < page.index("listening")
    assert f"url: {SCRIPT}" in page


def test_metrics_that_are_not_there(operated: Operated) -> None:
    """A page says so, and what to do."""
    state = operated.browser.state
    assert isinstance(state, OperatorState)
    port, state.metrics_port = state.metrics_port, 1
    assert "no server answers for its metrics" in plain(operated.browser.get("/requests")).lower()
    state.metrics_port = 0
    assert "--metrics-port" in operated.browser.get("/requests")
    state.metrics_port = port


def test_end_a_study(operated: Operated) -> None:
    """With a tick and a reason, which everybody in it is told."""
    browser, page = operated.browser, operated.page
    for fields in ({"reason": ""}, {"reason": "x" * 10_000}, {"reason": "two\nlines"}):
        refused = browser.fill_in(page, f"{page}/abort", **fields)
        assert refused.status_code == 409
    form = browser.form(page, f"{page}/abort")
    unticked = browser.send(f"{page}/abort", {**form, "reason": "the disk is full"})
    assert 'value="the disk is full"' in unticked.text
    curator = operated.study.curators[1]
    assert curator.server.status(operated.study.study).state == "proposed"
    for _ in range(2):
        done = browser.send(f"{page}/abort", {**form, "reason": "the disk is full", "sure": "on"})
        assert "is ended, for everybody in it" in plain(done.text)
    status = curator.server.status(operated.study.study)
    assert (status.state, status.reason) == ("aborted", "the server: the disk is full")
    assert "End it" not in browser.get(page)


def test_the_root_of_the_server(operated: Operated) -> None:
    """It says what this is, and nothing else: no script, no cookie, nothing from elsewhere."""
    answer = httpx.get(f"{operated.server.url}/", trust_env=False)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "set-cookie" not in answer.headers
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert "script" not in policy
    assert "unsafe" not in policy
    text = plain(answer.text)
    assert fingerprint(operated.server.context.identity.party_id) in text
    assert "veiltab register" in text
    assert "the page Identity of your own veiltab console" in text
    assert not re.search(r"<(script|a|img|link|form|iframe)\b", answer.text)
    assert "office" not in text
