"""Many studies at the same time, each with three curators and a researcher of its own."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tests.support.hostile import Requests
from tests.support.http_simulator import HttpTerms
from tests.support.requests import Request
from tests.support.servers import ServerProcess
from tests.support.simulator import attribute
from veiltab.core.mechanism import LinkageMode
from veiltab.core.parameters import MAX_EPSILON
from veiltab.core.schema import Schema
from veiltab.data.csv_file import CsvTable
from veiltab.estimates import Estimate
from veiltab.party import curator
from veiltab.party.checking import Source
from veiltab.party.context import PartyContext
from veiltab.party.evidence import examine
from veiltab.party.progress import Patience, ignore_progress
from veiltab.party.proposal import StudyDraft
from veiltab.party.push import push
from veiltab.party.researcher import estimate_study
from veiltab.party.study import Study
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.in_process import LATER
from veiltab.wire.contract import PadMode
from veiltab.wire.messages import SignedGrant

CURATORS = 3
PARTIES = CURATORS + 1
PATIENCE = 600.0

_FORMS: Sequence[tuple[LinkageMode, PadMode]] = (
    ("aligned", "stream"),
    ("matched", "stream"),
    ("aligned", "one-time"),
    ("matched", "one-time"),
)
_SIZES = ((2, 3, 4), (5, 2, 2), (3, 3, 2), (2, 2, 7), (4, 4, 4))


@dataclass(frozen=True)
class PlannedStudy:
    """What one of many studies is about: all of it follows from its number."""

    number: int

    @property
    def form(self) -> tuple[LinkageMode, PadMode]:
        """How respondents are linked, and under which pads."""
        return _FORMS[self.number % len(_FORMS)]

    @property
    def title(self) -> str:
        """What people call it."""
        return f"study {self.number}"

    @property
    def schema(self) -> Schema:
        """The attributes, one of each curator."""
        sizes = _SIZES[self.number % len(_SIZES)]
        return Schema([attribute(f"of {self.number}, {i}", s) for i, s in enumerate(sizes)])

    @property
    def common(self) -> int:
        """How many respondents all three curators hold."""
        return 200 + 7 * self.number

    def table(self, place: int) -> pl.DataFrame:
        """Return a curator's table, in an order of its own.

        Where the server matches, some respondents are known to one curator alone.
        """
        found = self.schema.attributes[place]
        source = np.random.default_rng((self.number, place))
        own = 10 * (place + 1) if self.form[0] == "matched" else 0
        ids = [f"{n:05}" for n in range(self.common)] + [f"{place}-{n}" for n in range(own)]
        codes = source.integers(found.size, size=len(ids))
        frame = pl.DataFrame({"id": ids, found.name: map(str, codes.tolist())})
        return frame.sample(fraction=1.0, shuffle=True, seed=self.number)

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many of the common respondents are in each cell: what the release must show."""
        joined = self.table(0).join(self.table(1), on="id").join(self.table(2), on="id")
        schema = self.schema
        codes = [joined[name].cast(pl.Int64).to_numpy() for name in schema.names]
        return np.bincount(schema.cells(codes), minlength=schema.domain_size)

    @property
    def terms(self) -> HttpTerms:
        """Everybody is sampled, with next to no noise."""
        linkage, pads = self.form
        return HttpTerms(
            title=self.title,
            linkage=linkage,
            pads=pads,
            epsilon=float(MAX_EPSILON),
            sample_size=self.common,
        )

    def draft(self, parties: Sequence[PartyContext]) -> StudyDraft:
        """Return the study of these parties: a curator for each attribute, and a researcher."""
        *curators, researcher = parties
        attributes = [[held] for held in self.schema.attributes]
        return self.terms.draft(curators, attributes, researcher)


