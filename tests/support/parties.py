"""A client of a made-up server: identities, and how tests connect the one to the other."""

from typing import Any

import httpx

from tests.support.http_scripts import FakeTime
from tests.support.messages import SERVER
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.party.remote import Reach, RemoteServer, Retry

PINNED = SERVER
ME = PrivateIdentity.create("Krankenhaus Süd", CipherEntropy.from_seed(1, "the party"))


def client(url: str, time: FakeTime, **options: Any) -> RemoteServer:
    """Connect to a server in fake time, without chance."""
    retry = Retry(sleep=time.sleep, clock=time.clock, jitter=lambda: 1.0)
    settings: dict[str, Any] = {
        "entropy": CipherEntropy.from_seed(2, "nonces"),
        "clock": time.clock,
        "retry": retry,
    }
    return RemoteServer(url, PINNED, ME, **settings | options)


def mocked(handler: Any, time: FakeTime | None = None, **options: Any) -> RemoteServer:  # noqa: ANN401
    """Connect to a function instead of a server."""
    reach = Reach(transport=httpx.MockTransport(handler))
    return client("https://stats.example.org", time or FakeTime(), reach=reach, **options)
