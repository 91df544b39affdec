"""The simulator's studies over HTTP: the same stages, with real clients and a real server.

    with running(make_context(tmp_path / "data")) as server:
        study = http_study(server, tmp_path, Stage.RELEASED)
        study.go_to(Stage.GRANTED)

``server`` is a thread of this process or a process of its own: anything that parties can join.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from tests.support.servers import Server, wait_for
from tests.support.simulator import PAIR, Stage, StagedStudy, holdings_of
from veiltab.core.mechanism import LinkageMode
from veiltab.core.schema import Attribute, Codes
from veiltab.files.chunks import FolderChunks
from veiltab.party import curator
from veiltab.party.context import PartyContext
from veiltab.party.proposal import StudyDraft
from veiltab.party.secrets import combined_secret
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.curator.ledger import Ledger
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.curator.upload import (
    CuratorContext,
    Prepared,
    align,
    needs_alignment,
    prepare_sample,
    prepare_table,
)
from veiltab.protocol.in_process import LATER, Holding, take_in
from veiltab.protocol.sorting import MemorySpool
from veiltab.server.worker import Worker
from veiltab.wire.contract import Contract, CuratorTerms, Linkage, PadMode
from veiltab.wire.mechanism import MechanismTerms, PaperTerms
from veiltab.wire.messages import Upload
from veiltab.wire.signed import Signed

POPULATION, SAMPLE_SIZE = 400, 200


@dataclass(frozen=True, kw_only=True)
class HttpTerms:
    """What a test may choose; ``named`` is whether the contract names the researcher.

    Without a ``mechanism`` it is the paper's, with ``sample_size``.
    """

    title: str = "a study"
    linkage: LinkageMode = "aligned"
    pads: PadMode = "stream"
    epsilon: float = 1.0
    delta: float = 0.0
    named: bool = True
    population: int = POPULATION
    sample_size: int | None = SAMPLE_SIZE
    mechanism: MechanismTerms | None = None
    shares: Sequence[Mapping[str, int]] = PAIR

    def draft(
        self,
        curators: Sequence[PartyContext],
        attributes: Sequence[Sequence[Attribute]],
        researcher: PartyContext | None,
    ) -> StudyDraft:
        """Return the study that these parties would propose, with each curator's attributes."""
        named = self.named and researcher is not None
        return StudyDraft(
            title=self.title,
            epsilon=self.epsilon,
            delta=self.delta,
            population=None,
            mechanism=self.mechanism or PaperTerms(self.sample_size),
            pads=self.pads,
            linkage=Linkage.by_ids(mode=self.linkage),
            curators=tuple(
                CuratorTerms(public_identity(session.identity), tuple(held))
                for session, held in zip(curators, attributes, strict=True)
            ),
            researchers=(public_identity(researcher.identity),) if named and researcher else None,
        )

    @property
    def ledger(self) -> Ledger:
        """A budget for this study alone."""
        return Ledger(dataset=self.title, epsilon_limit=1e6, delta_limit=0.5)


