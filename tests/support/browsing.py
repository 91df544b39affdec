"""A real browser before the console's pages, and everything that it sees wrong with them.

    with chromium() as browser, serving(ConsoleState(party)) as console:
        visitor = Visitor(browser, console, "hospital")
        visitor.open("/ledger")
        visitor.fill("Data set", "Patients")
        visitor.press("Set the budget")
        visitor.see("Patients")
        visitor.look("ledger")
        assert visitor.faults == []

A visitor has a profile of its own.  It notes every error in the browser's console (which is where a
violated policy shows), every request to another place, and, of each page that it looks at, what is
cut off or broken at some width, what axe-core finds in light and in dark, and every secret in it.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    TimeoutError,  # noqa: A004 - it is what Playwright calls its own
    sync_playwright,
)

from tests.support.pages import NAMES_OPTION
from tests.support.programs import BROWSER, needed
from veiltab.console.app import ConsoleServer
from veiltab.console.state import ConsoleState, OperatorState
from veiltab.crypto.entropy import SystemEntropy

WIDTHS = (360, 600, 1024, 1600)
HEIGHT = 900
SECONDS = 30.0
"""How long a page may take on a busy machine."""

STATUS = re.compile(r"Failed to load resource: the server responded with a status of (4\d\d|503)")
"""What Chromium says of every page that answers a mistake; such pages are looked at as others."""

REPLACED = re.compile(r"htmx:(afterRequest|sendAbort)\b")
"""What htmx says when somebody has changed a field again before the answer came."""

WORDS = """() => {
    const words = document.body.cloneNode(true);
    for (const one of words.querySelectorAll("code, script, style")) one.remove();
    return words.textContent;
}"""
"""Returns what a page says outside of code."""

FAULTS = (Path(__file__).parent / "faults.js").read_text("utf-8")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the installed browser, until the block ends; without one, the test is not run.

    While it runs, this thread has a running event loop: no test may call ``asyncio.run`` then.
    """
    path = needed(BROWSER)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path,
            args=["--no-sandbox"],  # root may not have one
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def serving(state: ConsoleState | OperatorState, port: int = 0) -> Iterator[ConsoleServer]:
    """Serve a console in a thread, as ``veiltab console`` does, until the block ends."""
    console, ready = ConsoleServer(state, SystemEntropy(), port), Event()
    thread = Thread(target=console.run, args=(ready.set,), daemon=True)
    thread.start()
    assert ready.wait(SECONDS)
    try:
        yield console
    finally:
        console.stop()
        thread.join(SECONDS)


def origin_of(console: ConsoleServer) -> str:
    """Return where a console is."""
    return "{0.scheme}://{0.netloc}".format(urlsplit(console.link()))


