"""A curator's stored table: uploaded once, and re-padded for each study (spec 12.2)."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from veiltab.core import group
from veiltab.errors import MismatchError, StateError
from veiltab.protocol.curator.upload import CuratorContext, Prepared, StreamPads, fresh_pads
from veiltab.protocol.positions import DrawnPositions
from veiltab.protocol.stores import ChunkStore, read_position_chunk
from veiltab.protocol.verify import (
    check_claimed_population,
    check_vault,
    planned_sample_size,
    sign,
    verify,
    verify_agreement,
)
from veiltab.wire.contract import Contract, Vault
from veiltab.wire.messages import ColumnChunks, Repad, RepadRequest, Upload
from veiltab.wire.packing import chunk_slices, pack
from veiltab.wire.signed import Signed


class Answers(Protocol):
    """Where the answers of a stored table are kept, for as long as the table is."""

    def answer(self, study: bytes) -> Prepared[Repad] | None:
        """Return what was answered to a study."""

    def save_answer(self, answer: Prepared[Repad]) -> None:
        """Keep an answer; it must last before any of it is sent."""


class MemoryAnswers:
    """Answers in memory: for tests and simulations."""

    def __init__(self) -> None:
        """Start empty."""
        self._answers: dict[bytes, Prepared[Repad]] = {}

    def answer(self, study: bytes) -> Prepared[Repad] | None:
        """Return what was answered to a study."""
        return self._answers.get(study)

    def save_answer(self, answer: Prepared[Repad]) -> None:
        """Keep an answer."""
        self._answers[answer.message.body.study] = answer


class StoredTable:
    """The upload and pads of a stored table, and the one answer given for each study.

    The researcher must never see a position or a pad of the table itself: if one recurred, it
    would link a respondent across releases.
    """

    def __init__(
        self, vault: Vault, prepared: Prepared[Upload], answers: Answers | None = None
    ) -> None:
        """Take the table as it was prepared for a vault; ``answers`` are in memory by default."""
        if prepared.message.body.scope != vault.vault_id or not isinstance(
            prepared.pads, StreamPads
        ):
            raise MismatchError(
                "the table was not prepared for this vault",
                hint="prepare it for the vault, and not for a study",
            )
        self._vault = vault
        self.upload = prepared.message
        self._pads = prepared.pads
        self._answers = MemoryAnswers() if answers is None else answers

    def repad(
        self,
        context: CuratorContext,
        signed: Signed[Contract],
        request: Signed[RepadRequest],
        incoming: ChunkStore,
    ) -> Prepared[Repad]:
        """Answer the server's request with (new pad − old pad) of each drawn row.

        One answer per study: the same request gets it again, another one is refused.
        """
        contract = verify_agreement(signed)
        earlier = self._answers.answer(contract.study_id)
        if earlier is not None:
            if earlier.message.body.request_digest != request.digest:
                raise StateError(
                    "new pads for this study were given already, for other rows",
                    hint="a study draws its rows once; abort it and propose a new one",
                )
            return earlier
        body = verify(request, [contract.server.signing_key])
        self._check(context, contract, body)
        self._check_positions(_positions(body, incoming))
        answer = self._answer(context, contract, request, incoming)
        self._answers.save_answer(answer)
        return answer

    def _check(self, context: CuratorContext, contract: Contract, request: RepadRequest) -> None:
        check_vault(contract, self._vault)
        digest, stored = self.upload.digest, contract.stored
        terms = contract.curator(context.identity.party_id)
        if stored is None or stored.uploads[contract.curators.index(terms)] != digest:
            raise MismatchError(
                "the contract is not about this stored table",
                hint="look at the uploads that the contract names",
            )
        if (request.study, request.upload_digest, request.curator) != (
            contract.study_id,
            digest,
            context.identity.party_id,
        ):
            raise MismatchError(
                "the request is for another study, table or curator",
                hint="ask the server for the request of this study",
            )
        check_claimed_population(request.population, self.upload.body.rows)
        if request.sample_size != planned_sample_size(contract, request.population):
            raise MismatchError(
                f"the server drew {request.sample_size} rows of {request.population}, which is not"
                " what was agreed",
                hint="the contract says how many rows are drawn",
            )

    def _check_positions(self, chunks: Iterator[NDArray[np.int64]]) -> None:
        """Refuse rows that do not exist or come twice."""
        drawn = DrawnPositions(self.upload.body.rows)
        for positions in chunks:
            drawn.add(positions)
        drawn.check()

    def _answer(
        self,
        context: CuratorContext,
        contract: Contract,
        request: Signed[RepadRequest],
        incoming: ChunkStore,
    ) -> Prepared[Repad]:
        """Write the differences of the pads, one chunk of all attributes at a time."""
        schema, rows = contract.schema_of(context.identity.party_id), request.body.sample_size
        new = fresh_pads(context, contract.pads, schema, contract.study_id, rows)
        columns: list[list[bytes]] = [[] for _ in schema.attributes]
        chunks = zip(chunk_slices(rows), _positions(request.body, incoming), strict=True)
        for where, positions in chunks:
            for index, attribute in enumerate(schema.attributes):
                old = self._pads.streams[index].at(positions)
                change = group.subtract(new.span(index, where), old, attribute.size)
                columns[index].append(context.outgoing.put(pack(change, attribute.size)))
        repad = Repad(
            columns=tuple(
                ColumnChunks(attribute=attribute.name, chunks=tuple(digests))
                for attribute, digests in zip(schema.attributes, columns, strict=True)
            ),
            curator=context.identity.party_id,
            request_digest=request.digest,
            rows=rows,
            study=contract.study_id,
            upload_id=new.upload_id,
        )
        return Prepared(sign(repad, context.identity.signing), new)


def _positions(request: RepadRequest, incoming: ChunkStore) -> Iterator[NDArray[np.int64]]:
    """Read the drawn rows in the order of the release, chunk by chunk."""
    for number, where in enumerate(chunk_slices(request.sample_size)):
        yield read_position_chunk(request.positions, number, where, incoming)
