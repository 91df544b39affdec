"""Hostile clients at random beside an honest study, which must finish as if they were not there.

Hypothesis strings attacks and honest steps together in any order, on a live server whose limits are
small enough to be reached; what fails is shrunk to the fewest steps that do it.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.support import hostile, intruder
from tests.support.hostile import Attack
from tests.support.http_simulator import HttpStudy, HttpTerms, http_study, join_parties
from tests.support.intruder import Intruder
from tests.support.requests import Request, Signer, signer_of
from tests.support.servers import QUICK, Server, make_context, running
from tests.support.simulator import Stage
from veiltab.core.parameters import MAX_EPSILON
from veiltab.party.context import PartyContext
from veiltab.party.evidence import examine
from veiltab.party.researcher import estimate_study
from veiltab.wire.codec import dump

SETTINGS = replace(
    QUICK,
    connections=120,
    first_byte_seconds=2.0,
    header_seconds=2.0,
    grace_seconds=2.0,
    refusal_wait_seconds=0.05,
    party_requests=16,
    party_turns=3,
    contract_bytes=2**18,
    open_proposals=6,
    study_grants=20,
    researcher_grants=10,
    party_message_bytes=2**25,
    party_disk_bytes=2**25,
)
"""Limits that attacks reach in a few steps, and no honest party does."""

HONEST = "honest"
PATIENCE = 10.0
"""Seconds within which an honest question is answered, whatever else goes on."""

Build = Callable[[Intruder], Attack]

ATTACKS: dict[str, Build] = {
    "idle sockets": lambda by: hostile.IdleSockets(by.url, 150),
    "slow headers": lambda by: hostile.SlowHeaders(by.url, 20),
    "long headers": lambda by: hostile.LongHeaders(by.url, 2**19),
    "stranger flood": lambda by: hostile.StrangerFlood(
        by.url, by.signer.server, by.victim.party_id
    ),
    "garbage": lambda by: hostile.Garbage(by.url),
    "proposals": intruder.Proposals,
    "revocations": intruder.Revocations,
    "propose and abort": intruder.ProposeAndAbort,
    "big contracts": lambda by: intruder.BigContracts(by, 2**17, 2),
    "bigger contracts": lambda by: intruder.BigContracts(by, 2**19, 2),
    "heavy contracts": lambda by: intruder.HeavyContracts(by, 301),
    "long grants": lambda by: intruder.LongGrants(by, 2**18),
    "many grants": intruder.ManyGrants,
    "repeated chunk": lambda by: intruder.RepeatedChunk(by, 20),
    "tiny chunks": lambda by: intruder.TinyChunks(by, 2_000),
    "disk filler": lambda by: intruder.DiskFiller(by, 2**18, 3),
    "long messages": lambda by: intruder.LongMessages(by, 2**17),
    "slow bodies": lambda by: hostile.SlowBodies(by.url, by.signer, "/v1/studies"),
    "unread answers": lambda by: hostile.UnreadAnswers(by.url, by.signer, "/v1/studies", 10),
    "signed flood": intruder.SignedFlood,
}

OTHERS_ROUTES = (
    "",
    "/contract",
    "/audit",
    "/grants",
    "/secrets",
    "/alignments",
    "/chunks",
    "/release",
    "/publications",
)
"""What the intruder has no business to see of the honest study."""


@dataclass(eq=False)
class World:
    """A server with honest parties and one intruder, for many runs of the machine."""

    server: Server
    parties: list[PartyContext]
    intruder: Intruder
    client: httpx.Client
    studies: int = 0
    attacks: dict[str, Attack] = field(default_factory=dict)

    def attack(self, name: str) -> Attack:
        """Return an attack; it goes on where it was left."""
        if name not in self.attacks:
            self.attacks[name] = ATTACKS[name](self.intruder)
        return self.attacks[name]

    def new_study(self) -> HttpStudy:
        """Let the honest parties propose a study without noise, in which everybody takes part."""
        self.studies += 1
        terms = HttpTerms(
            title=f"{HONEST} {self.studies}",
            epsilon=float(MAX_EPSILON),
            population=120,
            sample_size=120,
        )
        folder = Path()  # nobody new is registered
        return http_study(self.server, folder, Stage.PROPOSED, terms=terms, parties=self.parties)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Start a server, and register everybody."""
    folder = tmp_path_factory.mktemp("hostile")
    with (
        running(make_context(folder / "data", settings=SETTINGS)) as server,
        httpx.Client(base_url=server.url, timeout=PATIENCE, trust_env=False) as client,
    ):
        parties = join_parties(server, folder, ["hospital", "tax office", "researcher"])
        by = Intruder.join(server, folder, parties[0])
        yield World(server, parties, by, client)


