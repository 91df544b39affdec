"""A day in which everything goes wrong, by a simulated clock: nothing is lost or doubled."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.support.faults import FaultyServer, SlowNetwork
from tests.support.http_simulator import HttpStudy, HttpTerms
from tests.support.servers import invitation, register
from tests.support.simulator import Stage, holdings_of
from tests.support.storage import LocalPostgreSQL
from veiltab.core.parameters import MAX_EPSILON
from veiltab.crypto.entropy import SystemEntropy
from veiltab.errors import OutOfSpaceError
from veiltab.party.context import PartyContext
from veiltab.party.evidence import examine
from veiltab.party.remote import Retry
from veiltab.party.researcher import estimate_study

HOUR = 3_600.0
PATIENT = Retry(total=300.0, base=0.05, cap=0.5)
FAULTS = ("none", "kill", "full disk", "lost database", "slow network")
FAULT_SECONDS = (0.3, 1.2)
ROUNDS_AN_HOUR = 2
PEOPLE = 120


@dataclass(eq=False)
class Day:
    """A server, its parties, and the studies that they begin every hour."""

    server: FaultyServer
    network: SlowNetwork
    parties: list[PartyContext]
    draw: random.Random
    lost_database: Callable[[], AbstractContextManager[None]]
    """Takes the database away until a block ends."""
    running: list[HttpStudy] = field(default_factory=list)
    ended: list[HttpStudy] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)

    def begin(self, number: int) -> None:
        """Begin a study without noise, in which everybody takes part."""
        terms = HttpTerms(
            title=f"hour {number}",
            linkage=("aligned", "matched")[number % 2],
            epsilon=float(MAX_EPSILON),
            population=PEOPLE,
            sample_size=PEOPLE,
        )
        *curators, researcher = self.parties
        holdings = holdings_of(terms.shares, PEOPLE, number + 1)
        self.running.append(HttpStudy(list(curators), researcher, terms, holdings))

    def go_on(self) -> None:
        """Take every study one stage further, all at once, while something goes wrong."""
        with ThreadPoolExecutor(max(1, len(self.running))) as pool:
            stages = [Stage(study.stage + 1) for study in self.running]
            working = [
                pool.submit(take_step, study, stage)
                for study, stage in zip(self.running, stages, strict=True)
            ]
            with self._fault(self.draw.choice(FAULTS)):
                time.sleep(self.draw.uniform(*FAULT_SECONDS))
            for future in working:
                future.result(timeout=300)
        self.ended += [study for study in self.running if study.stage == Stage.GRANTED]
        self.running = [study for study in self.running if study.stage < Stage.GRANTED]

    @contextmanager
    def _fault(self, kind: str) -> Iterator[None]:
        self.faults[kind] += 1
        with ExitStack() as stack:
            if kind == "kill":
                time.sleep(self.draw.uniform(0, 0.3))
                self.server.kill()
                stack.callback(self.server.start)
            elif kind == "full disk":
                stack.enter_context(self.server.control.full_disk())
            elif kind == "lost database":
                stack.enter_context(self.lost_database())
            elif kind == "slow network":
                stack.enter_context(self.network.slow(delay=0.03, loss=0.05))
            yield

    def check(self, study: HttpStudy) -> None:
        """Read a study's release, twice: it is one, and every respondent is counted once."""
        *curators, researcher = self.parties
        signed = researcher.contract(study.study)
        estimate = estimate_study(researcher, signed)
        again = estimate_study(researcher, signed)
        np.testing.assert_array_equal(estimate.counts, again.counts)
        np.testing.assert_array_equal(estimate.counts, study.true_counts())
        for session in (*curators, researcher):
            events = [entry.event for entry in examine(session, study.study).entries]
            assert events.count("released") == 1
            assert events.count("uploaded") == len(curators)


def take_step(study: HttpStudy, stage: Stage) -> None:
    """Take a study one stage further; while the disk is full, try again, as people do."""
    end = time.monotonic() + PATIENT.total
    while True:
        try:
            study.go_to(stage)
        except OutOfSpaceError:
            if time.monotonic() > end:
                raise
        else:
            return
        study.stage = stage - 1
        if stage is Stage.PROPOSED:  # it was charged, and never sent
            study.terms = replace(study.terms, title=f"{study.terms.title}, again")
        time.sleep(0.2)


@contextmanager
def stopped(postgresql: LocalPostgreSQL) -> Iterator[None]:
    """Stop PostgreSQL itself until the block ends."""
    postgresql.stop()
    try:
        yield
    finally:
        postgresql.start()


@contextmanager
def a_day(
    folder: Path, seed: int, postgresql: LocalPostgreSQL | None = None, database: str = ""
) -> Iterator[Day]:
    """Start a server with parties who reach it over a slow network."""
    server = FaultyServer(folder, database)
    server.start()
    network = SlowNetwork(server.port, seed)
    parties = []
    for name in ("hospital", "tax office", "researcher"):
        code = invitation(server.data, name, database)
        registered = register(
            network.url,
            name,
            folder / name,
            code,
            retry=PATIENT,
            entropy=SystemEntropy(),
            clock=server.control.clock,
        )
        parties.append(registered)
    try:
        lost = partial(stopped, postgresql) if postgresql else server.control.lost_database
        yield Day(server, network, parties, random.Random(seed), lost)  # noqa: S311 - faults
    finally:
        for session in parties:
            session.server.close()
        network.close()
        server.kill()


def live_through(day: Day, hours: int) -> None:
    """Let so many simulated hours pass, and check every study at the end."""
    control = day.server.control
    end = control.clock() + hours * HOUR
    number = 0
    while control.clock() < end or day.running:
        if control.clock() < end:
            day.begin(number)
            number += 1
        for _ in range(ROUNDS_AN_HOUR):
            until = control.clock() + HOUR / ROUNDS_AN_HOUR
            day.go_on()
            control.skip(max(0.0, until - control.clock()))
    for study in day.ended:
        day.check(study)
    assert len(day.ended) == number
    assert not [*(day.server.data / "studies").glob("*/received/*/*")]
    broken = [line for line in day.server.log.read_text("utf-8").splitlines() if '"trace"' in line]
    assert broken == []
    report = {"studies": number, "faults": dict(day.faults), "kills": day.server.kills}
    print(json.dumps(report | {"connections broken": day.network.broken}))  # noqa: T201 - for the docs


@pytest.mark.soak
def test_a_day_of_faults(tmp_path: Path) -> None:
    """Twenty-four hours with SQLite."""
    with a_day(tmp_path, 1) as day:
        live_through(day, 24)
        assert all(day.faults[kind] >= 3 for kind in FAULTS)


@pytest.mark.soak
def test_a_day_of_faults_on_postgresql(tmp_path: Path, postgresql: LocalPostgreSQL) -> None:
    """Twenty-four hours with PostgreSQL, which is stopped and started."""
    with postgresql.new_database() as address, a_day(tmp_path, 2, postgresql, address) as day:
        live_through(day, 24)
        assert all(day.faults[kind] >= 3 for kind in FAULTS)
