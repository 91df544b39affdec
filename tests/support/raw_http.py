"""Requests by hand on a socket: half of them, too long, too slow, or with lies in them."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlsplit

from tests.support.requests import Request


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> Any:  # noqa: ANN401 - JSON
        """The stable code of a problem document."""
        return json.loads(self.body)["code"]


class Wire:
    """One connection to a service."""

    def __init__(self, opened: socket.socket) -> None:
        """Take a socket that is connected."""
        self._socket = opened

    def begin(self, request: Request, **headers: str) -> None:
        """Send the head of a request, and nothing of its body."""
        target = request.path + (f"?{request.query}" if request.query else "")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{request.method} {target} HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in (*request.headers, *named.items())]
        self.send("\r\n".join([*lines, "", ""]).encode("ascii"))

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def send_part(self, data: bytes) -> None:
        """Send a part of a body whose length nobody has announced."""
        self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def answer(self) -> Answer:
        """Wait for an answer; the test fails if it takes long."""
        found = HTTPResponse(self._socket)
        found.begin()
        body = found.read()
        return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, body)


@contextmanager
def wire(url: str, seconds: float = 10.0) -> Iterator[Wire]:
    """Connect to a service until the block ends."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    with socket.create_connection((parts.hostname, parts.port or 80), seconds) as opened:
        yield Wire(opened)
