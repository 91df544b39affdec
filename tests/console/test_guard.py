"""The guard before every page: other sites, programs, host names and forms do not get past it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from unittest.mock import Mock

import httpx
import pytest

from tests.support.cases import for_each
from tests.support.pages import ORIGIN, PORT, Clock, InProcess, plain
from veiltab.console.app import create_console
from veiltab.console.guard import LINK_SECONDS, SESSION_SECONDS, Door, Guard
from veiltab.console.keys import ConsoleParty
from veiltab.console.state import ConsoleState
from veiltab.crypto.entropy import SystemEntropy
from veiltab.errors import StateError, VeiltabError
from veiltab.party.home import Home


class Pages:
    """A console without a network, and the secrets that its owner would have."""

    def __init__(self, folder: Path, home: Path | None = None) -> None:
        """Make a home with an identity, unless there is one, and open the console once."""
        if home is None:
            Home(folder / "home").create("City hospital")
        self.clock = Clock()
        self.party = ConsoleParty(home or folder / "home", idle_seconds=60, clock=self.clock)
        self.door = Door(SystemEntropy(), self.clock)
        self.state = ConsoleState(self.party)
        app = create_console(self.state)
        guard = Guard(app, door=self.door, port=lambda: PORT, may_ask=lambda _: True)
        self.client = httpx.Client(transport=InProcess(guard), base_url=ORIGIN)

    def enter(self) -> None:
        """Open the one-time link."""
        token = self.door.new_token()
        assert self.client.get(f"/enter?token={token}").status_code == 200
        self.party.unlock(None)

    def form_token(self) -> str:
        """Return the secret of this session's forms."""
        match = re.search('name="form_token" value="([0-9a-f]+)"', self.client.get("/ledger").text)
        assert match is not None
        return match[1]

    def post(self, path: str, **options: object) -> httpx.Response:
        """Send a good form, but for what a test changes."""
        headers = {"origin": ORIGIN, **options.pop("headers", {})}  # type: ignore[dict-item]
        data = {"form_token": self.form_token(), **options.pop("data", {})}  # type: ignore[dict-item]
        return self.client.post(
            path,
            data=data,
            headers=headers,
            follow_redirects=False,
            **options,  # type: ignore[arg-type]
        )


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    """Return a console that its owner has opened."""
    made = Pages(tmp_path)
    made.enter()
    yield made
    made.client.close()


def test_a_link_works_once(tmp_path: Path) -> None:
    """Whoever finds it in a history or a log later is not let in."""
    made = Pages(tmp_path)
    token = made.door.new_token()
    assert made.client.get("/ledger").status_code == 401
    assert made.client.get(f"/enter?token={token}").status_code == 200
    assert made.client.get("/ledger").status_code == 200
    made.client.cookies.clear()
    assert made.client.get(f"/enter?token={token}").status_code == 401
    assert made.client.get("/ledger").status_code == 401


def test_a_link_is_used_by_opening_it_alone(tmp_path: Path) -> None:
    """Not by a program that looks where it leads, nor by a link with something added to it."""
    made = Pages(tmp_path)
    token = made.door.new_token()
    assert made.client.head(f"/enter?token={token}").status_code == 401
    for query in (f"a=1&b=2&token={token}", f"token={token}&a=1&b=2", "", "token", "&" * 9, "=="):
        assert made.client.get(f"/enter?{query}").status_code == 401
    assert made.client.get(f"/enter?token={token}").status_code == 200


def test_a_new_link_ends_the_one_before(tmp_path: Path) -> None:
    """One link is open at a time, and for ten minutes."""
    made = Pages(tmp_path)
    first, second = made.door.new_token(), made.door.new_token()
    assert made.client.get(f"/enter?token={first}").status_code == 401
    made.clock.now += LINK_SECONDS
    assert made.client.get(f"/enter?token={second}").status_code == 401


@for_each("token", ["", "0", "é", "0" * 64, "' OR 1=1", "%00"])
def test_no_other_token_opens_it(tmp_path_factory: pytest.TempPathFactory, token: str) -> None:
    """Whatever it looks like."""
    made = Pages(tmp_path_factory.mktemp("home"))
    made.door.new_token()
    assert made.client.get("/enter", params={"token": token}).status_code == 401


