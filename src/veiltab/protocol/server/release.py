"""From the curators' ciphertext to a release: join, perturb once, sign (spec 9, 10, 12.2)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from veiltab.core import group
from veiltab.core.entropy import Entropy, random_bytes
from veiltab.core.noise import NoiseSource
from veiltab.core.plan import Plan
from veiltab.core.schema import Attribute, Codes, Schema, unmix
from veiltab.crypto.signing import SigningKey
from veiltab.errors import AlignmentError, MismatchError
from veiltab.protocol.server.context import ServerContext
from veiltab.protocol.server.match import ROW, UploadedTable, shuffled
from veiltab.protocol.sorting import KEY_RANGE, Records
from veiltab.protocol.stores import ChunkStore, Digests, put_blinded, read_rows, write_released
from veiltab.protocol.verify import plan_for, sign
from veiltab.wire.contract import Contract
from veiltab.wire.mechanism import accounting_id
from veiltab.wire.messages import (
    RELEASE_NONCE_BYTES,
    ColumnChunks,
    Release,
    ReleasedUpload,
    Repad,
    RepadRequest,
    Upload,
)
from veiltab.wire.packing import pack, pack_positions, span_slices
from veiltab.wire.signed import Signed


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """The rows, joined but not perturbed: they must never leave the server as they are.

    (Only where the contract has decoys and no channel, the release is these very rows.)
    """

    plan: Plan
    row_count: int
    attributes: tuple[Attribute, ...]
    columns: tuple[Digests, ...]
    uploads: tuple[ReleasedUpload, ...]
    differences: tuple[Digests, ...] | None = None

    def rows(self, where: slice, store: ChunkStore) -> list[Codes]:
        """Read some rows of every column, under their new pads if they were re-padded."""
        columns = _read(self.columns, self.attributes, where, store)
        if self.differences is None:
            return columns
        differences = _read(self.differences, self.attributes, where, store)
        return [
            group.add(codes, difference, attribute.size, out=codes)
            for codes, difference, attribute in zip(
                columns, differences, self.attributes, strict=True
            )
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Rows drawn from whole tables: the plan, each curator's positions, and the ciphertext."""

    plan: Plan
    row_count: int
    positions: tuple[Digests, ...]
    columns: tuple[Digests, ...]


def join_sampled(contract: Contract, uploads: Sequence[Signed[Upload]]) -> Joined:
    """Put the curators' samples side by side: all are in the same order already."""
    populations = {upload.body.population for upload in uploads}
    if len(populations) != 1:
        raise MismatchError(
            f"the curators sampled from populations of {sorted(map(str, populations))}",
            hint="all curators must hold the same respondents; abort and align again",
        )
    row_counts = {upload.body.rows for upload in uploads}
    if len(row_counts) != 1:
        raise MismatchError(
            "the curators' uploads do not have the same number of rows",
            hint="all curators must invent the same decoys; abort and align again",
        )
    (population,), (row_count,) = populations, row_counts
    return Joined(
        plan=plan_for(contract, population),
        row_count=row_count,
        attributes=contract.schema.attributes,
        columns=tuple(column.chunks for upload in uploads for column in upload.body.columns),
        uploads=tuple(_released(upload, None) for upload in uploads),
    )


def join_fresh(
    context: ServerContext, contract: Contract, uploads: Sequence[Signed[Upload]]
) -> Joined:
    """Match and sample tables that were uploaded for this study alone."""
    drawn = draw_rows(context, contract, uploads, context.received, context.released)
    return Joined(
        plan=drawn.plan,
        row_count=drawn.row_count,
        attributes=contract.schema.attributes,
        columns=drawn.columns,
        uploads=tuple(map(_released, uploads, drawn.positions)),
    )


def join_stored(contract: Contract, drawn: Drawn, repads: Mapping[bytes, Signed[Repad]]) -> Joined:
    """Put rows of stored tables under the study's own pads; no position is released."""
    ordered = [repads[terms.party_id] for terms in contract.curators]
    return Joined(
        plan=drawn.plan,
        row_count=drawn.row_count,
        attributes=contract.schema.attributes,
        columns=drawn.columns,
        uploads=tuple(
            ReleasedUpload(curator=repad.body.curator, digest=repad.digest, positions=None)
            for repad in ordered
        ),
        differences=tuple(column.chunks for repad in ordered for column in repad.body.columns),
    )


def draw_rows(
    context: ServerContext,
    contract: Contract,
    uploads: Sequence[Signed[Upload]],
    stored: ChunkStore,
    positions: ChunkStore,
) -> Drawn:
    """Match tables, draw rows of whoever is in all of them, in random order, and collect those.

    By rank a fresh sample is drawn; with decoys all matched rows are taken, because the curators
    have thrown the coins.  ``stored`` has the tables' chunks; the drawn positions go to
    ``positions``.
    """
    tables = [
        UploadedTable(upload.body, terms.attributes, stored)
        for upload, terms in zip(uploads, contract.curators, strict=True)
    ]
    decoys = contract.decoys
    below = KEY_RANGE if decoys is None else decoys.coin_threshold
    with shuffled(tables, context.entropy, context.scratch, below) as common:
        if decoys is None:
            plan, row_count = _ranked_sample(contract, common.population)
        else:
            plan, row_count = plan_for(contract, None), common.population
        written = [_DrawnRows(table, context, positions) for table in tables]
        for chunk in common.sample(row_count):
            for drawn, rows in zip(written, chunk, strict=True):
                drawn.write(rows)
    return Drawn(
        plan=plan,
        row_count=row_count,
        positions=tuple(tuple(rows.positions) for rows in written),
        columns=tuple(tuple(column) for rows in written for column in rows.columns),
    )


