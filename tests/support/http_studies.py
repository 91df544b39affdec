"""Whole studies over HTTP, up to a chosen stage: two curators, a researcher, a few respondents.

``study = run_study(service, folder, Stage.RELEASED)`` goes through the real service with real
clients; ``study.go_to(Stage.GRANTED)`` goes on from there.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from unittest import mock

import numpy as np

from tests.support.service import Running, wait_for
from tests.support.studies import PAIR, holding
from veiltab.files.chunks import FolderChunks
from veiltab.party import curator
from veiltab.party.context import PartyContext
from veiltab.party.study_file import StudyDraft
from veiltab.protocol.curator.agreement import public_identity, receive_secret
from veiltab.protocol.curator.ledger import Ledger
from veiltab.protocol.curator.upload import (
    CuratorContext,
    Prepared,
    align,
    prepare_sample,
    prepare_table,
)
from veiltab.protocol.sorting import MemorySpool
from veiltab.rehearsal import Holding, take_in
from veiltab.server.worker import Worker
from veiltab.wire.contract import Contract, CuratorTerms, Linkage, PadMode, Sampler, Sampling
from veiltab.wire.messages import Upload
from veiltab.wire.signed import Signed

POPULATION, SAMPLE_SIZE = 400, 200
EXPIRES = 2**40


class Stage(IntEnum):
    """How far a study has gone; each stage includes those before it."""

    PROPOSED = 1
    """The first curator has proposed and signed, and has sealed the secret to the second."""
    OPEN = 2
    """Both have signed."""
    PREPARED = 3
    """Both have said whom they hold and have encrypted; no chunk is sent."""
    ONE_UPLOADED = 4
    """The first curator's upload is complete."""
    UPLOADED = 5
    """Both are; unless :func:`held_releases`, the study may be released already."""
    RELEASED = 6
    GRANTED = 7
    """Every curator has granted all its attributes to the researcher."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a test may choose; ``named`` is whether the contract names the researcher."""

    title: str = "a study"
    sampler: Sampler = "curators"
    pads: PadMode = "stream"
    named: bool = True
    population: int = POPULATION
    sample_size: int | None = SAMPLE_SIZE
    shares: Sequence[Mapping[str, int]] = PAIR


@dataclass(eq=False)
class HttpStudy:
    """A study on a running service, and everybody in it."""

    curators: list[PartyContext]
    researcher: PartyContext
    terms: Terms
    holdings: list[Holding]
    study: bytes = b""
    stage: int = 0
    prepared: list[Prepared[Upload]] = field(default_factory=list)
    _made: list[dict[bytes, bytes]] = field(default_factory=list)

    @property
    def contract(self) -> Signed[Contract]:
        """The contract, as the first curator knows it."""
        return self.curators[0].contract(self.study)

    @property
    def uploads(self) -> list[Signed[Upload]]:
        """The curators' upload messages, once they are prepared."""
        return [each.message for each in self.prepared]

    def chunks(self, place: int) -> dict[bytes, bytes]:
        """Return what a curator has encrypted for the server, by digest, also when it is gone."""
        return self._made[place]

    def upload(self, place: int) -> None:
        """Send a curator's chunks, and the message that refers to them."""
        server = self.curators[place].server
        server.send_chunks(self.study, self.chunks(place).items())
        server.upload(self.study, self.uploads[place])

    def go_to(self, stage: Stage) -> "HttpStudy":
        """Go on up to a stage, and return this study."""
        while self.stage < stage:
            self.stage += 1
            getattr(self, f"_{Stage(self.stage).name.lower()}")()
        return self

    def _proposed(self) -> None:
        terms = self.terms
        draft = StudyDraft(
            title=terms.title,
            epsilon=1.0,
            delta=0.0,
            population=None,
            sampling=Sampling(by=terms.sampler, size=terms.sample_size),
            pads=terms.pads,
            linkage=Linkage.by_ids(),
            curators=tuple(
                CuratorTerms(public_identity(session.identity), each.attributes)
                for session, each in zip(self.curators, self.holdings, strict=True)
            ),
            researchers=(public_identity(self.researcher.identity),) if terms.named else None,
        )
        self.study = curator.propose(self.curators[0], draft, _ledger(terms.title)).study_id

    def _open(self) -> None:
        for session in self.curators[1:]:
            curator.sign(session, session.contract(self.study), _ledger(self.terms.title))

    def _prepared(self) -> None:
        signed = self.contract
        parties = [
            (session, take_in(signed.body, self._secret(session, signed.body), each))
            for session, each in zip(self.curators, self.holdings, strict=True)
        ]
        if self.terms.sampler == "curators":
            for session, intake in parties:
                alignment = align(signed.body, session.identity, intake)
                session.server.send_alignment(self.study, alignment)
        for session, intake in parties:
            desk = self._desk(session)
            if self.terms.sampler == "curators":
                made = prepare_sample(desk, signed, intake, session.server.alignments(self.study))
            else:
                made = prepare_table(desk, signed, intake, MemorySpool())
            session.home.study(self.study).save_prepared(made)
            self.prepared.append(made)
            outgoing = session.home.study(self.study).outgoing
            self._made.append(
                {bytes.fromhex(path.name): path.read_bytes() for path in outgoing.iterdir()}
            )

    def _one_uploaded(self) -> None:
        self.upload(0)

    def _uploaded(self) -> None:
        for place in range(1, len(self.curators)):
            self.upload(place)

    def _released(self) -> None:
        wait_for(self.curators[0], self.study, "released")

    def _granted(self) -> None:
        to = public_identity(self.researcher.identity)
        for session in self.curators:
            curator.give_grant(session, session.contract(self.study), to, None, EXPIRES)

    def _desk(self, session: PartyContext) -> CuratorContext:
        place = session.home.study(self.study)
        outgoing, private = FolderChunks(place.outgoing), FolderChunks(place.private)
        return CuratorContext(session.identity, session.entropy, outgoing, private)

    def _secret(self, session: PartyContext, contract: Contract) -> bytes:
        place = session.home.study(self.study)
        known = place.secret()
        if known is None:
            message = session.server.secret(self.study)
            assert message is not None
            known = receive_secret(contract, session.identity, message)
            place.save_secret(known)
        return known


def join_parties(service: Running, folder: Path, names: Sequence[str] = ()) -> list[PartyContext]:
    """Register two curators and a researcher, or parties of these names."""
    return [service.join(n, folder / n) for n in names or ("curator 1", "curator 2", "researcher")]


def run_study(
    service: Running,
    folder: Path,
    stage: Stage,
    *,
    terms: Terms | None = None,
    parties: Sequence[PartyContext] = (),
) -> HttpStudy:
    """Go through a study up to a stage; ``parties`` are curators and last the researcher.

    Without ``parties``, new ones are registered, whose homes are in ``folder``.
    """
    chosen = terms or Terms()
    *curators, researcher = parties or join_parties(service, folder)
    ids = np.random.default_rng(1).permutation(chosen.population)
    holdings = [holding(sizes, ids, seed) for seed, sizes in enumerate(chosen.shares)]
    return HttpStudy(list(curators), researcher, chosen, holdings).go_to(stage)


@contextmanager
def held_releases() -> Iterator[None]:
    """Keep the workers in this process from releasing; after the block they go on by themselves."""
    with mock.patch.object(Worker, "_release_all", return_value=None):
        yield


def _ledger(title: str) -> Ledger:
    """Return a budget for this study alone."""
    return Ledger(dataset=title, epsilon_limit=1e6, delta_limit=0.5)
