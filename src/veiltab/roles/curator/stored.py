"""A curator's stored table: uploaded once, and re-padded for each study (spec 12.2)."""

import numpy as np
from numpy.typing import NDArray

from veiltab.core import group
from veiltab.core.schema import Attribute, Codes
from veiltab.crypto.pads import stream_pad_at
from veiltab.errors import MismatchError, StateError
from veiltab.roles.agreements import check_vault, planned_sample_size, verify_agreement
from veiltab.roles.chunks import ChunkStore
from veiltab.roles.columns import read_positions, write_column
from veiltab.roles.curator.desk import Desk
from veiltab.roles.curator.pads import Pads, StreamPads, fresh_pads
from veiltab.roles.curator.prepare import Prepared
from veiltab.roles.signatures import sign, verify
from veiltab.wire.contract import Contract
from veiltab.wire.repad import Repad, RepadRequest
from veiltab.wire.signed import Signed
from veiltab.wire.upload import ColumnChunks, Upload
from veiltab.wire.vault import Vault


class StoredTable:
    """The upload and pads of a stored table, and the one answer given for each study.

    The researcher must never see a position or a pad of the table itself: if one recurred, it
    would link a respondent across releases.
    """

    def __init__(self, vault: Vault, prepared: Prepared[Upload]) -> None:
        """Take the table as it was prepared for a vault."""
        if prepared.message.body.scope != vault.vault_id or not isinstance(
            prepared.pads, StreamPads
        ):
            raise MismatchError(
                "the table was not prepared for this vault",
                hint="prepare it for the vault, and not for a study",
            )
        self._vault = vault
        self.upload = prepared.message
        self._keys = prepared.pads.keys
        self._answers: dict[bytes, tuple[bytes, Prepared[Repad]]] = {}

    def repad(
        self,
        desk: Desk,
        signed: Signed[Contract],
        request: Signed[RepadRequest],
        incoming: ChunkStore,
    ) -> Prepared[Repad]:
        """Answer the server's request with (new pad − old pad) of each drawn row.

        One answer per study: the same request gets it again, another one is refused.
        """
        contract = verify_agreement(signed)
        earlier = self._answers.get(contract.study_id)
        if earlier is not None:
            if earlier[0] != request.digest:
                raise StateError(
                    "new pads for this study were given already, for other rows",
                    hint="a study draws its rows once; abort it and propose a new one",
                )
            return earlier[1]
        body = verify(request, [contract.server.signing_key])
        self._check(desk, contract, body)
        positions = read_positions(body.positions, body.sample_size, incoming)
        self._check_positions(positions)
        answer = self._answer(desk, contract, request, positions)
        self._answers[contract.study_id] = (request.digest, answer)
        return answer

    def _check(self, desk: Desk, contract: Contract, request: RepadRequest) -> None:
        check_vault(contract, self._vault)
        own, stored = self.upload.digest, contract.stored
        terms = contract.curator(desk.identity.party_id)
        if stored is None or stored.uploads[contract.curators.index(terms)] != own:
            raise MismatchError(
                "the contract is not about this stored table",
                hint="look at the uploads that the contract names",
            )
        if (request.study, request.upload_digest, request.curator) != (
            contract.study_id,
            own,
            desk.identity.party_id,
        ):
            raise MismatchError(
                "the request is for another study, table or curator",
                hint="ask the server for the request of this study",
            )
        if request.population > self.upload.body.rows or request.sample_size != planned_sample_size(
            contract, request.population
        ):
            raise MismatchError(
                f"the server drew {request.sample_size} rows of {request.population}, which is not"
                " what was agreed",
                hint="the contract says how many rows are drawn",
            )

    def _check_positions(self, positions: NDArray[np.int64]) -> None:
        if positions.max() >= self.upload.body.rows or np.unique(positions).size < positions.size:
            raise MismatchError(
                "the drawn rows are not different rows of the stored table",
                hint="the server must draw each respondent at most once",
            )

    def _answer(
        self,
        desk: Desk,
        contract: Contract,
        request: Signed[RepadRequest],
        positions: NDArray[np.int64],
    ) -> Prepared[Repad]:
        schema = contract.schema_of(desk.identity.party_id)
        new = fresh_pads(desk, contract.pads, schema, contract.study_id, positions.size)
        columns = tuple(
            self._differences(index, attribute, new, positions, desk.outgoing)
            for index, attribute in enumerate(schema.attributes)
        )
        repad = Repad(
            columns=columns,
            curator=desk.identity.party_id,
            request_digest=request.digest,
            rows=positions.size,
            study=contract.study_id,
            upload_id=new.upload_id,
        )
        return Prepared(sign(repad, desk.identity.signing), new)

    def _differences(
        self,
        index: int,
        attribute: Attribute,
        new: Pads,
        positions: NDArray[np.int64],
        store: ChunkStore,
    ) -> ColumnChunks:
        old = stream_pad_at(self._keys[index], attribute.size, positions)

        def difference(number: int, where: slice) -> Codes:
            return group.subtract(new.chunk(index, number, where), old[where], attribute.size)

        digests = write_column(attribute, positions.size, difference, store)
        return ColumnChunks(attribute=attribute.name, chunks=digests)
