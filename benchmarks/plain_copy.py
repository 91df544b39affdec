"""A plain file copy over HTTP: the least that moving bytes between processes takes.

``python -m benchmarks.plain_copy FOLDER`` serves a folder on a free port, and prints its address:
``PUT /{name}`` streams the body into a file and waits for the disk, ``GET /{name}`` sends a file.
"""

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

PIECE_BYTES = 2**16


def plain_app(folder: Path) -> Starlette:
    """Return an application that takes files into a folder, and hands them out."""

    async def put(request: Request) -> Response:
        with (folder / request.path_params["name"]).open("wb") as file:
            async for part in request.stream():
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        return Response(status_code=201)

    async def get(request: Request) -> Response:
        return FileResponse(folder / request.path_params["name"])

    return Starlette(routes=[Route("/{name}", put, methods=["PUT"]), Route("/{name}", get)])


def upload(client: httpx.Client, source: Path, name: str) -> None:
    """Send a file."""

    def pieces() -> Iterator[bytes]:
        with source.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece

    headers = {"Content-Length": str(source.stat().st_size)}
    client.put(f"/{name}", content=pieces(), headers=headers).raise_for_status()


def download(client: httpx.Client, name: str, target: Path) -> None:
    """Fetch a file."""
    with client.stream("GET", f"/{name}") as answer, target.open("wb") as file:
        for piece in answer.raise_for_status().iter_bytes():
            file.write(piece)


def main() -> None:
    """Serve until the process is ended."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        config = uvicorn.Config(plain_app(Path(sys.argv[1])), log_config=None, access_log=False)
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
