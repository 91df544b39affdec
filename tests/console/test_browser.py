"""What only a real browser shows: other sites, frames, hostile names, the keyboard, idleness."""

import csv
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Error, expect

from tests.support.browsing import Visitor, axe_faults, chromium, layout_faults, serving
from tests.support.estimates import released_estimate
from tests.support.http_simulator import HttpStudy, HttpTerms, http_study
from tests.support.pages import Clock, secrets_of
from tests.support.servers import Server, make_context, running
from tests.support.simulator import Stage
from veiltab.console import app
from veiltab.console.choice import SHOWN
from veiltab.console.keys import ConsoleParty
from veiltab.console.state import ConsoleState, OperatorState
from veiltab.core.schema import Attribute, CountTable, Schema

pytestmark = pytest.mark.slow

SCRIPT = "<script>document.title = 'owned'; alert(1)</script>"
IMAGE = "<img src=x onerror=\"document.title='owned'\">"
MARKS = "\N{RIGHT-TO-LEFT MARK}"  # overrides are refused in every name
LONG = "x" * 10_000
HEBREW = "עברית עם טקסט"


@dataclass
class World:
    """A console of a party with hostile neighbours, its browser, and the party's clock."""

    server: Server
    study: HttpStudy
    visitor: Visitor
    state: ConsoleState
    clock: Clock
    folder: Path

    @property
    def page(self) -> str:
        """The path of the study's page."""
        return f"/studies/{self.study.study.hex()}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return the browser, one for all."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def world(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Return an open study whose title, parties and attributes are hostile."""
    folder = tmp_path_factory.mktemp("world")
    with running(make_context(folder / "data")) as server:
        names = [f"{SCRIPT}{MARKS}", f"{IMAGE} {HEBREW}", "r" * 900]
        parties = [server.join(name, folder / str(at)) for at, name in enumerate(names)]
        terms = HttpTerms(
            title=f"{SCRIPT}{MARKS}{LONG}"[:900],
            population=60,
            sample_size=30,
            shares=({f"{IMAGE}{MARKS}": 2, LONG[:500]: 2}, {HEBREW: 2}),
        )
        study = http_study(server, folder, Stage.OPEN, terms=terms, parties=parties)
        clock = Clock()
        party = ConsoleParty(parties[0].home.path, idle_seconds=900, clock=clock)
        party.unlock(None)
        parties[0].home.set_budget(f"{SCRIPT}{LONG}"[:900], 3)
        state = ConsoleState(party)
        with serving(state) as console:
            visitor = Visitor(browser, console, "a curator")
            visitor.secrets |= secrets_of(parties[0].home)
            yield World(server, study, visitor, state, clock, folder)


@pytest.fixture(autouse=True)
def _no_fault(world: World) -> Iterator[None]:
    """After every test: nothing that the browser complains of, and no secret on any page."""
    world.visitor.faults.clear()
    yield
    assert world.visitor.faults == []


def hostile_estimate(path: Path) -> Path:
    """Save an estimate whose names are markup, marks, and very long words."""
    kinds = (SCRIPT, IMAGE, f"{HEBREW}{MARKS}", LONG[:1000])
    schema = Schema([Attribute(SCRIPT * 3, kinds), Attribute(LONG[:1000], kinds[:2])])
    counts = np.arange(1, schema.domain_size + 1) * 400
    released_estimate(CountTable(schema, counts), 3.0).save(path)
    return path


def test_hostile_names_stay_text_and_fit(world: World) -> None:
    """Scripts, marks that turn text round, and words of 10,000 letters: wherever names are."""
    visitor = world.visitor
    messy = world.folder / "messy.csv"
    with messy.open("w", encoding="utf-8", newline="") as file:
        rows = [(f"p{i}", (SCRIPT, IMAGE, LONG)[i % 3]) for i in range(30)]
        csv.writer(file).writerows([("id", LONG), *rows])
    estimate = hostile_estimate(world.folder / "hostile.json")
    pages = ["/", world.page, f"{world.page}/table?folder={world.folder}", "/ledger", "/identity"]
    for path in pages:
        visitor.open(path)
        visitor.look(path, widths=(360, 1024), names=False, axe=path == world.page)
        assert visitor.page.title() != "owned"
    visitor.open(f"{world.page}/table")
    visitor.fill("A file, or the address of a database", str(messy))
    visitor.press("Open")
    visitor.see("Map your table")
    visitor.look("a hostile table", widths=(360,), names=False, axe=False)
    visitor.open("/explore")
    visitor.fill("Its file on this computer", str(estimate))
    visitor.press("Open")
    visitor.see("Take it with you")
    for shown, mode in SHOWN.items():
        visitor.choose("Show", mode)
        visitor.page.wait_for_url(f"**show={shown}**")
        visitor.look(mode, widths=(360, 1024), names=False, axe=False)
    assert visitor.page.title() != "owned"
    assert visitor.page.locator("main img, main script").count() == 0


def test_by_keyboard_alone(world: World) -> None:
    """Skip to the content, walk through the menu, set a budget; where one is can be seen."""
    visitor = world.visitor
    page = visitor.page
    visitor.open("/ledger")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")
    for _ in range(30):
        if page.evaluate("document.activeElement.id") == "dataset":
            break
        seen = page.evaluate(
            "(() => { const style = getComputedStyle(document.activeElement);"
            " return style.outlineStyle != 'none' && parseFloat(style.outlineWidth) > 0; })()"
        )
        assert seen, page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
        page.keyboard.press("Tab")
    page.keyboard.type("By keyboard")
    page.keyboard.press("Tab")
    page.keyboard.type("2.5")
    page.keyboard.press("Enter")
    visitor.see("ε = 2.5 of 2.5 left")
    page.keyboard.press("Tab")
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent").strip() == "Planner":
            break
    page.keyboard.press("Enter")
    visitor.see("How far off will the estimates be")


def test_details_open_and_boxes_tick_by_keyboard(world: World) -> None:
    """An action of the study's page, up to its question, without a pointer."""
    visitor = world.visitor
    page = visitor.page
    visitor.open(world.page)
    page.get_by_text("End the study", exact=True).focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("the wrong year")
    page.keyboard.press("Enter")  # the box is not ticked: the browser goes there, and sends nothing
    assert page.evaluate("document.activeElement.type") == "checkbox"
    page.keyboard.press("Space")
    assert page.locator("#sure-abort").is_checked()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "End it"
    assert world.study.curators[0].server.status(world.study.study).state == "open"


def test_two_tabs_and_a_form_that_is_old(world: World) -> None:
    """Each tab does its own; a form from before a new link is refused and changes nothing."""
    visitor = world.visitor
    first = visitor.page
    second = visitor.context.new_page()
    for tab, name in ((first, "One"), (second, "Two")):
        tab.goto("/ledger")
        tab.get_by_label("Data set", exact=True).fill(name)
        tab.get_by_label("ε, all studies together").fill("1")
    for tab in (first, second):
        tab.get_by_role("button", name="Set the budget").click()
        tab.get_by_role("heading", name="Two" if tab is second else "One").wait_for()
    first.goto("/ledger")
    first.get_by_label("Data set", exact=True).fill("Three")
    first.get_by_label("ε, all studies together").fill("1")
    second.goto(world.visitor.console.link())  # a new session in the same browser
    first.get_by_role("button", name="Set the budget").click()
    first.get_by_text("This form is too old").wait_for()
    names = [budget.ledger.dataset for budget in world.state.party.home.budgets()]
    assert {"One", "Two"} <= set(names)
    assert "Three" not in names
    second.close()


def test_keys_that_nobody_uses_are_locked_in_the_middle(world: World) -> None:
    """The next click asks for them, and goes on where one was."""
    visitor = world.visitor
    visitor.open(world.page)
    world.clock.now += 901
    visitor.follow("Choose a table")
    visitor.see("Unlock your keys")
    visitor.press("Unlock")
    visitor.page.wait_for_url("**/table")
    assert visitor.page.url.endswith("/table")


def test_a_page_that_waits_goes_on_by_itself(world: World) -> None:
    """While a study is fetched, without what takes a page away from people who read it."""
    visitor, study, fetched = world.visitor, "ab" * 32, threading.Event()
    world.state.tasks.start(
        f"estimate {study}", "Fetching and decrypting", lambda _: fetched.wait()
    )
    visitor.open(f"/explore/{study}")
    visitor.see("Fetching and decrypting")
    visitor.look("waiting", widths=(360, 1024))
    fetched.set()
    visitor.see("Try again")  # there is no such study


def test_keys_are_locked_though_nobody_asks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The console itself looks at the time: what was read with them does not wait for a click."""
    party, locked = world.state.party, threading.Event()
    monkeypatch.setattr(app, "TICKS", 1)
    monkeypatch.setattr(party, "when_locked", locked.set)
    party.unlock(None)
    world.clock.now += 901
    assert locked.wait(30)
    party.unlock(None)


def test_a_part_of_a_page_that_gets_no_answer_says_so(world: World) -> None:
    """A console that has ended, and a session that has: neither leaves a page that stands still."""
    visitor = world.visitor
    visitor.open("/plan")
    visitor.page.route("**/plan?*", lambda route: route.abort())
    visitor.fill("Respondents", "30000")
    visitor.see("The console does not answer")
    visitor.page.unroute("**/plan?*")
    visitor.fill("Respondents", "40000")
    visitor.see("40,000 respondents")
    assert visitor.page.get_by_role("alert").count() == 0
    visitor.context.clear_cookies()  # as after half a day
    visitor.fill("Respondents", "50000")
    visitor.see("This page is closed")
    visitor.enter()
    visitor.faults.clear()  # what the browser says of a request that failed


def test_a_file_is_chosen_instead_of_pasted(world: World) -> None:
    """It is read into its field; one that is too large, or has keys in it, is not."""
    visitor = world.visitor
    visitor.open("/identity")
    visitor.form("Add a party")
    chooser = visitor.page.locator("#identity-file")
    content = visitor.page.get_by_label("The path of the file, or its content")
    chooser.set_input_files({"name": "a.json", "mimeType": "", "buffer": b"{}"})
    expect(content).to_have_value("{}")
    keys = (world.state.party.path / "identity.key").read_bytes()
    another = ": choose another one."
    for wrong, words in (
        (bytes(300_001), f"This file is too large to be one of these{another}"),
        (keys, f"This file has secrets in it, and no page may hold them{another}"),
    ):
        chooser.set_input_files({"name": "b.json", "mimeType": "", "buffer": wrong})
        expect(chooser).to_have_js_property("validationMessage", words)
        expect(content).to_have_value("{}")


def test_forms_do_without_script(browser: Browser, world: World) -> None:
    """Their buttons do what a script does sooner: plan, open, map and check a table, explore."""
    people = world.folder / "people.csv"
    attributes = world.study.contract.body.curators[0].attributes
    with people.open("w", encoding="utf-8", newline="") as file:
        rows = [(f"p{i}", "ja", attributes[1].categories[i % 2]) for i in range(60)]
        csv.writer(file).writerows([("nr", "first", "second"), *rows])
    smoker, estimate = Schema([Attribute("smoker", ("no", "yes"))]), world.folder / "plain.json"
    released_estimate(CountTable(smoker, np.full(2, 5_000)), 3.0).save(estimate)
    context = browser.new_context(base_url=world.visitor.origin, java_script_enabled=False)
    page = context.new_page()
    page.goto(world.visitor.console.link())
    page.get_by_role("link", name="Planner").click()
    page.get_by_label("Respondents", exact=True).fill("41000")
    page.get_by_role("button", name="Compute").click()
    page.get_by_text("24 cells, 41,000 respondents").wait_for()

    page.goto(f"{world.page}/table?other=1")
    page.get_by_label("A file, or the address of a database").fill(str(people))
    page.get_by_role("button", name="Open", exact=True).click()
    page.locator("[name='0:column']").select_option("first")
    page.locator("[name='1:column']").select_option("second")
    page.get_by_role("button", name="Show the values of the chosen columns").click()
    page.get_by_text("1 value has no category yet, in 60 rows").wait_for()
    page.get_by_label("Category of ja").select_option(index=1)
    page.get_by_role("button", name="Check the whole table").click()
    page.get_by_text("The table fits: 60 respondents").wait_for()

    page.goto("/explore")
    page.get_by_label("Its file on this computer").fill(str(estimate))
    page.get_by_role("button", name="Open", exact=True).click()
    page.get_by_label("Confidence").select_option("99%")
    page.get_by_role("button", name="Show", exact=True).click()
    page.get_by_text("pointwise 99% interval").first.wait_for()
    context.close()


def test_a_one_time_link_is_left_nowhere(world: World) -> None:
    """Not in the address, the way back, a referrer, or what the page can read of its history."""
    visitor = world.visitor
    before = set(visitor.secrets)
    visitor.enter()
    visitor.see("Lock keys")
    [token] = visitor.secrets - before
    page = visitor.page
    navigations = page.evaluate(
        "JSON.stringify([performance.getEntries().map(one => one.name), document.referrer])"
    )
    assert "/enter" not in page.url
    assert token not in navigations
    page.go_back()
    assert "/enter" not in page.url
    visitor.open("/")
    visitor.look_for_secrets("the first page")


class _Elsewhere(http.server.BaseHTTPRequestHandler):
    """Another site on this computer: its page tries what a hostile page can."""

    target = ""
    page = ""

    def do_GET(self) -> None:
        """Answer with the page."""
        body = type(self).page.replace("TARGET", type(self).target).encode()
        self.send_response(200)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base calls it
        """Say nothing."""


HOSTILE = """<!doctype html><title>elsewhere</title>
<iframe id="frame" src="TARGET/ledger"></iframe>
<iframe id="closed" src="TARGET/static/console.css"></iframe>
<img id="image" src="TARGET/static/icon.svg" onload="document.body.dataset.image = 'loaded'">
<script src="TARGET/static/console.js" onload="document.body.dataset.script = 'loaded'"></script>
<form id="form" method="post" action="TARGET/ledger" target="_self">
<input name="dataset" value="Forged"><input name="epsilon" value="9"></form>
<script>
(async () => {
  const read = async (how) => {
    try {
      const answer = await fetch("TARGET/ledger", how);
      return [answer.type, await answer.text()];
    } catch (error) { return ["refused", ""]; }
  };
  window.answers = [
    await read({ credentials: "include" }),
    await read({ credentials: "include", mode: "no-cors" }),
    await read({ method: "POST", credentials: "include", mode: "no-cors",
      body: new URLSearchParams({ dataset: "Forged", epsilon: "9" }) }),
  ];
})();
</script>"""


@pytest.fixture(scope="module")
def elsewhere(world: World) -> Iterator[str]:
    """Serve another site on this computer, which knows where the console is."""
    _Elsewhere.target, _Elsewhere.page = world.visitor.origin, HOSTILE
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_another_site_can_neither_frame_nor_read_nor_change(world: World, elsewhere: str) -> None:
    """With the owner's own cookies in the same browser, and from the same computer."""
    before = [budget.ledger.dataset for budget in world.state.party.home.budgets()]
    page = world.visitor.context.new_page()
    page.goto(elsewhere)
    page.wait_for_function("window.answers")
    for kind, text in page.evaluate("window.answers"):
        assert kind in {"refused", "opaque"}
        assert text == ""
    assert page.evaluate("document.body.dataset.script") is None
    assert page.evaluate("document.body.dataset.image") is None
    framed = [frame for frame in page.frames if frame != page.main_frame]
    assert len(framed) == 2
    for frame in framed:
        assert "Ledger" not in frame.content()
        assert "font" not in frame.content()
    with page.expect_navigation():
        page.evaluate("document.getElementById('form').submit()")
    assert "Not from there" in page.content()
    assert [budget.ledger.dataset for budget in world.state.party.home.budgets()] == before
    page.close()
    world.visitor.faults.clear()  # the other site's own complaints


def test_another_name_for_this_computer_is_refused(browser: Browser, world: World) -> None:
    """A name whose address an attacker changes to this computer's (DNS rebinding)."""
    port = world.visitor.origin.rpartition(":")[2]
    context = browser.new_context()
    page = context.new_page()
    for name in ("localhost", "anything.localhost"):  # browsers resolve these by themselves
        answer = page.goto(f"http://{name}:{port}/ledger")
        assert answer is not None
        assert answer.status == 421
        assert "Ledger" not in page.content()
    context.close()


def test_without_the_cookie_and_with_a_used_link(browser: Browser, world: World) -> None:
    """Another profile of the same user sees a page that says what to do, and nothing else."""
    context = browser.new_context()
    page = context.new_page()
    link = world.visitor.console.link()
    world.visitor.page.goto(link)
    world.visitor.see("Lock keys")
    for path in (link, f"{world.visitor.origin}/ledger", f"{world.visitor.origin}{world.page}"):
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == 401
        assert world.state.party.home.fingerprint not in page.content()
    assert layout_faults(page) == []
    assert axe_faults(page) == []
    context.close()


def test_a_page_may_not_run_what_is_put_into_it(world: World) -> None:
    """If markup ever got through, the policy would still stop it: scripts, handlers, requests."""
    visitor = world.visitor
    visitor.open("/ledger")
    page = visitor.page
    page.evaluate(
        """async () => {
        const put = (html) => document.querySelector("main").insertAdjacentHTML("beforeend", html);
        put('<img src="data:," onerror="window.owned = 1">');
        const script = document.createElement("script");
        script.textContent = "window.owned = 2";
        document.body.append(script);
        const elsewhere = document.createElement("script");
        elsewhere.src = "http://127.0.0.1:9/x.js";
        document.body.append(elsewhere);
        put('<iframe src="/ledger"></iframe><form action="http://127.0.0.1:9/" id="away"></form>');
        await new Promise((done) => setTimeout(done, 200));
        }"""
    )
    assert page.evaluate("window.owned") is None
    stopped = [fault for fault in visitor.faults if "Content Security Policy" in fault]
    assert len(stopped) >= 3
    visitor.faults.clear()


def test_the_servers_root_page(browser: Browser, world: World) -> None:
    """It fits every window, and has no serious fault of accessibility."""
    context = browser.new_context()
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(world.server.url)
    assert layout_faults(page) == []
    assert axe_faults(page) == []
    context.close()


def test_the_operators_pages_with_hostile_parties(browser: Browser, world: World) -> None:
    """Names are text there too, and fit."""
    with serving(OperatorState(world.server.context, None, 0)) as console:
        operator = Visitor(browser, console, "the operator")
        for path in ("/", "/studies", world.page, "/parties"):
            operator.open(path)
            operator.look(path, widths=(360, 1024), names=False, axe=False)
        assert operator.faults == []
        assert operator.page.title() != "owned"
        with pytest.raises(Error):
            operator.page.wait_for_event("dialog", timeout=50)
