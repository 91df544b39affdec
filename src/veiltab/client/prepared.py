"""A prepared upload on disk: the message, and the pads that only its curator may have."""

from typing import ClassVar

from veiltab.core.schema import Schema
from veiltab.crypto.derivation import DERIVED_BYTES
from veiltab.errors import MismatchError
from veiltab.protocol.curator.upload import OneTimePads, Pads, Prepared, StreamPads
from veiltab.protocol.stores import ChunkStore, check_column_names
from veiltab.wire.codec import (
    Codec,
    exact_fields,
    hexadecimal,
    items,
    load,
    malformed,
    message,
    optional,
    wired,
)
from veiltab.wire.messages import CHUNKS, Upload, check_chunks
from veiltab.wire.signed import Message, Signed


def _read_signed(value: object, path: str) -> Signed[Upload]:
    return Signed.from_json(Upload, exact_fields(value, ("body", "signatures"), path))


_SIGNED_UPLOAD: Codec[Signed[Upload]] = Codec(_read_signed, lambda signed, _: signed.to_json())


@message
class _PreparedFile(Message):
    """The upload with one of two: the key of each attribute, or the digests of its pads.

    The upload's own id and number of rows are those of the pads, so they stand here once.
    """

    kind: ClassVar[str] = "home-prepared"

    digests: tuple[tuple[bytes, ...], ...] | None = wired(optional(items(CHUNKS)))
    keys: tuple[bytes, ...] | None = wired(optional(items(hexadecimal(DERIVED_BYTES))))
    upload: Signed[Upload] = wired(_SIGNED_UPLOAD)

    def check(self) -> None:
        """Refuse anything but one kind of pads, for every column and every row."""
        upload, pads = self.upload.body, self.keys if self.digests is None else self.digests
        if pads is None or (self.keys is not None and self.digests is not None):
            raise malformed("keys, digests", "exactly one of the two must be null")
        if len(pads) != len(upload.columns):
            raise malformed("pads", f"must be of {len(upload.columns):,} columns")
        for position, digests in enumerate(self.digests or ()):
            check_chunks(digests, upload.rows, f"digests[{position}]")

    def __repr__(self) -> str:
        """Show which upload it is, and nothing of its pads."""
        return f"_PreparedFile(upload={self.upload.body.upload_id.hex()!r})"


def dump_prepared(prepared: Prepared[Upload]) -> bytes:
    """Write an upload and its pads; the bytes are as secret as the records."""
    pads, upload = prepared.pads, prepared.message.body
    if pads.upload_id != upload.upload_id or not isinstance(pads, StreamPads | OneTimePads):
        raise _foreign_pads()
    if isinstance(pads, StreamPads):
        found = _PreparedFile(digests=None, keys=pads.keys, upload=prepared.message)
    elif pads.rows != upload.rows:
        raise _foreign_pads()
    else:
        found = _PreparedFile(digests=pads.digests, keys=None, upload=prepared.message)
    return found.canonical()


def parse_prepared(data: bytes, schema: Schema, private: ChunkStore) -> Prepared[Upload]:
    """Read what :func:`dump_prepared` wrote; ``private`` holds the one-time pads, if any.

    ``schema`` is the curator's part of the contract.  Errors may quote a secret: whoever shows
    them must not show those (see :func:`veiltab.client.files.parse_file`).
    """
    found = _PreparedFile.from_json(load(data))
    upload = found.upload.body
    check_column_names(upload.columns, schema)
    pads: Pads
    if found.keys is not None:
        pads = StreamPads(upload.upload_id, schema.attributes, found.keys)
    else:
        digests = found.digests or ()
        pads = OneTimePads(upload.upload_id, schema.attributes, upload.rows, digests, private)
    return Prepared(found.upload, pads)


def _foreign_pads() -> MismatchError:
    return MismatchError(
        "these pads are not the pads of this upload",
        hint="keep the upload and its pads as they were prepared together",
    )
