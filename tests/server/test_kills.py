"""Studies go on by themselves however often the server is killed, and lose and leak nothing."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.support.http_simulator import HttpTerms
from tests.support.servers import PHASES, KilledServer, invitation, register
from tests.support.simulator import attribute
from veiltab.core.mechanism import LinkageMode
from veiltab.crypto.entropy import SystemEntropy
from veiltab.data.tables import open_table
from veiltab.errors import NotFoundError, StateError
from veiltab.party import curator, push, researcher
from veiltab.party.checking import Source
from veiltab.party.context import PartyContext
from veiltab.party.evidence import examine
from veiltab.party.progress import Patience, ignore_progress
from veiltab.party.remote import RemoteServer, Retry
from veiltab.protocol.curator.agreement import public_identity

ROWS = 80_000
LINKAGES: tuple[LinkageMode, ...] = ("aligned", "matched")
SIZES = ({"smoker": 2, "age": 5}, {"income": 3, "region": 4})
PATIENT = Retry(total=240.0, base=0.05, cap=0.4)
NO_NOISE = 50.0
"""An ε at which a record is replaced about once in 10¹⁹ times: estimates are exact."""


@dataclass(eq=False)
class Parties:
    """Two curators with tables, a researcher, and the server that is killed."""

    victim: KilledServer
    folder: Path
    curators: list[PartyContext] = field(default_factory=list)
    researcher: PartyContext | None = None
    releases: dict[bytes, set[bytes]] = field(default_factory=dict)

    def join(self, name: str) -> PartyContext:
        """Register a party in a home of its own."""
        server, code = self.victim, invitation(self.victim.data, name)
        path, source = self.folder / name, SystemEntropy()
        return register(server.url, name, path, code, retry=PATIENT, entropy=source)

    def table(self, number: int) -> Path:
        """Return the file of a curator."""
        return self.folder / f"table-{number}.parquet"


def write_tables(parties: Parties, rows: int) -> pl.DataFrame:
    """Give each curator its columns, in an order of its own; return the whole table."""
    draw = np.random.default_rng(7)
    columns = {name: draw.integers(k, size=rows) for s in SIZES for name, k in s.items()}
    whole = pl.DataFrame({"id": np.arange(rows) + 10**6, **columns})
    for number, sizes in enumerate(SIZES):
        part = whole.select("id", *sizes).sample(fraction=1, shuffle=True, seed=number)
        part.write_parquet(parties.table(number))
    return whole


def propose(parties: Parties, linkage: LinkageMode, title: str) -> bytes:
    """Open a study in which everybody takes part."""
    terms = HttpTerms(title=title, linkage=linkage, epsilon=NO_NOISE, sample_size=ROWS)
    attributes = [[attribute(name, k) for name, k in sizes.items()] for sizes in SIZES]
    draft = terms.draft(parties.curators, attributes, None)
    first, second = parties.curators
    study = curator.propose(first, draft, terms.ledger).study_id
    curator.sign(second, second.contract(study), terms.ledger)
    return study


def together(work: Sequence[Callable[[], object]]) -> None:
    """Do several things at once; the first failure is raised."""
    failures: list[BaseException] = []

    def run(each: Callable[[], object]) -> None:
        try:
            each()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def push_table(parties: Parties, study: bytes, number: int) -> None:
    """Push as the command does."""
    session = parties.curators[number]
    source = Source(open_table(str(parties.table(number))), ("id",))
    push.push(session, session.contract(study), lambda: source, ignore_progress, Patience(None))


def watch(parties: Parties, study: bytes, done: threading.Event) -> None:
    """Ask for the release all the time, and remember every one that is ever shown."""
    session = parties.curators[0]
    server = RemoteServer(
        parties.victim.url, session.server.pinned, session.identity, retry=PATIENT
    )
    while not done.is_set():
        try:
            parties.releases.setdefault(study, set()).add(server.release(study).dumps())
        except (StateError, NotFoundError):
            time.sleep(0.01)
    server.close()


def run_study(parties: Parties, linkage: LinkageMode, title: str) -> pl.DataFrame:
    """Go through a whole study while the server dies and comes back; return the estimate."""
    victim, reader = parties.victim, parties.researcher
    assert reader is not None
    victim.phase = "upload"
    study = propose(parties, linkage, title)
    done = threading.Event()
    watcher = threading.Thread(target=watch, args=(parties, study, done))
    watcher.start()
    try:
        together([partial(push_table, parties, study, number) for number in range(2)])
        victim.phase = "release"
        while parties.curators[0].server.status(study).state != "released":
            time.sleep(0.02)
        victim.phase = "download"
        for session in parties.curators:
            to = public_identity(reader.identity)
            curator.give_grant(session, session.contract(study), to, None, int(time.time()) + 10**6)
        found = researcher.estimate_study(reader, reader.contract(study))
        again = researcher.estimate_study(reader, reader.contract(study))
    finally:
        done.set()
        watcher.join()
    assert (found.counts == again.counts).all()
    for session in (*parties.curators, reader):
        examine(session, study)
    assert len(parties.releases[study]) == 1
    cells = np.arange(found.schema.domain_size)
    codes = zip(found.schema.names, found.schema.codes(cells), strict=True)
    return pl.DataFrame({**{name: c.astype(np.int64) for name, c in codes}, "n": found.counts})


def survive(folder: Path, kills: int, seed: int) -> KilledServer:
    """Run studies until the server was killed so often, two at least, and check every one."""
    victim = KilledServer(folder / "data", seed)
    victim.start()
    parties = Parties(victim, folder)
    parties.curators = [parties.join("hospital"), parties.join("tax office")]
    parties.researcher = parties.join("researcher")
    whole = write_tables(parties, ROWS)
    truth = whole.group_by([name for s in SIZES for name in s]).len("n")
    number = 0
    with victim.killed(kills):
        while number < len(LINKAGES) or sum(victim.kills.values()) < kills:
            found = run_study(parties, LINKAGES[number % 2], f"study {number}")
            check(found, truth)
            number += 1
    for session in (*parties.curators, parties.researcher):
        session.server.close()
    unperturbed = [*(folder / "data" / "studies").glob("*/received/*/*")]
    assert not unperturbed
    victim.kill()
    print(json.dumps({"kills": dict(victim.kills), "studies": number}))  # noqa: T201 - for the docs
    return victim


def check(found: pl.DataFrame, truth: pl.DataFrame) -> None:
    """Without noise, every respondent is counted once, in the right cell."""
    joined = found.filter(pl.col("n") > 0).join(truth, on=found.columns[:-1], how="full")
    assert joined.height == truth.height
    assert (joined["n"] == joined["n_right"]).all()


@pytest.mark.slow
def test_studies_survive_a_server_that_is_killed(tmp_path: Path) -> None:
    """Some kills; whoever does not believe it runs ``make soak``."""
    assert sum(survive(tmp_path, kills=2, seed=1).kills.values()) >= 2


@pytest.mark.soak
def test_studies_survive_two_hundred_kills(tmp_path: Path) -> None:
    """In every phase of a study, many times."""
    victim = survive(tmp_path, kills=240, seed=2)
    assert sum(victim.kills.values()) >= 200
    assert all(victim.kills[phase] >= 20 for phase in PHASES)
