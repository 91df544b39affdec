"""The story once more, with a mistake or a mishap before every step; nothing may be lost by any.

Fields are wrong, boxes are not ticked, forms are sent twice and from two tabs, keys are locked and
browsers are shut out in between, pages are loaded again in the middle of a push, and the server is
killed while both curators push.
"""

import re
from dataclasses import dataclass, field

from playwright.sync_api import Locator

from tests.support.browsing import Visitor
from tests.support.servers import KilledServer
from tests.support.story import HOSPITAL, OFFICE, PASSPHRASE, RIVERA, TITLE, Story

NARROW = (360,)


@dataclass(eq=False)
class Mistaken(Story):
    """The same people, who make mistakes; ``killed`` is the server, which dies in the middle."""

    killed: KilledServer = field(kw_only=True)

    def refused(self, visitor: Visitor, words: str | re.Pattern[str]) -> None:
        """See why something was not done, on a page that fits a narrow window too."""
        alert = visitor.page.get_by_role("alert").filter(has_text=words)
        alert.first.wait_for()
        visitor.look("a refusal", widths=NARROW, axe=False)

    def kept(self, place: Locator, value: str) -> None:
        """See that a field still holds what was typed."""
        assert place.input_value() == value

    def invite_and_register(self, name: str) -> None:
        """Invite for no time at all, and register with another server's fingerprint."""
        operator, visitor = self.operator, self.visitors[name]
        if name == HOSPITAL:
            operator.open("/invitations")
            label = "For whom; the name is for your own list, and stands in the file"
            operator.fill(label, name)
            operator.fill("Days in which it can be used", "0")
            operator.press("Invite")  # the browser asks for the tick, and sends nothing
            operator.tick("Whoever has the invitation can register, once.")
            operator.press("Invite")
            self.refused(operator, "cannot be good for 0 days")
            self.kept(operator.page.get_by_label(label), name)
            with self.server.context.database.reading() as records:
                assert list(records.invitations()) == []
            visitor.open("/identity")
            visitor.fill(
                "The path of the operator's file, or the server's address", self.server.url
            )
            visitor.fill("The code, if you have no file", "AAAA")
            visitor.fill("The server's fingerprint, as the operator has told you", "1 2 3")
            visitor.tick("I have heard these digits from the operator.")
            visitor.press("Register")
            self.refused(visitor, re.compile("fingerprint|code"))
            place = "The path of the operator's file, or the server's address"
            self.kept(visitor.page.get_by_label(place), self.server.url)
            assert self.homes[name].server is None
        super().invite_and_register(name)

    def set_budget(self, name: str, dataset: str) -> None:
        """Write the budget in words first."""
        visitor = self.visitors[name]
        visitor.open("/ledger")
        visitor.fill("Data set", dataset)
        visitor.fill("ε, all studies together", "plenty")
        visitor.press("Set the budget")
        self.refused(visitor, re.compile("plenty"))
        self.kept(visitor.page.get_by_label("Data set"), dataset)
        super().set_budget(name, dataset)

    def fill_in_proposal(self) -> None:
        """Forget the title, lock the keys, mistype the passphrase: all fields stay as they were."""
        hospital = self.visitors[HOSPITAL]
        super().fill_in_proposal()
        hospital.fill("Title", "")
        hospital.press("See the terms and the cost")
        self.refused(hospital, re.compile("title", re.IGNORECASE))
        self.kept(hospital.page.get_by_label("Respondents"), str(self.people))
        hospital.fill("Title", TITLE)
        self.states[HOSPITAL].party.lock()
        hospital.press("See the terms and the cost")
        hospital.see("Unlock your keys")
        hospital.fill("Passphrase", "wrong horse")
        hospital.press("Unlock")
        self.refused(hospital, re.compile("passphrase", re.IGNORECASE))
        hospital.fill("Passphrase", PASSPHRASE)
        hospital.press("Unlock")
        hospital.see("Lock keys")
        if not hospital.page.url.endswith("/propose"):
            hospital.open("/propose")
        self.kept(hospital.page.get_by_label("Title"), TITLE)
        self.kept(hospital.page.locator("[name='c0:a1:name']"), "age")

    def sign(self) -> None:
        """Type wrong digits; sign in two tabs at once: one signature, one charge."""
        office = self.visitors[OFFICE]
        office.open("/")
        office.follow(TITLE)
        form = office.form(f"Compare the fingerprint of {HOSPITAL}")
        office.fill("The thirty digits", "12345 " * 6, within=form)
        office.tick("I have heard these digits from them.", within=form)
        office.press("Mark as compared", within=form)
        self.refused(office, "has the fingerprint")
        first, second = office.page, office.context.new_page()
        self.set_budget(OFFICE, "Income tax")
        for tab in (first, second):
            tab.goto(self.page)
            tab.get_by_label(re.compile("A signature cannot be taken back")).check()
        super().sign()
        second.get_by_role("button", name=re.compile("^Sign")).click()
        second.wait_for_load_state("load")
        assert "Traceback" not in second.content()
        [budget] = self.homes[OFFICE].budgets()
        assert [entry.epsilon for entry in budget.ledger.entries] == [2]
        second.close()

    def map_table(self, name: str) -> None:
        """Open what is no table, and check and push before anything is mapped."""
        visitor = self.visitors[name]
        if name == HOSPITAL:
            visitor.open(f"{self.page}/table")
            visitor.fill("A file, or the address of a database", str(self.folder / "absent.csv"))
            visitor.press("Open")
            self.refused(visitor, re.compile("absent.csv"))
            picture = self.folder / "picture.csv"
            picture.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)))
            visitor.fill("A file, or the address of a database", str(picture))
            visitor.press("Open")
            visitor.page.get_by_role("alert").wait_for()
        super().map_table(name)

    def push(self, name: str) -> None:
        """Push unread and unticked; be shut out, load the page again, and lose the server."""
        visitor = self.visitors[name]
        self.map_table(name)
        if name == HOSPITAL:
            values = visitor.form("smoker")
            visitor.choose("Category of ja", "none", within=values)
            visitor.press("Check the whole table")
            visitor.page.locator(".care").filter(has_text="ja").first.wait_for()
            visitor.follow("Back to the table")
            visitor.choose("Category of ja", "yes", within=visitor.form("smoker"))
        visitor.press("Push it")
        self.refused(visitor, "nothing was sent: the box was not ticked".capitalize())
        visitor.context.clear_cookies()  # as after half a day, or a restart of the browser
        visitor.tick(re.compile("This is the right table"))
        visitor.press("Push it")
        visitor.see("This page is closed")
        visitor.enter()
        visitor.see("Lock keys")
        visitor.open(f"{self.page}/table")
        if name == HOSPITAL:  # what was chosen is still there
            self.kept(visitor.page.get_by_label(re.compile("^Edges of bins")), "40 65")
            self.kept(visitor.page.get_by_label("Category of JA", exact=True), "yes")
        if name == OFFICE:  # and the hospital is in the middle of its push
            self.killed.kill()
            visitor.tick(re.compile("This is the right table"))
            visitor.press("Push it")
            self.refused(visitor, re.compile("server", re.IGNORECASE))
            self.visitors[HOSPITAL].page.reload()
            self.visitors[HOSPITAL].page.get_by_role("progressbar").wait_for()
            self.killed.start()
            visitor.open(f"{self.page}/table")
            self.kept(visitor.page.get_by_label("Category of HIGH"), "high")
        visitor.tick(re.compile("This is the right table"))
        visitor.press("Push it")
        visitor.see(re.compile("You may close this page|Done"))
        visitor.page.reload()
        visitor.see(re.compile("You may close this page|Done"))
        if name == HOSPITAL:
            visitor.press("Stop")
            visitor.see("Nothing is lost")
            visitor.press("Go on")
            visitor.see(re.compile("You may close this page|Done"))

    def grant(self, name: str) -> None:
        """Grant nothing at all, then click twice: one grant."""
        visitor = self.visitors[name]
        visitor.open(self.page)
        boxes = visitor.page.locator("input[name=attribute]")
        for at in range(boxes.count()):
            boxes.nth(at).uncheck()
        visitor.fill("Days", "12")
        visitor.tick("What a researcher has read cannot be taken back.")
        visitor.press("Grant")
        self.refused(visitor, re.compile("no attribute is ticked", re.IGNORECASE))
        self.kept(visitor.page.get_by_label("Days"), "12")
        for at in range(boxes.count()):
            boxes.nth(at).check()
        visitor.tick("What a researcher has read cannot be taken back.")
        visitor.page.get_by_role("button", name="Grant", exact=True).dblclick()
        visitor.see(f"{RIVERA} can read")
        visitor.open(self.page)
        granted = visitor.page.get_by_role("region", name="Who can read what").locator("tbody tr")
        assert granted.filter(has_text="you").count() == 1

    def explore(self) -> None:
        """Mistype a condition, go back, and let the keys be locked."""
        rivera = self.visitors[RIVERA]
        rivera.open(f"/explore/{self.study}")
        rivera.see("Take it with you")
        rivera.choose("Columns", "income")
        rivera.see("smoker and income")
        rivera.fill("How many are …", "smokr = 'yes'")
        rivera.page.keyboard.press("Enter")
        rivera.see(re.compile("did you mean", re.IGNORECASE))
        self.kept(rivera.page.get_by_label("How many are …"), "smokr = 'yes'")
        rivera.page.go_back()
        rivera.see("smoker and income")
        self.states[RIVERA].party.lock()
        rivera.follow("CSV")  # no file, but the page that asks for the keys
        rivera.see("Unlock your keys")
        rivera.page.go_back()
        rivera.see("Unlock your keys")  # not from the browser's memory
        assert "smoker and income" not in rivera.page.content()
        rivera.press("Unlock")
        super().explore()
