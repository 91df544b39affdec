"""Decrypting the granted columns of a release, and counting its records (spec 11)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from veiltab.core import group
from veiltab.core.released import ReleasedCounts, check_cells
from veiltab.core.schema import Attribute, Codes, count_cells, mix
from veiltab.errors import NotGrantedError
from veiltab.protocol.researcher.access import Access
from veiltab.protocol.stores import ChunkStore, unpack_all, unpack_all_positions
from veiltab.protocol.verify import Share, shares
from veiltab.wire.packing import CHUNK_ROWS, chunk_count, span_slices


def count_records(
    access: Access, chunks: ChunkStore, attributes: Sequence[str] | None = None
) -> ReleasedCounts:
    """Decrypt the released records and count them in the joint cells of granted attributes.

    All granted attributes are counted by default.  Asking for another one is an error that names
    the curator to ask.  The paper's estimate g is ``unbiased`` of what is returned (spec 11).
    """
    schema = access.contract.schema.subset(granted_attributes(access, attributes))
    check_cells(schema)
    counts = np.zeros(schema.domain_size, dtype=np.int64)
    for codes in decrypt(access, chunks, schema.names):
        counts += count_cells(mix(schema.sizes, codes), schema.domain_size)
    return ReleasedCounts(schema, counts, access.plan)


def decrypt(
    access: Access, chunks: ChunkStore, attributes: Sequence[str] | None = None
) -> Iterator[list[Codes]]:
    """Yield the sampled and perturbed records, span by span, as a column of codes per attribute."""
    schema = access.contract.schema.subset(granted_attributes(access, attributes))
    curator_shares = shares(access.contract, access.release, schema.names)
    for where in span_slices(access.release.sample_size):
        columns: dict[str, Codes] = {}
        for packed in _fetch(curator_shares, where, chunks):
            columns |= _decrypt_share(access, packed, where)
        yield [columns[name] for name in schema.names]


@dataclass(frozen=True, slots=True, eq=False)
class _PackedShare:
    """The chunks that hold some rows of a curator's share: its columns, and positions if any."""

    positions: list[bytes]
    columns: list[tuple[Attribute, list[bytes]]]


def _fetch(curator_shares: Sequence[Share], where: slice, chunks: ChunkStore) -> list[_PackedShare]:
    """Read the chunks of some rows in the order of :func:`~veiltab.protocol.verify.shares`."""
    packed_shares = [
        _PackedShare([], [(attribute, []) for attribute, _ in share.columns])
        for share in curator_shares
    ]
    for number in range(where.start // CHUNK_ROWS, chunk_count(where.stop)):
        for share, packed in zip(curator_shares, packed_shares, strict=True):
            if share.positions is not None:
                packed.positions.append(chunks.get(share.positions[number]))
            for (_, digests), (_, column) in zip(share.columns, packed.columns, strict=True):
                column.append(chunks.get(digests[number]))
    return packed_shares


def _decrypt_share(access: Access, packed: _PackedShare, where: slice) -> dict[str, Codes]:
    """Subtract the pads; what remains is sampled and perturbed, but no longer encrypted."""
    rows = where.stop - where.start
    positions = unpack_all_positions(packed.positions, rows) if packed.positions else None
    columns = {}
    for attribute, chunks in packed.columns:
        codes = unpack_all(chunks, attribute, rows)
        pads = access.pads[attribute.name]
        pad = pads.rows(where) if positions is None else pads.at(positions)
        columns[attribute.name] = group.subtract(codes, pad, attribute.size, out=codes)
    return columns


def granted_attributes(access: Access, attributes: Sequence[str] | None) -> list[str]:
    """Return the attributes to estimate: as asked for, or all granted ones in contract order."""
    names = access.contract.schema.names
    granted = [name for name in names if name in access.pads]
    wanted = granted if attributes is None else list(attributes)
    access.contract.schema.subset(wanted or names)  # refuses unknown names
    missing = [name for name in wanted if name not in access.pads]
    if missing or not wanted:
        holders = {
            attribute.name: terms.identity.name
            for terms in access.contract.curators
            for attribute in terms.attributes
        }
        asked = "; ".join(f"{name!r} ({holders[name]})" for name in missing or names)
        raise NotGrantedError(
            f"you have no grant for: {asked}",
            hint="ask those curators; with the grants you have you can estimate:"
            f" {', '.join(map(repr, granted)) or 'nothing'}",
        )
    return wanted
