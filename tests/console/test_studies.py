"""A study's pages, played by its parties: every action, with a mistake before each of them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.http_simulator import HttpStudy, HttpTerms, http_study
from tests.support.pages import Browser, party_browser, plain, secrets_of
from tests.support.servers import Server, make_context, running
from tests.support.simulator import Stage
from veiltab.core.hashing import labelled_hash
from veiltab.crypto.fingerprint import fingerprint
from veiltab.party.context import PartyContext
from veiltab.party.home import Home
from veiltab.protocol.verify import sign
from veiltab.server.invitations import invite
from veiltab.wire.messages import Alignment

pytestmark = pytest.mark.slow

SCRIPT = "<script>alert(1)</script>"
MARK = "\N{RIGHT-TO-LEFT MARK}"
TITLE = f"{SCRIPT}{MARK}\"'>{'long ' * 150}end"
ATTRIBUTE = f"<b onmouseover=alert(1)>{MARK}smokes"
LONG = "x" * 10_000


@dataclass
class World:
    """A server with parties of hostile names, and a study of each kind."""

    server: Server
    folder: Path
    parties: list[PartyContext]

    def study(self, stage: Stage, title: str = TITLE, **terms: object) -> HttpStudy:
        """Take a new study to a stage."""
        chosen = HttpTerms(
            title=title,
            population=60,
            sample_size=30,
            shares=({ATTRIBUTE: 2, "age": 2}, {"income": 2}),
            **terms,  # type: ignore[arg-type]
        )
        return http_study(self.server, self.folder, stage, terms=chosen, parties=self.parties)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Return a server, and two curators and a researcher with homes of their own."""
    folder = tmp_path_factory.mktemp("world")
    names = [f"<i>hospital{MARK}", f"{SCRIPT} office", "Dr <u>Rivera</u>"]
    with running(make_context(folder / "data")) as server:
        parties = [server.join(name, folder / str(at)) for at, name in enumerate(names)]
        yield World(server, folder, parties)


@pytest.fixture(scope="module")
def office(world: World) -> Iterator[Browser]:
    """Return the browser of the second curator, who did not propose."""
    with party_browser(world.parties[1].home.path) as browser:
        yield browser


@pytest.fixture(scope="module")
def researcher(world: World) -> Iterator[Browser]:
    """Return the browser of the researcher."""
    with party_browser(world.parties[2].home.path) as browser:
        yield browser


@pytest.fixture(autouse=True)
def _nothing_leaks(office: Browser, researcher: Browser) -> Iterator[None]:
    """After every test: no page has run somebody's script, or shown a secret of a home."""
    yield
    for browser in (office, researcher):
        pages, browser.seen = browser.seen, {}
        for path, text in pages.items():
            for hostile in (SCRIPT, "<b onmouseover", MARK, "<i>hospital", "<u>Rivera"):
                assert hostile not in text, path
        party = browser.state.party  # type: ignore[union-attr]
        secrets = secrets_of(party.home)
        assert len(secrets) > 1
        for path, text in pages.items():
            assert [secret for secret in secrets if secret in text] == [], path


def test_sign(world: World, office: Browser) -> None:
    """After the proposer's fingerprint was compared; twice clicked, once charged."""
    study = world.study(Stage.PROPOSED)
    home, page = world.parties[1].home, f"/studies/{study.study.hex()}"
    home.set_budget("Taxes", 3)
    assert "A new proposal" in plain(office.get("/"))
    first = plain(office.get(page))
    assert "Nobody has compared the fingerprint of <i>hospital\\u200f" in first
    hospital = world.parties[0]
    about = {"party": hospital.identity.party_id.hex(), "digits": "12345 " * 6}
    refused = office.fill_in(page, f"{page}/verify", **about)
    assert refused.status_code == 409
    assert "has the fingerprint" in plain(refused.text)
    assert 'value="12345 12345 12345 12345 12345 12345"' in refused.text
    compared = office.fill_in(
        page, f"{page}/verify", **about | {"digits": hospital.home.fingerprint}
    )
    assert "You have compared the fingerprint of" in plain(compared.text)
    researcher = world.parties[2]
    about = {"party": researcher.identity.party_id.hex(), "digits": researcher.home.fingerprint}
    office.fill_in(page, f"{page}/verify", **about)
    assert "Nobody has compared" not in plain(office.get(page))

    form = office.form(page, f"{page}/sign")
    unticked = office.send(f"{page}/sign", {**form, "dataset": "Taxes"})
    assert "the box was not ticked" in plain(unticked.text).lower()
    home.set_budget("Others", 3)
    assert not re.search(r'type="radio"[^>]* checked', office.get(page))
    assert office.fill_in(page, f"{page}/sign").status_code == 409  # which of the two?
    wrong = office.fill_in(page, f"{page}/sign", dataset="Nobody's")
    assert "no ledger for the data set" in plain(wrong.text)
    assert [budget.ledger.entries for budget in home.budgets()] == [(), ()]
    form = office.form(page, f"{page}/sign")
    for _ in range(2):  # a double click
        done = office.send(f"{page}/sign", {**form, "dataset": "Taxes", "sure": "on"})
        assert "the study is charged to Taxes" in plain(done.text)
    assert [len(budget.ledger.entries) for budget in home.budgets()] == [0, 1]
    log = plain(office.get(page)).partition("Audit log")[2]
    assert re.search(r"<i>hospital\\u200f yes proposed", log)
    assert re.search(r"office you signed", log)
    office.clock.now += 60
    late = office.send(f"{page}/sign", {**form, "dataset": "Taxes", "sure": "on"})
    assert "was sent before, and nothing was done again" in plain(late.text)


