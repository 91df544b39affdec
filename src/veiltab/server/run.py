"""Running the service: a socket, TLS if there is a certificate, and an orderly end."""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from uvicorn.config import Config

from veiltab.errors import ParameterError
from veiltab.server.app import create_app
from veiltab.server.context import ServiceContext

BACKLOG = 512
MOST_CONNECTIONS = 500
"""At once; further clients are told to come back later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen; with a certificate and its key, over TLS.  Port 0 takes any free one.

    With ``behind_proxy``, the service believes what a proxy on this machine says about a client's
    address.  Without a proxy, clients could invent addresses, and have a rate limit for each.
    """

    host: str = "127.0.0.1"
    port: int = 8750
    certificate: Path | None = None
    certificate_key: Path | None = None
    behind_proxy: bool = False

    def __post_init__(self) -> None:
        """Refuse half of a certificate."""
        if (self.certificate is None) != (self.certificate_key is None):
            raise ParameterError(
                "TLS needs a certificate and its key", hint="give both --tls-cert and --tls-key"
            )

    @property
    def scheme(self) -> str:
        """How the service is reached."""
        return "http" if self.certificate is None else "https"


class _Server(uvicorn.Server):
    """Calls ``ready`` after start-up, with its socket open."""

    def __init__(self, config: Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def serve(context: ServiceContext, address: Address, ready: Callable[[str], None]) -> None:
    """Serve until the process is told to stop; ``ready`` is called with the URL once it can.

    SIGTERM and SIGINT let running requests finish.  The data directory is locked meanwhile.
    """
    with _listen(address) as listening, context.folders.lock():
        host, port = listening.getsockname()[:2]
        url = f"{address.scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        server = _Server(_configure(context, address), lambda: ready(url))
        server.run(sockets=[listening])


def _configure(context: ServiceContext, address: Address) -> Config:
    """Do everything that can fail before the service starts."""
    config = Config(
        create_app(context),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=address.behind_proxy,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=context.settings.shutdown_seconds,
        timeout_keep_alive=75,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.certificate_key,
    )
    try:
        config.load()
    except OSError as error:  # errors of TLS are among these
        raise ParameterError(
            f"the certificate or its key cannot be used: {error.strerror or error}",
            hint="give --tls-cert a chain and --tls-key its key, readable and in PEM form",
        ) from error
    return config


def _listen(address: Address) -> socket.socket:
    """Open the socket first, so that a port that is taken is found before anything starts."""
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server(
            (address.host, address.port), family=family, backlog=BACKLOG, reuse_port=False
        )
        # Connections inherit it.  Without, each answer's body waits for the client to acknowledge
        # its headers, which many do 40 ms later.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise ParameterError(
            f"cannot listen on {address.host} port {address.port}: {error.strerror or error}",
            hint="choose another --port or --host; 127.0.0.1 is this machine alone",
        ) from error
    return listening
