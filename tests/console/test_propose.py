"""Proposing a study from a page: field by field wrong, then right, twice clicked, once proposed."""

import html
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.pages import ORIGIN, READS, Browser, party_browser, plain, secrets_of
from tests.support.servers import Server, make_context, running
from tests.support.slow_tables import SlowTable, SlowTables
from veiltab.console import proposing
from veiltab.console.pages import actions
from veiltab.party.context import PartyContext
from veiltab.party.home import identity_text
from veiltab.party.study_file import read_study_file
from veiltab.wire.contract import Contract

SCRIPT = "<script>alert(1)</script>"


@dataclass
class World:
    """A server, two curators who know each other, and a researcher who is known to nobody."""

    server: Server
    folder: Path
    hospital: PartyContext
    office: PartyContext
    rivera: PartyContext


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Return the parties; the hospital has a budget."""
    folder = tmp_path_factory.mktemp("proposals")
    names = ("City hospital", f"Tax {SCRIPT}", "Dr Rivera")
    with running(make_context(folder / "data")) as server:
        parties = [server.join(name, folder / str(at)) for at, name in enumerate(names)]
        hospital, office, rivera = parties
        hospital.home.known.remember([office.home.public])
        hospital.home.set_budget("Patients 2025", 5, delta=1e-4)
        yield World(server, folder, hospital, office, rivera)


@pytest.fixture
def hospital(world: World) -> Iterator[Browser]:
    """Return the browser of the curator who proposes; after each test no page has run a script."""
    with party_browser(world.hospital.home.path) as browser:
        yield browser
        pages = [text for text in browser.seen.values() if text.startswith("<!doctype")]
        assert SCRIPT not in "".join(pages)


Fields = dict[str, str | list[str]]


def good(world: World, **changes: str | list[str]) -> Fields:
    """Return the fields of a form that is complete."""
    fields: Fields = {
        "title": "Smoking and income",
        "population": "10 000",
        "population_is": "about",
        "linkage": "matched",
        "epsilon": "1",
        "delta": "0",
        "normalise": ["nfc", "trim"],
        "c0:party": "me",
        "c0:a0:name": "smoker",
        "c0:a0:categories": "no\r\nyes\r\n",
        "c0:a1:name": "",
        "c0:a1:categories": "",
        "c1:party": world.office.identity.party_id.hex(),
        "c1:a0:name": SCRIPT,
        "c1:a0:categories": f"low, or none\n{SCRIPT}",
        "researcher": "",
    }
    return fields | changes


def send(browser: Browser, step: str, fields: Fields) -> tuple[int, str]:
    """Send the form to one of its buttons; return the status and the text of the page."""
    hidden = browser.form("/propose", "/propose/terms")
    answer = browser.send(f"/propose/{step}", {**hidden, **fields})
    return answer.status_code, answer.text


def hidden_fields(text: str) -> Fields:
    """Return what the page of terms sends with its box ticked."""
    form = re.findall(r'<form[^>]* action="/propose/send".*?</form>', text, re.DOTALL)[0]
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form):
        found.setdefault(name, []).append(html.unescape(value))
    return {name: values if len(values) > 1 else values[0] for name, values in found.items()}


def proposed(party: PartyContext) -> list[Contract]:
    """Return the contracts that a curator was sent."""
    listed = [*party.server.studies(inbox=True), *party.server.studies()]
    return [party.contract(line.study).body for line in listed]


WRONG: tuple[tuple[Fields, str, str], ...] = (
    ({"title": ""}, "The title", "title"),
    ({"epsilon": "much"}, "ε must be a number, not 'much'", "epsilon"),
    ({"epsilon": ""}, "ε is missing", "epsilon"),
    ({"epsilon": "-1"}, "ε: epsilon must", "epsilon"),
    ({"delta": "2"}, "δ: delta must", "delta"),
    ({"delta": "0,001"}, "δ must be a number, not '0,001'", "delta"),
    ({"population": ""}, "The number of respondents is missing", "population"),
    ({"population": "1.5"}, "The number of respondents must be", "population"),
    ({"population_is": "stated"}, "nobody learns how many", "population"),
    ({"mechanism": "magic"}, "The way the promise is kept must be", "mechanism"),
    ({"mechanism": "shuffle"}, "gains nothing without a delta", "mechanism"),
    ({"epsilon_with_curator": "x"}, "ε if a curator helps must be", "epsilon_with_curator"),
    ({"columns": "0"}, "The number of id columns must", "columns"),
    ({"pads": "none"}, "The pads must be", "pads"),
    ({"c0:party": ""}, "Curator no. 1: nobody is chosen", "c0:party"),
    ({"c0:a0:name": ""}, "You, attribute no. 1: its name", "c0:a0:name"),
    ({"c0:a0:categories": ""}, "You, attribute “smoker”: its categories", "c0:a0:categories"),
    ({"c0:a0:categories": "a\na"}, "You, attribute “smoker”: its categories", "c0:a0:categories"),
    ({"c0:a0:categories": "Yes\nyes"}, "'yes' looks like 'Yes'", "c0:a0:categories"),
    ({"c0:a0:name": "", "c0:a0:categories": ""}, "You: no attribute is written", "c0:a0:name"),
    ({"c0:a0:name": "FILL IN"}, "it says FILL IN", ""),
    ({"c1:a0:name": "smoker"}, "smoker", ""),
    ({"researcher": "me"}, "Researcher no. 1: who it is: 'City hospital' is named already", ""),
    ({"c1:party": "f" * 64}, "you know no party", ""),
)


def test_every_wrong_field_is_said_in_its_words_and_nothing_is_lost(
    world: World, hospital: Browser
) -> None:
    """The form comes back with all that was typed, and the cursor can go to the mistake."""
    for changes, words, field in WRONG:
        status, text = send(hospital, "terms", good(world, **changes))
        assert status == 422, changes
        alert = plain(text.partition('role="alert">')[2].partition("</div>")[0])
        assert words.lower() in alert.lower(), (changes, alert)
        assert "[[" not in alert
        assert '= "' not in alert.replace('mechanism = "decoys"', "")
        if field:
            assert f'href="#{field}"' in text, (changes, field)
            assert re.search(rf'id="{field}" aria-invalid="true"', text), (changes, field)
        for name, value in good(world, **changes).items():
            if name in ("title", "epsilon", "delta", "population") and value:
                assert f'value="{value}"' in text, (changes, name)
    assert proposed(world.office) == []
    assert world.hospital.home.studies() == []


def test_from_the_form_to_the_proposal(world: World, hospital: Browser) -> None:
    """Terms first, then a box, then one study however often it is clicked."""
    assert 'href="/propose"' in hospital.get("/")
    status, text = send(hospital, "terms", good(world))
    assert status == 200
    shown = plain(text)
    for words in (
        "kept by a coin and decoys",
        "each respondent takes part with a chance of",
        "those whom all curators hold, matched by the server",
        "percentage points a cell",
        "a researcher alone",
        "ε = 5 of 5 left without this study, 4 with it",
        world.office.home.fingerprint,
    ):
        assert words in shown, words
    fields = hidden_fields(text) | {"dataset": "Patients 2025"}
    token = fields["form_token"]
    answer = hospital.send("/propose/send", fields)  # without the tick
    assert "the box was not ticked" in plain(answer.text)
    assert proposed(world.office) == []
    fields |= {"sure": "on"}
    office = world.office.identity.party_id.hex()
    answer = hospital.send("/propose/send", {**fields, f"digits:{office}": "1" * 30})
    assert answer.status_code == 409
    assert 'value="' + "1" * 30 in answer.text
    changed = hospital.send("/propose/send", {**fields, "epsilon": "2"})
    assert "not those that you have read" in plain(changed.text)
    assert "ε = 2" in plain(changed.text)  # the new terms are there to be read
    wrong = hospital.send("/propose/send", {**fields, "form_token": "0" * 64})
    assert wrong.status_code == 403
    assert proposed(world.office) == []
    assert world.hospital.home.studies() == []
    assert [stored.ledger.entries for stored in world.hospital.home.budgets()] == [()]

    fields |= {f"digits:{office}": world.office.home.fingerprint}
    for _ in range(2):  # a double click
        done = hospital.send("/propose/send", fields)
        assert "You have proposed and signed “Smoking and income”" in plain(done.text)
    assert fields["form_token"] == token
    hospital.clock.now += 60
    late = hospital.send("/propose/send", fields)
    assert "was sent before, and nothing was done again" in plain(late.text)
    (contract,) = proposed(world.office)
    assert contract.title == "Smoking and income"
    assert [a.name for terms in contract.curators for a in terms.attributes] == ["smoker", SCRIPT]
    assert contract.curators[1].attributes[0].categories == ("low, or none", SCRIPT)
    assert contract.researchers is None
    assert world.hospital.home.known.find(office).verified is not None
    (stored,) = world.hospital.home.budgets()
    assert [entry.epsilon for entry in stored.ledger.entries] == [1.0]
    assert 'id="title" name="title" inputmode="text" autocomplete="off" value=""' in hospital.get(
        "/propose"
    )


def test_the_form_as_a_study_file_and_back(world: World, hospital: Browser, tmp_path: Path) -> None:
    """What is downloaded is what would be proposed; what is wrong with a file is said by line."""
    status, text = send(hospital, "file", good(world, population_is="about"))
    assert status == 200
    file = tmp_path / "study.toml"
    file.write_text(text)
    draft = read_study_file(file, world.hospital.home.public)
    assert draft.expected_population == 10_000
    assert draft.curators[1].identity == world.office.home.public
    for given in (text, str(file)):
        status, page = send(hospital, "terms", {"text": given})
        assert status == 200
        assert "kept by a coin and decoys" in plain(page)
        assert hidden_fields(page)["text"].strip() == text.strip()  # type: ignore[union-attr]
    broken = text.replace('name = "smoker"', 'name = "FILL IN"')
    line = broken.splitlines().index(next(row for row in broken.splitlines() if "FILL" in row)) + 1
    status, page = send(hospital, "terms", {"text": broken})
    assert status == 422
    assert f"FILL IN on line {line}" in plain(page)
    assert html.escape('name = "FILL IN"', quote=True).replace("&quot;", "&#34;") in page
    status, page = send(hospital, "terms", {"text": str(tmp_path / "absent.toml")})
    assert "annot read the study file" in plain(page)
    status, page = send(hospital, "terms", {"text": "title = 3\n"})
    assert "line 1: title must be" in plain(page).replace("title: must", "title must")


def test_a_party_is_added_by_its_file(world: World, hospital: Browser) -> None:
    """By its content or its path; then it can be chosen, and stays so."""
    _, text = send(hospital, "party", good(world) | {"identity": "{}"})
    assert "is not a public identity" in plain(text)
    assert 'value="Smoking and income"' in text
    _, text = send(hospital, "party", good(world) | {"identity": ""})
    assert "No identity is given" in plain(text)
    public = identity_text(world.rivera.home.public)
    _, text = send(hospital, "party", good(world) | {"identity": public})
    assert "Dr Rivera can be chosen now" in plain(text)
    assert f"Dr Rivera, {world.rivera.home.fingerprint}, not compared" in plain(text)
    party = world.rivera.identity.party_id.hex()
    status, text = send(hospital, "terms", good(world, researcher=[party, ""]))
    assert status == 200
    assert "researcher Dr Rivera" in plain(text)
    downloaded = hospital.client.get("/identity/public.json")
    assert downloaded.text == identity_text(world.hospital.home.public)
    assert "attachment" in downloaded.headers["content-disposition"]


def test_no_page_shows_what_is_in_a_file_of_keys(world: World, hospital: Browser) -> None:
    """Whoever takes it for another file is told so; a path stays to be changed, content goes."""
    home = world.hospital.home
    keys = home.path / "identity.key"
    form = hospital.form("/identity", "/identity/add") | {"sure": "on"}
    for action, fields, kept in (
        ("/propose/terms", {"text": str(keys)}, str(keys)),
        ("/propose/terms", {"text": keys.read_text()}, ""),
        ("/propose/party", {"identity": str(keys)}, str(keys)),
        ("/propose/party", {"identity": keys.read_text()}, ""),
        ("/identity/add", form | {"identity": str(keys)}, str(keys)),
        ("/identity/add", form | {"identity": keys.read_text()}, ""),
    ):
        answer = hospital.send(action, good(world) | form | fields)
        assert answer.status_code == 422
        assert f">{kept}</textarea>" in answer.text
        assert [secret for secret in secrets_of(home) if secret in answer.text] == []
    unticked = form | {"identity": identity_text(world.rivera.home.public)}
    del unticked["sure"]
    again = hospital.send("/identity/add", unticked)
    assert (
        html.escape(unticked["identity"].strip(), quote=True).replace("&quot;", "&#34;")
        in again.text
    )


def test_attributes_are_drafted_from_a_table(
    world: World, hospital: Browser, tmp_path: Path
) -> None:
    """They take the place of one's own; a table that is not there changes nothing."""
    table = tmp_path / "patients.csv"
    rows = (f"p{i},{('yes', 'no')[i % 2]},{20 + i % 50}" for i in range(200))
    table.write_text("\n".join(["nr,smokes,age", *rows]))
    _, text = send(hospital, "draft", good(world) | {"location": str(tmp_path / "no.csv")})
    assert "no.csv" in plain(text)
    assert 'name="c0:a0:name" autocomplete="off" value="smoker"' in text
    _, text = send(hospital, "draft", good(world) | {"location": str(table)})
    assert "attributes are drafted from your table" in plain(text)
    assert 'name="c0:a0:name" autocomplete="off" value="smokes"' in text
    assert 'name="c0:a1:name" autocomplete="off" value="age"' in text
    assert 'value="nr"' not in text
    assert 'value="Smoking and income"' in text


