"""Joining the curators' ciphertext: rows of one respondent side by side (spec 9, 12.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veiltab.core import group
from veiltab.core.plan import Plan
from veiltab.core.sampling import draw_sample
from veiltab.core.schema import Attribute, Codes
from veiltab.errors import AlignmentError, MismatchError
from veiltab.roles.agreements import plan_for
from veiltab.roles.chunks import ChunkStore
from veiltab.roles.columns import (
    Digests,
    gather,
    read_chunk,
    read_tokens,
    write_column,
    write_positions,
)
from veiltab.roles.server.bench import Bench
from veiltab.roles.server.match import match_tokens
from veiltab.roles.signatures import sign
from veiltab.wire.contract import Contract
from veiltab.wire.release import ReleasedUpload
from veiltab.wire.repad import Repad, RepadRequest
from veiltab.wire.signed import Signed
from veiltab.wire.upload import Upload


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """The sample, joined but not perturbed: it must never leave the server as it is."""

    plan: Plan
    attributes: tuple[Attribute, ...]
    columns: tuple[Digests, ...]
    uploads: tuple[ReleasedUpload, ...]
    differences: tuple[Digests, ...] | None = None

    def chunk(self, number: int, where: slice, store: ChunkStore) -> list[Codes]:
        """Read one chunk of every column, under its new pads if it was re-padded."""
        found = _read(self.columns, self.attributes, number, where, store)
        if self.differences is None:
            return found
        changes = _read(self.differences, self.attributes, number, where, store)
        return [
            group.add(codes, change, attribute.size)
            for codes, change, attribute in zip(found, changes, self.attributes, strict=True)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Rows drawn from whole tables: the plan, each curator's positions, and the ciphertext."""

    plan: Plan
    positions: tuple[NDArray[np.int64], ...]
    columns: tuple[Digests, ...]


def join_sampled(contract: Contract, uploads: Sequence[Signed[Upload]]) -> Joined:
    """Put the curators' samples side by side: they are in one order already."""
    populations = {upload.body.population for upload in uploads}
    if len(populations) != 1:
        raise MismatchError(
            f"the curators sampled from populations of {sorted(map(str, populations))}",
            hint="all curators must hold the same respondents; abort and align again",
        )
    (population,) = populations
    return Joined(
        plan=plan_for(contract, population or 0),
        attributes=contract.schema.attributes,
        columns=tuple(column.chunks for upload in uploads for column in upload.body.columns),
        uploads=tuple(_released(upload, None) for upload in uploads),
    )


def join_fresh(bench: Bench, contract: Contract, uploads: Sequence[Signed[Upload]]) -> Joined:
    """Match and sample tables that were uploaded for this study alone."""
    drawn = draw_rows(bench, contract, uploads, bench.received)
    positions = [write_positions(column, bench.released) for column in drawn.positions]
    return Joined(
        plan=drawn.plan,
        attributes=contract.schema.attributes,
        columns=drawn.columns,
        uploads=tuple(map(_released, uploads, positions)),
    )


def join_stored(contract: Contract, drawn: Drawn, repads: Mapping[bytes, Signed[Repad]]) -> Joined:
    """Put rows of stored tables under the study's own pads; no position is released."""
    ordered = [repads[terms.party_id] for terms in contract.curators]
    return Joined(
        plan=drawn.plan,
        attributes=contract.schema.attributes,
        columns=drawn.columns,
        uploads=tuple(
            ReleasedUpload(curator=repad.body.curator, digest=repad.digest, positions=None)
            for repad in ordered
        ),
        differences=tuple(column.chunks for repad in ordered for column in repad.body.columns),
    )


def draw_rows(
    bench: Bench, contract: Contract, uploads: Sequence[Signed[Upload]], tables: ChunkStore
) -> Drawn:
    """Match whole tables, draw a fresh sample in random order, and collect its ciphertext."""
    matched = match_tokens(
        [read_tokens(upload.body.tokens or (), upload.body.rows, tables) for upload in uploads]
    )
    if not len(matched):
        raise AlignmentError(
            "the curators have no respondent in common",
            hint="check that all use the same ids, normalised in the same way",
        )
    plan = plan_for(contract, len(matched))
    chosen = matched[draw_sample(len(matched), plan.sample_size, bench.entropy)]
    positions = tuple(np.ascontiguousarray(column) for column in chosen.T)
    columns = tuple(
        _collect(upload.body, attribute, rows, tables, bench.received)
        for upload, rows, terms in zip(uploads, positions, contract.curators, strict=True)
        for attribute in terms.attributes
    )
    return Drawn(plan, positions, columns)


def repad_requests(
    bench: Bench, contract: Contract, drawn: Drawn, uploads: Sequence[Signed[Upload]]
) -> dict[bytes, Signed[RepadRequest]]:
    """Ask each curator for new pads of its drawn rows, in the order of the release."""
    requests = {}
    for upload, positions in zip(uploads, drawn.positions, strict=True):
        request = RepadRequest(
            curator=upload.body.curator,
            population=drawn.plan.population_size,
            positions=write_positions(positions, bench.received),
            sample_size=drawn.plan.sample_size,
            study=contract.study_id,
            upload_digest=upload.digest,
        )
        requests[upload.body.curator] = sign(request, bench.key)
    return requests


def _collect(
    upload: Upload,
    attribute: Attribute,
    rows: NDArray[np.int64],
    tables: ChunkStore,
    joined: ChunkStore,
) -> Digests:
    """Copy the drawn rows of one column to chunks of their own: one column at a time."""
    chunks = next(c.chunks for c in upload.columns if c.attribute == attribute.name)
    found = gather(chunks, attribute, upload.rows, rows, tables)
    return write_column(attribute, rows.size, lambda _, where: found[where], joined)


def _read(
    columns: Sequence[Digests],
    attributes: Sequence[Attribute],
    number: int,
    where: slice,
    store: ChunkStore,
) -> list[Codes]:
    return [
        read_chunk(digests, attribute, number, where, store)
        for digests, attribute in zip(columns, attributes, strict=True)
    ]


def _released(upload: Signed[Upload], positions: Digests | None) -> ReleasedUpload:
    return ReleasedUpload(curator=upload.body.curator, digest=upload.digest, positions=positions)
