"""A study in stages, each for a process of its own, so that each has a memory of its own.

``python -m benchmarks.growth_stages STAGE FOLDER ROWS SAMPLER`` does one stage on what the stages
before it left in the folder, and prints a JSON object: how long it took, and the most memory that
the process had.  Two curators hold two attributes each, of the same respondents, and everybody is
sampled.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.growth_table import SIZES, Batches
from veiltab.core.mechanism import LinkageMode
from veiltab.core.schema import Attribute, Schema
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.files.chunks import FolderChunks
from veiltab.files.spool import FolderSpool
from veiltab.protocol.curator.agreement import new_secret, public_identity, sign_contract, unsigned
from veiltab.protocol.curator.grant import grant
from veiltab.protocol.curator.ledger import Ledger
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.curator.upload import (
    CuratorContext,
    Prepared,
    align,
    prepare_sample,
    prepare_table,
)
from veiltab.protocol.researcher import count_records, open_access
from veiltab.protocol.server.accept import check_upload
from veiltab.protocol.server.context import ServerContext
from veiltab.protocol.server.study import ServerStudy
from veiltab.wire.contract import Contract, CuratorTerms, Linkage
from veiltab.wire.mechanism import PaperTerms
from veiltab.wire.messages import Release, SignedGrant, Upload
from veiltab.wire.signed import Signed
from veiltab.wire.states import State

Counts = NDArray[np.int64]

EPSILON = 3.0
LATER = 2**40
MIB = 2**20
MOST_DEVIATIONS = 6


@dataclass(frozen=True)
class Study:
    """What every stage knows: the parties and their contract, the same in every process."""

    folder: Path
    rows: int
    linkage: LinkageMode

    @cached_property
    def schemas(self) -> list[Schema]:
        """The attributes of each curator."""
        return [
            Schema(Attribute(f"{who}.{what}", map(str, range(k))) for what, k in enumerate(sizes))
            for who, sizes in enumerate(SIZES)
        ]

    @cached_property
    def curators(self) -> list[PrivateIdentity]:
        """Those who hold the tables."""
        return [_party(f"curator {number}") for number, _ in enumerate(SIZES)]

    @cached_property
    def server(self) -> PrivateIdentity:
        """Whoever perturbs."""
        return _party("server")

    @cached_property
    def researcher(self) -> PrivateIdentity:
        """Whoever estimates."""
        return _party("researcher")

    @cached_property
    def secret(self) -> tuple[bytes, bytes, bytes]:
        """The curators' secret, its commitment, and the contract's nonce."""
        return new_secret(CipherEntropy.from_seed(1, "growth: secret"))

    @cached_property
    def contract(self) -> Signed[Contract]:
        """The contract, signed by both curators."""
        _, commitment, nonce = self.secret
        contract = Contract(
            title="growth",
            nonce=nonce,
            curators=tuple(
                CuratorTerms(public_identity(who), schema.attributes)
                for who, schema in zip(self.curators, self.schemas, strict=True)
            ),
            server=public_identity(self.server),
            linkage=Linkage.by_ids(mode=self.linkage),
            secret_commitment=commitment,
            researchers=None,
            epsilon=EPSILON,
            delta=0.0,
            accounting="pure-1",
            mechanism=PaperTerms(self.rows),
            population=None,
            pads="stream",
            stored=None,
        )
        signed = unsigned(contract)
        for who in self.curators:
            ledger = Ledger(dataset="growth", epsilon_limit=EPSILON, delta_limit=0.5)
            signed, _ = sign_contract(signed, who, ledger)
        return signed

    @property
    def received(self) -> FolderChunks:
        """What the curators send."""
        return FolderChunks(self.folder / "received", durable=False)

    @property
    def released(self) -> FolderChunks:
        """What the server hands out."""
        return FolderChunks(self.folder / "released", durable=False)

    def uploads(self) -> list[Signed[Upload]]:
        """Read the messages of both curators."""
        paths = (self.folder / f"upload-{number}" for number, _ in enumerate(SIZES))
        return [Upload.loads(path.read_bytes()) for path in paths]

    def grants(self) -> list[SignedGrant]:
        """Read the grants of both curators."""
        paths = (self.folder / f"grant-{number}" for number, _ in enumerate(SIZES))
        return [SignedGrant.loads(path.read_bytes()) for path in paths]


@dataclass
class Took:
    """What a stage took: by the clock, and of the processors."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    counted: int | None = None
    """How many records the researcher has counted."""


