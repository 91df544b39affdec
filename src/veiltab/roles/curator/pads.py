"""The pads of one upload: what a curator must keep to grant access, and must show nobody else."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from veiltab.core.entropy import Entropy, random_bytes
from veiltab.core.schema import Attribute, Codes, Schema
from veiltab.crypto.derivation import SECRET_BYTES, UPLOAD_ID_BYTES, pad_key
from veiltab.crypto.pads import StreamPad, one_time_pad
from veiltab.roles.chunks import ChunkStore
from veiltab.roles.columns import Digests, read_rows, write_rows
from veiltab.roles.curator.desk import Desk
from veiltab.wire.packing import chunk_slices

ROWS_BYTES = 8


class Pads(Protocol):
    """The pads of an upload, by the number of the attribute in the curator's list."""

    @property
    def upload_id(self) -> bytes:
        """The fresh id of the preparation that these pads were drawn for."""

    def span(self, attribute: int, where: slice) -> Codes:
        """Return the pads of some rows of one attribute, from the start of a chunk on."""

    def material(self, attributes: Sequence[int]) -> bytes:
        """Return what a grant of these attributes hands to a researcher (spec 11)."""


@dataclass(frozen=True)
class StreamPads:
    """Pads from a key per attribute (spec 6.1)."""

    upload_id: bytes
    attributes: tuple[Attribute, ...]
    keys: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def fresh(cls, attributes: Sequence[Attribute], scope: bytes, entropy: Entropy) -> "StreamPads":
        """Draw a new upload id and secret; nothing else is ever encrypted under them."""
        upload_id = random_bytes(UPLOAD_ID_BYTES, entropy)
        secret = random_bytes(SECRET_BYTES, entropy)
        keys = tuple(pad_key(secret, scope, upload_id, i) for i in range(len(attributes)))
        return cls(upload_id, tuple(attributes), keys)

    def span(self, attribute: int, where: slice) -> Codes:
        """Compute the pads of some rows."""
        return self.streams[attribute].rows(where.start, where.stop - where.start)

    @cached_property
    def streams(self) -> tuple[StreamPad, ...]:
        """The pads of every attribute, which threads may share."""
        sized = zip(self.keys, self.attributes, strict=True)
        return tuple(StreamPad(key, attribute.size) for key, attribute in sized)

    def material(self, attributes: Sequence[int]) -> bytes:
        """Return the attributes' keys."""
        return b"".join(self.keys[attribute] for attribute in attributes)


@dataclass(frozen=True, slots=True)
class OneTimePads:
    """Pads drawn one by one from the operating system, and kept in a private store."""

    upload_id: bytes
    attributes: tuple[Attribute, ...]
    rows: int
    digests: tuple[Digests, ...]
    store: ChunkStore = field(repr=False)

    @classmethod
    def fresh(
        cls, attributes: Sequence[Attribute], rows: int, entropy: Entropy, store: ChunkStore
    ) -> "OneTimePads":
        """Draw new pads for every row; ``store`` is the curator's own, and private."""
        upload_id = random_bytes(UPLOAD_ID_BYTES, entropy)

        def draw(attribute: Attribute) -> Digests:
            digests: list[bytes] = []
            for where in chunk_slices(rows):
                pad = one_time_pad(attribute.size, where.stop - where.start, entropy)
                digests += write_rows(pad, attribute, store)
            return tuple(digests)

        digests = tuple(draw(attribute) for attribute in attributes)
        return cls(upload_id, tuple(attributes), rows, digests, store)

    def span(self, attribute: int, where: slice) -> Codes:
        """Read the pads of some rows."""
        return read_rows(self.digests[attribute], self.attributes[attribute], where, self.store)

    def material(self, attributes: Sequence[int]) -> bytes:
        """Return the number of rows and the packed pads of all of them."""
        packed = [self.store.get(digest) for a in attributes for digest in self.digests[a]]
        return self.rows.to_bytes(ROWS_BYTES, "big") + b"".join(packed)


def fresh_pads(desk: Desk, mode: str, schema: Schema, scope: bytes, rows: int) -> Pads:
    """Draw new pads of the contract's mode for one preparation."""
    if mode == "one-time":
        return OneTimePads.fresh(schema.attributes, rows, desk.entropy, desk.private)
    return StreamPads.fresh(schema.attributes, scope, desk.entropy)
