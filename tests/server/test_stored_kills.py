"""A stored table serves study after study, however often the server and an agent are killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.support.servers import KilledServer, invitation, register
from tests.support.stored import COMMON, TITLE, StoredParties, tables
from veiltab.crypto.entropy import SystemEntropy
from veiltab.party.remote import Retry
from veiltab.party.session import Session
from veiltab.party.study import Study

PATIENT = Retry(total=120.0, base=0.05, cap=0.4)
NO_NOISE = 50.0
"""An ε at which a record is replaced about once in 10¹⁹ times: estimates are exact."""

EVERYBODY = f"sample_size = {COMMON}"


@dataclass(eq=False)
class AgentProcess:
    """``veiltab agent run`` in a process of its own, which can be killed."""

    home: Path
    policy: Path
    kills: int = 0
    _started: int = 0
    _process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Start the agent; this does not wait until it has done anything."""
        self._started = len(self.lines("started"))
        command = [sys.executable, "-m", "veiltab", "agent", "run", "--home", str(self.home)]
        with (self.home.parent / f"{self.home.name}-agent.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - it is our own command
                [*command, "--policy", str(self.policy)], stdout=log, stderr=log
            )

    def kill(self) -> None:
        """End the agent without a warning."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.kills += 1

    def stop(self) -> int:
        """Ask the agent to end, once it is at work, and return how it did."""
        until(lambda: len(self.lines("started")) > self._started)
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def lines(self, event: str) -> list[dict[str, str]]:
        """Return the lines of the log about one kind of event; the last may be unfinished."""
        path = self.home / "agent.jsonl"
        text = path.read_bytes() if path.exists() else b""
        entries = [json.loads(line) for line in text.split(b"\n")[:-1]]
        return [entry for entry in entries if entry["event"] == event]


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for a condition, and look often."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.005)


@dataclass(eq=False)
class Scene:
    """Parties, their server and the hospital's agent; both processes can be killed."""

    victim: KilledServer
    parties: StoredParties
    agent: AgentProcess
    server_kills: int = 0
    releases: dict[str, set[bytes]] = field(default_factory=dict)

    def kill_server(self) -> None:
        """Kill the server, and start it again."""
        self.victim.kill()
        self.victim.start()
        self.server_kills += 1

    def kill_agent(self) -> None:
        """Kill the agent, and start it again."""
        self.agent.kill()
        self.agent.start()

    def grant_and_check(self, study: Study) -> None:
        """Let the tax office grant too, and compare the estimate with the tables."""
        seen = self.releases.setdefault(study.id, set())
        seen.add(self.parties.taxes.server.release(bytes.fromhex(study.id)).dumps())
        Session(self.parties.taxes).study(study.id).grant(self.parties.folder / "rivera.json")
        reader = Session(self.parties.researcher).study(study.id)
        until(lambda: len(reader.status().granted) == 2)
        estimate = reader.estimate()
        cells = zip(estimate.schema.names, estimate.schema.codes(np.arange(4)), strict=True)
        counts = {name: codes.astype(np.int64) for name, codes in cells} | {"n": estimate.counts}
        assert pl.DataFrame(counts).equals(truth())
        seen.add(self.parties.taxes.server.release(bytes.fromhex(study.id)).dumps())
        assert len(seen) == 1


def truth() -> pl.DataFrame:
    """Return how many people have each combination, in the order of the cells."""
    first, second = tables()
    joined = first.join(second, on="id")
    codes = joined.select(
        smoker=(pl.col("smoker") == "yes").cast(pl.Int64),
        income=(pl.col("income") == "high").cast(pl.Int64),
    )
    return codes.group_by("smoker", "income").len("n").sort("smoker", "income").cast(pl.Int64)


