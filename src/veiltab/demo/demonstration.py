"""The steps of the demonstration: every one consists of commands of the parties.

Between steps the demonstration reads the server's folder, as the server's operator could.
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
from veiltab.demo.parties import (
    ID_COLUMN,
    TABLE,
    DemoCurator,
    DemoParties,
    StudyTerms,
    identity_file,
    write_study_file,
    write_tables,
)
from veiltab.demo.processes import CommandResult, DemoParty, Processes
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
DATA = "data"
DELETION_SECONDS = 20.0
"""How long after the release the server may take to delete what it received."""

REFUSED = "salary"
"""What the second researcher asks for without a grant."""

UNBIASED = ("--estimator", "unbiased")
"""The paper's estimate, whose error the formulas predict."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """The sizes of a study's chunks on the server, and how many ids of respondents it has."""

    received: tuple[int, ...]
    released: tuple[int, ...]
    ids_found: int


@dataclass(slots=True)
class Demonstration:
    """The five steps of a demonstration, and what each of them has found."""

    processes: Processes
    parties: DemoParties
    terms: tuple[StudyTerms, ...]
    table: "CountTable"
    url: str = ""
    plans: list[Json] = field(default_factory=list)
    budgets: dict[str, Json] = field(default_factory=dict)
    studies: list[str] = field(default_factory=list)
    files_before: ServerFiles = field(init=False)
    files_after: ServerFiles = field(init=False)
    column: Column = field(init=False)
    results: list[StudyResult] = field(default_factory=list)
    second: SecondResearcher = field(init=False)
    audits: list[Json] = field(default_factory=list)
    spent: list[Json] = field(default_factory=list)

    @property
    def data(self) -> Path:
        """The server's folder."""
        return self.parties.server.folder / DATA

    @property
    def _last(self) -> tuple[StudyTerms, str]:
        """The study whose files and log are examined."""
        return self.terms[-1], self.studies[-1]

    def enrol(self) -> None:
        """Start the server, make tables and plans, and register every party."""
        processes, parties = self.processes, self.parties
        options = ("--data", DATA, "--port", 0, "--name", parties.server.name)
        last = ("--shutdown-seconds", 2, "--json")
        serving = processes.later(
            partial(processes.serve, parties.server, "serve", *options, *last)
        )
        plans = [processes.later(partial(self._plan, terms)) for terms in self.terms]
        writing = processes.later(partial(write_tables, parties, self.table))
        processes.together(*(partial(self._enrol, party, serving) for party in parties.members))
        for terms in self.terms:
            write_study_file(parties, terms, self.table)
        self.plans = [plan.result() for plan in plans]
        self.url = serving.result()["url"]
        writing.result()

    def agree(self) -> None:
        """Let the first curator propose each study, and the other sign it."""
        signing: list[Future[CommandResult]] = []
        for terms in self.terms:
            proposed = self.processes.run(
                self.parties.registry.party, "study", "propose", terms.file, "--json"
            )
            self.studies.append(proposed.values["study"])
            for signature in signing:  # a home takes one signature at a time
                signature.result()
            sign = ("study", "sign", terms.title, "--yes", "--json")
            signing.append(
                self.processes.later(partial(self.processes.run, self.parties.tax.party, *sign))
            )
        for signature in signing:
            signature.result()

    def push(self) -> None:
        """Push all tables; read the server's folder while one upload is there, and afterwards."""
        others = [partial(self._push_both, terms) for terms in self.terms[:-1]]
        self.processes.together(*others, self._push_and_read_files)

    def estimate(self) -> None:
        """Grant everything to one researcher and a part to the other, and let both estimate."""
        first = [partial(self._first_researcher, number) for number in range(len(self.terms))]
        results = self.processes.together(*first, self._second_researcher)
        self.results = [result for result in results if isinstance(result, StudyResult)]
        self.second = next(result for result in results if isinstance(result, SecondResearcher))

    def verify(self) -> None:
        """Let every party verify the log, and the curators print their ledgers."""
        processes, (terms, _) = self.processes, self._last
        audits = [
            partial(self._values, party, "audit", terms.title) for party in self.parties.members
        ]
        ledgers = [partial(self._values, c.party, "ledger", "show") for c in self.parties.curators]
        printed = processes.together(*audits, *ledgers)
        self.audits = printed[: len(audits)]
        self.spent = [shown["ledgers"][0] for shown in printed[len(audits) :]]

    def summary(self, seconds: float) -> DemoResults:
        """Return what all steps have found."""
        heads = {audit["head"] for audit in self.audits}
        if len(heads) != 1:
            raise VeiltabError(
                "the parties have seen different logs",
                hint="this should not happen; please report it",
            )
        return DemoResults(
            studies=tuple(self.results),
            holders={c.party.name: c.attributes for c in self.parties.curators},
            server=ServerView(
                received=self.files_before.received,
                received_later=self.files_after.received,
                released=self.files_after.released,
                ids_found=self.files_before.ids_found + self.files_after.ids_found,
                column=self.column,
                entries=tuple(self.audits[0]["entries"]),
                head=heads.pop(),
                verified_by=tuple(party.name for party in self.parties.members),
            ),
            second=self.second,
            ledgers=tuple(
                LedgerChange(curator.party.name, self.budgets[curator.party.name], after)
                for curator, after in zip(self.parties.curators, self.spent, strict=True)
            ),
            commands=len(self.processes.history),
            seconds=seconds,
        )

    def _values(self, party: DemoParty, *arguments: object) -> Any:  # noqa: ANN401 - as in CommandResult
        return self.processes.run(party, *arguments, "--json").values

    def _plan(self, terms: StudyTerms) -> Json:
        people = self.table.population_size
        sizes = ("--population", people, "--cells", self.table.schema.domain_size)
        promise: tuple[object, ...] = ("--epsilon", terms.epsilon)
        if terms.delta:  # with δ everybody is sampled, so that all parties compute the same plan
            promise = (*promise, "--delta", terms.delta, "--sample-size", people)
        plan: Json = self._values(self.parties.registry.party, "plan", *sizes, *promise)
        return plan

    def _enrol(self, party: DemoParty, serving: "Future[dict[str, str]]") -> None:
        """Make an identity, hand it to the proposer, get an invitation, and register."""
        processes, proposer = self.processes, self.parties.registry.party
        processes.run(party, "id", "new", "--name", party.name, "--no-passphrase", "--json")
        if party is not proposer:
            public = processes.run(party, "id", "show", "--public")
            _write(proposer.folder / identity_file(party), public.out)
        for curator in self.parties.curators:
            if curator.party is party:
                self.budgets[party.name] = self._set_budget(curator)
        server = serving.result()
        code = processes.run(self.parties.server, "invite", "--data", DATA, party.name)
        _write(party.folder / "invitation.txt", code.out)
        meet = ("--server-fingerprint", server["fingerprint"])
        code_file = ("--invitation-file", "invitation.txt")
        processes.run(party, "register", server["url"], *code_file, *meet, "--json")

    def _set_budget(self, curator: DemoCurator) -> Json:
        """Set a budget of twice what the demonstration spends, rounded to a few digits."""
        options = (
            ("--epsilon", f"{2 * sum(terms.epsilon for terms in self.terms):.6g}"),
            ("--delta", f"{2 * sum(terms.delta for terms in self.terms):.6g}"),
        )
        limits = [part for option in options for part in option]
        budget: Json = self._values(curator.party, "ledger", "set", curator.dataset, *limits)
        return budget

    def _push(self, terms: StudyTerms, curator: DemoCurator, *options: str) -> None:
        table = ("--table", TABLE, "--id", ID_COLUMN)
        self.processes.run(curator.party, "push", terms.title, *table, *options, "--json")

    def _push_both(self, terms: StudyTerms) -> None:
        self.processes.together(
            *(partial(self._push, terms, each, "--wait-release") for each in self.parties.curators)
        )

    def _push_and_read_files(self) -> None:
        """Let one curator push completely before the other; read the server's folder between."""
        (terms, study), parties = self._last, self.parties
        self._push(terms, parties.tax, "--no-wait")
        self._push(terms, parties.registry)
        self.files_before = server_files(self.data, study)
        attribute, size = parties.registry.attributes[0], self.plans[-1]["sample_size"]
        self.column = received_column(self.data, study, attribute, self.table, size)
        self._push(terms, parties.tax, "--wait-release")
        wait_until_deleted(self.data, study)
        self.files_after = server_files(self.data, study)

    def _grant(self, terms: StudyTerms, curator: DemoCurator, researcher: DemoParty) -> None:
        self.processes.run(curator.party, "grant", terms.title, "--to", researcher.name, "--json")

    def _first_researcher(self, number: int) -> StudyResult:
        terms, parties = self.terms[number], self.parties
        self.processes.together(
            *(partial(self._grant, terms, c, parties.rivera) for c in parties.curators)
        )
        found = self._values(parties.rivera, "estimate", terms.title, *UNBIASED)
        names = self.table.schema.names
        return StudyResult(
            terms.title, self.studies[number], self.plans[number], names, self._cells(names, found)
        )

    def _second_researcher(self) -> SecondResearcher:
        (terms, _), parties, processes = self._last, self.parties, self.processes
        self._grant(terms, parties.registry, parties.okafor)
        asked = (*parties.registry.attributes, REFUSED)
        options = [part for name in asked for part in ("--attribute", name)]
        found, refused = processes.together(
            partial(processes.run, parties.okafor, "estimate", terms.title, *UNBIASED, "--json"),
            partial(processes.attempt, parties.okafor, "estimate", terms.title, *options, "--json"),
        )
        error, hint = _refusal(refused)
        names = parties.registry.attributes
        return SecondResearcher(
            name=parties.okafor.name,
            granted=names,
            cells=self._cells(names, found.values),
            asked=asked,
            error=error,
            hint=hint,
        )

    def _cells(self, names: Sequence[str], estimate: Json) -> tuple[Cell, ...]:
        """Return the estimated cells, each with its true share."""
        marginal = self.table.marginal(names)
        combinations = product(*(attribute.categories for attribute in marginal.schema.attributes))
        truth = dict(zip(combinations, marginal.distribution.tolist(), strict=True))
        cells = []
        for cell in estimate["cells"]:
            categories = tuple(cell[name] for name in names)
            cells.append(Cell(categories, truth[categories], cell["share"], cell["standard_error"]))
        return tuple(cells)


