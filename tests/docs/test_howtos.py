"""The how-tos that need a server and several parties: each block is typed by whom it is for.

A remark before the block says who types it; if several do, each name is for one command, and the
last one for the rest.  What others do meanwhile, and what the page tells its reader to write or to
have, stands here.  Questions are answered with yes, and with the fingerprint that is asked for.
"""

import io
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path

import polars as pl
import pytest

from tests.support.commands import Office, open_office, run
from tests.support.documents import DOCUMENTS, ROOT, Block, agrees, blocks, commands, invocations
from tests.support.servers import Server, make_context, running
from veiltab.hosting import server_identity
from veiltab.server.directory import DataDirectory

HOWTO = ROOT / "docs" / "howto"
NAMES = {"hospital": "City hospital", "tax office": "Tax office", "researcher": "Dr. Rivera"}
Act = Callable[["Play"], None]
STUDY, COUNT, RESPONDENTS = "Smoking and income", "Patients and taxpayers", 6_000
NUMBER = re.compile(r"\d[\d,.]*")
QUESTION = re.compile(r"Fingerprint of '(.*?)'")
FILE = """\
title = "{title}"
epsilon = {epsilon}
population = 6000
[linkage]
by = "ids"
normalisation = ["trim", "lowercase"]
[[curators]]
identity = "me"
attributes = [{{name = "smoker", categories = ["no", "yes"]}}]
[[curators]]
identity = "tax-office.json"
attributes = [{{name = "income", categories = ["low", "high"]}}]
[[researchers]]
identity = "rivera.json"
"""


@dataclass
class Play:
    """Parties with folders of their own, and a server; ``swaps`` are words of a page to replace."""

    folder: Path
    server: Server
    monkeypatch: pytest.MonkeyPatch
    offices: dict[str, Office] = field(default_factory=dict)
    swaps: dict[str, str] = field(default_factory=dict)

    def path(self, who: str, name: str = ".") -> Path:
        """Return a file in somebody's folder."""
        return self.folder / who / name

    def act(self, who: str, *arguments: object) -> str:
        """Let somebody do something that no page shows."""
        self.monkeypatch.chdir(self.path(who))
        outcome = self.offices[who].run(*arguments)
        assert outcome.code == 0, outcome.err
        return outcome.out

    def type_in(self, who: str, command: str, shown: list[str]) -> None:
        """Type a command of a page, which must succeed, and print what is shown, if anything is."""
        for word, other in self.swaps.items():
            command = command.replace(word, other)
        (arguments,) = invocations(command)
        self.monkeypatch.chdir(self.path(who))
        if who in self.offices:
            self.monkeypatch.setenv("VEILTAB_HOME", str(self.offices[who].home))
        outcome = run(*arguments)
        assert outcome.code == 0, f"{command}\n{outcome.err}"
        expected = [NUMBER.sub("#", line) for line in shown if not QUESTION.match(line)]
        if expected:
            real = [NUMBER.sub("#", line) for line in outcome.out.splitlines()]
            assert agrees(_spaced(expected), _spaced(real)), f"{command}\nprints:\n{outcome.out}"

    def propose(self, title: str) -> str:
        """Propose a study that both curators sign, and return its id."""
        self.path("hospital", f"{title}.toml").write_text(FILE.format(title=title, epsilon=0.25))
        self.act("hospital", "study", "propose", f"{title}.toml", "--yes")
        self.act("tax office", "study", "sign", title, "--yes")
        return str(self.offices["hospital"].json("study", "show", title)["study"])

    def answer(self, question: str, **_: object) -> str:
        """Read out the fingerprint of whoever is asked for."""
        asked = QUESTION.match(question)
        assert asked is not None, question
        return self.digits(asked[1])

    def digits(self, name: str) -> str:
        """Return a party's fingerprint."""
        office = next(office for office in self.offices.values() if office.name == name)
        return str(office.json("id", "show")["fingerprint"])


def _spaced(lines: list[str]) -> list[str]:
    return [re.sub("  +", "  ", line) for line in lines]