@contextmanager
def open_scene(folder: Path, seed: int) -> Iterator[Scene]:
    """Start a server, register everybody, and write the policy of the hospital's agent."""
    victim = KilledServer(folder / "data", seed)
    victim.start()
    contexts = [
        register(
            victim.url,
            name,
            folder / name,
            invitation(victim.data, name),
            retry=PATIENT,
            entropy=SystemEntropy(),
        )
        for name in ("hospital", "taxes", "rivera")
    ]
    parties = StoredParties(folder, *contexts)
    parties.prepare()
    policy = folder / "policy.toml"
    identity = f'identity = "{folder}/rivera.json"'
    policy.write_text(
        f'epsilon = 10000\npoll_seconds = 1\nvaults = ["{TITLE}"]\n{parties.researchers(identity)}'
    )
    policy.chmod(0o600)
    scene = Scene(victim, parties, AgentProcess(folder / "hospital", policy))
    try:
        yield scene
    finally:
        victim.kill()
        for context in contexts:
            context.server.close()
        if scene.agent._process is not None:
            scene.agent._process.kill()
            scene.agent._process.wait()


@pytest.mark.slow
def test_a_stored_table_serves_three_studies_with_kills_in_between(tmp_path: Path) -> None:
    """The server dies while rows are drawn and joined, the agent before and after it has sent."""
    with open_scene(tmp_path, seed=1) as scene:
        parties, agent = scene.parties, scene.agent
        parties.store()
        agent.start()
        studies = []
        for number in range(3):
            parties.proposed(f"study {number}", EVERYBODY, NO_NOISE)
            study = Session(parties.hospital).study(f"study {number}")
            study.sign()
            if number != 1:
                scene.kill_server()  # in the middle of drawing, or just after it
            until(lambda n=number: len(agent.lines("new pads")) > n)  # type: ignore[misc]
            if number != 2:
                scene.kill_agent()  # in the middle of sending
            Session(parties.taxes).study(study.id).wait("sampled")
            Session(parties.taxes).study(study.id).answer()
            until(lambda s=study: s.status().curators[0].uploaded)  # type: ignore[misc]
            if number == 1:
                scene.kill_server()  # in the middle of the release
            study.wait()
            if number == 2:
                until(lambda: len(agent.lines("grant")) > 2)
                scene.kill_agent()
            scene.grant_and_check(study)
            studies.append(study)
        assert agent.stop() == 0
        check_answers(agent, studies)
        assert (scene.server_kills, agent.kills) == (3, 3)


def check_answers(agent: AgentProcess, studies: list[Study]) -> None:
    """Each study has one answer and one grant, however often they were sent."""
    for event, what in (("new pads", "answer"), ("grant", "grant")):
        sent = {(line["study"], line[what]) for line in agent.lines(event)}
        assert sorted(study for study, _ in sent) == sorted(study.id for study in studies)
    assert agent.lines("refused") == [] or all(
        "did not answer" in line["reason"] for line in agent.lines("refused")
    )
    assert len(agent.lines("stopped")) == 1


@pytest.mark.soak
def test_a_stored_table_serves_studies_while_everything_is_killed_at_random(tmp_path: Path) -> None:
    """Whatever the moment: forty kills of each, over a few dozen studies."""
    draw = random.Random(os.environ.get("VEILTAB_SEED", "7"))  # noqa: S311 - chooses when to kill
    with open_scene(tmp_path, seed=2) as scene:
        parties, agent = scene.parties, scene.agent
        parties.store()
        agent.start()
        studies: list[Study] = []
        while scene.server_kills < 40 or agent.kills < 40:
            title = f"study {len(studies)}"
            parties.proposed(title, EVERYBODY, NO_NOISE)
            study = Session(parties.hospital).study(title)
            study.sign()
            for kill in draw.choices([scene.kill_server, scene.kill_agent], k=3):
                time.sleep(draw.uniform(0, 1.5))
                kill()
            Session(parties.taxes).study(study.id).wait("sampled")
            Session(parties.taxes).study(study.id).answer()
            time.sleep(draw.uniform(0, 0.3))
            scene.kill_server()
            study.wait()
            scene.grant_and_check(study)
            studies.append(study)
        assert agent.stop() == 0
        check_answers(agent, studies)
