"""The steps of the demonstration: every one consists of commands of the parties.

Between steps the demonstration reads the server's folder, as the server's operator could, and
opens uploads with a researcher's keys, as the two could together.
"""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from veiltab.core.schema import CountTable
from veiltab.demo.coalition import open_uploads, researchers_access
from veiltab.demo.operator import (
    DATA,
    ServerFiles,
    read_copy,
    received_column,
    server_files,
    wait_until_deleted,
)
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
    PublishedCopy,
    Reading,
    SecondResearcher,
    ServerView,
    StoredResult,
    StudyResult,
    exponent,
)
from veiltab.demo.stored import STUDY as STORED_STUDY
from veiltab.demo.stored import StoredTables
from veiltab.errors import VeiltabError

REFUSED = "salary"
"""What the second researcher asks for without a grant."""

EXAMINED = 1
"""The number of the study with decoys."""

INVITATION = "invitation.json"
"""What each party calls the file that the server's operator has mailed to it."""

UNBIASED = ("--estimator", "unbiased")
"""The paper's estimate, whose error the formulas predict."""

Json = Mapping[str, Any]


@dataclass(slots=True)
class Demonstration:
    """The steps of a demonstration, and what each of them has found."""

    processes: Processes
    parties: DemoParties
    terms: tuple[StudyTerms, ...]
    table: "CountTable"
    url: str = ""
    plans: list[Json] = field(default_factory=list)
    budgets: dict[str, Json] = field(default_factory=dict)
    studies: list[str] = field(default_factory=list)
    coalitions: list[Sequence[Json]] = field(default_factory=list)
    received: tuple[int, ...] = ()
    files: ServerFiles = field(init=False)
    column: Column = field(init=False)
    results: list[StudyResult] = field(default_factory=list)
    second: SecondResearcher = field(init=False)
    published: PublishedCopy = field(init=False)
    readings: list[Reading] = field(default_factory=list)
    stored: StoredResult = field(init=False)
    audits: list[Json] = field(default_factory=list)
    spent: list[Json] = field(default_factory=list)

    @property
    def examined(self) -> tuple[StudyTerms, str]:
        """The study with decoys, whose files and log are examined."""
        return self.terms[EXAMINED], self.studies[EXAMINED]

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
        """Let the first curator propose each study, and the other read and sign it."""
        signing: list[Future[Sequence[Json]]] = []
        for terms in self.terms:
            proposed = self.processes.run(
                self.parties.registry.party, "study", "propose", terms.file, "--yes", "--json"
            )
            self.studies.append(proposed.values["study"])
            self.coalitions += [signature.result() for signature in signing]
            signing = [self.processes.later(partial(self._read_and_sign, terms))]
        self.coalitions += [signature.result() for signature in signing]

    def push(self) -> None:
        """Push all tables; then read the server's folder, and the copies of its operator."""
        pushes = [
            partial(self._push, terms, curator)
            for terms in self.terms
            for curator in self.parties.curators
        ]
        self.processes.together(*pushes)
        server, (_, study) = self.parties.server.folder, self.examined
        wait_until_deleted(server, study)
        uploads = read_copy(server, study)
        self.received = tuple(len(chunk) for chunk in uploads.chunks.values())
        self.files = server_files(server, study)
        attribute = self.parties.registry.attributes[0]
        self.column = received_column(uploads, attribute, self.table)

    def estimate(self) -> None:
        """Grant everything to one researcher and a part to the other, and let both estimate."""
        first = [partial(self._first_researcher, number) for number in range(len(self.terms))]
        results = self.processes.together(*first, self._second_researcher)
        self.results = [result for result in results if isinstance(result, StudyResult)]
        self.second = next(result for result in results if isinstance(result, SecondResearcher))

    def publish(self) -> None:
        """Let the first researcher publish a copy; and read what it could, with the server."""
        publishing = self.processes.later(self._publish)
        self.readings = [self._read_together(number) for number in range(len(self.terms))]
        self.published = publishing.result()

    def store(self) -> None:
        """Store both tables, and let agents answer a study on them."""
        tables = StoredTables(self.processes, self.parties, self.table, self.terms[0].epsilon)
        tables.fill()
        study, estimate, agents = tables.study()
        self.stored = StoredResult(
            STORED_STUDY,
            study,
            self.plans[0],
            self.table.population_size,
            agents,
            self._cells(self.table.schema.names, estimate),
        )

    def verify(self) -> None:
        """Let every party verify the log, and the curators print their ledgers."""
        processes, (terms, _) = self.processes, self.examined
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
                received=self.received,
                received_later=self.files.received,
                released=self.files.released,
                ids_found=self.files.ids_found,
                column=self.column,
                entries=tuple(self.audits[0]["entries"]),
                head=heads.pop(),
                verified_by=tuple(party.name for party in self.parties.members),
            ),
            readings=tuple(self.readings),
            published=self.published,
            second=self.second,
            stored=self.stored,
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
        promise: tuple[object, ...] = ("--mechanism", terms.mechanism, "--epsilon", terms.epsilon)
        if terms.delta:
            promise = (*promise, "--delta", exponent(terms.delta))
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
        file = identity_file(party)
        where = ("--data", DATA, "--url", server["url"], "--out", file)
        processes.run(self.parties.server, "server", "invite", party.name, *where)
        mailed = (self.parties.server.folder / file).read_text("utf-8")
        _write(party.folder / INVITATION, mailed)
        meet = ("--server-fingerprint", server["fingerprint"])
        processes.run(party, "register", INVITATION, *meet, "--json")

    def _set_budget(self, curator: DemoCurator) -> Json:
        """Set a budget of twice what the demonstration spends, rounded to a few digits."""
        options = (
            ("--epsilon", f"{2 * sum(terms.epsilon for terms in self.terms):.6g}"),
            ("--delta", f"{2 * sum(terms.delta for terms in self.terms):.6g}"),
        )
        limits = [part for option in options for part in option]
        budget: Json = self._values(curator.party, "ledger", "set", curator.dataset, *limits)
        return budget

    def _read_and_sign(self, terms: StudyTerms) -> Sequence[Json]:
        """Let the second curator read what each coalition would learn, and sign."""
        curator = self.parties.tax.party
        shown: Json = self._values(curator, "study", "show", terms.title)
        self._values(curator, "study", "sign", terms.title, "--yes")
        coalitions: Sequence[Json] = shown["coalitions"]
        return coalitions

    def _push(self, terms: StudyTerms, curator: DemoCurator) -> None:
        table = ("--table", TABLE, "--id", ID_COLUMN)
        self._values(curator.party, "push", terms.title, *table, "--wait-release")

    def _grant(self, terms: StudyTerms, curator: DemoCurator, researcher: DemoParty) -> None:
        self._values(curator.party, "grant", terms.title, "--to", researcher.name)

    def _first_researcher(self, number: int) -> StudyResult:
        terms, parties = self.terms[number], self.parties
        self.processes.together(
            *(partial(self._grant, terms, c, parties.rivera) for c in parties.curators)
        )
        found = self._values(parties.rivera, "estimate", terms.title, *UNBIASED)
        names = self.table.schema.names
        return StudyResult(
            terms.title,
            self.studies[number],
            self.plans[number],
            tuple(self.coalitions[number]),
            names,
            self._cells(names, found),
        )

    def _publish(self) -> PublishedCopy:
        (terms, _), names = self.examined, self.table.schema.names
        shown: Json = self._values(self.parties.rivera, "publish", terms.title, *UNBIASED)
        cells, digest = self._cells(names, shown), shown["published"]["digest"]
        return PublishedCopy(terms.title, self.plans[EXAMINED], names, digest, cells)

    def _read_together(self, number: int) -> Reading:
        """Open a study's uploads with the first researcher's keys, as the server could with it."""
        study, plan = self.studies[number], self.plans[number]
        access = researchers_access(self.parties.rivera.home, study)
        uploads = read_copy(self.parties.server.folder, study)
        schema, law = self.table.schema, plan["decoys"] or {"mean": 0.0, "variance": 0.0}
        [promise] = [c for c in self.coalitions[number] if c["who"] == "researcher and server"]
        return Reading(
            title=self.terms[number].title,
            mechanism=self.terms[number].mechanism,
            epsilon=promise["epsilon"],
            names=schema.names,
            categories=tuple(product(*(a.categories for a in schema.attributes))),
            people=tuple(self.table.counts.tolist()),
            rows=open_uploads(uploads, access, self.table),
            decoys=(law["mean"], math.sqrt(law["variance"])),
        )

    def _second_researcher(self) -> SecondResearcher:
        (terms, _), parties, processes = self.examined, self.parties, self.processes
        self._grant(terms, parties.registry, parties.okafor)
        asked = (*parties.registry.attributes, REFUSED)
        options = [part for name in asked for part in ("--attribute", name)]
        found, refused = processes.together(
            partial(processes.run, parties.okafor, "estimate", terms.title, *UNBIASED, "--json"),
            partial(processes.attempt, parties.okafor, "estimate", terms.title, *options),
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