@for_each(
    "host",
    ["evil.example", "localhost:8123", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:8124",
     "[::1]:8123", "127.0.0.1.nip.io:8123"],
)  # fmt: skip
def test_other_host_names_are_refused(pages: Pages, host: str) -> None:
    """A name that an attacker's DNS points to this computer (DNS rebinding)."""
    refused = pages.client.get("/ledger", headers={"host": host})
    assert refused.status_code == 421
    assert "Ledger" not in refused.text


@for_each(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
    ],
)
def test_other_sites_cannot_read(pages: Pages, headers: dict[str, str]) -> None:
    """Also other programs on this computer, whose pages the browser calls the same site."""
    assert pages.client.get("/ledger", headers=headers).status_code == 403


def test_a_link_on_another_page_may_lead_here(pages: Pages) -> None:
    """As a page by itself, and in no frame."""
    headers = {
        "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document",
    }  # fmt: skip
    assert pages.client.get("/ledger", headers=headers).status_code == 200


def test_a_good_form_is_carried_out(pages: Pages) -> None:
    """So that the tests below fail for their own reasons."""
    done = pages.post("/ledger", data={"dataset": "Patients", "epsilon": "3"})
    assert done.status_code == 303
    assert [b.ledger.dataset for b in pages.party.home.budgets()] == ["Patients"]


@for_each(
    "change",
    [
        {"headers": {"origin": "https://evil.example"}},
        {"headers": {"origin": "null"}},
        {"headers": {"origin": "http://127.0.0.1:9999"}},
        {"headers": {"sec-fetch-site": "cross-site"}},
        {"headers": {"sec-fetch-site": "same-site"}},
        {"headers": {"content-type": "text/plain"}},
        {"headers": {"content-type": "application/json"}},
        {"headers": {"content-type": "multipart/form-data; boundary=x"}},
        {"data": {"form_token": ""}},
        {"data": {"form_token": "0" * 64}},
        {"data": {"form_token": "é"}},
        {"data": {"note": "x" * (1 << 20)}},
    ],
)
def test_no_other_form_changes_anything(pages: Pages, change: dict[str, dict[str, str]]) -> None:
    """From another origin, of another kind, without this session's secret, or too large."""
    data = {"dataset": "Patients", "epsilon": "3", **change.get("data", {})}
    refused = pages.post("/ledger", data=data, headers=change.get("headers", {}))
    assert refused.status_code in {403, 413, 415}
    assert pages.party.home.budgets() == []


def test_a_form_without_an_origin_changes_nothing(pages: Pages) -> None:
    """Browsers state the origin of every form."""
    data = {"form_token": pages.form_token(), "dataset": "Patients", "epsilon": "3"}
    assert pages.client.post("/ledger", data=data).status_code == 403


def test_the_secret_of_another_session_is_no_use(pages: Pages) -> None:
    """Forms are bound to the browser that loaded them."""
    old = pages.form_token()
    pages.client.cookies.clear()
    pages.enter()
    data = {"form_token": old, "dataset": "Patients", "epsilon": "3"}
    assert pages.post("/ledger", data=data).status_code == 403


@for_each("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(pages: Pages, method: str) -> None:
    """Pages are read and forms are sent."""
    refused = pages.client.request(method, "/ledger")
    assert refused.status_code == 405
    assert "Pages are read and forms are sent" in refused.text  # before any page is asked


@for_each(
    "path", ["/", "/ledger", "/plan", "/identity", "/nowhere", "/static/console.css", "/enter"]
)
def test_every_answer_forbids_frames_and_foreign_scripts(pages: Pages, path: str) -> None:
    """Errors included."""
    headers = pages.client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-eval" not in policy
    assert headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


@for_each(
    "path",
    ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/%2fetc%2fpasswd",
     "/static/console.css%00.py", "/static/.", "/static/__init__.py"],
)  # fmt: skip
def test_only_the_files_of_pages_are_served(pages: Pages, path: str) -> None:
    """Whatever a path says."""
    answer = pages.client.get(path)
    assert answer.status_code == 404
    assert "import" not in answer.text