@contextmanager
def timed() -> Iterator[Took]:
    """Measure a block; only then are the numbers there."""
    took, start, cpu_start = Took(), time.perf_counter(), time.process_time()
    yield took
    took.seconds = time.perf_counter() - start
    took.cpu_seconds = time.process_time() - cpu_start


def prepare(study: Study, number: int) -> Took:
    """Do all that a push does, except for the network: read, tokenise, sort, encrypt, write."""
    who, schema = study.curators[number], study.schemas[number]
    private = FolderChunks(study.folder / "private", durable=False)
    desk = CuratorContext(who, CipherEntropy.from_system(), study.received, private)
    batches, spool = Batches(study.rows), FolderSpool(study.folder / "scratch", "table")
    contract, secret = study.contract.body, study.secret[0]
    with (
        timed() as took,
        Intake(contract, secret, schema, spool, curator=who.party_id) as intake,
    ):
        for ids, codes in batches.of(number):
            intake.add(ids, codes)
        intake.close()
        prepared = _encrypt(study, desk, intake)
    (study.folder / f"upload-{number}").write_bytes(prepared.message.dumps())
    granted = grant(desk, contract, prepared, public_identity(study.researcher), expires=LATER)
    (study.folder / f"grant-{number}").write_bytes(granted.dumps())
    return took


def _encrypt(study: Study, desk: CuratorContext, intake: Intake) -> Prepared[Upload]:
    if study.linkage == "matched":
        spool = FolderSpool(study.folder / "scratch", "order")
        return prepare_table(desk, study.contract, intake, spool)
    # Both hold the same respondents, so that the other one's alignment would be the same.
    alignments = [align(study.contract.body, who, intake) for who in study.curators]
    return prepare_sample(desk, study.contract, intake, alignments)


def accept(study: Study) -> Took:
    """Let the server check every chunk of both uploads, as it does before it takes them."""
    with timed() as took:
        for upload in study.uploads():
            check_upload(study.contract.body, upload, study.received)
    return took


def release(study: Study) -> Took:
    """Let the server join, perturb and sign; matching goes through scratch files."""
    context = ServerContext(
        study.server.signing,
        CipherEntropy.from_system(),
        study.received,
        study.released,
        lambda name: FolderSpool(study.folder / "scratch", name),
    )
    with timed() as took:
        resumed = ServerStudy.resume(context, study.contract, State.UPLOADED, study.uploads())
        made = resumed.release()
        resumed.forget_unreleased()
    (study.folder / "release").write_bytes(made.dumps())
    return took


def analyse(study: Study) -> Took:
    """Let the researcher check everything, decrypt, count and estimate."""
    with timed() as took:
        message = Release.loads((study.folder / "release").read_bytes())
        access = open_access(study.researcher, study.contract, message, study.grants(), now=0)
        found = count_records(access, study.released)
    truth = Batches(study.rows).cell_counts()
    check_counts(found.counts, truth, keep=found.plan.ranked.keep_probability)
    took.counted = int(found.counts.sum())
    return took


def check_counts(counts: Counts, truth: Counts, *, keep: float) -> None:
    """Compare with the table itself: nobody is left out, and the noise is as strong as planned."""
    rows = int(truth.sum())
    if int(counts.sum()) != rows:
        raise ValueError(f"{int(counts.sum()):,} of {rows:,} records were counted")
    expected = keep * truth + (1 - keep) * rows / truth.size
    if (np.abs(counts - expected) > MOST_DEVIATIONS * expected**0.5).any():
        raise ValueError(f"counts are {counts.tolist()}, not about {expected.tolist()}")


def peak_mebibytes() -> float:
    """Return the most memory that this process ever had, as the kernel counts it."""
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 / MIB if found else 0.0


STAGES: dict[str, Callable[[Study], Took]] = {
    "prepare-0": lambda study: prepare(study, 0),
    "prepare-1": lambda study: prepare(study, 1),
    "accept": accept,
    "release": release,
    "estimate": analyse,
}
"""In this order."""


def _party(name: str) -> PrivateIdentity:
    return PrivateIdentity.create(name, CipherEntropy.from_seed(1, f"growth: {name}"))


def main() -> None:
    """Do one stage."""
    stage, folder, rows, linkage = sys.argv[1:]
    took = STAGES[stage](Study(Path(folder), int(rows), cast("LinkageMode", linkage)))
    print(json.dumps(asdict(took) | {"peak_mib": peak_mebibytes()}))


if __name__ == "__main__":
    main()
