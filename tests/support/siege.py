"""Attacks in processes of their own, and what an honest party notices of them meanwhile.

``python -m tests.support.siege FILE`` runs the attacks that a file names until its input ends, and
prints what the server answered.  The processes give way to the server where both want a processor:
real attackers have machines of their own.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.support import hostile, intruder
from tests.support.hostile import Attack, Siege
from tests.support.intruder import Intruder
from tests.support.requests import Request, Signer
from veiltab.wire.contract import Contract, PublicIdentity

NICE = 19
PROBE_SECONDS = 60.0
"""After so long, a question counts as lost."""

_RETRY_SECONDS = 0.1
_ANSWERED = frozenset({"200", "201"})

Build = Callable[[Intruder], list[Attack]]


def _stranger_flood(by: Intruder) -> Attack:
    return hostile.StrangerFlood(by.url, by.signer.server, by.victim.party_id)


def _unread_answers(by: Intruder) -> Attack:
    """Ask for a contract that is as long as contracts may be."""
    proposal = by.proposal(size=19 * 2**20 // 10)
    with httpx.Client(base_url=by.url, timeout=PROBE_SECONDS, trust_env=False) as client:
        proposal.send(client)
    study = Contract.loads(proposal.body).body.study_id.hex()
    return hostile.UnreadAnswers(by.url, by.signer, f"/v1/studies/{study}/contract", 20)


STRANGERS: dict[str, Build] = {
    "idle sockets": lambda by: [hostile.IdleSockets(by.url)],
    "slow headers": lambda by: [hostile.SlowHeaders(by.url)],
    "long headers": lambda by: [hostile.LongHeaders(by.url) for _ in range(2)],
    "stranger flood": lambda by: [_stranger_flood(by) for _ in range(4)],
    "garbage": lambda by: [hostile.Garbage(by.url)],
}

INVITED: dict[str, Build] = {
    "proposals": lambda by: [intruder.Proposals(by) for _ in range(2)],
    "revocations": lambda by: [intruder.Revocations(by)],
    "propose and abort": lambda by: [intruder.ProposeAndAbort(by)],
    "big contracts": lambda by: [
        *(intruder.BigContracts(by) for _ in range(2)),
        *(intruder.BigContracts(by, 19 * 2**20 // 10) for _ in range(2)),
    ],
    "heavy contracts": lambda by: [intruder.HeavyContracts(by) for _ in range(2)],
    "long grants": lambda by: [intruder.LongGrants(by)],
    "many grants": lambda by: [intruder.ManyGrants(by)],
    "tiny chunks": lambda by: [intruder.TinyChunks(by), intruder.TinyChunks(by, 8_000)],
    "disk filler": lambda by: [intruder.DiskFiller(by)],
    "long messages": lambda by: [intruder.LongMessages(by) for _ in range(4)],
    "slow bodies": lambda by: [hostile.SlowBodies(by.url, by.signer, "/v1/studies")],
    "unread answers": lambda by: [_unread_answers(by)],
    "signed flood": lambda by: [intruder.SignedFlood(by) for _ in range(8)],
    "repeated chunk": lambda by: [intruder.RepeatedChunk(by)],
}

ATTACKS = STRANGERS | INVITED


@contextmanager
def besieged(by: Intruder, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Run attacks in a process of their own until the block ends; then their outcomes are there."""
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "siege.json"
        spec.write_text(json.dumps({"attacks": list(names), "intruder": _as_json(by)}))
        command = [sys.executable, "-m", "tests.support.siege", str(spec)]
        outcomes: dict[str, Any] = {}
        with subprocess.Popen(  # noqa: S603 - it is our own module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()  # it has begun
            yield outcomes
            told, _ = process.communicate(timeout=300)
        outcomes |= json.loads(told)


def _as_json(by: Intruder) -> dict[str, Any]:
    return {
        "url": by.url,
        "server": by.signer.server.hex(),
        "contract": by.contract.to_json(),
        "released": by.released.hex(),
        "upload": by.upload_digest.hex(),
        "victim": by.victim.to_json(),
    }


def _from_json(fields: dict[str, Any]) -> Intruder:
    return Intruder(
        fields["url"],
        Signer(intruder.identity(), bytes.fromhex(fields["server"])),
        Contract.from_json(fields["contract"]),
        bytes.fromhex(fields["released"]),
        bytes.fromhex(fields["upload"]),
        PublicIdentity.from_json(fields["victim"]),
    )


@dataclass(eq=False)
class Probe:
    """An honest party that asks small questions, one after the other, and notes how long they take.

    A refusal that may pass is repeated, as every client does; the time counts until the answer.
    """

    url: str
    signer: Signer
    requests: Sequence[Request]
    pause: float = 0.02
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    retries: int = 0

    def run(self, stop: threading.Event) -> None:
        """Ask until told to stop."""
        with httpx.Client(base_url=self.url, timeout=PROBE_SECONDS, trust_env=False) as client:
            while not stop.is_set():
                for request in self.requests:
                    self._ask(client, request, stop)
                    stop.wait(self.pause)

    def _ask(self, client: httpx.Client, request: Request, stop: threading.Event) -> None:
        started = time.perf_counter()
        outcome = ""
        while outcome not in _ANSWERED:
            if time.perf_counter() - started > PROBE_SECONDS or (outcome and stop.is_set()):
                self.failures.append(outcome)
                break
            if outcome:
                self.retries += 1
                stop.wait(_RETRY_SECONDS)
            try:
                outcome = str(self.signer.sign(request).send(client).status_code)
            except httpx.HTTPError as error:
                outcome = type(error).__name__
        self.seconds.append(time.perf_counter() - started)

    @property
    def median(self) -> float:
        """The median time of a question, in seconds."""
        return statistics.median(self.seconds)

    @property
    def longest(self) -> float:
        """The longest time of a question, in seconds."""
        return max(self.seconds)


@contextmanager
def asking(probe: Probe) -> Iterator[Probe]:
    """Let an honest party ask in a thread until the block ends."""
    stop = threading.Event()
    thread = threading.Thread(target=probe.run, args=(stop,), daemon=True)
    thread.start()
    try:
        yield probe
    finally:
        stop.set()
        thread.join(2 * PROBE_SECONDS)


def main(path: str) -> None:
    """Run the attacks of a file until the input ends."""
    os.nice(NICE)
    spec = json.loads(Path(path).read_text("utf-8"))
    by = _from_json(spec["intruder"])
    attacks = [attack for name in spec["attacks"] for attack in ATTACKS[name](by)]
    with Siege(attacks) as siege:
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        sys.stdin.read()
    sys.stdout.write(json.dumps(siege.outcomes))
    sys.stdout.flush()
    os._exit(0)  # threads that wait for an answer need not be waited for


if __name__ == "__main__":
    main(*sys.argv[1:])
