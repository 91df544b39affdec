"""Messages, and the signatures on them (spec 1.1 and 1.2).

Here a signature is two byte strings of the right length.  ``protocol.verify`` verifies it and
decides who must have signed.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Generic, Self, TypeVar

from veiltab.errors import VersionError
from veiltab.wire.codec import (
    Part,
    describe,
    dump,
    exact_fields,
    hexadecimal,
    items,
    load,
    malformed,
    nested,
    part,
    wired,
)

VERSION = 1
"""The only version of the protocol that this code speaks."""

KEY_BYTES = 32
SIGNATURE_BYTES = 64

_HEADER = ("kind", "version")


class Message(Part):
    """A message of one kind; in JSON it has ``kind`` and ``version`` besides its fields."""

    __slots__ = ("_canonical",)

    _canonical: bytes

    kind: ClassVar[str]
    cosigned: ClassVar[bool] = False
    """Whether several parties sign, one after the other; all others have one signature."""

    def to_json(self, path: str = "") -> dict[str, Any]:
        """Return the message as JSON values."""
        return {"kind": self.kind, "version": VERSION, **super().to_json(path)}

    @classmethod
    def from_json(cls, value: object, path: str = "") -> Self:
        """Read a message of this kind and version, with exactly its fields, from JSON values."""
        if not isinstance(value, dict):
            raise malformed(path, f"must be an object, not {describe(value)}")
        _check_header(value, cls.kind)
        rest = {key: item for key, item in value.items() if key not in _HEADER}
        return super().from_json(rest, path)

    def canonical(self) -> bytes:
        """Return the bytes that are hashed and signed; a message never changes, so only once."""
        try:
            return self._canonical
        except AttributeError:
            object.__setattr__(self, "_canonical", dump(self.to_json()))
            return self._canonical


class SignedMessage(Message):
    """A message that always travels as ``{"body": …, "signatures": …}`` (spec 1.2)."""

    __slots__ = ()

    @classmethod
    def loads(cls, data: bytes) -> "Signed[Self]":
        """Read a message of this kind with its signatures, which are not verified yet."""
        return Signed.from_json(cls, exact_fields(load(data), ("body", "signatures"), ""))


Body = TypeVar("Body", bound=Message)


@part
class Signature(Part):
    """An Ed25519 signature and the public key that it is said to be of (spec 1.2)."""

    key: bytes = wired(hexadecimal(KEY_BYTES))
    signature: bytes = wired(hexadecimal(SIGNATURE_BYTES))


SIGNATURES = items(nested(Signature))


@dataclass(frozen=True, slots=True)
class Signed(Generic[Body]):
    """A message and its signatures, sorted by key, one per key (spec 1.2)."""

    body: Body
    signatures: tuple[Signature, ...]

    def __post_init__(self) -> None:
        """Refuse a wrong number or order of signatures."""
        _check_signatures(self.signatures, cosigned=self.body.cosigned)

    @classmethod
    def from_json(cls, kind: type[Body], value: dict[str, Any]) -> "Signed[Body]":
        """Read the body and the signatures out of an object that has both."""
        body = kind.from_json(value["body"])
        return Signed(body, SIGNATURES.read(value["signatures"], "signatures"))

    def to_json(self) -> dict[str, Any]:
        """Return the message and its signatures as JSON values."""
        return {
            "body": self.body.to_json(),
            "signatures": SIGNATURES.write(self.signatures, "signatures"),
        }

    def dumps(self) -> bytes:
        """Write the message with its signatures."""
        return dump(self.to_json())

    @property
    def digest(self) -> bytes:
        """The digest by which other messages refer to this one."""
        return digest(self.body)

    @property
    def signing_input(self) -> bytes:
        """The bytes that every signature must be of."""
        return signing_input(self.body.kind, self.body.canonical())

    def with_signature(self, signature: Signature) -> "Signed[Body]":
        """Add a signature, or replace the one of the same key."""
        by_key = {item.key: item for item in (*self.signatures, signature)}
        return Signed(self.body, tuple(by_key[key] for key in sorted(by_key)))


def signing_input(kind: str, body_bytes: bytes) -> bytes:
    """Return what is signed: the kind in a label, then the canonical body (spec 1.2)."""
    return b"veiltab/v1/sign/" + kind.encode("ascii") + b"\x00" + body_bytes


def digest(body: Message) -> bytes:
    """Return the digest of a signed message, H(canonical(body)) (spec 1.2)."""
    return hashlib.sha256(body.canonical()).digest()


def _check_header(value: dict[str, Any], kind: str) -> None:
    """Look at version and kind first: another version may have other fields."""
    for key in _HEADER:
        if key not in value:
            raise malformed(key, "is missing")
    version = value["version"]
    if not isinstance(version, int) or isinstance(version, bool):
        raise malformed("version", f"must be a whole number, not {describe(version)}")
    if version != VERSION:
        raise VersionError(
            f"the message is of version {describe(version)} of the protocol, not {VERSION}",
            hint="use the same version of veiltab on both sides",
        )
    if value["kind"] != kind:
        raise malformed("kind", f"must be {kind!r}, not {describe(value['kind'])}")


def _check_signatures(signatures: Sequence[Signature], *, cosigned: bool) -> None:
    if not cosigned and len(signatures) != 1:
        raise malformed("signatures", f"must have exactly one item, not {len(signatures):,}")
    for position, (before, after) in enumerate(pairwise(signatures), start=1):
        if before.key >= after.key:
            raise malformed(f"signatures[{position}].key", "must be greater than the one before")