@dataclass(eq=False)
class StudyRun:
    """One study while its parties work on it, each in a thread of its own.

    The parties wait for each other between the steps; everything else goes through
    the server.
    """

    planned: PlannedStudy
    parties: list[PartyContext]
    folder: Path
    study: bytes = b""
    grants: list[SignedGrant] = field(default_factory=list)
    estimate: Estimate | None = None
    events: list[str] = field(default_factory=list)
    seconds: float = 0.0
    meeting: threading.Barrier = field(default_factory=lambda: threading.Barrier(PARTIES))

    def run(self, place: int) -> None:
        """Do everything that one party does; the last is the researcher."""
        try:
            self._run(place)
        except BaseException:
            self.meeting.abort()  # nobody need wait for who will never come
            raise

    def _run(self, place: int) -> None:
        me, started = self.parties[place], time.perf_counter()
        if place == 0:
            draft = self.planned.draft(self.parties)
            self.study = curator.propose(me, draft, self.planned.terms.ledger).study_id
        self._meet()
        if 0 < place < CURATORS:
            curator.sign(me, me.contract(self.study), self.planned.terms.ledger)
        self._meet()
        if place < CURATORS:
            push(
                me,
                me.contract(self.study),
                partial(self._source, place),
                ignore_progress,
                Patience(PATIENCE),
            )
            self._wait_for_release(me)
            to = public_identity(self.parties[CURATORS].identity)
            self.grants.append(curator.give_grant(me, me.contract(self.study), to, None, LATER))
        self._meet()
        if place == CURATORS:
            whole = self.grants if self.planned.form[1] == "one-time" else ()
            self.estimate = estimate_study(me, me.contract(self.study), grants=whole)
            self.seconds = time.perf_counter() - started
        log = examine(me, self.study).entries
        self.events = [entry.event for entry in log]

    def _wait_for_release(self, me: PartyContext) -> None:
        Study(me, self.study).wait("released", PATIENCE)

    def _meet(self) -> None:
        self.meeting.wait(PATIENCE)

    def _source(self, place: int) -> Source:
        path = self.folder / f"{self.planned.number}-{place}.csv"
        self.planned.table(place).write_csv(path)
        return Source(CsvTable(path), ("id",))

    @property
    def expected_changes(self) -> Fraction:
        """How many of its records the noise is expected to change."""
        assert self.estimate is not None
        plan = self.estimate.plan
        return plan.ranked.sample_size * (1 - plan.ranked.channel.keep_probability)


@dataclass(frozen=True)
class Load:
    """What a run of many studies took."""

    runs: list[StudyRun]
    joining_seconds: float
    seconds: float
    requests: float
    peak: int

    def __str__(self) -> str:
        """Say it in a line."""
        slowest = max(each.seconds for each in self.runs)
        return (
            f"{len(self.runs)} studies at once, {PARTIES * len(self.runs)} parties"
            f" (registered in {self.joining_seconds:.1f} s):"
            f" {self.seconds:.1f} s, the slowest study {slowest:.1f} s;"
            f" {self.requests:,.0f} requests, {self.requests / self.seconds:.0f} a second;"
            f" the server's most memory {self.peak / 2**20:.0f} MiB"
        )


def run_all(server: ServerProcess, folder: Path, studies: int) -> Load:
    """Register everybody, and then let all parties of all studies work at the same time."""
    started = time.perf_counter()
    with ThreadPoolExecutor(8) as pool:
        join: Callable[[str], PartyContext] = lambda name: server.join(name, folder / name)  # noqa: E731
        names = [f"party {n}" for n in range(PARTIES * studies)]
        sessions = list(pool.map(join, names))
    joined = time.perf_counter()
    runs = [
        StudyRun(PlannedStudy(n), sessions[PARTIES * n : PARTIES * (n + 1)], folder)
        for n in range(studies)
    ]
    before = server.metric("veiltab_requests_total")
    with ThreadPoolExecutor(PARTIES * studies) as pool:
        working = [pool.submit(each.run, place) for each in runs for place in range(PARTIES)]
        for future in working:
            future.result()
    seconds = time.perf_counter() - joined
    requests = server.metric("veiltab_requests_total") - before
    return Load(runs, joined - started, seconds, requests, server.peak)


def requests_a_second(asked: Sequence[Sequence[Request]], url: str) -> float:
    """Send lists of signed requests, each on a connection of its own, and return how many a second.

    All are signed before the clock starts, so that clients take little of the processors.
    """
    floods = [_Prepared(url, requests) for requests in asked]
    started = time.perf_counter()
    with ThreadPoolExecutor(len(floods)) as pool:
        for done in [pool.submit(flood.send_all) for flood in floods]:
            done.result()
    seconds = time.perf_counter() - started
    for flood in floods:
        assert flood.outcomes.keys() <= {"200", "201"}, flood.outcomes
    return sum(map(len, asked)) / seconds


class _Prepared(Requests):
    """Requests that were signed before."""

    def __init__(self, url: str, requests: Sequence[Request]) -> None:
        super().__init__(url)
        self._left = iter(requests)
        self._count = len(requests)

    def request(self) -> Request:
        return next(self._left)

    def send_all(self) -> None:
        for _ in range(self._count):
            self.step()
        self.close()
