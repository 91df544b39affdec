"""What happens in the demonstration, and in which order: every step is a command of a party.

Between two steps it looks into the server's folder, with the operator's eyes.
"""

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import chdtrc

from veiltab.core.schema import CountTable
from veiltab.demo import parties as casting
from veiltab.demo.parties import Cast, Curator, Terms, identity_file
from veiltab.demo.processes import Crew, Done, Party
from veiltab.demo.results import (
    Cell,
    Column,
    DemoResults,
    LedgerChange,
    SecondResearcher,
    ServerView,
    StudyResult,
)
from veiltab.errors import VeiltabError
from veiltab.wire.bundles import unbundle
from veiltab.wire.packing import packed_length, unpack

PERSON = re.compile(rb"person-[0-9]{5}")
LONGEST_DELETION = 20.0
"""Seconds within which the server deletes what it received, after the release."""


@dataclass(frozen=True, slots=True)
class Look:
    """The chunks of a study at one time, by their sizes, and the ids of respondents anywhere."""

    received: tuple[int, ...]
    released: tuple[int, ...]
    ids_found: int


def look(data: Path, study: str) -> Look:
    """Look at a study's chunks, and search everything that the server has for ids."""
    place = data / "studies" / study
    return Look(
        tuple(len(chunk) for chunk in _chunks(place / "received")),
        tuple(len(chunk) for chunk in _chunks(place / "released")),
        sum(len(PERSON.findall(content)) for content in _contents(data)),
    )


def wait_until_deleted(data: Path, study: str) -> None:
    """Wait until the server has deleted what it received; it does so right after the release."""
    end = time.monotonic() + LONGEST_DELETION
    while (data / "studies" / study / "received").exists():
        if time.monotonic() > end:
            raise VeiltabError(
                "the server still has the unperturbed ciphertext of a released study",
                hint="this should not happen; please report it with the server's log",
            )
        time.sleep(0.02)


def received_column(
    data: Path, study: str, name: str, table: "CountTable", sample_size: int
) -> Column:
    """Read one column as the server received it, and test whether it looks uniform."""
    marginal = table.marginal([name])
    [attribute] = marginal.schema.attributes
    length = packed_length(attribute.size, sample_size)  # a chunk's name is a digest, and no help
    received = _chunks(data / "studies" / study / "received")
    [packed] = [chunk for chunk in received if len(chunk) == length]
    codes = unpack(packed, attribute.size, sample_size)
    counts = np.bincount(codes, minlength=attribute.size).tolist()
    return Column(
        name,
        attribute.categories,
        tuple(marginal.counts.tolist()),
        tuple(counts),
        uniform_p_value(counts),
    )


def uniform_p_value(counts: Sequence[int]) -> float:
    """Return Pearson's p-value of the hypothesis that all categories are equally likely."""
    expected = sum(counts) / len(counts)
    statistic = sum((count - expected) ** 2 for count in counts) / expected
    return float(chdtrc(len(counts) - 1, statistic))


def _chunks(folder: Path) -> Iterator[bytes]:
    """Yield the chunks in a folder and those below it, which are many to a file."""
    for path in _files(folder):
        yield from (bytes(chunk) for _, chunk in unbundle(path.read_bytes()))


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _contents(folder: Path) -> Iterator[bytes]:
    for path in _files(folder):
        with contextlib.suppress(FileNotFoundError):  # the server works on, and deletes
            yield path.read_bytes()


Json = Mapping[str, Any]
DATA = "data"
REFUSED = "salary"
"""What the second researcher asks for without a grant."""

UNBIASED = ("--estimator", "unbiased")
"""The paper's estimate, whose error the formulas predict."""


