"""Many studies at once on one server, each with the right outcome."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from tests.support.http_simulator import HttpTerms, http_study, join_parties
from tests.support.load import Load, requests_a_second, run_all
from tests.support.memory import MIB
from tests.support.requests import Request, signer_of
from tests.support.servers import NO_LIMITS, serving
from tests.support.simulator import PAIR, Stage
from tests.support.storage import LocalPostgreSQL
from veiltab.party.context import PartyContext
from veiltab.wire.bundles import bundle

MOST_MEMORY = 300 * MIB
MOST_CHANGES = 1e-9
"""How many records the noise changes in all studies together, as a bound on their expectation."""

ASKERS = 32
LEAST_A_SECOND = 5
"""Requests of each kind: far fewer than any machine answers, so that only a mistake fails."""


def run(folder: Path, studies: int, database: str | None = None) -> Load:
    """Run so many studies on a server of their own, and check every one of them."""
    with serving(folder, *NO_LIMITS, database=database) as server:
        load = run_all(server, folder, studies)
        problems = server.problems()
    print(load)  # noqa: T201 - pytest -rA shows it
    check(load)
    assert problems == []
    return load


def check(load: Load) -> None:
    """Every study is released and estimated as its tables are, and its log is whole."""
    assert sum(float(each.expected_changes) for each in load.runs) < MOST_CHANGES
    for each in load.runs:
        assert each.estimate is not None
        counts = each.planned.counts
        np.testing.assert_array_equal(each.estimate.counts, counts)
        shares = counts / each.planned.common
        np.testing.assert_allclose(each.estimate.unbiased, shares, atol=1e-12)
        assert each.events.count("uploaded") == each.events.count("granted") == 3
        assert each.events.count("released") == 1
    assert load.peak < MOST_MEMORY


@pytest.mark.slow
def test_studies_at_once(tmp_path: Path) -> None:
    """Two studies with eight parties, who all work at the same time."""
    assert len(run(tmp_path, 2).runs) == 2


@pytest.mark.soak
def test_fifty_studies_at_once(tmp_path: Path) -> None:
    """Fifty studies with 200 parties."""
    assert len(run(tmp_path, 50).runs) == 50


@pytest.mark.soak
def test_fifty_studies_at_once_on_postgresql(tmp_path: Path, postgresql: LocalPostgreSQL) -> None:
    """The same with the other database."""
    with postgresql.new_database() as address:
        assert len(run(tmp_path, 50, address).runs) == 50


@pytest.mark.soak
def test_requests_a_second(tmp_path: Path, address: str) -> None:
    """Questions and chunks of 32 parties at once, on each database: measured, and answered."""
    with serving(tmp_path, *NO_LIMITS, database=address) as server:
        names = [f"party {number}" for number in range(ASKERS)]
        reader, *askers = join_parties(server, tmp_path, ["reader", *names])
        pairs = []
        for me in askers:
            terms = HttpTerms(shares=PAIR[:1])
            study = http_study(server, tmp_path, Stage.OPEN, terms=terms, parties=[me, reader])
            pairs.append((me, f"/v1/studies/{study.study.hex()}"))
        reads = requests_a_second([questions(me, path) for me, path in pairs], server.url)
        writes = requests_a_second([bundles(me, path) for me, path in pairs], server.url)
        print(f"{reads:.0f} questions, {writes:.0f} bundles a second")  # noqa: T201 - for the docs
        assert server.problems() == []
    assert min(reads, writes) > LEAST_A_SECOND


def questions(me: PartyContext, study: str) -> list[Request]:
    """Sign what a party asks most: its studies, and where one of them stands."""
    signer = signer_of(me)
    return [signer.sign(Request("GET", path)) for _ in range(50) for path in ("/v1/studies", study)]


def bundles(me: PartyContext, study: str) -> list[Request]:
    """Sign chunks of 8 KiB, each in a bundle of its own, and each of them new."""
    signer, requests = signer_of(me), []
    for _ in range(20):
        chunk = os.urandom(8_192)
        body = bundle([(hashlib.sha256(chunk).digest(), chunk)])
        requests.append(signer.sign(Request("PUT", f"{study}/chunks", body)))
    return requests