@dataclass(eq=False)
class HttpStudy(StagedStudy):
    """A study on a running service, and everybody in it."""

    curators: list[PartyContext]
    researcher: PartyContext
    terms: HttpTerms
    holdings: list[Holding]
    study: bytes = b""
    prepared: list[Prepared[Upload]] = field(default_factory=list)
    _made: list[dict[bytes, bytes]] = field(default_factory=list)

    @property
    def contract(self) -> Signed[Contract]:
        """The contract, as the first curator knows it."""
        return self.curators[0].contract(self.study)

    @property
    def uploads(self) -> list[Signed[Upload]]:
        """The curators' upload messages, once they are prepared."""
        return [prepared.message for prepared in self.prepared]

    def chunks(self, place: int) -> dict[bytes, bytes]:
        """Return what a curator has encrypted for the server, by digest, also when it is gone."""
        return self._made[place]

    def true_counts(self) -> NDArray[np.int64]:
        """Count the respondents in each cell of the joint table, as a release without noise does.

        All curators hold the same respondents, each in an order of its own.
        """
        columns: list[Codes] = []
        for table in self.holdings:
            bounds = pairwise(table.ids.offsets.tolist())
            ids = [table.ids.data[start:stop].tobytes() for start, stop in bounds]
            order = sorted(range(len(ids)), key=ids.__getitem__)
            columns += [codes[order] for codes in table.codes]
        schema = self.contract.body.schema
        return np.bincount(schema.cells(columns), minlength=schema.domain_size)

    def upload(self, place: int) -> None:
        """Send a curator's chunks, and the message that refers to them."""
        server = self.curators[place].server
        server.send_chunks(self.study, self.chunks(place).items())
        server.upload(self.study, self.uploads[place])

    def _curators(self) -> int:
        return len(self.curators)

    def _proposed(self) -> None:
        terms, attributes = self.terms, [table.attributes for table in self.holdings]
        draft = terms.draft(self.curators, attributes, self.researcher)
        self.study = curator.propose(self.curators[0], draft, terms.ledger).study_id

    def _open(self) -> None:
        for session in self.curators[1:]:
            curator.sign(session, session.contract(self.study), self.terms.ledger)

    def _prepared(self) -> None:
        signed = self.contract
        parties = [
            (session, self._take_in(session, table))
            for session, table in zip(self.curators, self.holdings, strict=True)
        ]
        if needs_alignment(signed.body):
            for session, intake in parties:
                alignment = align(signed.body, session.identity, intake)
                session.home.study(self.study).save_alignment(alignment)
                session.server.send_alignment(self.study, alignment)
        for session, intake in parties:
            context, alignments = self._context(session), session.server.alignments(self.study)
            if self.terms.linkage == "aligned":
                made = prepare_sample(context, signed, intake, alignments)
            else:
                made = prepare_table(context, signed, intake, MemorySpool(), alignments)
            session.home.study(self.study).pin_table(intake.table_digest)
            session.home.study(self.study).save_prepared(made)
            self.prepared.append(made)
            outgoing = session.home.study(self.study).outgoing
            self._made.append(
                {bytes.fromhex(path.name): path.read_bytes() for path in outgoing.iterdir()}
            )

    def _take_in(self, session: PartyContext, table: Holding) -> Intake:
        contract = self.contract.body
        secret = combined_secret(session, contract)
        return take_in(contract, secret, table, session.identity.party_id)

    def _released(self) -> None:
        wait_for(self.curators[0], self.study, "released")

    def _granted(self) -> None:
        to = public_identity(self.researcher.identity)
        for session in self.curators:
            curator.give_grant(session, session.contract(self.study), to, None, LATER)

    def _context(self, session: PartyContext) -> CuratorContext:
        place = session.home.study(self.study)
        outgoing, private = FolderChunks(place.outgoing), FolderChunks(place.private)
        return CuratorContext(session.identity, session.entropy, outgoing, private)


def join_parties(server: Server, folder: Path, names: Sequence[str]) -> list[PartyContext]:
    """Register parties of these names, whose homes are in a folder."""
    return [server.join(name, folder / name) for name in names]


def http_study(
    server: Server,
    folder: Path,
    stage: Stage,
    *,
    terms: HttpTerms | None = None,
    parties: Sequence[PartyContext] = (),
) -> HttpStudy:
    """Go through a study up to a stage; ``parties`` are curators and last the researcher.

    Without ``parties``, new ones are registered, whose homes are in ``folder``.
    """
    chosen = terms or HttpTerms()
    names = [f"curator {place}" for place, _ in enumerate(chosen.shares, start=1)]
    *curators, researcher = parties or join_parties(server, folder, [*names, "researcher"])
    holdings = holdings_of(chosen.shares, chosen.population)
    return HttpStudy(list(curators), researcher, chosen, holdings).go_to(stage)


@contextmanager
def held_releases() -> Iterator[None]:
    """Keep the workers in this process from releasing; after the block they go on by themselves."""
    with mock.patch.object(Worker, "_release_all", return_value=None):
        yield