@dataclass(slots=True)
class Performance:
    """A demonstration in five acts; each leaves here what it has found."""

    crew: Crew
    cast: Cast
    terms: tuple[Terms, ...]
    table: "CountTable"
    url: str = ""
    plans: list[Json] = field(default_factory=list)
    budgets: dict[str, Json] = field(default_factory=dict)
    studies: list[str] = field(default_factory=list)
    before: Look = field(init=False)
    after: Look = field(init=False)
    column: Column = field(init=False)
    results: list[StudyResult] = field(default_factory=list)
    second: SecondResearcher = field(init=False)
    audits: list[Json] = field(default_factory=list)
    spent: list[Json] = field(default_factory=list)

    @property
    def data(self) -> Path:
        """The server's folder."""
        return self.cast.server.folder / DATA

    @property
    def _last(self) -> tuple[Terms, str]:
        """The study that is looked at closely."""
        return self.terms[-1], self.studies[-1]

    def enrol(self) -> None:
        """Start the server, make tables and plans, and let everybody register."""
        crew, cast = self.crew, self.cast
        options = ("--data", DATA, "--port", 0, "--name", cast.server.name)
        last = ("--shutdown-seconds", 2, "--json")
        serving = crew.later(partial(crew.serve, cast.server, "serve", *options, *last))
        plans = [crew.later(partial(self._plan, terms)) for terms in self.terms]
        writing = crew.later(partial(casting.write_tables, cast, self.table))
        crew.together(*(partial(self._enrol, party, serving) for party in cast.members))
        for terms in self.terms:
            casting.write_study_file(cast, terms, self.table)
        self.plans = [plan.result() for plan in plans]
        self.url = serving.result()["url"]
        writing.result()

    def agree(self) -> None:
        """Let the first curator propose each study, and the other sign it."""
        signing: list[Future[Done]] = []
        for terms in self.terms:
            proposed = self.crew.run(
                self.cast.registry.party, "study", "propose", terms.file, "--json"
            )
            self.studies.append(proposed.values["study"])
            for each in signing:  # a home takes one signature at a time
                each.result()
            sign = ("study", "sign", terms.title, "--yes", "--json")
            signing.append(self.crew.later(partial(self.crew.run, self.cast.tax.party, *sign)))
        for each in signing:
            each.result()

    def push(self) -> None:
        """Push all tables; look into the server's folder while one upload is there, and after."""
        others = [partial(self._push_both, terms) for terms in self.terms[:-1]]
        self.crew.together(*others, self._push_and_look)

    def estimate(self) -> None:
        """Grant all to one researcher and a part to the other, and let both estimate."""
        first = [partial(self._first_researcher, number) for number in range(len(self.terms))]
        found = self.crew.together(*first, self._second_researcher)
        self.results = [each for each in found if isinstance(each, StudyResult)]
        self.second = next(each for each in found if isinstance(each, SecondResearcher))

    def verify(self) -> None:
        """Let everybody verify the log, and the curators look at their ledgers."""
        crew, (terms, _) = self.crew, self._last
        audits = [partial(self._values, party, "audit", terms.title) for party in self.cast.members]
        ledgers = [partial(self._values, c.party, "ledger", "show") for c in self.cast.curators]
        found = crew.together(*audits, *ledgers)
        self.audits = found[: len(audits)]
        self.spent = [each["ledgers"][0] for each in found[len(audits) :]]

    def summary(self, seconds: float) -> DemoResults:
        """Put together what the acts have found."""
        heads = {audit["head"] for audit in self.audits}
        if len(heads) != 1:
            raise VeiltabError(
                "the parties have seen different logs", hint="this should not happen; report it"
            )
        return DemoResults(
            studies=tuple(self.results),
            holders={c.party.name: c.attributes for c in self.cast.curators},
            server=ServerView(
                received=self.before.received,
                received_later=self.after.received,
                released=self.after.released,
                ids_found=self.before.ids_found + self.after.ids_found,
                column=self.column,
                entries=tuple(self.audits[0]["entries"]),
                head=heads.pop(),
                verified_by=tuple(party.name for party in self.cast.members),
            ),
            second=self.second,
            ledgers=tuple(
                LedgerChange(curator.party.name, self.budgets[curator.party.name], after)
                for curator, after in zip(self.cast.curators, self.spent, strict=True)
            ),
            commands=len(self.crew.history),
            seconds=seconds,
        )

    def _values(self, party: Party, *arguments: object) -> Any:  # noqa: ANN401 - as in Done
        return self.crew.run(party, *arguments, "--json").values

    def _plan(self, terms: Terms) -> Json:
        people = self.table.population_size
        sizes = ("--population", people, "--cells", self.table.schema.domain_size)
        promise: tuple[object, ...] = ("--epsilon", terms.epsilon)
        if terms.delta:  # such studies take everybody, so that all parties compute the same plan
            promise = (*promise, "--delta", terms.delta, "--sample-size", people)
        found: Json = self._values(self.cast.registry.party, "plan", *sizes, *promise)
        return found

    def _enrol(self, party: Party, serving: "Future[dict[str, str]]") -> None:
        """Make an identity, give it to the proposer, get an invitation, and register."""
        crew, proposer = self.crew, self.cast.registry.party
        crew.run(party, "id", "new", "--name", party.name, "--no-passphrase", "--json")
        if party is not proposer:
            public = crew.run(party, "id", "show", "--public")
            _write(proposer.folder / identity_file(party), public.out)
        for curator in self.cast.curators:
            if curator.party is party:
                self.budgets[party.name] = self._set_budget(curator)
        server = serving.result()
        code = crew.run(self.cast.server, "invite", "--data", DATA, party.name)
        _write(party.folder / "invitation.txt", code.out)
        meet = ("--server-fingerprint", server["fingerprint"])
        code_file = ("--invitation-file", "invitation.txt")
        crew.run(party, "register", server["url"], *code_file, *meet, "--json")

    def _set_budget(self, curator: Curator) -> Json:
        """Set a budget of twice what the demonstration takes, in few digits."""
        options = (
            ("--epsilon", f"{2 * sum(terms.epsilon for terms in self.terms):.6g}"),
            ("--delta", f"{2 * sum(terms.delta for terms in self.terms):.6g}"),
        )
        limits = [part for option in options for part in option]
        found: Json = self._values(curator.party, "ledger", "set", curator.dataset, *limits)
        return found

    def _push(self, terms: Terms, curator: Curator, *options: str) -> None:
        table = ("--table", casting.TABLE, "--id", casting.ID_COLUMN)
        self.crew.run(curator.party, "push", terms.title, *table, *options, "--json")

    def _push_both(self, terms: Terms) -> None:
        self.crew.together(
            *(partial(self._push, terms, each, "--wait-release") for each in self.cast.curators)
        )

    def _push_and_look(self) -> None:
        """Let one curator push completely before the other, so that there is time to look."""
        (terms, study), cast = self._last, self.cast
        self._push(terms, cast.tax, "--no-wait")
        self._push(terms, cast.registry)
        self.before = look(self.data, study)
        attribute, size = cast.registry.attributes[0], self.plans[-1]["sample_size"]
        self.column = received_column(self.data, study, attribute, self.table, size)
        self._push(terms, cast.tax, "--wait-release")
        wait_until_deleted(self.data, study)
        self.after = look(self.data, study)

    def _grant(self, terms: Terms, curator: Curator, researcher: Party) -> None:
        self.crew.run(curator.party, "grant", terms.title, "--to", researcher.name, "--json")

    def _first_researcher(self, number: int) -> StudyResult:
        terms, cast = self.terms[number], self.cast
        self.crew.together(*(partial(self._grant, terms, c, cast.rivera) for c in cast.curators))
        found = self._values(cast.rivera, "estimate", terms.title, *UNBIASED)
        names = self.table.schema.names
        return StudyResult(
            terms.title, self.studies[number], self.plans[number], names, self._cells(names, found)
        )

    def _second_researcher(self) -> SecondResearcher:
        (terms, _), cast, crew = self._last, self.cast, self.crew
        self._grant(terms, cast.registry, cast.okafor)
        asked = (*cast.registry.attributes, REFUSED)
        options = [part for name in asked for part in ("--attribute", name)]
        found, refused = crew.together(
            partial(crew.run, cast.okafor, "estimate", terms.title, *UNBIASED, "--json"),
            partial(crew.attempt, cast.okafor, "estimate", terms.title, *options, "--json"),
        )
        error, hint = _refusal(refused)
        names = cast.registry.attributes
        return SecondResearcher(
            name=cast.okafor.name,
            granted=names,
            cells=self._cells(names, found.values),
            asked=asked,
            error=error,
            hint=hint,
        )

    def _cells(self, names: Sequence[str], estimate: Json) -> tuple[Cell, ...]:
        """Put the truth beside each estimated cell."""
        marginal = self.table.marginal(names)
        every = product(*(each.categories for each in marginal.schema.attributes))
        truth = dict(zip(every, marginal.distribution.tolist(), strict=True))
        cells = []
        for cell in estimate["cells"]:
            categories = tuple(cell[name] for name in names)
            cells.append(Cell(categories, truth[categories], cell["share"], cell["standard_error"]))
        return tuple(cells)


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")


def _refusal(done: Done) -> tuple[str, str]:
    """Return what a command said that had to fail."""
    if done.code == 0:
        raise VeiltabError(
            "a researcher got what nobody has granted", hint="this should not happen; report it"
        )
    lines = done.err.splitlines()
    found = {line.partition(": ")[0]: line.partition(": ")[2] for line in lines}
    return found.get("error", done.err), found.get("hint", "")
