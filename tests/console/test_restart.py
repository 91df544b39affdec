"""A console that is killed in the middle of a push, and started again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import httpx
import pytest

from tests.support.http_simulator import HttpStudy, HttpTerms, http_study
from tests.support.pages import Browser, plain
from tests.support.servers import make_context, running
from tests.support.simulator import Stage
from veiltab.party.home import Home
from veiltab.server import steps

pytestmark = pytest.mark.slow

LONGEST = 120.0
"""Seconds that anything here may take on a busy machine."""


class AtProcess(Browser):
    """A browser at a console that is a process of its own."""

    def __init__(self, link: str) -> None:
        """Open the one-time link."""
        self.origin = link.partition("/enter")[0]
        self.client = httpx.Client(base_url=self.origin, trust_env=False, timeout=LONGEST)
        self.seen = {}
        assert self.client.get(link).status_code == 200


@contextmanager
def console(home: Home) -> Iterator[AtProcess]:
    """Run ``veiltab console`` for a home; it is killed at the end of the block, as by a crash."""
    command = [sys.executable, "-m", "veiltab", "console", "--no-browser", "--json"]
    with subprocess.Popen(  # noqa: S603 - our own command
        [*command, "--home", str(home.path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            link = next(line for line in process.stdout if '"url"' in line).split('"')[3]
            browser = AtProcess(link)
            yield browser
            browser.client.close()
        finally:
            os.kill(process.pid, signal.SIGKILL)


def wait_for(browser: Browser, page: str, words: str) -> str:
    """Load a page until it says something."""
    end = time.monotonic() + LONGEST
    while words not in (text := plain(browser.get(page))):
        assert time.monotonic() < end, text
        time.sleep(0.05)
    return text


def charged(study: HttpStudy) -> list[float]:
    """Return what the first curator's budgets were charged for the study."""
    budgets = study.curators[0].home.budgets()
    return [
        entry.epsilon
        for budget in budgets
        for entry in budget.ledger.entries
        if entry.study == study.study
    ]


def write_table(study: HttpStudy, path: Path) -> None:
    """Write a table whose columns and values are those of the study."""
    [attribute] = study.contract.body.curators[0].attributes
    values = attribute.categories
    rows = (f"p{i},{values[i % len(values)]}" for i in range(study.terms.population))
    path.write_text("\n".join([f"Nr,{attribute.name}", *rows, ""]))


def test_a_push_survives_the_end_of_its_console(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The study's page says so, and it goes on with what was prepared: no byte is another."""
    received, go_on, bundles = Event(), Event(), []
    put_chunks = steps.put_chunks

    def held(*arguments: object) -> bool:
        new = put_chunks(*arguments)  # type: ignore[arg-type]
        bundles.append(new)
        received.set()
        assert go_on.wait(LONGEST)  # the answer reaches nobody
        return new

    monkeypatch.setattr(steps, "put_chunks", held)
    terms = HttpTerms(
        linkage="matched", population=60, sample_size=30, shares=({"smoker": 2}, {"income": 2})
    )
    with running(make_context(tmp_path / "data")) as server:
        study = http_study(server, tmp_path, Stage.OPEN, terms=terms)
        me, page = study.curators[0], f"/studies/{study.study.hex()}"
        prepared = me.home.study(study.study).path / "prepared.json"
        write_table(study, tmp_path / "table.csv")
        before = charged(study)
        with console(me.home) as browser:
            opened = browser.fill_in(
                f"{page}/table", f"{page}/table", location=str(tmp_path / "table.csv")
            )
            assert "Map your table" in plain(opened.text)
            name = study.contract.body.curators[0].attributes[0].name
            fields: dict[str, str | list[str]] = {
                **browser.form(f"{page}/table", f"{page}/table/map"),
                "id": "Nr",
                "duplicates": "refuse",
                "0:column": name,
                "sure": "on",
            }
            browser.send(f"{page}/table/push", fields)
            assert received.wait(LONGEST)
            assert "Your table is on its way" in plain(browser.get(page))
        first = prepared.read_bytes()
        go_on.set()
        assert not any(curator.uploaded for curator in me.server.status(study.study).curators)

        with console(me.home) as browser:
            text = plain(browser.get(page))
            assert "A push was broken off. What was prepared for it is kept" in text
            assert "Your table is on its way" not in text
            resume = f"{page}/resume"
            browser.send(resume, browser.form(page, resume))
            wait_for(browser, f"{page}/progress/push", "Done.")
            assert "Your table is with the server" in plain(browser.get(page))
        assert prepared.read_bytes() == first
        assert bundles == [True]  # the server had all of it, and was sent no chunk again
        mine = me.identity.party_id
        uploaded = [one.party for one in me.server.status(study.study).curators if one.uploaded]
        assert uploaded == [mine]
        assert charged(study) == before == [1.0]
