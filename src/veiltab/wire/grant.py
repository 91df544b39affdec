"""The grant: a curator's pads for one researcher, with a sealed part of its own (spec 11)."""

from dataclasses import dataclass
from typing import Any, ClassVar

from veiltab.wire.agreement import DIGEST
from veiltab.wire.canonical import MAX_INTEGER, dump, load
from veiltab.wire.contract import PADS, Pads
from veiltab.wire.fields import (
    BASE64,
    TEXT,
    exact_fields,
    hexadecimal,
    integer,
    items,
    malformed,
    message,
    optional,
    wired,
)
from veiltab.wire.identity import PARTY_ID
from veiltab.wire.signed import Message, Signed

_SEALED = optional(BASE64)


@message
class Grant(Message):
    """What a curator signs: who may decrypt which attributes, until when."""

    kind: ClassVar[str] = "grant"

    attributes: tuple[str, ...] = wired(items(TEXT, least=1))
    curator: bytes = wired(PARTY_ID)
    expires: int = wired(integer(0, MAX_INTEGER))
    grant_id: bytes = wired(hexadecimal(16), key="grant")
    pads: Pads = wired(PADS)
    researcher: bytes = wired(PARTY_ID)
    sealed_digest: bytes = wired(DIGEST)
    study: bytes = wired(DIGEST)
    upload_digest: bytes = wired(DIGEST, key="upload")

    def check(self) -> None:
        """Refuse an attribute that comes twice."""
        if len(set(self.attributes)) != len(self.attributes):
            raise malformed("attributes", "an attribute comes twice")


@dataclass(frozen=True, slots=True)
class SignedGrant:
    """A grant with its signature and its sealed part, or without that for the server."""

    signed: Signed[Grant]
    sealed: bytes | None

    def __post_init__(self) -> None:
        """Refuse what could not be sent."""
        _SEALED.write(self.sealed, "sealed")

    @property
    def body(self) -> Grant:
        """What the curator signed."""
        return self.signed.body

    def header(self) -> "SignedGrant":
        """Return the message without its sealed part: all that the server may have (spec 11)."""
        return SignedGrant(self.signed, None)

    def to_json(self) -> dict[str, Any]:
        """Return the message as JSON values."""
        return {"sealed": _SEALED.write(self.sealed, "sealed"), **self.signed.to_json()}

    def dumps(self) -> bytes:
        """Write the message."""
        return dump(self.to_json())

    @classmethod
    def loads(cls, data: bytes) -> "SignedGrant":
        """Read a grant; neither its signature nor the digest of its sealed part is verified."""
        found = exact_fields(load(data), ("body", "sealed", "signatures"), "")
        return cls(Signed.from_json(Grant, found), _SEALED.read(found["sealed"], "sealed"))
