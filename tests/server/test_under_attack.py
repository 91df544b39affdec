"""Every attack at once, from strangers and from one invited party, beside an honest study.

The attackers are processes that give way to the server: real ones have machines of their own.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.support.http_simulator import HttpStudy, HttpTerms, http_study
from tests.support.intruder import Intruder
from tests.support.memory import MIB
from tests.support.requests import Request, signer_of
from tests.support.servers import ServerProcess, serving
from tests.support.siege import ATTACKS, Probe, asking, besieged
from tests.support.simulator import Stage
from veiltab.core.parameters import MAX_EPSILON
from veiltab.party.remote import Retry
from veiltab.party.researcher import estimate_study
from veiltab.wire.bundles import bundle

MOST_SLOWER = 5.0
"""How many times its quiet median an honest party's median may be under attack."""

MOST_MEMORY = 1024
"""The most memory of the server, in MiB."""

QUIET_SECONDS = 10.0
RECOVERY_SECONDS = 15.0
_PEOPLE = 400


@dataclass(frozen=True)
class Measured:
    """What honest parties noticed; times in milliseconds, memory in MiB."""

    quiet: float
    under_attack: float
    longest: float
    requests: int
    repeated: int
    lost: Sequence[str]
    after: float
    peak: int
    outcomes: dict[str, dict[str, int]]

    @property
    def slower(self) -> float:
        """How many times as long a request takes."""
        return self.under_attack / self.quiet


def probe(server: ServerProcess, study: HttpStudy) -> Probe:
    """Ask what parties ask most, and send a chunk that the server has already."""
    path = f"/v1/studies/{study.study.hex()}"
    chunk = bytes(8_192)
    body = bundle([(hashlib.sha256(chunk).digest(), chunk)])
    questions = [
        Request("GET", p) for p in ("/v1/studies", path, f"{path}/contract", f"{path}/audit")
    ]
    asker = signer_of(study.curators[0])
    return Probe(server.url, asker, [*questions, Request("PUT", f"{path}/chunks", body)])


def median(server: ServerProcess, study: HttpStudy, seconds: float) -> float:
    """Return the median time of a request, in milliseconds, with nothing else going on."""
    with asking(probe(server, study)) as quiet:
        time.sleep(seconds)
    assert quiet.failures == []
    return 1_000 * quiet.median


def attack(folder: Path, names: Sequence[str], seconds: float) -> Measured:
    """Attack a server of its own for a while; an honest study runs from end to end meanwhile."""
    with serving(folder) as server:
        server.retry = Retry(total=300.0, base=0.1, cap=1.0)
        watched = http_study(server, folder, Stage.OPEN)
        by = Intruder.join(server, folder, watched.curators[0])
        quiet = median(server, watched, QUIET_SECONDS)
        with besieged(by, names) as outcomes, asking(probe(server, watched)) as pressed:
            finish_a_study(server, folder, watched)
            time.sleep(seconds)
        time.sleep(RECOVERY_SECONDS)
        after = median(server, watched, QUIET_SECONDS)
        measured = Measured(
            quiet=quiet,
            under_attack=1_000 * pressed.median,
            longest=1_000 * pressed.longest,
            requests=len(pressed.seconds),
            repeated=pressed.retries,
            lost=pressed.failures,
            after=after,
            peak=server.peak // MIB,
            outcomes=outcomes,
        )
        print(json.dumps(asdict(measured) | {"slower": measured.slower}))  # noqa: T201 - for the docs
        assert [line for line in server.problems() if "trace" in json.loads(line)] == []
    return measured


def finish_a_study(server: ServerProcess, folder: Path, watched: HttpStudy) -> None:
    """Go through a study while the attack goes on, and count everybody."""
    parties = [*watched.curators, watched.researcher]
    terms = HttpTerms(
        title="while attacked",
        epsilon=float(MAX_EPSILON),
        population=_PEOPLE,
        sample_size=_PEOPLE,
    )
    study = http_study(server, folder, Stage.GRANTED, terms=terms, parties=parties)
    researcher = study.researcher
    estimate = estimate_study(researcher, researcher.contract(study.study))
    np.testing.assert_array_equal(estimate.counts, study.true_counts())


@pytest.mark.soak
def test_every_attack_at_once(tmp_path: Path) -> None:
    """Honest requests stay fast, nothing is lost, memory is bounded; afterwards all is quiet."""
    measured = attack(tmp_path, list(ATTACKS), 60.0)
    assert measured.lost == []
    assert measured.slower < MOST_SLOWER
    assert measured.after < 2 * measured.quiet
    assert measured.peak < MOST_MEMORY
    assert all("500" not in outcomes for outcomes in measured.outcomes.values())
