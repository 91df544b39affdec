"""A whole study, played on the pages of everybody's console by people with a browser each.

An operator invites a hospital, a tax office and a researcher.  They register, the hospital
proposes a study, both curators compare fingerprints, sign, map their messy tables and push them,
grant, and the researcher explores the result and takes a report home.  ``look`` is called at every
page, so that tests can look closely at it, and pictures can be taken.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser

from tests.support.browsing import Visitor, serving
from tests.support.pages import secrets_of
from tests.support.servers import Server
from veiltab.console.keys import ConsoleParty
from veiltab.console.state import ConsoleState, OperatorState
from veiltab.crypto.fingerprint import fingerprint
from veiltab.party.home import Home

TITLE = "Smoking and income"
HOSPITAL, OFFICE, RIVERA, OPERATOR = "City hospital", "Tax office", "Dr Rivera", "the operator"
PASSPHRASE = "correct horse battery staple"  # noqa: S105 - of a test's own keys
Look = Callable[[Visitor, str], None]


def write_tables(folder: Path, people: int) -> tuple[Path, Path]:
    """Write what the hospital and the tax office have exported, each in its own way."""
    draw = np.random.default_rng(3)
    age = draw.integers(18, 95, people)
    income = np.clip(draw.integers(0, 3, people) + (age > 40) * draw.integers(0, 2, people), 0, 2)
    smoker = draw.random(people) < np.array([0.42, 0.27, 0.13])[income]
    words = (("nein", "Nein ", "N"), ("ja", "JA", "Raucher"))
    patients, taxpayers = folder / "patients 2026.csv", folder / "taxpayers.csv"
    rows = ["Patienten-Nr;Größe;Raucher;Alter"]
    for i in range(people):
        gap = "" if i % 50 == 7 else str(age[i])
        rows.append(f" P{i:05} ;1,{50 + i % 50};{words[int(smoker[i])][i % 3]};{gap}")
    patients.write_bytes("\r\n".join([*rows, ""]).encode("cp1252"))
    levels = ("low", "middle", "HIGH")
    rows = ["taxpayer,income", *(f"p{i:05},{levels[income[i]]}" for i in range(people)[::-1])]
    taxpayers.write_text("\n".join([*rows, ""]), "utf-8")
    return patients, taxpayers


def write_log(path: Path) -> Path:
    """Write what a server has logged before the story begins."""
    address = {"host": "127.0.0.1", "port": 8750, "data": "/srv/veiltab/statistics-bureau/data"}
    study = {"study": "44949a6c88624de9" * 4, "rows": 3_293, "seconds": 0.214}
    lines = [
        {"time": "2026-11-19T06:00:00Z", "level": "info", "event": "listening", **address},
        {"time": "2026-11-19T06:12:31Z", "level": "info", "event": "released", **study},
        {"time": "2026-11-19T06:12:40Z", "level": "warning", "event": "the disk is nearly full"},
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    return path


@dataclass(eq=False)
class Story:
    """The people of the story, and what they do in its order."""

    folder: Path
    server: Server
    operator: Visitor
    operator_state: OperatorState
    visitors: dict[str, Visitor]
    homes: dict[str, Home]
    states: dict[str, ConsoleState]
    look: Look
    people: int
    tables: tuple[Path, Path] = field(init=False)
    study: str = ""

    def __post_init__(self) -> None:
        """Write the tables."""
        self.tables = write_tables(self.folder, self.people)

    @property
    def everybody(self) -> list[Visitor]:
        """All visitors."""
        return [self.operator, *self.visitors.values()]

    @property
    def page(self) -> str:
        """The path of the study's page."""
        return f"/studies/{self.study}"

    def play(self) -> None:
        """Play it from the first invitation to the report."""
        for name in self.visitors:
            self.invite_and_register(name)
        self.propose()
        self.sign()
        for name in (HOSPITAL, OFFICE):
            self.push(name)
        self.wait_for_release()
        for name in (HOSPITAL, OFFICE):
            self.grant(name)
        self.explore()
        self.operate()
        self.look_at_the_rest()

    def invite_and_register(self, name: str) -> None:
        """Let the operator make an invitation, and somebody register with its file."""
        operator, visitor = self.operator, self.visitors[name]
        operator.open("/invitations")
        operator.fill("For whom; the name is for your own list, and stands in the file", name)
        where = "Where they find the server; without it there is a code, and no file"
        operator.fill(where, self.server.url)
        operator.tick("Whoever has the invitation can register, once.")
        operator.press("Invite")
        operator.see("This page is shown once")
        self.look(operator, "an invitation")
        file = self.folder / f"{name} invitation.json"
        with operator.page.expect_download() as download:
            operator.follow("Save the file")
        download.value.save_as(file)
        code = operator.page.locator(".big.digits").inner_text()
        visitor.secrets.add(code)
        digits = fingerprint(self.server.context.identity.party_id)

        visitor.open("/")
        visitor.see("You are not registered with a server yet")
        self.look(visitor, "without a server")
        visitor.follow("register with it")
        self.look(visitor, "register")
        visitor.fill("The path of the operator's file, or the server's address", str(file))
        visitor.fill("The server's fingerprint, as the operator has told you", digits)
        visitor.tick("I have heard these digits from the operator.")
        visitor.press("Register")
        visitor.see("You are registered with")
        self.look(visitor, "registered")
        operator.secrets.add(code)

    def propose(self) -> None:
        """Let the hospital set a budget, take the others' identities, and propose the study."""
        hospital = self.visitors[HOSPITAL]
        self.set_budget(HOSPITAL, "Patients 2026")
        hospital.open("/propose")
        self.look(hospital, "an empty proposal")
        for name in (OFFICE, RIVERA):
            file = self.take_identity(name)
            form = hospital.form("Somebody is not in these lists")
            hospital.fill("The path of the file, or its content", str(file), within=form)
            hospital.press("Add them to these lists", within=form)
            hospital.see(f"{name} can be chosen now")
        self.fill_in_proposal()
        self.look(hospital, "a proposal")
        hospital.press("See the terms and the cost")
        hospital.see("Read this as the other curators will")
        self.look(hospital, "the terms")
        for name in (OFFICE, RIVERA):
            label = f"The fingerprint of {name}, as they read it to you by telephone"
            hospital.fill(label, self.homes[name].fingerprint)
        hospital.tick(re.compile("^Patients 2026"))
        hospital.tick(re.compile("^I have read the terms"))
        hospital.press(re.compile("^Propose and sign, and charge"))
        hospital.see(f"You have proposed and signed “{TITLE}”")
        self.study = hospital.page.url.rpartition("/")[2]
        self.look(hospital, "a proposal of my own")

    def take_identity(self, name: str) -> Path:
        """Take the file of somebody's public identity from their console."""
        visitor, file = self.visitors[name], self.folder / f"{name}.json"
        visitor.open("/identity")
        with visitor.page.expect_download() as download:
            visitor.follow(re.compile("public identity"))
        download.value.save_as(file)
        return file

    def fill_in_proposal(self) -> None:
        """Fill in the hospital's proposal."""
        hospital = self.visitors[HOSPITAL]
        hospital.fill("Title", TITLE)
        hospital.fill("Respondents", str(self.people))
        hospital.choose("That number is", "exact: the terms state it")
        hospital.fill("Privacy ε: smaller is stricter", "2")
        me, other = (hospital.form(f"Curator {number}") for number in (1, 2))
        hospital.press("Add an attribute", within=me)
        hospital.fill("Attribute 1", "smoker", within=me)
        hospital.fill("Categories", "no\nyes", within=me)
        hospital.fill("Attribute 2", "age", within=me)
        me.get_by_label("Categories").nth(1).fill("under 40\n40 to 64\n65 or older")
        other.get_by_label("Who").select_option(index=self.place_of(OFFICE))
        hospital.fill("Attribute 1", "income", within=other)
        hospital.fill("Categories", "low\nmiddle\nhigh", within=other)
        hospital.page.get_by_label("Researcher 1").select_option(index=self.place_of(RIVERA) - 1)
        more = hospital.form("More terms")
        hospital.tick("small letters only", within=more)

    def place_of(self, name: str) -> int:
        """Return where somebody is in the hospital's lists to choose from."""
        options = self.visitors[HOSPITAL].page.locator("select[name='c1:party'] option")
        [place] = [at for at, words in enumerate(options.all_inner_texts()) if name in words]
        return place

    def set_budget(self, name: str, dataset: str) -> None:
        """Give a curator's data set a budget."""
        visitor = self.visitors[name]
        visitor.open("/ledger")
        self.look(visitor, "an empty ledger")
        visitor.fill("Data set", dataset)
        visitor.fill("ε, all studies together", "5")
        visitor.press("Set the budget")
        visitor.see("ε = 5 of 5 left")

    def sign(self) -> None:
        """Let the tax office find the proposal, compare fingerprints, and sign."""
        office = self.visitors[OFFICE]
        self.set_budget(OFFICE, "Income tax")
        office.open("/")
        office.see(re.compile("A new proposal|Read and sign it"))
        self.look(office, "a new proposal")
        office.follow(TITLE)
        self.look(office, "a study to sign")
        for name in (HOSPITAL, RIVERA):
            form = office.form(f"Compare the fingerprint of {name}")
            office.fill("The thirty digits", self.homes[name].fingerprint, within=form)
            office.tick("I have heard these digits from them.", within=form)
            office.press("Mark as compared", within=form)
            office.see(f"You have compared the fingerprint of {name}")
        office.tick(re.compile("Income tax"))
        office.tick(re.compile("A signature cannot be taken back"))
        office.press(re.compile("^Sign"))
        office.see("You have signed, and the study is charged to Income tax")
        self.look(office, "signed")

    def push(self, name: str) -> None:
        """Choose a curator's table, map it by clicking, check it, and push it."""
        visitor = self.visitors[name]
        self.map_table(name)
        visitor.press("Check the whole table")
        visitor.see(re.compile(f"The table fits: {self.people:,} respondents"))
        self.look(visitor, "the table fits")
        visitor.follow("Back to the table")
        visitor.tick(re.compile("This is the right table"))
        visitor.press("Push it")
        visitor.see(re.compile("You may close this page|Done"))
        self.look(visitor, "pushing")

    def map_table(self, name: str) -> None:
        """Open a curator's table and say what its values mean."""
        visitor = self.visitors[name]
        visitor.open("/")
        visitor.see("Push your table")
        self.look(visitor, "my step")
        visitor.follow(TITLE)
        visitor.follow("Choose a table")
        visitor.open(f"{self.page}/table?folder={self.folder}")
        self.look(visitor, "choose a table")
        visitor.press(self.tables[name == OFFICE].name)
        visitor.see("Map your table")
        self.look(visitor, "a table as it is")
        if name == OFFICE:
            self.set_values(visitor, "income", "income", {"HIGH": "high"})
            return
        form = visitor.form("smoker")
        visitor.choose("Column", "Raucher", within=form)
        visitor.choose("Column", "Alter", within=visitor.form("age"))
        visitor.press("Show the values of the chosen columns")
        visitor.see("6 values have no category yet")
        self.look(visitor, "values without categories")
        words = {"nein": "no", "Nein ": "no", "N": "no", "ja": "yes", "JA": "yes", "Raucher": "yes"}
        self.set_values(visitor, "smoker", "Raucher", words)
        form = visitor.form("age")
        visitor.fill("Edges of bins: 3 intervals need 2", "40 65", within=form)
        form.get_by_label(re.compile("^Missing values")).select_option(label="65 or older")

    def set_values(
        self, visitor: Visitor, attribute: str, column: str, words: dict[str, str]
    ) -> None:
        """Map the values of a column to categories."""
        form = visitor.form(attribute)
        visitor.choose("Column", column, within=form)
        for value, category in words.items():
            visitor.choose(f"Category of {value.strip()}", category, within=form)

    def wait_for_release(self) -> None:
        """Wait until the server has joined the tables and released the result."""
        for name in (HOSPITAL, OFFICE):
            visitor = self.visitors[name]
            visitor.see(re.compile("Done"))
            visitor.follow("Back to the study")
        visitor = self.visitors[HOSPITAL]
        for _ in range(100):
            if "Let a researcher read" in visitor.text:
                break
            visitor.page.wait_for_timeout(100)
            visitor.page.reload()
        visitor.see("Let a researcher read")

    def grant(self, name: str) -> None:
        """Let the researcher read."""
        visitor = self.visitors[name]
        visitor.open(self.page)
        self.look(visitor, "a released study")
        visitor.tick("What a researcher has read cannot be taken back.")
        visitor.press("Grant")
        visitor.see(f"{RIVERA} can read")
        self.look(visitor, "granted")

    def explore(self) -> None:
        """Look at the result as the researcher, save a view, and take files and a report home."""
        rivera = self.visitors[RIVERA]
        rivera.open("/explore")
        self.look(rivera, "what can be explored")
        rivera.follow(TITLE)
        rivera.see("Take it with you")
        self.look(rivera, "the explorer")
        rivera.choose("Columns", "income")
        rivera.see("smoker and income")
        rivera.choose("Show", "shares within rows")
        rivera.see("income within smoker")
        rivera.fill("How many are …", "smoker = 'yes' and income = 'low'")
        rivera.page.keyboard.press("Enter")
        rivera.see("smoker = 'yes' and income = 'low'")
        self.look(rivera, "shares within rows")
        rivera.fill("Save this view as", "Who smokes")
        rivera.press("Save")
        rivera.see("The view “Who smokes” is saved")
        for kind, words in (("csv", "CSV"), ("report", "Report")):
            with rivera.page.expect_download() as download:
                rivera.follow(words)
            suffix = "html" if kind == "report" else kind
            download.value.save_as(self.folder / f"result.{suffix}")
        rivera.open("/explore")
        self.look(rivera, "a saved view")
        rivera.open(f"/explore/{self.study}/grants")
        self.look(rivera, "grant files")

    def operate(self) -> None:
        """Look at everything as the operator."""
        for path in ("/", "/studies", self.page, "/parties", "/invitations", "/requests", "/log"):
            self.operator.open(path)
            self.look(self.operator, f"operator {path.replace(self.study, 'one')}")

    def look_at_the_rest(self) -> None:
        """Look at the pages that the story has left out."""
        hospital = self.visitors[HOSPITAL]
        for path in (
            "/",
            "/plan?delta=1e-6",
            "/grants",
            "/ledger",
            "/identity",
            "/idle",
            "/nothing-here",
        ):
            hospital.open(path)
            self.look(hospital, f"the page {path}")


