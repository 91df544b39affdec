"""How routes are described to people and programs, and how their work is run."""

from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from veiltab.service.models import Problem
from veiltab.service.problems import MEDIA_TYPE

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
    """A route whose work is done in a thread; its answer is written without waiting for another."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        """Take the work of a route, of either kind."""
        work = endpoint if iscoroutinefunction(endpoint) else _in_thread(endpoint)
        super().__init__(path, work, **options)


def _in_thread(work: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(work)
    async def run(**values: Any) -> Any:  # noqa: ANN401 - whatever the route answers
        return await run_in_threadpool(work, **values)

    return run


def repeated(model: type[BaseModel]) -> Responses:
    """Describe the answer to a request that was made before and changes nothing any more."""
    return {200: {"model": model, "description": "It was done before."}}


def body(description: str, media: str = JSON) -> dict[str, Any]:
    """Describe a body, which the service reads by itself, as the protocol's spec says."""
    schema = {"type": "object"} if media == JSON else {"type": "string", "format": "binary"}
    content = {media: {"schema": schema}}
    return {"requestBody": {"required": True, "description": description, "content": content}}


def bytes_answer(description: str, media: str = JSON) -> Responses:
    """Describe an answer that is no model: a message of the protocol, or bytes."""
    schema = {"type": "object"} if media == JSON else {"type": "string", "format": "binary"}
    return {200: {"description": description, "content": {media: {"schema": schema}}}, **PROBLEMS}
