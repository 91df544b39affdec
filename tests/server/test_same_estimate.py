"""The same study gives the same estimate over HTTP and in one process, on either database."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.decoys import decoy_terms
from tests.support.http_simulator import HttpStudy, HttpTerms, http_study
from tests.support.servers import make_context, running
from tests.support.simulator import Stage
from veiltab.core.entropy import Entropy
from veiltab.core.mechanism import LinkageMode
from veiltab.core.released import ReleasedCounts
from veiltab.crypto.entropy import CipherEntropy
from veiltab.party.researcher import estimate_study, open_study
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.curator.grant import grant
from veiltab.protocol.curator.upload import (
    CuratorContext,
    align,
    needs_alignment,
    prepare_sample,
    prepare_table,
)
from veiltab.protocol.in_process import LATER, take_in
from veiltab.protocol.researcher import count_records, open_access
from veiltab.protocol.server.context import ServerContext
from veiltab.protocol.server.study import ServerStudy
from veiltab.protocol.sorting import MemorySpool
from veiltab.protocol.stores import MemoryChunks
from veiltab.server.context import ServiceContext
from veiltab.wire.contract import PadMode
from veiltab.wire.mechanism import DecoyTerms
from veiltab.wire.states import State

KEY_BYTES = 32
NOISY = decoy_terms(keep=0.5, cells=120)


class Remembering:
    """A source of randomness that remembers what it gave last: the study's noise key."""

    def __init__(self, source: Entropy) -> None:
        """Start with nothing to remember."""
        self._source = source
        self.keys: list[bytes] = []

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite ``out``, and remember it if it is a key."""
        self._source.fill(out)
        if out.size == KEY_BYTES:
            self.keys.append(out.tobytes())


def in_process(study: HttpStudy, context: ServiceContext, noise_key: bytes) -> ReleasedCounts:
    """Go through the same contract, secret, tables and noise without a network or a disk."""
    signed, entropy = study.contract, CipherEntropy.from_seed(4, "other pads")
    secret = study.curators[0].home.study(study.study).secret()
    assert secret is not None
    received, released = MemoryChunks(), MemoryChunks()
    desks = [
        CuratorContext(each.identity, entropy, received, MemoryChunks()) for each in study.curators
    ]
    intakes = [
        take_in(signed.body, secret, table, desk.identity.party_id)
        for desk, table in zip(desks, study.holdings, strict=True)
    ]
    aligned = [
        align(signed.body, desk.identity, intake)
        for desk, intake in zip(desks, intakes, strict=True)
        if needs_alignment(signed.body)
    ]
    prepared = [
        prepare_sample(desk, signed, intake, aligned)
        if study.terms.linkage == "aligned"
        else prepare_table(desk, signed, intake, MemorySpool(), aligned)
        for desk, intake in zip(desks, intakes, strict=True)
    ]
    bench = ServerContext(context.key, CipherEntropy(noise_key), received, released)
    server = ServerStudy.resume(bench, signed, State.OPEN)
    for each in prepared:
        server.upload(each.message)
    release, reader = server.release(), study.researcher.identity
    to = public_identity(reader)
    grants = [
        grant(desk, signed.body, each, to, expires=LATER)
        for desk, each in zip(desks, prepared, strict=True)
    ]
    return count_records(open_access(reader, signed, release, grants, now=0), released)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "linkage", "pads", "mechanism"),
    [
        ("sqlite", "aligned", "one-time", None),
        ("sqlite", "matched", "stream", None),
        ("sqlite", "aligned", "stream", NOISY),
        ("postgresql", "matched", "stream", NOISY),
    ],
    indirect=["address"],
)
def test_the_same_estimate(
    tmp_path: Path,
    address: str,
    linkage: LinkageMode,
    pads: PadMode,
    mechanism: DecoyTerms | None,
) -> None:
    """Other pads, other uploads, another place: the same counts and the same plan."""
    entropy = Remembering(CipherEntropy.from_seed(3, "server"))
    context = make_context(tmp_path / "data", database=address, entropy=entropy)
    with running(context) as service:
        terms = HttpTerms(linkage=linkage, pads=pads, mechanism=mechanism)
        study = http_study(service, tmp_path, Stage.GRANTED, terms=terms)
        files = [g for c in study.curators for g in c.home.study(study.study).grants()]
        estimated = estimate_study(
            study.researcher, study.researcher.contract(study.study), grants=files
        )
        access = open_study(study.researcher, study.researcher.contract(study.study), files)
        again = in_process(study, context, entropy.keys[-1])
    assert len(entropy.keys) == 1
    assert access.plan == estimated.plan == again.plan
    assert mechanism is not None or estimated.counts.sum() == estimated.plan.sample_size
    assert (estimated.counts == again.counts).all()
