"""The service's own answers, as far as they are not messages of the protocol."""

from typing import Any

from pydantic import BaseModel


class Server(BaseModel):
    """Who this server is; compare its fingerprint before you trust it with anything."""

    identity: dict[str, Any]
    software: str
    time: int
    versions: list[int]


class Registered(BaseModel):
    """A party that is now known here."""

    party: str


class StudyLine(BaseModel):
    """A study in a list."""

    study: str
    title: str
    state: str
    role: str
    updated: int


class StudyList(BaseModel):
    """The studies that name the sender."""

    studies: list[StudyLine]


class Party(BaseModel):
    """Somebody who is named in a study."""

    name: str
    party: str


class CuratorStatus(Party):
    """What a curator has done so far."""

    signed: bool
    aligned: bool
    uploaded: bool


class Status(BaseModel):
    """Where a study stands; ``granted`` lists the attributes that the sender may estimate."""

    study: str
    title: str
    state: str
    reason: str | None
    role: str
    updated: int
    curators: list[CuratorStatus]
    researchers: list[Party] | None
    granted: list[str]


class Nothing(BaseModel):
    """The request is done, and there is nothing more to say."""


class Alignments(BaseModel):
    """The curators' signed alignments."""

    alignments: list[dict[str, Any]]


class Chunks(BaseModel):
    """The digests of the chunks that the sender has sent."""

    chunks: list[str]


class Grants(BaseModel):
    """Signed grants that the sender has given or was given."""

    grants: list[dict[str, Any]]


class AuditLog(BaseModel):
    """A study's audit log: entries in order, and the signed head."""

    entries: list[dict[str, Any]]
    head: dict[str, Any]


class Problem(BaseModel):
    """Problem details (RFC 9457), with a stable code and a hint."""

    type: str
    title: str
    status: int
    detail: str
    hint: str
    code: str