def _ranked_sample(contract: Contract, population: int) -> tuple[Plan, int]:
    """Return the plan for so many respondents in common, and the size of the sample."""
    if not population:
        raise AlignmentError(
            "the curators have no respondent in common",
            hint="check that all use the same ids, normalised in the same way",
        )
    plan = plan_for(contract, population)
    return plan, plan.ranked.sample_size


def repad_requests(
    context: ServerContext, contract: Contract, drawn: Drawn, uploads: Sequence[Signed[Upload]]
) -> dict[bytes, Signed[RepadRequest]]:
    """Ask each curator for new pads of its drawn rows, in the order of the release."""
    requests = {}
    for upload, positions in zip(uploads, drawn.positions, strict=True):
        request = RepadRequest(
            curator=upload.body.curator,
            population=drawn.plan.ranked.population_size,
            positions=positions,
            sample_size=drawn.plan.ranked.sample_size,
            study=contract.study_id,
            upload_digest=upload.digest,
        )
        requests[upload.body.curator] = sign(request, context.key)
    return requests


class _DrawnRows:
    """The drawn rows of one curator, as chunks of their own."""

    def __init__(self, table: UploadedTable, context: ServerContext, places: ChunkStore) -> None:
        self._table, self._context, self._places = table, context, places
        self.positions: list[bytes] = []
        self.columns: list[list[bytes]] = [[] for _ in table.attributes]

    def write(self, rows: Records) -> None:
        """Store the next chunk of rows: their numbers, and the ciphertext of each column."""
        positions = pack_positions(rows[ROW])
        self.positions.append(put_blinded(positions, self._places, self._context.entropy))
        codes = self._table.codes(rows)
        for digests, attribute, column in zip(
            self.columns, self._table.attributes, codes, strict=True
        ):
            digests.append(self._context.received.put(pack(column, attribute.size)))


def _read(
    columns: Sequence[Digests],
    attributes: Sequence[Attribute],
    where: slice,
    store: ChunkStore,
) -> list[Codes]:
    return [
        read_rows(digests, attribute, where, store)
        for digests, attribute in zip(columns, attributes, strict=True)
    ]


def _released(upload: Signed[Upload], positions: Digests | None) -> ReleasedUpload:
    return ReleasedUpload(curator=upload.body.curator, digest=upload.digest, positions=positions)


JoinedRows = Callable[[slice], Sequence[Codes]]
"""Returns the joined ciphertext of some rows, a column per attribute."""


def perturb_and_sign(
    contract: Contract,
    plan: Plan,
    joined: JoinedRows,
    uploads: Sequence[ReleasedUpload],
    key: SigningKey,
    *,
    row_count: int,
    entropy: Entropy,
    released: ChunkStore,
) -> Signed[Release]:
    """Return the signed release (the paper's M); its chunks go to ``released``.

    The noise of a row is a joint cell.  It is added in the group of the cells, so it passes through
    every pad (Lemma 1).  Without a channel the rows are released as they are, still encrypted.
    """
    attributes = contract.schema.attributes
    digests: list[list[bytes]] = [[] for _ in attributes]
    noise = None if plan.channel is None else NoiseSource(plan.channel, row_count, entropy)
    for where in span_slices(row_count):
        columns = joined(where)
        if noise is not None:
            _perturb(contract.schema, columns, noise)
        for attribute, encrypted, chunks in zip(attributes, columns, digests, strict=True):
            chunks.extend(write_released(encrypted, attribute, released, entropy))
    release = Release(
        accounting=accounting_id(plan.accounting, plan.accounting_version),
        cells=plan.domain_size,
        columns=tuple(
            ColumnChunks(attribute=attribute.name, chunks=tuple(chunks))
            for attribute, chunks in zip(attributes, digests, strict=True)
        ),
        delta=plan.delta,
        epsilon=plan.epsilon,
        keep_threshold=plan.keep_threshold,
        nonce=random_bytes(RELEASE_NONCE_BYTES, entropy),
        population=plan.population_size,
        rows=row_count,
        study=contract.study_id,
        uploads=tuple(uploads),
    )
    return sign(release, key)


def _perturb(schema: Schema, columns: Sequence[Codes], source: NoiseSource) -> None:
    """Add a fresh noise cell to every row, attribute by attribute, in place."""
    noise = np.empty(columns[0].size, dtype=source.dtype)
    source.draw(noise)
    parts = unmix(schema.sizes, noise)
    for attribute, encrypted, part in zip(schema.attributes, columns, parts, strict=True):
        group.add(encrypted, part, attribute.size, out=encrypted)
