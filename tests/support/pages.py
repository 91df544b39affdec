"""A browser for the console's pages: without a network, and behind the real guard."""

import asyncio
import html
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
from starlette.types import ASGIApp

from tests.support.explained import assert_explained
from veiltab.console.app import create_console
from veiltab.console.guard import Door, Guard
from veiltab.console.keys import ConsoleParty
from veiltab.console.once import Once
from veiltab.console.state import ConsoleState, OperatorState
from veiltab.crypto.entropy import SystemEntropy
from veiltab.party.home import Home

PORT = 8123
ORIGIN = f"http://127.0.0.1:{PORT}"

READS, MOST_LOOKS = "<h1>Reading your table</h1>", 2000
"""What a page says while a table is read, and how often a browser looks whether it is."""

NAMES_OPTION = re.compile(r"(?<![\w-])--[a-z]")
"""What no page says outside of code: it has no options of commands."""

CODE = re.compile("<code>.*?</code>", re.DOTALL)
"""What is for a terminal, such as how the console is started."""


class Clock:
    """A clock that a test moves on."""

    now = 0.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


class InProcess(httpx.BaseTransport):
    """Asks an application without a network."""

    def __init__(self, app: ASGIApp) -> None:
        """Take the application."""
        self._transport = httpx.ASGITransport(app, raise_app_exceptions=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request, and read its whole answer."""

        async def ask() -> httpx.Response:
            body = httpx.ByteStream(request.read())
            inner = httpx.Request(request.method, request.url, headers=request.headers, stream=body)
            answer = await self._transport.handle_async_request(inner)
            content = await answer.aread()
            return httpx.Response(answer.status_code, headers=answer.headers, content=content)

        return asyncio.run(ask())


class Browser:
    """Somebody with a console open: loads pages, fills in forms, and keeps all that it has seen."""

    origin = ORIGIN

    def __init__(self, state: ConsoleState | OperatorState) -> None:
        """Open the console by its one-time link."""
        self.state, self.clock = state, Clock()
        state.once = Once(self.clock)
        door = Door(SystemEntropy(), self.clock)
        guard = Guard(create_console(state), door=door, port=lambda: PORT, may_ask=lambda _: True)
        self.client = httpx.Client(transport=InProcess(guard), base_url=ORIGIN)
        self.seen: dict[str, str] = {}
        assert self.client.get(f"/enter?token={door.new_token()}").status_code == 200

    def get(self, path: str) -> str:
        """Load a page that is there, and return its text."""
        answer = self.client.get(path, follow_redirects=True)
        assert answer.status_code == 200, answer.text
        return self._see(path, answer)

    def form(self, path: str, action: str, party: object = None) -> dict[str, str]:
        """Load a page, and return the hidden fields of the form with this action.

        ``party`` tells forms with the same action apart.
        """
        text, pattern = self.get(path), r'<input type="hidden" name="(\w+)" value="([^"]*)"'
        forms = [
            {name: html.unescape(value) for name, value in re.findall(pattern, form)}
            for form in re.findall(rf'<form[^>]* action="{action}".*?</form>', text, re.DOTALL)
        ]
        assert forms, f"{path} has no form to {action}"
        return next((form for form in forms if form.get("party") == party), forms[0])

    def send(self, action: str, data: Mapping[str, str | list[str]]) -> httpx.Response:
        """Send a form, and return the answer, or the page that it leads to.

        A table that is read for that page is waited for.
        """
        headers = {"origin": self.origin}
        answer = self.client.post(action, data=dict(data), headers=headers, follow_redirects=True)
        for _ in range(MOST_LOOKS):
            if READS not in answer.text:
                break
            time.sleep(0.05)
            answer = self.client.get(str(answer.url), follow_redirects=True)
        self._see(f"{action} sent", answer)
        return answer

    def fill_in(self, path: str, action: str, **fields: str | list[str]) -> httpx.Response:
        """Load a page, fill in a form with its box ticked, and send it."""
        hidden = self.form(path, action, fields.get("party"))
        return self.send(action, {**hidden, "sure": "on", **fields})

    def _see(self, path: str, answer: httpx.Response) -> str:
        self.seen[f"{path} {len(self.seen)}"] = answer.text
        if answer.headers["content-type"].startswith("text/html"):
            assert_explained(plain(answer.text))
            assert not NAMES_OPTION.search(plain(CODE.sub("", answer.text))), path
        return answer.text


@contextmanager
def party_browser(home: Path, passphrase: str | None = None) -> Iterator[Browser]:
    """Open the console of a party, with its keys unlocked."""
    party = ConsoleParty(home)
    party.unlock(passphrase)
    browser = Browser(ConsoleState(party))
    yield browser
    browser.client.close()


def plain(text: str) -> str:
    """Return what people read of a page: without tags, and with single spaces."""
    visible = re.sub("<[^>]*>", " ", text.replace("<wbr>", ""))
    return " ".join(html.unescape(visible).split())


@contextmanager
def operator_browser(state: OperatorState) -> Iterator[Browser]:
    """Open the console of a server's operator."""
    browser = Browser(state)
    yield browser
    browser.client.close()


def secrets_of(home: Home, passphrase: str | None = None) -> set[str]:
    """Return what a home keeps to itself: its keys, and the secrets and pads of its studies."""
    pairs = home.open(passphrase).pairs
    keys = {key.secret_bytes().hex() for pair in pairs for key in (pair.sealing, pair.signing)}
    return keys | study_secrets(home)


def study_secrets(home: Home) -> set[str]:
    """Return the secrets and pads of a home's studies."""
    found: set[str] = set()
    for study in home.studies():
        folder = home.study(study)
        found |= {part.hex() for part in (folder.secret(), folder.contribution()) if part}
        prepared = folder.path / "prepared.json"
        if prepared.exists():
            found |= set(json.loads(prepared.read_bytes())["keys"])
    return found