def test_end_and_refund(world: World, office: Browser) -> None:
    """What ending costs is said, a reason is asked for, and the charge comes back."""
    study = world.study(Stage.OPEN, "ends early")
    home, page = world.parties[1].home, f"/studies/{study.study.hex()}"
    assert "was charged ε = 1 for it" in plain(office.get(page))
    assert "Take the charge back" not in office.get(page)
    for reason in ("", LONG, "two\nlines"):
        refused = office.fill_in(page, f"{page}/abort", reason=reason)
        assert refused.status_code == 409
        assert reason.replace("\n", "&#10;") in refused.text or reason in refused.text
    early = office.fill_in("/ledger", "/ledger/refund", study=study.study.hex(), reason="a mistake")
    assert "can still go on" in plain(early.text)
    assert 'value="a mistake"' in early.text
    ended = office.fill_in(page, f"{page}/abort", reason=f"wrong year {SCRIPT}")
    assert "ended, for everybody in it" in plain(ended.text)
    assert re.findall('<li class="reached" >([^<]*)<', ended.text) == ["Proposed", "Signed by all"]
    assert SCRIPT not in ended.text
    assert f"for everybody in it {SCRIPT} office: wrong year {SCRIPT}" in plain(ended.text)
    charged = next(b for b in home.budgets() if b.ledger.dataset == "ends early")
    assert charged.ledger.epsilon_spent == 1
    refused = office.fill_in(page, f"{page}/refund", reason="")
    assert "The reason is empty" in plain(refused.text)
    form = office.form(page, f"{page}/refund")
    for _ in range(2):
        done = office.send(f"{page}/refund", {**form, "reason": SCRIPT, "sure": "on"})
        assert "The charge is taken back" in plain(done.text)
    charged = next(b for b in home.budgets() if b.ledger.dataset == "ends early")
    assert charged.ledger.epsilon_spent == 0
    assert "Taken back" in plain(office.get("/ledger"))
    assert "Take the charge back" not in office.get(page)


def test_differences_are_said_in_words(world: World, office: Browser) -> None:
    """Who holds how many respondents, while tables are pushed."""
    study = world.study(Stage.OPEN, "other people")
    for session, population in zip(study.curators, (60, 59), strict=True):
        digest = labelled_hash("test", str(population).encode())
        body = Alignment(
            attempt=1,
            curator=session.identity.party_id,
            decoys=None,
            digest=digest,
            population=population,
            study=study.study,
        )
        session.server.send_alignment(study.study, sign(body, session.identity.signing))
    page = plain(office.get(f"/studies/{study.study.hex()}"))
    assert "do not hold the same respondents" in page
    assert "59" in page
    assert "60" in page


def test_a_message_of_several_lines_has_several_paragraphs(world: World, office: Browser) -> None:
    """Such as that there is no such study, with those that there are."""
    world.study(Stage.OPEN, "here it is")
    office.get("/")
    answer = office.client.get(f"/studies/{'ab' * 32}")
    assert "here it is" in plain(answer.text)
    assert r"\n" not in answer.text


@pytest.mark.parametrize("name", ["nothing", "ab" * 32, "ab" * 40, "é%00", "x" * 3_000, "%20"])
def test_no_such_study(office: Browser, name: str) -> None:
    """An address that was typed wrong is a page that says so, and no failure of ours."""
    answer = office.client.get(f"/studies/{name}")
    assert answer.status_code == 409
    assert "No study matches" in plain(answer.text)


def test_grants(world: World, office: Browser, researcher: Browser) -> None:
    """Given once, listed, named in the log, and taken back; mistakes give nothing."""
    study = world.study(Stage.RELEASED, "released")
    page = f"/studies/{study.study.hex()}"
    rivera = world.parties[2]
    to = rivera.identity.party_id.hex()
    assert "released Let a researcher read" in plain(office.get("/"))
    researcher.get(page)  # it is no news any more
    assert "released released researcher <i>hospital" in plain(researcher.get("/"))
    good: dict[str, str | list[str]] = {"researcher": to, "attribute": ["income"], "days": "20"}
    for wrong, words in (
        ({"attribute": []}, "No attribute is ticked"),
        ({"days": "soon"}, "must be a number"),
        ({"days": "99999"}, "cannot be good for"),
        ({"researcher": "nobody"}, "has that name in the contract"),
    ):
        refused = office.fill_in(page, f"{page}/grant", **good | wrong)
        assert words in plain(refused.text)
        assert f'name="days" inputmode="numeric" value="{(good | wrong)["days"]}"' in refused.text
    assert "Who can read what" not in office.get(page)
    form = office.form(page, f"{page}/grant")
    for _ in range(2):
        done = office.send(f"{page}/grant", {**form, **good, "sure": "on"})
        assert "can read income for 20 days" in plain(done.text)
    assert "released Let a researcher read" not in plain(office.get("/"))
    assert "released Explore the results" in plain(researcher.get("/"))
    text = plain(office.get(page))
    assert text.count("Dr <u>Rivera</u> income you") == 1
    assert "granted: income, to Dr <u>Rivera</u>" in text
    assert "income" in plain(researcher.get(page)).partition("Who can read what")[2]
    assert "released Dr <u>Rivera</u> income you" in plain(office.get("/grants"))
    revoked = office.fill_in(page, f"{page}/revoke", researcher=to)
    assert "can read income no more" in plain(revoked.text)
    assert "stays with whoever has it" in plain(revoked.text)
    assert "revoked: income, from" in plain(office.get(page))
    assert f"{page}/revoke" not in office.get(page)


