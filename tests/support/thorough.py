"""The story with every other action that the pages offer, so that a browser has sent each form.

Somebody is added, compared, blocked and met again; a proposal is drafted from a table, saved as a
file and changed; a table is mapped by a recode file; a push is stopped; one study is ended by a
curator and one by the operator, and both charges are taken back; a grant and a view are taken back.
"""

import re
from pathlib import Path
from unittest import mock
from urllib.parse import urlsplit

from tests.support.estimates import adult_to_show
from tests.support.slow_tables import SlowTables
from tests.support.story import HOSPITAL, OFFICE, PASSPHRASE, RIVERA, TITLE, Story
from veiltab.console import proposing
from veiltab.crypto.entropy import SystemEntropy
from veiltab.crypto.fingerprint import fingerprint
from veiltab.crypto.identity import PrivateIdentity
from veiltab.party.home import identity_text
from veiltab.protocol.curator.agreement import public_identity

STRANGER = "Mills & Sons"
ENDED, STOPPED = "Income by district", "Income by age"
"""The titles of the studies that the hospital and the operator end."""


class Thorough(Story):
    """The same people, who use whatever they find on a page."""

    def play(self) -> None:
        """Play the story, and then all that people do when they think again."""
        self.meet_somebody()
        super().play()
        self.end_a_study()
        self.let_the_operator_end_one()
        self.spend_the_rest()
        self.revoke()
        self.use_files()
        self.lock()

    def meet_somebody(self) -> None:
        """Add a party by its file, with no server to ask; type wrong digits, then theirs."""
        rivera = self.visitors[RIVERA]
        stranger = public_identity(PrivateIdentity.create(STRANGER, SystemEntropy()))
        rivera.open("/identity")
        form = rivera.form("Add a party")
        rivera.fill("The path of the file, or its content", identity_text(stranger), within=form)
        rivera.tick(re.compile("^I know that somebody else"), within=form)
        rivera.press("Add them", within=form)
        rivera.see(f"You know {STRANGER}")
        for digits, said in (
            ("12345 " * 6, "has the fingerprint"),
            (fingerprint(stranger.party_id), f"You have compared the fingerprint of {STRANGER}"),
        ):
            form = rivera.form("Compare a fingerprint")
            rivera.fill("Whose", STRANGER, within=form)
            rivera.fill("The thirty digits", digits, within=form)
            rivera.tick("I have heard these digits from them.", within=form)
            rivera.press("Mark as compared", within=form)
            rivera.see(re.compile(said))
            self.look(rivera, "a fingerprint that is not theirs")

    def fill_in_proposal(self) -> None:
        """Draft attributes from a table, stop that, draft them; save a file, and go back."""
        hospital = self.visitors[HOSPITAL]
        form = hospital.form("Draft your attributes from your table")
        hospital.fill("A file, or the address of a database", str(self.tables[0]), within=form)
        with mock.patch.object(proposing, "open_table", SlowTables()) as slow:
            hospital.press("Draft them", within=form)
            hospital.see("Reading rows: 10.")
            self.look(hospital, "a table that is read")
            hospital.press("Stop")
            hospital.see("Stopping")
            slow.opened[0].go_on()
            hospital.see(re.compile("you have stopped that"))
            self.look(hospital, "a draft that was stopped")
        form = hospital.form("Draft your attributes from your table")
        hospital.press("Draft them", within=form)
        hospital.page.get_by_role("status").wait_for()
        self.look(hospital, "drafted attributes")
        hospital.press("Begin anew")
        hospital.page.wait_for_url("**/propose")
        assert hospital.page.locator("[name='c0:a0:name']").input_value() == ""
        super().fill_in_proposal()
        with hospital.page.expect_download() as download:
            hospital.press("Download as a study file")
        download.value.save_as(self.study_file)
        hospital.press("See the terms and the cost")
        hospital.see("Read this as the other curators will")
        hospital.press("Change something")
        hospital.page.wait_for_url("**/propose/change")
        assert hospital.page.get_by_label("Title").input_value() == TITLE

    @property
    def study_file(self) -> Path:
        """Where the proposal is, as a file."""
        return self.folder / "study.toml"

    def map_table(self, name: str) -> None:
        """Press Enter in a field; save what was clicked to a file, use it, and click again."""
        super().map_table(name)
        if name == OFFICE:
            return
        visitor, file = self.visitors[name], str(self.folder / "recode.toml")
        visitor.page.get_by_label(re.compile("^Edges of bins")).press("Enter")
        visitor.page.wait_for_url("**/table/map")
        assert visitor.page.get_by_role("alert").count() == 0
        form = visitor.form("Keep what you have chosen as a recode file")
        visitor.fill("A new file for it", file, within=form)
        visitor.press("Save", within=form)
        visitor.see("The recode file is in")
        form = visitor.form("You have a recode file already")
        visitor.fill("Its path on this computer", file, within=form)
        visitor.press("Use it instead of clicking", within=form)
        visitor.see(re.compile("^The table is mapped as"))
        self.look(visitor, "a table with a recode file")
        visitor.press("Map by clicking instead")
        visitor.see("Map the table by clicking.")

    def push(self, name: str) -> None:
        """Stop a push that waits for the other curator, and go on with it."""
        super().push(name)
        visitor = self.visitors[name]
        if name == OFFICE:
            return
        visitor.press("Stop")
        visitor.see("Nothing is lost")
        self.look(visitor, "a push that was stopped")
        visitor.press("Go on")
        visitor.see(re.compile("You may close this page|Done"))

    def propose_again(self, title: str) -> str:
        """Propose another study from the file of the first, and return the path of its page."""
        hospital = self.visitors[HOSPITAL]
        hospital.open("/propose")
        form = hospital.form("You have a study file already")
        text = self.study_file.read_text("utf-8").replace(TITLE, title)
        hospital.fill("Its content, or its path", text, within=form)
        hospital.press("See its terms and the cost", within=form)
        hospital.press("Change something")
        hospital.see("From a study file")
        self.look(hospital, "a proposal from a file")
        hospital.press("See the terms and the cost")
        hospital.tick(re.compile("^Patients 2026"))
        hospital.tick(re.compile("^I have read the terms"))
        hospital.press(re.compile("^Propose and sign, and charge"))
        hospital.see(f"You have proposed and signed “{title}”")
        return urlsplit(hospital.page.url).path

    def end_a_study(self) -> None:
        """Let the hospital end a study, and take its charge back on the study's page."""
        hospital, office = self.visitors[HOSPITAL], self.visitors[OFFICE]
        page = self.propose_again(ENDED)
        office.open("/")
        office.follow(ENDED)
        office.see("Check your table against it first")
        form = hospital.form("End the study")
        hospital.fill("Reason, which everybody in the study is told", "a wrong year", within=form)
        hospital.tick("It ends for everybody, and for good.", within=form)
        hospital.press("End it", within=form)
        hospital.see("The study is ended, for everybody in it.")
        self.look(hospital, "a study that was ended")
        form = hospital.form("Take the charge back")
        hospital.fill("Reason, for your own ledger", "it ended unsigned", within=form)
        hospital.tick("None of us will go on with this study.", within=form)
        hospital.press("Take it back", within=form)
        hospital.see("The charge is taken back: ε = 3 of 5 is left")
        self.look(hospital, "a charge that was taken back")
        office.open(page)
        office.see(re.compile("a wrong year"))
        self.look(office, "a study that somebody else has ended")

    def let_the_operator_end_one(self) -> None:
        """Let the operator end a study, and the hospital take its charge back in the ledger."""
        hospital, operator = self.visitors[HOSPITAL], self.operator
        page = self.propose_again(STOPPED)
        operator.open("/studies")
        operator.follow(STOPPED)
        form = operator.form("End it")
        self.look(operator, "operator, before a study is ended")
        operator.fill("Reason, which everybody in it is told", "no legal basis", within=form)
        operator.tick("It ends for good.", within=form)
        operator.press("End it", within=form)
        operator.see("The study is ended, for everybody in it.")
        self.look(operator, "operator, a study that was ended")
        hospital.open("/ledger")
        form = hospital.form("Take a charge back")
        study = form.locator("select option").filter(has_text=STOPPED).get_attribute("value")
        form.get_by_label("Study", exact=True).select_option(study)
        hospital.fill("Reason, for your own ledger", "the operator ended it", within=form)
        hospital.tick(re.compile("^The study has ended"), within=form)
        hospital.press("Take it back", within=form)
        hospital.see("The charge is taken back: ε = 3 of 5 is left")
        self.look(hospital, "a ledger with refunds")
        hospital.open(page)
        hospital.see(re.compile("no legal basis"))

    def spend_the_rest(self) -> None:
        """Lower the budget below what is spent: nothing more can be signed."""
        office = self.visitors[OFFICE]
        office.open("/ledger")
        office.fill("Data set", "Income tax")
        office.fill("ε, all studies together", "1")
        office.press("Set the budget")
        office.see("More is spent than the limit allows")
        self.look(office, "a ledger that is overspent")

    def revoke(self) -> None:
        """Let the tax office take its grant back, and have nothing to do with the researcher."""
        office = self.visitors[OFFICE]
        office.open(self.page)
        form = office.form(f"Take back what you have granted to {RIVERA}")
        office.tick(re.compile("^What they have downloaded"), within=form)
        office.press("Revoke", within=form)
        office.see(f"{RIVERA} can read income no more")
        self.look(office, "a grant that was taken back")
        office.open("/identity")
        form = office.form("Block a party")
        office.fill("Whom", RIVERA, within=form)
        office.tick("I want nothing to do with them.", within=form)
        office.press("Block", within=form)
        office.see(f"{RIVERA} is blocked")
        self.look(office, "somebody who is blocked")
        office.open(self.page)
        self.look(office, "a study with somebody who is blocked")
        office.open("/identity")
        office.tick("They may propose studies to me again.")
        office.press("Unblock")
        office.see(f"{RIVERA} is blocked no more")

    def use_files(self) -> None:
        """Open a saved estimate, name a grant file that is not there, and delete the view."""
        rivera, saved = self.visitors[RIVERA], self.folder / "adult.json"
        adult_to_show().save(saved)
        rivera.open("/explore")
        rivera.press("Delete the view Who smokes")
        rivera.see("The view “Who smokes” is deleted.")
        rivera.fill("Its file on this computer", str(saved))
        rivera.press("Open")
        rivera.see("Take it with you")
        rivera.choose("Layers", "gender")
        rivera.see("gender, education and marital")
        rivera.page.wait_for_load_state("networkidle")
        self.look(rivera, "the explorer with layers")
        rivera.fill("How many are …", "smoker = 'yes'")
        rivera.page.keyboard.press("Enter")
        rivera.page.get_by_role("alert").wait_for()
        self.look(rivera, "the explorer with a mistake")
        rivera.open(f"/explore/{self.study}/grants")
        rivera.fill("Their paths on this computer, one a line", str(self.folder / "absent.json"))
        rivera.press("Open the study with them")
        rivera.page.get_by_role("alert").wait_for()
        self.look(rivera, "a grant file that is not there")

    def lock(self) -> None:
        """Lock the keys, mistype the passphrase, and unlock them again."""
        hospital = self.visitors[HOSPITAL]
        hospital.press("Lock keys")
        hospital.see("Unlock keys")
        hospital.open("/")
        hospital.fill("Passphrase", "wrong horse")
        hospital.press("Unlock")
        hospital.page.get_by_role("alert").wait_for()
        self.look(hospital, "a wrong passphrase")
        hospital.fill("Passphrase", PASSPHRASE)
        hospital.press("Unlock")
        hospital.see("Lock keys")