def make_keys(visitor: Visitor, passphrase: str | None, look: Look) -> None:
    """Make somebody's keys on the first page of their console; lock and unlock them."""
    look(visitor, "no keys yet")
    visitor.fill("What others call you", visitor.name)
    if passphrase is None:
        visitor.tick(re.compile("^Without a passphrase"))
    else:
        visitor.secrets.add(passphrase)
        visitor.fill("A passphrase, of 8 characters or more", passphrase)
        visitor.fill("The same again", passphrase)
    visitor.tick(re.compile("^I will keep a copy"))
    visitor.press("Make them")
    visitor.see("Your keys are made")
    look(visitor, "identity without a server")
    if passphrase is not None:
        visitor.press("Lock keys")
        visitor.see("Unlock your keys")
        look(visitor, "unlock")
        visitor.fill("Passphrase", passphrase)
        visitor.press("Unlock")
        visitor.see("Lock keys")


@contextmanager
def playing(
    folder: Path,
    browser: Browser,
    server: Server,
    look: Look,
    *,
    people: int = 400,
    make: Callable[..., Story] = Story,
) -> Iterator[Story]:
    """Make homes for everybody, and open their consoles, each in a browser profile of its own."""
    port = int(server.metrics_url.rpartition(":")[2].partition("/")[0])
    with ExitStack() as stack:
        log = write_log(folder / "server.log")
        operator_state = OperatorState(server.context, log, port)
        console = stack.enter_context(serving(operator_state))
        operator = Visitor(browser, console, OPERATOR)
        visitors, homes, states = {}, {}, {}
        for name in (HOSPITAL, OFFICE, RIVERA):
            homes[name] = home = Home(folder / name)
            passphrase = PASSPHRASE if name == HOSPITAL else None
            states[name] = ConsoleState(ConsoleParty(home.path))
            console = stack.enter_context(serving(states[name]))
            visitors[name] = visitor = Visitor(browser, console, name)
            make_keys(visitor, passphrase, look)
            visitor.secrets |= secrets_of(home, passphrase)
        yield make(folder, server, operator, operator_state, visitors, homes, states, look, people)
