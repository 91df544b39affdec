"""The service's answers as models, and how routes describe themselves in the OpenAPI document."""

from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from veiltab.server.http.problems import MEDIA_TYPE


class Server(BaseModel):
    """Who this server is; compare its fingerprint before you trust it with anything."""

    identity: dict[str, Any]
    rotations: list[dict[str, Any]]
    software: str
    time: int
    versions: list[int]


class Ready(BaseModel):
    """The service works; ``takes_uploads`` is false while its disk is nearly full."""

    status: str
    takes_uploads: bool


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
    """A page of studies that name the sender; ``next`` asks for the following page."""

    studies: list[StudyLine]
    next: str | None


class Block(BaseModel):
    """A party whose proposals the sender does not want, and since when."""

    party: str
    at: int


class Blocks(BaseModel):
    """Whom the sender has blocked."""

    blocks: list[Block]


class NamedParty(BaseModel):
    """Somebody who is named in a study."""

    name: str
    party: str


class CuratorStatus(NamedParty):
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
    researchers: list[NamedParty] | None
    granted: list[str]


class VaultLine(BaseModel):
    """A vault in a list."""

    vault: str
    title: str
    state: str
    role: str
    updated: int


class VaultList(BaseModel):
    """A page of vaults that name the sender; ``next`` asks for the following page."""

    vaults: list[VaultLine]
    next: str | None


class VaultCurator(NamedParty):
    """What a curator has done for a vault; ``upload`` is the digest of its stored table."""

    signed: bool
    uploaded: bool
    upload: str | None


class VaultStatus(BaseModel):
    """Where a vault stands."""

    vault: str
    title: str
    state: str
    reason: str | None
    role: str
    updated: int
    curators: list[VaultCurator]


class Nothing(BaseModel):
    """The request is done, and there is nothing more to say."""


class Secrets(BaseModel):
    """Contributions to the study's secret, sealed by the sender or to the sender."""

    secrets: list[dict[str, Any]]


class Alignments(BaseModel):
    """The curators' signed alignments."""

    alignments: list[dict[str, Any]]


class Chunks(BaseModel):
    """The digests of the chunks that the sender has sent."""

    chunks: list[str]


class Grants(BaseModel):
    """Signed grants that the sender has given or was given."""

    grants: list[dict[str, Any]]


class Publications(BaseModel):
    """Signed publications: by each researcher one at most."""

    publications: list[dict[str, Any]]


class Heads(BaseModel):
    """Signed ends of the log: of each party the longest that it was shown."""

    heads: list[dict[str, Any]]


class AuditLog(BaseModel):
    """Entries of an audit log in order, and the signed head of all of it."""

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


JSON = "application/json"
BYTES = "application/octet-stream"

Responses = dict[int | str, dict[str, Any]]

_PROBLEM = {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}
PROBLEMS: Responses = {
    "4XX": {
        "description": "The request is refused, and nothing was changed.",
        "content": _PROBLEM,
    },
    "5XX": {"description": "The service cannot answer now.", "content": _PROBLEM},
}


class ThreadRoute(APIRoute):
    """A route whose work is done in a thread, and whose answer is written there."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        """Take the function of a route; one that is not a coroutine runs in a thread."""
        work = endpoint if iscoroutinefunction(endpoint) else _in_thread(endpoint)
        super().__init__(path, work, **options)


def _in_thread(work: Callable[..., Any]) -> Callable[..., Any]:
    def answer(**values: Any) -> Any:  # noqa: ANN401 - whatever the route answers
        """Write a long answer here too: in the event loop, everybody would wait for it."""
        found = work(**values)
        if isinstance(found, BaseModel) and "response" not in values:
            return Response(found.model_dump_json(), media_type=JSON)
        return found

    @wraps(work)
    async def run(**values: Any) -> Any:  # noqa: ANN401 - whatever the route answers
        return await run_in_threadpool(answer, **values)

    return run


def repeated(model: type[BaseModel]) -> Responses:
    """Describe the answer to a request that was made before and changes nothing any more."""
    return {200: {"model": model, "description": "It was done before."}}


def body(description: str, media: str = JSON) -> dict[str, Any]:
    """Describe a body that the service reads itself, as the protocol's spec says."""
    schema = {"type": "object"} if media == JSON else {"type": "string", "format": "binary"}
    content = {media: {"schema": schema}}
    return {"requestBody": {"required": True, "description": description, "content": content}}


def bytes_answer(description: str, media: str = JSON) -> Responses:
    """Describe an answer that is not a model: a message of the protocol, or bytes."""
    schema = {"type": "object"} if media == JSON else {"type": "string", "format": "binary"}
    return {200: {"description": description, "content": {media: {"schema": schema}}}, **PROBLEMS}
