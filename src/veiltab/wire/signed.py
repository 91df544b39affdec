"""Messages, and the signatures on them (spec 1.1 and 1.2).

Here a signature is byte strings of the right length, with the rotations that lead to its key, if
any, in order.  ``protocol.verify`` verifies it and decides who must have signed.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from veiltab.core.hashing import MAX_ROTATIONS
from veiltab.errors import VersionError
from veiltab.wire.codec import (
    Codec,
    Part,
    describe,
    dump,
    exact_fields,
    hexadecimal,
    items,
    join,
    load,
    malformed,
    nested,
    part,
    wired,
)

if TYPE_CHECKING:
    from veiltab.wire.rotation import Rotation

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


class _Proved(Part):
    """A part that names its rotations only if there are any."""

    __slots__ = ()

    def to_json(self, path: str = "") -> dict[str, Any]:
        """Return the part as JSON values."""
        value = super().to_json(path)
        return value if value["rotations"] else {k: v for k, v in value.items() if k != "rotations"}

    @classmethod
    def from_json(cls, value: object, path: str = "") -> Self:
        """Read the part in either form; an empty list would be a third one."""
        if isinstance(value, dict):
            if value.get("rotations") == []:
                raise malformed(join(path, "rotations"), "must be left out where there are none")
            value = {"rotations": [], **value}
        return super().from_json(value, path)


def _read_rotation(value: object, path: str) -> "Signed[Rotation]":
    from veiltab.wire.rotation import Rotation  # noqa: PLC0415 - a rotation is signed itself

    return Signed.from_json(Rotation, exact_fields(value, ("body", "signatures"), path))


_ROTATIONS: Codec[tuple["Signed[Rotation]", ...]] = items(
    Codec(_read_rotation, lambda rotation, _: rotation.to_json()), most=MAX_ROTATIONS
)


@part
class Signature(_Proved):
    """An Ed25519 signature and the public key that it is said to be of (spec 1.2).

    A key that took the place of a party's first one comes with the rotations that lead to it
    (spec 2.2), so that everybody can check it without asking anybody.
    """

    key: bytes = wired(hexadecimal(KEY_BYTES))
    signature: bytes = wired(hexadecimal(SIGNATURE_BYTES))
    rotations: tuple["Signed[Rotation]", ...] = field(
        default=(), metadata={"codec": _ROTATIONS, "key": None}
    )

    def check(self) -> None:
        """Refuse rotations that are no chain, or that lead to another key."""
        if self.rotations:
            from veiltab.wire.rotation import check_chain  # noqa: PLC0415 - see above

            if check_chain(self.rotations)[-1] != self.key:
                raise malformed("rotations", "lead to another key than the one that signs")

    @property
    def root(self) -> bytes:
        """The first signing key of the party that signs: the one that contracts name."""
        if not self.rotations:
            return self.key
        first = self.rotations[0]
        (before,) = {item.key for item in first.signatures} - {first.body.signing_key}
        return before


SIGNATURES = items(nested(Signature))


@dataclass(frozen=True, slots=True)
class Signed(Generic[Body]):
    """A message and its signatures, sorted by their parties' first keys, one each (spec 1.2)."""

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
        """Add a signature, or replace the one of the same party."""
        by_root = {item.root: item for item in (*self.signatures, signature)}
        return Signed(self.body, tuple(by_root[root] for root in sorted(by_root)))


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
        if before.root >= after.root:
            raise malformed(f"signatures[{position}].key", "must be greater than the one before")
