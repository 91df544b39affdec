"""Studies on stored tables and overlap counts, on the pages of a study."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.pages import Browser, party_browser, plain
from tests.support.servers import Server, make_context, running, wait_for
from tests.support.stored import COMMON, StoredParties, tables
from veiltab.console.pages.inbox import my_step, others
from veiltab.party.session import Session

pytestmark = pytest.mark.slow

SURE = 25.0
"""An ε so large that the answer of an overlap count is right to a person or two."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a server."""
    with running(make_context(tmp_path_factory.mktemp("server") / "data")) as server:
        yield server


@pytest.fixture(scope="module")
def parties(server: Server, tmp_path_factory: pytest.TempPathFactory) -> StoredParties:
    """Return two curators."""
    return StoredParties.join(server, tmp_path_factory.mktemp("homes"))


@pytest.fixture(scope="module")
def office(parties: StoredParties) -> Iterator[Browser]:
    """Return the first curator's browser."""
    with party_browser(parties.hospital.home.path) as browser:
        yield browser


def read(office: Browser, page: str, words: str) -> str:
    """Load a page until it says something."""
    for _ in range(600):
        if words in (text := plain(office.get(page))):
            return text
    raise AssertionError(text)


def test_a_study_on_stored_tables_gets_new_pads(parties: StoredParties, office: Browser) -> None:
    """The page asks for them once the rows are drawn, and for no table before or after that."""
    parties.store()
    parties.proposed("on a vault")
    study = Session(parties.hospital).study("on a vault")
    page = f"/studies/{study.id}"
    assert "Check your table against it first" not in plain(office.get(page))
    study.sign()
    wait_for(parties.hospital, bytes.fromhex(study.id), "sampled")
    undrawn, home = replace(study.status(), state="open"), parties.hospital.home
    assert my_step(undrawn, home) == ""
    assert others(undrawn, home) == ()  # it waits for the server
    assert "on a vault Send new pads for your stored table" in plain(office.get("/"))
    asked = plain(office.get(page))
    assert "Waits for you Send new pads for your stored table" in asked
    assert "Choose a table" not in asked
    form = office.form(page, f"{page}/resume")
    unsure = office.send(f"{page}/resume", form)
    assert "the box was not ticked" in plain(unsure.text).lower()
    office.send(f"{page}/resume", form | {"sure": "on"})
    read(office, f"{page}/progress/push", "Done.")
    assert study.status().curators[0].uploaded
    assert "Your new pads are with the server" in plain(office.get(page))
    assert "Waits for others taxes" in plain(office.get(page))
    Session(parties.taxes).study("on a vault").answer()
    wait_for(parties.hospital, bytes.fromhex(study.id), "released")
    assert "Waits for you Let a researcher read" in plain(office.get(page))


def test_an_overlap_count_is_pushed_and_read(
    parties: StoredParties, office: Browser, tmp_path: Path
) -> None:
    """With a table of ids alone; the page says the answer, and offers no grants."""
    parties.hospital.home.known.remember([parties.taxes.home.public])
    study = Session(parties.hospital).propose_overlap("In common", ["taxes"], SURE)
    page, table = f"/studies/{study.id}", tmp_path / "patients.csv"
    other = Session(parties.taxes).study("In common")
    other.sign()
    tables()[0].write_csv(table)
    mapping = office.fill_in(f"{page}/table?other=1", f"{page}/table", location=str(table))
    assert "Map your table" in plain(mapping.text)
    assert "Keep what you have chosen" not in mapping.text  # there is nothing to choose
    hidden = office.form(f"{page}/table", f"{page}/table/map") | {"id": "id", "sure": "on"}
    office.send(f"{page}/table/push", hidden)
    read(office, f"{page}/progress/push", "You may close this page")
    other.push(tables()[1], "id")
    read(office, f"{page}/progress/push", "Done.")
    wait_for(parties.hospital, bytes.fromhex(study.id), "released")
    text = plain(office.get(page))
    said = text.partition("How many people you have in common About ")[2]
    assert abs(int(said.partition(" ")[0]) - COMMON) < 10
    assert "Let a researcher read" not in text
    assert "Held by" not in text
    assert "In common Let a researcher read" not in plain(office.get("/"))
