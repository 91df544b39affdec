"""The routes of the service as a table, and for each of them a request that is well made."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from tests.support.http_studies import HttpStudy
from tests.support.requests import Request, Signer
from veiltab.crypto.identity import PrivateIdentity
from veiltab.party.context import PartyContext
from veiltab.protocol.curator.agreement import public_identity, share_secret
from veiltab.protocol.verify import sign
from veiltab.server.routes import PUBLIC
from veiltab.wire.bundles import bundle
from veiltab.wire.codec import dump
from veiltab.wire.messages import Alignment, Grant, SignedGrant

Route = tuple[str, str]
"""A method and a path with its parameters in braces."""

NAMED: frozenset[Route] = frozenset(
    {
        ("GET", "/v1/studies/{study}"),
        ("GET", "/v1/studies/{study}/contract"),
        ("GET", "/v1/studies/{study}/audit"),
        ("GET", "/v1/studies/{study}/grants"),
    }
)
"""What everybody whom a study names may ask."""

CURATORS: frozenset[Route] = frozenset(
    {
        ("POST", "/v1/studies/{study}/signatures"),
        ("POST", "/v1/studies/{study}/abort"),
        ("POST", "/v1/studies/{study}/secrets"),
        ("GET", "/v1/studies/{study}/secret"),
        ("POST", "/v1/studies/{study}/alignments"),
        ("GET", "/v1/studies/{study}/alignments"),
        ("GET", "/v1/studies/{study}/chunks"),
        ("PUT", "/v1/studies/{study}/chunks"),
        ("POST", "/v1/studies/{study}/uploads"),
        ("POST", "/v1/studies/{study}/grants"),
    }
)
"""What only curators may do."""

RELEASED: frozenset[Route] = frozenset(
    {
        ("GET", "/v1/studies/{study}/release"),
        ("POST", "/v1/studies/{study}/release/chunks"),
    }
)
"""What a researcher needs a grant for."""

OUTSIDE: frozenset[Route] = frozenset(
    {("POST", "/v1/parties"), ("GET", "/v1/studies"), ("POST", "/v1/studies")}
)
"""Signed routes of no study in particular."""


def routes_of(app: FastAPI) -> Iterator[Route]:
    """Yield every route of an app, whoever has added it."""
    for found in iter_route_contexts(app.routes):
        assert found.path is not None, "a mount or a web socket has no place here"
        for method in sorted(found.methods or ()):
            yield method, found.path


def gated_routes(app: FastAPI) -> list[Route]:
    """Return the routes that must refuse whoever is not known."""
    return [route for route in routes_of(app) if route[1] not in PUBLIC]


@dataclass(frozen=True, eq=False)
class Calls:
    """Well-made requests of somebody, in a study that is prepared, or as if it were.

    ``scope`` stands for the study's id everywhere; so requests about a study that does not exist
    differ in nothing else.
    """

    example: HttpStudy
    sender: PrivateIdentity
    scope: bytes
    invitation: str = "an invitation"

    def request(self, route: Route) -> Request:
        """Return a request to a route; one that is not known here has no body."""
        method, template = route
        path = template.format(study=self.scope.hex())
        if method == "PUT":
            return Request(method, path, bundle(list(self.example.chunks(0).items())))
        body = self._bodies().get(template) if method == "POST" else None
        return Request(method, path, body() if body else b"")

    def _bodies(self) -> dict[str, Callable[[], bytes]]:
        study = "/v1/studies/{study}"
        return {
            "/v1/parties": self._registration,
            "/v1/studies": self._contract,
            f"{study}/signatures": self._contract,
            f"{study}/abort": lambda: dump({"reason": "no reason"}),
            f"{study}/secrets": self._secret,
            f"{study}/alignments": self._alignment,
            f"{study}/uploads": self._upload,
            f"{study}/grants": self._grant,
            f"{study}/release/chunks": self._digests,
        }

    def _digests(self) -> bytes:
        return asked(self.example.chunks(0))

    def _registration(self) -> bytes:
        identity = public_identity(self.sender).to_json()
        return dump({"identity": identity, "invitation": self.invitation})

    def _contract(self) -> bytes:
        return self.example.contract.dumps()

    def _secret(self) -> bytes:
        study = self.example
        first, second = (session.identity for session in study.curators[:2])
        secret = study.curators[0].home.study(study.study).secret()
        assert secret is not None
        message = share_secret(study.contract.body, first, secret, second.party_id)
        return self._own(replace(message.body, sender=self.sender.party_id, scope=self.scope))

    def _alignment(self) -> bytes:
        me = self.sender.party_id
        return self._own(Alignment(curator=me, digest=bytes(32), population=40, study=self.scope))

    def _upload(self) -> bytes:
        body = self.example.uploads[0].body
        return self._own(replace(body, curator=self.sender.party_id, scope=self.scope))

    def _grant(self) -> bytes:
        body = Grant(
            attributes=("smoker",),
            curator=self.sender.party_id,
            expires=2**40,
            grant_id=bytes(16),
            pads="stream",
            researcher=self.example.researcher.identity.party_id,
            sealed_digest=bytes(32),
            study=self.scope,
            upload_digest=bytes(32),
        )
        return SignedGrant(sign(body, self.sender.signing), b"sealed").dumps()

    def _own(self, body: Any) -> bytes:  # noqa: ANN401 - one of the protocol's messages
        return sign(body, self.sender.signing).dumps()


def asked(digests: Iterable[bytes]) -> bytes:
    """Return the body of a question for released chunks."""
    return dump({"chunks": [digest.hex() for digest in digests]})


def signer_of(session: PartyContext) -> Signer:
    """Return how a party signs for its server."""
    return Signer(session.identity, session.server.pinned.party_id)