class HostileMachine(RuleBasedStateMachine):
    """Attacks and honest steps in any order; at the end the honest study is what it should be."""

    def __init__(self, world: World) -> None:
        """Begin with a study that its curators have just proposed."""
        super().__init__()
        self.world = world
        self.study = world.new_study()
        self.stages = iter(Stage)
        next(self.stages)

    @rule(name=st.sampled_from(sorted(ATTACKS)), times=st.integers(1, 5))
    def attack(self, name: str, times: int) -> None:
        """Harm the server in one way, a few times; nothing brings about an unexpected error."""
        attack = self.world.attack(name)
        for _ in range(times):
            attack.step()
        assert "500" not in attack.outcomes, (name, attack.outcomes)

    @rule()
    def go_on(self) -> None:
        """Take the honest study one stage further."""
        stage = next(self.stages, None)
        if stage is not None:
            self.study.go_to(stage)

    @rule(route=st.sampled_from(OTHERS_ROUTES))
    def spy(self, route: str) -> None:
        """Ask for somebody else's study, as if there were none."""
        path = f"/v1/studies/{self.study.study.hex()}{route}"
        assert self._send(self.world.intruder.signer, Request("GET", path)) == 404

    @rule()
    def meddle(self) -> None:
        """Try to end somebody else's study."""
        path = f"/v1/studies/{self.study.study.hex()}/abort"
        body = dump({"reason": "because"})
        assert self._send(self.world.intruder.signer, Request("POST", path, body)) == 404

    @rule(place=st.integers(0, 2))
    def replay(self, place: int) -> None:
        """Repeat what an honest party was heard to say."""
        path = f"/v1/studies/{self.study.study.hex()}"
        heard = signer_of(self.world.parties[place]).sign(Request("GET", path))
        assert heard.send(self.world.client).status_code == 200
        assert heard.send(self.world.client).status_code == 401

    @invariant()
    def honest_parties_are_answered(self) -> None:
        """Whatever was done, a question is answered, and the study is where its parties are."""
        status = self.study.curators[0].server.status(self.study.study)
        assert status.state in {"proposed", "open", "uploaded", "released"}

    @rule(inbox=st.booleans())
    def look_around(self, inbox: bool) -> None:  # noqa: FBT001 - hypothesis names it
        """Nobody's list shows what it has not looked at, and no inbox grows without end."""
        listed = self.study.curators[0].server.studies(inbox=inbox)
        if inbox:
            assert len(listed) <= SETTINGS.open_proposals + 1  # and the study that was granted
        else:
            assert all(study.title.startswith(HONEST) for study in listed)

    def teardown(self) -> None:
        """End all attacks; the honest study finishes, with every count right."""
        for attack in self.world.attacks.values():
            attack.close()
        self.study.go_to(Stage.GRANTED)
        *_, researcher = self.world.parties
        estimate = estimate_study(researcher, researcher.contract(self.study.study))
        np.testing.assert_array_equal(estimate.counts, self.study.true_counts())
        for session in self.world.parties:
            entries = examine(session, self.study.study).entries
            assert [entry.event for entry in entries].count("released") == 1

    def _send(self, signer: Signer, request: Request) -> int:
        return signer.sign(request).send(self.world.client).status_code


def run(world: World, caplog: pytest.LogCaptureFixture, examples: int, steps: int) -> None:
    """Run the machine, and check that the server never met something unexpected."""
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],  # shrinking would take as long again
        suppress_health_check=list(HealthCheck),
    )
    with caplog.at_level(logging.ERROR, logger="veiltab"):
        # It takes any function that makes a machine, and says that it wants a class.
        make = cast("type[HostileMachine]", lambda: HostileMachine(world))
        run_state_machine_as_test(make, settings=chosen)
    assert [record.message for record in caplog.records] == []


@pytest.mark.slow
def test_an_honest_study_finishes_beside_hostile_clients(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A few runs with any dozen of attacks and steps."""
    run(world, caplog, examples=3, steps=12)


@pytest.mark.soak
def test_many_honest_studies_finish_beside_hostile_clients(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Many longer runs."""
    run(world, caplog, examples=60, steps=40)
