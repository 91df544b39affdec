"""What a server's answers hold, read strictly: it may say what it likes, but not in any form."""

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar, Self, TypeVar, cast

from veiltab.errors import MalformedError, MismatchError
from veiltab.wire.codec import (
    MAX_INTEGER,
    TEXT,
    Codec,
    Part,
    describe,
    dump,
    integer,
    items,
    malformed,
    message,
    nested,
    optional,
    wired,
)
from veiltab.wire.contract import DIGEST, PARTY_ID, PublicIdentity

T = TypeVar("T")
_TIME = integer(0, MAX_INTEGER)


def _check_flag(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise malformed(path, f"must be true or false, not {describe(value)}")
    return value


_FLAG = Codec(_check_flag, _check_flag)


class Answer(Part):
    """An object in an answer; fields that a later server adds are not looked at."""

    __slots__ = ()

    left_out: ClassVar[dict[str, Any]] = {}
    """What stands for fields that some answers do not have."""

    @classmethod
    def from_json(cls, value: object, path: str = "") -> Self:
        """Read the object from JSON values."""
        if not isinstance(value, dict):
            raise malformed(path, f"must be an object, not {describe(value)}")
        known = {field.name for field in fields(cast("Any", cls))}
        found = {key: item for key, item in value.items() if key in known}
        return super().from_json(cls.left_out | found, path)


@message
class CuratorStatus(Answer):
    """How far a curator has got in a study."""

    name: str = wired(TEXT)
    party: bytes = wired(PARTY_ID)
    signed: bool = wired(_FLAG)
    aligned: bool = wired(_FLAG)
    uploaded: bool = wired(_FLAG)


@message
class ResearcherStatus(Answer):
    """A researcher whom the contract names."""

    name: str = wired(TEXT)
    party: bytes = wired(PARTY_ID)


@message
class StudySummary(Answer):
    """A study in the list of those that a party takes part in; ``updated`` in Unix seconds."""

    study: bytes = wired(DIGEST)
    title: str = wired(TEXT)
    state: str = wired(TEXT)
    role: str = wired(TEXT)
    updated: int = wired(_TIME)


@message
class Status(StudySummary):
    """Where a study stands; ``granted`` are the attributes granted to the asking researcher."""

    left_out: ClassVar[dict[str, Any]] = {"granted": []}

    reason: str | None = wired(optional(TEXT))
    curators: tuple[CuratorStatus, ...] = wired(items(nested(CuratorStatus)))
    researchers: tuple[ResearcherStatus, ...] | None = wired(
        optional(items(nested(ResearcherStatus)))
    )
    granted: tuple[str, ...] = wired(items(TEXT))


@message
class ServerStatus(Answer):
    """What a server says of itself to anybody; only a pinned identity is believed."""

    identity: PublicIdentity = wired(nested(PublicIdentity))
    software: str = wired(TEXT)
    versions: tuple[int, ...] = wired(items(integer(1, MAX_INTEGER)))


def read_object(body: bytes) -> dict[str, Any]:
    """Read an answer that is a JSON object and no message: nobody signs it, so any form will do."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedError(
            "the server's answer is not JSON", hint="check the URL, and ask the server's operator"
        ) from error
    if not isinstance(value, dict):
        raise malformed("", f"must be an object, not {describe(value)}")
    return value


def read_list(body: bytes, key: str, read: Callable[[Any, str], T]) -> list[T]:
    """Read an answer whose one list has this key."""
    return read_items(read_object(body), key, read)


def read_items(value: dict[str, Any], key: str, read: Callable[[Any, str], T]) -> list[T]:
    """Read one list of an object."""
    if key not in value:
        raise malformed(key, "is missing")
    return list(items(Codec(read, lambda item, _: item)).read(value[key], key))


def as_message(loads: Callable[[bytes], T]) -> Callable[[Any, str], T]:
    """Return how to read a message that stands within an answer: as if it had come alone."""

    def read(value: object, path: str) -> T:
        if not isinstance(value, dict):
            raise malformed(path, f"must be an object, not {describe(value)}")
        try:
            return loads(dump(value))
        except MalformedError as error:
            raise MalformedError(f"{path}: {error.message}", hint=error.hint) from error

    return read


def expect_study(found: bytes, study: bytes, what: str) -> None:
    """Refuse what belongs to another study than the one that was asked about."""
    if found != study:
        raise MismatchError(
            f"the {what} is of the study {found.hex()}, not of {study.hex()}",
            hint="the server mixed studies up, or means to; ask its operator",
        )