def server_files(data: Path, study: str) -> ServerFiles:
    """Read a study's chunks, and search all files of the server for ids."""
    place = data / "studies" / study
    return ServerFiles(
        tuple(len(chunk) for chunk in _chunks(place / "received")),
        tuple(len(chunk) for chunk in _chunks(place / "released")),
        sum(len(PERSON.findall(content)) for content in _contents(data)),
    )


def wait_until_deleted(data: Path, study: str) -> None:
    """Wait until the server has deleted what it received, as it does right after the release."""
    end = time.monotonic() + DELETION_SECONDS
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
    length = packed_length(attribute.size, sample_size)  # a chunk's name, a digest, does not tell
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
    """Yield all chunks in a folder and below it; a file holds many."""
    for path in _files(folder):
        yield from (bytes(chunk) for _, chunk in unbundle(path.read_bytes()))


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _contents(folder: Path) -> Iterator[bytes]:
    for path in _files(folder):
        with contextlib.suppress(FileNotFoundError):  # the server may delete it meanwhile
            yield path.read_bytes()


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")


def _refusal(done: CommandResult) -> tuple[str, str]:
    """Return the error and the hint of a command that had to fail."""
    if done.code == 0:
        raise VeiltabError(
            "a researcher got what nobody has granted",
            hint="this should not happen; please report it",
        )
    lines = done.err.splitlines()
    parts = {line.partition(": ")[0]: line.partition(": ")[2] for line in lines}
    return parts.get("error", done.err), parts.get("hint", "")