class Keyboard(io.StringIO):
    """Somebody sits before the screen."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """Return a server, and everybody with tables and with the identity files of the others."""
    data = tmp_path / "operator" / "data"
    context = make_context(data, identity=server_identity(DataDirectory(data), None))
    with running(context) as server, pytest.MonkeyPatch.context() as patch:
        found = Play(tmp_path, server, patch)
        for who, name in NAMES.items():
            found.offices[who] = open_office(tmp_path / who, name)
        for who in NAMES:
            _invite(found, who)
            if who != "hospital":
                file = found.path(who, f"{who}.invitation")
                found.act(who, "register", file, "--yes")
        _share_files(found)
        patch.setattr(sys, "stdin", Keyboard())
        patch.setattr("click.confirm", lambda *_, **__: True)
        patch.setattr("click.prompt", found.answer)
        found.act("tax office", "ledger", "set", "Taxes 2025", "--epsilon", 5)
        yield found


def _invite(play: Play, who: str) -> None:
    made = ("server", "invite", "--data", play.path("operator", "data"), NAMES[who])
    file = play.path(who, f"{who}.invitation")
    assert run(*made, "--url", play.server.url, "--out", file).code == 0


def _share_files(play: Play) -> None:
    """Hand identity files and invitations over under the names that pages give them."""
    for who, name in (("tax office", "tax-office.json"), ("researcher", "rivera.json")):
        shutil.copy(play.offices[who].public, play.path("hospital", name))
        shutil.copy(play.offices[who].public, play.path("tax office", name))
    hospital, researcher = play.path("hospital"), play.path("researcher")
    (hospital / "hospital.invitation").rename(hospital / "city-hospital.invitation")
    (researcher / "researcher.invitation").rename(researcher / "dr-rivera.invitation")
    people = range(RESPONDENTS)
    patients = pl.DataFrame(
        {
            "patient_no": [f"p{i}" for i in people],
            "smoker": [("yes", "no", "No ")[i % 3] for i in people],
        }
    )
    patients.write_csv(hospital / "patients.csv")
    patients.with_columns(pl.col("smoker").replace("No ", "no")).write_parquet(
        hospital / "patients.parquet"
    )
    with sqlite3.connect(hospital / "patients.db") as database:
        database.execute("CREATE TABLE patients (patient_no TEXT, smoker TEXT)")
        database.executemany(
            "INSERT INTO patients VALUES (?, ?)", [(f"p{i}", "no") for i in people]
        )
    database.close()
    ids = [f"P{i}" for i in people]
    taxes = {"nr": ids, "tax_id": ids, "income": [("low", "high")[i % 2] for i in people]}
    pl.DataFrame(taxes).write_csv(play.path("tax office", "taxes.csv"))
    play.path("tax office", "recode.toml").write_text('[attributes.income]\nfold = ["trim"]\n')


def nothing(_: Play) -> None:
    """Let nobody do anything."""


def complete_the_draft(play: Play) -> None:
    """Write into the drafted file what it asks for, and leave the recode file as it was drafted."""
    file = play.path("hospital", "smoking.toml")
    assert "FILL IN" in file.read_text("utf-8")
    file.write_text(FILE.format(title=STUDY, epsilon=1.0))


def push_first(title: str) -> Act:
    """Let the tax office align before the hospital does, so that nobody waits for ever."""
    return lambda play: push_ids(play, title, "--no-wait")


def push_too(title: str) -> Act:
    """Let the tax office send its table, too; then the server releases."""
    return lambda play: push_ids(play, title, "--wait-release")


def push_ids(play: Play, title: str, *options: str) -> None:
    """Push the table of the tax office."""
    play.act("tax office", "push", title, "--table", "taxes.csv", "--id", "nr", *options)


def slip(play: Play) -> None:
    """Propose the study that is ended and refunded."""
    play.propose("A slip")
    play.swaps["STUDY"] = '"A slip"'


def look_back(play: Play) -> None:
    """Name the first study again."""
    play.swaps["STUDY"] = f'"{STUDY}"'


def hand_head_over(play: Play) -> None:
    """Let the tax office write down what it was shown, and mail it."""
    play.act("tax office", "audit", STUDY, "--head-out", "../hospital/office-head.json")


def grant_again(play: Play) -> None:
    """Let both curators grant, and hand their grants over as files, too."""
    for who, file in (("hospital", "hospital.grant"), ("tax office", "tax-office.grant")):
        out = play.path("researcher", file)
        play.act(who, "grant", STUDY, "--to", "rivera.json", "--out", out)


def spell_out(play: Play) -> None:
    """Read out the digits of the tax office."""
    play.swaps["27551 84912 17393 80363 79079 71510"] = play.digits("Tax office")


def bother(play: Play) -> None:
    """Let a stranger propose a study to the hospital."""
    pushy = open_office(play.path("pushy"), "Pushy research", play.server)
    play.offices["pushy"] = pushy
    shutil.copy(play.offices["hospital"].public, play.path("pushy", "tax-office.json"))
    shutil.copy(play.offices["researcher"].public, play.path("pushy", "rivera.json"))
    play.path("pushy", "study.toml").write_text(FILE.format(title="Sign here", epsilon=1.0))
    play.act("pushy", "ledger", "set", "anybody", "--epsilon", 1)
    play.act("pushy", "study", "propose", "study.toml", "--yes")
    play.swaps["3fa9"] = pushy.json("study", "show", "Sign here")["study"]


def end_another(play: Play) -> None:
    """End a study with another title than the first one, which was released."""
    play.propose("Another slip")
    play.act("hospital", "study", "abort", "Another slip", "--reason", "a slip", "--yes")
    play.swaps[STUDY] = "Another slip"


def put_back(play: Play) -> None:
    """Name the first study again."""
    del play.swaps[STUDY]


def operate(play: Play) -> None:
    """Let the operator work in its own folder, and end a study that somebody has proposed."""
    play.swaps |= {
        "/var/lib/veiltab": str(play.path("operator")),
        "https://stats.example.org": play.server.url,
        "3fa9": play.propose("Large"),
    }


PAGES: dict[str, dict[str, tuple[Act, Act]]] = {
    "curate-a-study": {
        "study propose smoking.toml": (complete_the_draft, look_back),
        "push STUDY": (push_first(STUDY), push_too(STUDY)),
        "study abort STUDY": (slip, nothing),
        "study status STUDY": (look_back, nothing),
        "audit STUDY --compare": (hand_head_over, nothing),
    },
    "count-people-in-common": {"push": (push_first(COUNT), push_too(COUNT))},
    "estimate-as-a-researcher": {"study list": (grant_again, nothing)},
    "know-the-parties": {
        'party verify "Tax office"': (spell_out, nothing),
        "party block": (bother, nothing),
    },
    "set-a-privacy-budget": {"ledger refund": (end_another, put_back)},
    "prepare-a-table": {},
    "run-a-server": {"server invite": (operate, nothing)},
}
"""The pages in order, and what happens before and after the first command that begins so."""


@pytest.mark.slow
def test_every_page_is_typed_as_it_stands(play: Play) -> None:
    """A study from its draft to its published copy, a count of people, and slips beside it."""
    for page, meanwhile in PAGES.items():
        left = dict(meanwhile)
        for block in blocks(HOWTO / f"{page}.md"):
            for who, command, shown in typed(block):
                start = next((s for s in left if f"veiltab {s}" in command), "")
                before, after = left.pop(start, (nothing, nothing))
                before(play)
                play.type_in(who, command, shown)
                after(play)
        assert not left, page


def typed(block: Block) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the commands of a block that somebody types, each with who it is and what is shown."""
    if block.remark == "played":
        *first, last = block.reason.split(", ")
        for who, (command, shown) in zip(chain(first, repeat(last)), commands(block), strict=False):
            yield who, command, shown


def test_every_played_block_is_on_one_of_these_pages() -> None:
    """Or nobody would type it."""
    played = {
        document for document in DOCUMENTS for block in blocks(document) if block.remark == "played"
    }
    assert played == {HOWTO / f"{page}.md" for page in PAGES}
