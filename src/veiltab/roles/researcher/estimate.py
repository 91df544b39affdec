"""Decrypting what was granted, counting it, and estimating the distribution behind it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veiltab.core import group
from veiltab.core.channel import MAX_ESTIMATED_CELLS, GammaDiagonal
from veiltab.core.covariance import Covariance, estimate_covariance
from veiltab.core.plan import Plan
from veiltab.core.schema import Attribute, Codes, Schema
from veiltab.errors import NotGrantedError, ParameterError
from veiltab.roles.chunks import ChunkStore
from veiltab.roles.columns import read_chunk, read_positions
from veiltab.roles.researcher.access import Access
from veiltab.wire.packing import chunk_slices


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
        counts += np.bincount(schema.cells(codes), minlength=schema.domain_size)
    return UnbiasedEstimate(schema, counts, access.plan)


def decrypt(
    access: Access, chunks: ChunkStore, attributes: Sequence[str] | None = None
) -> Iterator[list[Codes]]:
    """Yield the sanitized records, chunk by chunk: a column of codes for each attribute."""
    schema = access.contract.schema.subset(granted_attributes(access, attributes))
    columns = [_Column(access, attribute, chunks) for attribute in schema.attributes]
    for number, where in enumerate(chunk_slices(access.release.sample_size)):
        yield [column.decrypt(number, where) for column in columns]


class _Column:
    """A granted column of the release, decrypted chunk by chunk."""

    def __init__(self, access: Access, attribute: Attribute, chunks: ChunkStore) -> None:
        self._attribute, self._chunks = attribute, chunks
        self._pads = access.pads[attribute.name]
        release = access.release
        self._digests = next(c.chunks for c in release.columns if c.attribute == attribute.name)
        owner = next(t for t in access.contract.curators if attribute in t.attributes)
        positions = next(u.positions for u in release.uploads if u.curator == owner.party_id)
        self._positions = (
            None if positions is None else read_positions(positions, release.sample_size, chunks)
        )

    def decrypt(self, number: int, where: slice) -> Codes:
        """Take the pads away; what is left is sampled and perturbed, but not encrypted."""
        perturbed = read_chunk(self._digests, self._attribute, number, where, self._chunks)
        if self._positions is None:
            pad = self._pads.rows(where)
        else:
            pad = self._pads.at(self._positions[where])
        return group.subtract(perturbed, pad, self._attribute.size)


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
