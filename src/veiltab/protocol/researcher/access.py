"""The researcher's access: everything is verified before anything is decrypted (spec 11)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from veiltab.core.plan import Plan
from veiltab.core.schema import Attribute, Codes
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.pads import StreamPad
from veiltab.errors import MalformedError, MismatchError, SealError
from veiltab.protocol.verify import (
    SEAL_PURPOSE,
    check_researcher,
    seal_context,
    verify_agreement,
    verify_grant,
    verify_release,
)
from veiltab.wire.contract import MAX_ROWS, Contract
from veiltab.wire.messages import Release, SignedGrant
from veiltab.wire.packing import CHUNK_ROWS, chunk_slices, packed_length, unpack
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
    release: Release
    plan: Plan
    pads: Mapping[str, PadReader] = field(repr=False)


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
    return Access(terms, released, plan, pads)


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
    material = identity.sealing.open(grant.sealed, SEAL_PURPOSE, context)
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