def test_the_cookie_is_kept_from_scripts_and_sites(tmp_path: Path) -> None:
    """HttpOnly, strict, and with a name of its own for each port."""
    made = Pages(tmp_path)
    answer = made.client.get(f"/enter?token={made.door.new_token()}")
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith(f"veiltab-console-{PORT}=")
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_a_session_ends(pages: Pages) -> None:
    """After half a day it takes a new link."""
    pages.clock.now += SESSION_SECONDS
    assert pages.client.get("/ledger").status_code == 401


def test_values_of_a_failed_push_are_locked_with_the_keys(pages: Pages) -> None:
    """How far a push is may be seen; why it failed names values of the table."""

    def fail(_: object) -> None:
        raise StateError("no category covers 'C34.1'", hint="correct the table")

    task = pages.state.tasks.start("push ab", "Pushing your table", fail)
    assert task.wait(10)
    page = "/studies/ab/progress/push"
    assert "C34.1" in pages.client.get(page).text
    pages.party.lock()
    locked = pages.client.get(page)
    assert "C34.1" not in locked.text
    assert locked.headers["location"] == "/unlock?next=/studies/ab/progress/push"
    running = Event()
    pages.state.tasks.start("push cd", "Pushing your table", lambda _: running.wait(10))
    assert "Pushing your table" in pages.client.get("/studies/cd/progress/push").text
    running.set()


def test_keys_are_locked_when_nobody_uses_them(pages: Pages) -> None:
    """And unlocked again by whoever has the passphrase."""
    pages.clock.now += 59
    pages.party.identity()
    pages.clock.now += 59
    states = [pages.party.unlocked]
    pages.clock.now += 2
    states.append(pages.party.unlocked)
    assert states == [True, False]
    sent = pages.client.get("/explore/abc", follow_redirects=False)
    assert sent.headers["location"] == "/unlock?next=/explore/abc"
    unlocked = pages.post("/unlock", data={"next": "/explore/abc"})
    assert unlocked.headers["location"] == "/explore/abc"
    assert pages.party.unlocked


@for_each(
    "target", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:1", ""]
)
def test_unlocking_leads_to_no_other_site(pages: Pages, target: str) -> None:
    """A link to the console cannot send people elsewhere."""
    assert pages.post("/unlock", data={"next": target}).headers["location"] == "/"


@pytest.mark.parametrize(
    ("harm", "status", "words"),
    [
        ("damaged", 500, "known.json is damaged"),
        ("open to others", 409, "Others can open"),
        ("unexpected", 500, "Nobody expected this"),
    ],
)
def test_harm_to_a_home_is_said_in_words(
    pages: Pages, monkeypatch: pytest.MonkeyPatch, harm: str, status: int, words: str
) -> None:
    """What somebody can mend is a conflict; what no page has caused is a failure."""
    known = pages.party.path / "known.json"
    known.write_bytes(b"{}")
    known.chmod(0o644 if harm == "open to others" else 0o600)
    if harm == "unexpected":
        known.unlink()
        failing = Mock(side_effect=VeiltabError("nobody expected this", hint="call somebody"))
        monkeypatch.setattr(Home, "budgets", failing)
    page = "/ledger" if harm == "unexpected" else "/identity"
    shown = pages.client.get(page)
    assert shown.status_code == status
    assert words in plain(shown.text)
    part = pages.client.get(page, headers={"hx-request": "true"})
    assert part.status_code == 200
    assert words in plain(part.text)


FIRST_PAGES = """
import sys
from pathlib import Path
from tests.support.pages import Browser, ConsoleParty, ConsoleState

party = ConsoleParty(Path(sys.argv[1]))
browser = Browser(ConsoleState(party))
for page in ("/unlock", "/", "/static/console.css", "/plan"):
    party.unlock(None)
    browser.get(page)
    print(page, *(name for name in ("polars", "scipy", "altair") if name in sys.modules))
"""


def test_a_console_begins_without_tables_and_estimates(tmp_path: Path) -> None:
    """Its first pages load none; whoever asks for another page at once gets it."""
    Home(tmp_path / "home").create("City hospital")
    command = [sys.executable, "-c", FIRST_PAGES, str(tmp_path / "home")]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    *first, plan = shown.stdout.splitlines()
    assert first == ["/unlock", "/", "/static/console.css"]
    assert plan.startswith("/plan polars scipy")
