"""The researcher: checks everything, decrypts what was granted, and counts it (spec 11)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from veiltab.core import group
from veiltab.core.plan import Plan
from veiltab.core.released import ReleasedCounts, check_cells
from veiltab.core.schema import Attribute, Codes, count_cells, mix
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.pads import StreamPad
from veiltab.errors import MalformedError, MismatchError, NotGrantedError, SealError
from veiltab.protocol.positions import DrawnPositions
from veiltab.protocol.stores import ChunkStore, unpack_all_positions, unpack_released
from veiltab.protocol.verify import (
    SEAL_PURPOSE,
    Share,
    check_researcher,
    publication_epsilon,
    seal_context,
    shares,
    sign,
    verify_agreement,
    verify_grant,
    verify_release,
)
from veiltab.wire.contract import Contract
from veiltab.wire.mechanism import MAX_ROWS
from veiltab.wire.messages import Publication, Release, SignedGrant
from veiltab.wire.packing import (
    CHUNK_ROWS,
    chunk_count,
    chunk_slices,
    packed_length,
    span_slices,
    unpack,
)
from veiltab.wire.signed import Signed

KEY_BYTES = 32
ROWS_BYTES = 8


class PadReader(Protocol):
    """The pads of one granted column."""

    def rows(self, where: slice) -> Codes:
        """Return the pads of these rows of the upload."""

    def at(self, positions: NDArray[np.int64]) -> Codes:
        """Return the pads of rows at these positions in the upload."""


class StreamReader:
    """Pads computed from a granted key; threads may share a reader."""

    def __init__(self, size: int, key: bytes) -> None:
        """Prepare the pads of an attribute with this many categories and this key."""
        self._pad = StreamPad(key, size)

    def rows(self, where: slice) -> Codes:
        """Compute the pads of these rows."""
        return self._pad.rows(where.start, where.stop - where.start)

    def at(self, positions: NDArray[np.int64]) -> Codes:
        """Compute the pads of rows at these positions."""
        return self._pad.at(positions)


@dataclass(frozen=True, slots=True, eq=False)
class OneTimeReader:
    """One-time pads, which the grant itself carries."""

    pads: Codes = field(repr=False)

    def rows(self, where: slice) -> Codes:
        """Return the pads of these rows."""
        self._check(where.stop)
        return self.pads[where]

    def at(self, positions: NDArray[np.int64]) -> Codes:
        """Return the pads of rows at these positions."""
        self._check(int(positions.max()) + 1)
        return self.pads[positions]

    def _check(self, rows: int) -> None:
        if rows > self.pads.size:
            raise MismatchError(
                "the grant has no pads for some rows of the release",
                hint="ask the curator for a grant that covers the released upload",
            )


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """A verified release, and the pads of the attributes that were granted."""

    contract: Contract
    signed: Signed[Release]
    plan: Plan
    pads: Mapping[str, PadReader] = field(repr=False)

    @property
    def release(self) -> Release:
        """What the server has signed."""
        return self.signed.body


def open_access(
    identity: PrivateIdentity,
    contract: Signed[Contract],
    release: Signed[Release],
    grants: Iterable[SignedGrant],
    *,
    now: int,
) -> Access:
    """Verify contract, release and grants, and unseal the pads; whatever fails is an error."""
    terms = verify_agreement(contract)
    check_researcher(terms, identity.party_id)
    released, plan = verify_release(terms, release)
    pads: dict[str, PadReader] = {}
    for grant in grants:
        opened = _open_grant(identity, terms, released, grant, now)
        twice = sorted(pads.keys() & opened.keys())
        if twice:
            raise MismatchError(
                f"{', '.join(map(repr, twice))} is granted twice",
                hint="give each grant once; if two overlap, give only the larger one",
            )
        pads |= opened
    return Access(terms, release, plan, pads)


def _open_grant(
    identity: PrivateIdentity, contract: Contract, release: Release, grant: SignedGrant, now: int
) -> dict[str, PadReader]:
    curator = verify_grant(contract, release, grant, now)
    body = grant.body
    if body.researcher != identity.party_id:
        raise MismatchError(
            "the grant is for another researcher", hint="ask the curator for a grant of your own"
        )
    if grant.sealed is None:
        raise SealError(
            f"the grant from {curator.identity.name!r} is only a header, without the pads",
            hint="with one-time pads, the curator sends you the whole grant file directly",
        )
    context = seal_context(body.study, body.curator, body.researcher, body.grant_id)
    material = identity.open(grant.sealed, SEAL_PURPOSE, context)
    attributes = [a for a in curator.attributes if a.name in body.attributes]
    if body.pads == "stream":
        return _stream_readers(attributes, material)
    return _one_time_readers(attributes, material)


def _stream_readers(attributes: list[Attribute], material: bytes) -> dict[str, PadReader]:
    if len(material) != KEY_BYTES * len(attributes):
        raise _wrong_material()
    return {
        attribute.name: StreamReader(attribute.size, material[start : start + KEY_BYTES])
        for attribute, start in zip(attributes, range(0, len(material), KEY_BYTES), strict=True)
    }


def _one_time_readers(attributes: list[Attribute], material: bytes) -> dict[str, PadReader]:
    rows = int.from_bytes(material[:ROWS_BYTES], "big")
    if rows > MAX_ROWS or len(material) != ROWS_BYTES + sum(
        _packed_bytes(a, rows) for a in attributes
    ):
        raise _wrong_material()
    readers: dict[str, PadReader] = {}
    start = ROWS_BYTES
    for attribute in attributes:
        stop = start + _packed_bytes(attribute, rows)
        readers[attribute.name] = OneTimeReader(_unpack_all(attribute, rows, material[start:stop]))
        start = stop
    return readers


def _unpack_all(attribute: Attribute, rows: int, packed: bytes) -> Codes:
    if attribute.size == 1:  # packed in no bytes, so `material` does not bound the number of rows
        return np.broadcast_to(np.zeros(1, dtype=attribute.dtype), rows)
    pads = np.empty(rows, dtype=attribute.dtype)
    start = 0
    for where in chunk_slices(rows):
        count = where.stop - where.start
        stop = start + packed_length(attribute.size, count)
        pads[where] = unpack(packed[start:stop], attribute.size, count)
        start = stop
    return pads


def _packed_bytes(attribute: Attribute, rows: int) -> int:
    whole, rest = divmod(rows, CHUNK_ROWS)
    full = packed_length(attribute.size, CHUNK_ROWS)
    return whole * full + packed_length(attribute.size, rest)


def _wrong_material() -> MalformedError:
    return MalformedError(
        "the grant does not hold the right amount of pads for its attributes",
        hint="ask the curator for the grant again",
    )


def publication(
    access: Access, identity: PrivateIdentity, attributes: Sequence[str], digest: bytes
) -> Signed[Publication]:
    """Name the one copy of the counts that others may read, by its digest (spec 11.1)."""
    body = Publication(
        attributes=tuple(granted_attributes(access, attributes)),
        counts=digest,
        epsilon=publication_epsilon(access.contract),
        release=access.signed.digest,
        researcher=identity.party_id,
        study=access.contract.study_id,
    )
    return sign(body, identity.signing)


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
    """Yield the sampled and perturbed records, span by span, as a column of codes per attribute.

    After the last one it raises if the server has drawn a row of any curator twice.
    """
    schema = access.contract.schema.subset(granted_attributes(access, attributes))
    curator_shares = shares(access.contract, access.release, schema.names)
    drawn = [DrawnPositions() for _ in curator_shares]
    for where in span_slices(access.release.rows):
        columns: dict[str, Codes] = {}
        for packed, seen in zip(_fetch(curator_shares, where, chunks), drawn, strict=True):
            columns |= _decrypt_share(access, packed, where, seen)
        yield [columns[name] for name in schema.names]
    for seen in drawn:
        seen.check()


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


def _decrypt_share(
    access: Access, packed: _PackedShare, where: slice, drawn: DrawnPositions
) -> dict[str, Codes]:
    """Subtract the pads; what remains is sampled and perturbed, but no longer encrypted."""
    rows = where.stop - where.start
    positions = unpack_all_positions(packed.positions, rows) if packed.positions else None
    if positions is not None:
        drawn.add(positions)
    columns = {}
    for attribute, chunks in packed.columns:
        codes = unpack_released(chunks, attribute, rows)
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