def test_a_draft_is_read_behind_the_page(
    world: World, hospital: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is changed in the form meanwhile stays changed; a draft can be stopped."""
    slow = SlowTables()
    monkeypatch.setattr(proposing, "open_table", slow)
    monkeypatch.setattr(actions, "MOMENT", 0.01)
    table = tmp_path / "patients.csv"
    table.write_text("\n".join(["nr,smokes", *(f"p{i},{('yes', 'no')[i % 2]}" for i in range(30))]))
    hidden, headers = hospital.form("/propose", "/propose/terms"), {"origin": ORIGIN}
    fields = {**hidden, **good(world), "location": str(table)}

    def begin() -> SlowTable:
        hospital.client.post("/propose/draft", data=fields, headers=headers)
        for _ in range(600):
            if "Reading rows: 10." in plain(hospital.get("/propose/draft")):
                return slow.opened[-1]
            time.sleep(0.05)
        raise AssertionError(hospital.get("/propose/draft"))

    begin()
    other = hospital.client.post("/propose/draft", data=fields, headers=headers)
    assert "Another table is being read" in plain(hospital.get(other.headers["location"]))
    assert len(slow.opened) == 1
    hospital.client.post("/propose/draft/stop", data=fields, headers=headers)
    slow.opened[-1].go_on()
    stopped = wait_while_read(hospital)
    assert "you have stopped that" in plain(stopped)
    assert f'value="{table}"' in stopped
    assert 'value="smoker"' in stopped

    reading = begin()
    send(hospital, "edit", good(world, title="Changed meanwhile") | {"do": "add-researcher"})
    reading.go_on()
    drafted = wait_while_read(hospital)
    assert 'value="smokes"' in drafted
    assert 'value="Changed meanwhile"' in drafted
    assert reading.most_held <= 2
    assert 'value="smokes"' in hospital.get("/propose/draft")  # loaded again


def wait_while_read(browser: Browser) -> str:
    """Load the page of a draft until its table is read."""
    for _ in range(600):
        answer = browser.client.get("/propose/draft", follow_redirects=True)
        if READS not in answer.text:
            return answer.text
        time.sleep(0.05)
    raise AssertionError(answer.text)


def test_rows_are_added_and_taken_away(world: World, hospital: Browser) -> None:
    """And the cursor stands in the new one."""
    _, text = send(hospital, "edit", good(world) | {"do": "add-attribute:1"})
    assert re.search(r'id="c1:a1:name" autofocus', text)
    _, text = send(hospital, "edit", good(world) | {"do": "remove-attribute:0.0"})
    assert 'value="smoker"' not in text
    _, text = send(hospital, "edit", good(world) | {"do": "add-curator"})
    assert re.search(r'id="c2:party" autofocus', text)
    _, text = send(hospital, "edit", good(world) | {"do": "remove-curator:1"})
    assert "Curator 2" not in plain(text)
    _, text = send(hospital, "edit", good(world) | {"do": "add-researcher"})
    assert re.search(r'id="researcher-1" autofocus', text)
    for nonsense in ("", "remove-curator:99", "remove-attribute:0", "fly:1.2.3"):
        status, text = send(hospital, "edit", good(world) | {"do": nonsense})
        assert status == 200
        assert 'value="Smoking and income"' in text
    assert 'value="Smoking and income"' in hospital.get("/propose")  # it was kept
    hospital.send("/propose/anew", hospital.form("/propose", "/propose/terms"))
    assert 'value="Smoking and income"' not in hospital.get("/propose")


def test_locked_keys_lose_nothing(world: World, hospital: Browser) -> None:
    """The form waits until the keys are unlocked."""
    hidden = hospital.form("/propose", "/propose/terms")
    hospital.state.party.lock()  # type: ignore[union-attr]
    answer = hospital.send("/propose/terms", {**hidden, **good(world, title="Kept for later")})
    assert "Unlock your keys" in plain(answer.text)
    unlock = hospital.form("/unlock?next=/propose", "/unlock")
    again = hospital.send("/unlock", {**unlock, "next": "/propose"})
    assert 'value="Kept for later"' in again.text


def test_what_would_say_less_than_a_guess_asks_first(world: World, hospital: Browser) -> None:
    """A box lets it be proposed anyway; a budget that does not fit is said beside the data set."""
    fields = good(world, epsilon="0.001", population="50")
    status, text = send(hospital, "terms", fields)
    assert status == 422
    assert "although a guess would be nearer" in plain(text)
    status, text = send(hospital, "terms", fields | {"anyway": "on"})
    assert status == 200
    status, text = send(hospital, "terms", good(world, epsilon="50"))
    assert status == 200
    assert re.search(r'name="dataset" value="Patients 2025" required\s+disabled', text)


def test_the_numbers_of_a_plan_are_taken_over(hospital: Browser) -> None:
    """The promise, the sizes and who is in the tables; the rest is to be typed."""
    hospital.send("/propose/anew", hospital.form("/propose", "/propose/terms"))
    text = hospital.get(
        "/propose?population=30000&sizes=2,3,4&epsilon=0.5&delta=1e-6&linkage=matched"
        "&epsilon_with_curator=4&mechanism=decoys"
    )
    for value in ("30000", "0.5", "1e-6", "4"):
        assert f'value="{value}"' in text
    assert re.search(r'value="matched" selected', text)
    assert re.findall(r"planned: (\d)", text) == ["2", "3", "4"]
