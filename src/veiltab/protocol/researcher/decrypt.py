"""Decrypting what was granted, counting it, and estimating the distribution behind it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veiltab.core import group
from veiltab.core.channel import MAX_ESTIMATED_CELLS, GammaDiagonal
from veiltab.core.plan import Plan
from veiltab.core.schema import Attribute, Codes, Schema, count_cells, mix
from veiltab.core.uncertainty import Covariance, estimate_covariance
from veiltab.errors import NotGrantedError, ParameterError
from veiltab.protocol.researcher.access import Access
from veiltab.protocol.stores import ChunkStore, unpack_all, unpack_all_positions
from veiltab.protocol.verify import Share, shares
from veiltab.wire.packing import CHUNK_ROWS, chunk_count, span_slices


@dataclass(frozen=True, slots=True, eq=False)
class UnbiasedEstimate:
    """The paper's estimate: the released counts, seen through the channel.

    ``counts`` are the released, still perturbed records.  The estimate may be negative in cells
    that hold next to nobody.  Intervals, tests and other estimators are in
    :class:`veiltab.estimates.Estimate`, which is made from the same three fields.
    """

    schema: Schema
    counts: NDArray[np.int64]
    plan: Plan

    @property
    def channel(self) -> GammaDiagonal:
        """What the perturbation did to these attributes: the joint channel's marginal."""
        return self.plan.channel.marginal(self.schema.domain_size)

    @property
    def distribution(self) -> NDArray[np.float64]:
        """The estimated share of each cell (spec 11)."""
        return self.channel.estimate(self.counts)

    @property
    def covariance(self) -> Covariance:
        """The plug-in covariance of the estimated shares."""
        return estimate_covariance(
            self.distribution, self.channel, self.plan.population_size, self.plan.sample_size
        )


def estimate(
    access: Access, chunks: ChunkStore, attributes: Sequence[str] | None = None
) -> UnbiasedEstimate:
    """Estimate the joint distribution of attributes that were granted (the paper's g).

    All granted attributes by default; asking for others is an error that says whom to ask.
    """
    schema = access.contract.schema.subset(granted_attributes(access, attributes))
    if schema.domain_size > MAX_ESTIMATED_CELLS:
        raise ParameterError(
            f"these attributes have {schema.domain_size:,} joint cells",
            hint=f"estimate fewer attributes at a time: at most {MAX_ESTIMATED_CELLS:,} cells",
        )
    counts = np.zeros(schema.domain_size, dtype=np.int64)
    for codes in decrypt(access, chunks, schema.names):
        counts += count_cells(mix(schema.sizes, codes), schema.domain_size)
    return UnbiasedEstimate(schema, counts, access.plan)


def decrypt(
    access: Access, chunks: ChunkStore, attributes: Sequence[str] | None = None
) -> Iterator[list[Codes]]:
    """Yield the sanitized records, span by span: a column of codes for each attribute."""
    schema = access.contract.schema.subset(granted_attributes(access, attributes))
    held = shares(access.contract, access.release, schema.names)
    for where in span_slices(access.release.sample_size):
        packed = _fetch(held, where, chunks)
        found: dict[str, Codes] = {}
        for share in packed:
            found |= _decrypt_share(access, share, where)
        yield [found[name] for name in schema.names]


@dataclass(frozen=True, slots=True, eq=False)
class _Packed:
    """The chunks of some rows of a curator's share: positions, if there are any, and columns."""

    positions: list[bytes]
    columns: list[tuple[Attribute, list[bytes]]]


def _fetch(held: Sequence[Share], where: slice, chunks: ChunkStore) -> list[_Packed]:
    """Read chunks in the order of :func:`~veiltab.protocol.verify.shares`, as they are fetched."""
    packed = [_Packed([], [(attribute, []) for attribute, _ in share.columns]) for share in held]
    for number in range(where.start // CHUNK_ROWS, chunk_count(where.stop)):
        for share, own in zip(held, packed, strict=True):
            if share.positions is not None:
                own.positions.append(chunks.get(share.positions[number]))
            for (_, digests), (_, column) in zip(share.columns, own.columns, strict=True):
                column.append(chunks.get(digests[number]))
    return packed


def _decrypt_share(access: Access, share: _Packed, where: slice) -> dict[str, Codes]:
    """Take the pads away; what is left is sampled and perturbed, but not encrypted."""
    rows = where.stop - where.start
    positions = unpack_all_positions(share.positions, rows) if share.positions else None
    found = {}
    for attribute, column in share.columns:
        codes = unpack_all(column, attribute, rows)
        pads = access.pads[attribute.name]
        pad = pads.rows(where) if positions is None else pads.at(positions)
        found[attribute.name] = group.subtract(codes, pad, attribute.size, out=codes)
    return found


def granted_attributes(access: Access, attributes: Sequence[str] | None) -> list[str]:
    """Return the attributes to estimate, in the contract's order unless another is asked for."""
    every = access.contract.schema.names
    granted = [name for name in every if name in access.pads]
    wanted = granted if attributes is None else list(attributes)
    access.contract.schema.subset(wanted or every)  # refuses unknown names
    missing = [name for name in wanted if name not in access.pads]
    if missing or not wanted:
        holders = {
            attribute.name: terms.identity.name
            for terms in access.contract.curators
            for attribute in terms.attributes
        }
        asked = "; ".join(f"{name!r} ({holders[name]})" for name in missing or every)
        raise NotGrantedError(
            f"you have no grant for: {asked}",
            hint=f"ask those curators; with the grants you have you can estimate:"
            f" {', '.join(map(repr, granted)) or 'nothing'}",
        )
    return wanted