def test_an_open_study_is_granted_to_somebody_known(world: World, office: Browser) -> None:
    """By the name of a party whom this home knows, or by the file of its identity."""
    study = world.study(Stage.RELEASED, "open to all", named=False)
    page = f"/studies/{study.study.hex()}"
    unknown = office.fill_in(page, f"{page}/grant", researcher="Nobody", attribute="income")
    assert "you know no party" in plain(unknown.text).lower()
    assert 'value="Nobody"' in unknown.text
    file = world.folder / "rivera.json"
    world.parties[2].home.write_public(file)
    done = office.fill_in(page, f"{page}/grant", researcher=str(file), attribute="income")
    assert "can read income for 30 days" in plain(done.text)


def test_what_was_typed_survives_locked_keys(world: World, office: Browser) -> None:
    """The page after unlocking has it again, once."""
    study = world.study(Stage.OPEN, "locked in between")
    page = f"/studies/{study.study.hex()}"
    form = office.form(page, f"{page}/abort")
    office.state.party.lock()  # type: ignore[union-attr]
    locked = office.send(f"{page}/abort", {**form, "reason": "a long reason", "sure": "on"})
    assert "Unlock your keys" in plain(locked.text)
    hidden = office.form(f"/unlock?next={page}", "/unlock")
    again = office.send("/unlock", {**hidden, "next": page})
    assert 'value="a long reason"' in again.text
    assert 'value="a long reason"' not in office.get(page)
    assert world.parties[1].server.status(study.study).state == "open"


def test_block_and_unblock(world: World, office: Browser) -> None:
    """Here and at the server."""
    stranger = world.server.join("Nuisance", world.folder / "nuisance")
    file = world.folder / "nuisance.json"
    stranger.home.write_public(file)
    empty = office.fill_in("/identity", "/identity/block", party="nobody such")
    assert "you know no party" in plain(empty.text).lower()
    assert 'value="nobody such"' in empty.text
    done = office.fill_in("/identity", "/identity/block", party=str(file))
    assert "Nuisance is blocked" in plain(done.text)
    assert [one.name for one in world.parties[1].home.known.blocked()] == ["Nuisance"]
    verified = office.fill_in(
        "/identity", "/identity/verify", party=str(file), digits=stranger.home.fingerprint
    )
    assert "compared the fingerprint of Nuisance" in plain(verified.text)
    hidden = office.form("/identity", "/identity/unblock")
    freed = office.send("/identity/unblock", {**hidden, "sure": "on"})
    assert "blocked no more" in plain(freed.text)
    assert world.parties[1].home.known.blocked() == []


def test_register(world: World, tmp_path: Path) -> None:
    """With the address and a code, or with a file, and never with another server's fingerprint."""
    home = Home(tmp_path / "home")
    home.create("New clinic", "correct horse battery")
    code = invite(world.server.context, "New clinic")
    server = fingerprint(world.server.context.identity.party_id)
    with party_browser(home.path, "correct horse battery") as browser:
        assert "not registered with a server" in plain(browser.get("/"))
        good = {"place": world.server.url, "code": code, "digits": server}
        for wrong, words in (
            ({"digits": "1" * 30}, "not 1111"),
            ({"digits": "12"}, "is not a fingerprint"),
            ({"code": ""}, "needs the code"),
            ({"code": "AAAA"}, "not the code of an invitation"),
            ({"place": code}, "this is a code"),
            ({"place": str(tmp_path / "none.json"), "code": ""}, "cannot read"),
        ):
            refused = browser.fill_in("/identity", "/identity/register", **good | wrong)
            assert words in plain(refused.text).replace("This is", "this is").replace(
                "Cannot", "cannot"
            )
            assert home.server is None
        done = browser.fill_in("/identity", "/identity/register", **good)
        assert "You are registered with server" in plain(done.text)
        assert home.server is not None
        assert "/identity/register" not in browser.get("/identity")
        for path, text in browser.seen.items():
            assert "correct horse" not in text, path
            assert code not in text.replace(
                f'name="place" required autocomplete="off" value="{code}"', ""
            ), path