@dataclass(eq=False)
class Visitor:
    """Somebody at a console, in a browser profile of their own."""

    browser: Browser
    console: ConsoleServer
    name: str
    faults: list[str] = field(default_factory=list)
    """What was wrong with the pages so far."""
    asked: set[tuple[str, str]] = field(default_factory=set)
    """The methods and paths of all pages that were loaded, and of all forms that were sent."""
    looked_at: set[str] = field(default_factory=set)
    """The paths of the pages that were looked at closely."""
    secrets: set[str] = field(default_factory=set)
    """What no page may hold."""
    _quiet: bool = False
    context: BrowserContext = field(init=False)
    page: Page = field(init=False)
    origin: str = field(init=False)

    def __post_init__(self) -> None:
        """Open the console by its one-time link."""
        self.origin = origin_of(self.console)
        self.context = self.browser.new_context(
            base_url=self.origin,
            viewport={"width": 1024, "height": HEIGHT},
            locale="en-GB",
            timezone_id="Europe/Berlin",
            accept_downloads=True,
        )
        self.context.set_default_timeout(1000 * SECONDS)
        self.context.on("console", self._console)
        self.context.on("weberror", lambda error: self._fault(f"browser: {error.error}"))
        self.context.on("request", self._request)
        self.page = self.context.new_page()
        self.enter()

    def enter(self) -> None:
        """Follow a new one-time link, which must be left nowhere."""
        link = self.console.link()
        self.secrets.add(link.rpartition("=")[2])
        self.page.goto(link)
        self.page.wait_for_url(re.compile(f"^{self.origin}/(begin)?$"))

    # What people do

    def open(self, path: str) -> None:
        """Load a page."""
        self.page.goto(path)

    def follow(self, words: str | re.Pattern[str]) -> None:
        """Click a link."""
        self.page.get_by_role("link", name=words).first.click()

    def form(self, heading: str) -> Locator:
        """Return the form with this heading or summary, opened if it is closed."""
        words = re.compile(rf"^\s*{re.escape(heading)}\s*$")
        headings = self.page.locator("h2, h3, summary, legend").filter(has_text=words)
        form = self.page.locator("form, details, fieldset").filter(has=headings).last
        form.wait_for()
        if form.evaluate("element => element.tagName == 'DETAILS' && !element.open"):
            form.locator("summary").click()
        return form

    def fill(self, label: str, text: str, *, within: Locator | None = None) -> None:
        """Type into a field."""
        (within or self.page).get_by_label(label, exact=True).first.fill(text)

    def choose(self, label: str, option: str, *, within: Locator | None = None) -> None:
        """Choose from a list."""
        (within or self.page).get_by_label(label, exact=True).first.select_option(label=option)

    def tick(self, label: str | re.Pattern[str], *, within: Locator | None = None) -> None:
        """Tick a box, or choose one of several."""
        (within or self.page).get_by_label(label).first.check()

    def press(self, button: str | re.Pattern[str], *, within: Locator | None = None) -> None:
        """Press a button."""
        exact = isinstance(button, str)
        (within or self.page).get_by_role("button", name=button, exact=exact).first.click()

    def see(self, words: str | re.Pattern[str]) -> None:
        """Wait until the page says something."""
        try:
            self.page.get_by_text(words).first.wait_for()
        except TimeoutError as error:
            shown = f"{self.name} does not see {words!r}, but {self.page.url}: {self.text[:2000]}"
            raise AssertionError(shown) from error
        self.page.wait_for_load_state()  # its scripts listen only then

    @property
    def text(self) -> str:
        """What people read on the page."""
        return " ".join(self.page.locator("body").inner_text().split())

    # What is looked at

    def look(
        self, name: str, *, widths: Sequence[int] = WIDTHS, names: bool = True, axe: bool = True
    ) -> None:
        """Look closely at the page: note its faults at all widths, in light and in dark.

        Without ``names``, words may be broken: some have chosen words that fit nowhere.
        """
        page, where = self.page, f"{self.name}, {name}"
        page.wait_for_load_state("load")
        self.looked_at.add(urlsplit(page.url).path)
        if NAMES_OPTION.search(page.evaluate(WORDS)):
            self._fault(f"option: {where} names an option of a command")
        self.faults += [
            f"layout: {where}, {fault}" for fault in layout_faults(page, widths=widths, names=names)
        ]
        if axe:
            self._quiet = True  # axe-core tries styles that the policy forbids
            self.faults += [f"axe: {where}, {fault}" for fault in axe_faults(page)]
            self._quiet = False
        self.look_for_secrets(name)

    def look_for_secrets(self, name: str) -> None:
        """Note every secret that the page, its address or its storage holds."""
        held = self.page.evaluate(
            "() => [document.documentElement.outerHTML, location.href, document.cookie, name,"
            " JSON.stringify(history.state), JSON.stringify({...localStorage}),"
            " JSON.stringify({...sessionStorage}),"
            " ...[...document.querySelectorAll('input, textarea')].map(field => field.value)]"
        )
        for secret in self.secrets:
            if any(secret in text for text in held):
                self._fault(f"secret: {name} holds {secret[:8]}…")

    def _console(self, message: ConsoleMessage) -> None:
        if self._quiet:
            return
        if message.type in {"error", "warning"} and not any(
            known.search(message.text) for known in (STATUS, REPLACED)
        ):
            self._fault(f"browser: {message.text}")

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if f"{parts.scheme}://{parts.netloc}" == self.origin:
            if request.resource_type in {"document", "xhr", "fetch"}:
                self.asked.add((request.method, parts.path))
        elif parts.scheme not in {"data", "blob"}:
            self._fault(f"browser: something is asked of {request.url}")

    def _fault(self, words: str) -> None:
        with suppress(Exception):  # a page may be gone by now
            words = f"{words} (on {urlsplit(self.page.url).path})"
        self.faults.append(f"{words}, {self.name}")


@cache
def axe_script() -> str:
    """Return axe-core."""
    return (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")


def layout_faults(page: Page, *, widths: Sequence[int] = WIDTHS, names: bool = True) -> list[str]:
    """Return what is cut off, broken or too wide on a page at some width."""
    size, found = page.viewport_size, []
    for width in widths:
        page.set_viewport_size({"width": width, "height": HEIGHT})
        faults = page.evaluate(FAULTS, {"words": names})
        found += [f"{width} px: {fault}" for fault in faults]
    if size is not None:
        page.set_viewport_size(size)
    return found


def axe_faults(page: Page) -> list[str]:
    """Return the serious and critical faults of accessibility: all in light, colours in dark too.

    Whatever can be opened is looked at open.
    """
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    page.evaluate(axe_script())
    found = _axe(page, "light", {})
    page.emulate_media(color_scheme="dark")
    found += _axe(page, "dark", {"runOnly": ["color-contrast"]})
    page.emulate_media(color_scheme="light")
    return found


def _axe(page: Page, scheme: str, options: dict[str, Any]) -> list[str]:
    result = page.evaluate(
        "options => axe.run({resultTypes: ['violations'], preload: false, ...options})", options
    )
    return [
        f"{scheme}: {fault['id']} ({fault['impact']}): {node['html'][:120]}:"
        f" {node['failureSummary'][:300]}"
        for fault in result["violations"]
        if fault["impact"] in {"serious", "critical"}
        for node in fault["nodes"][:3]
    ]
