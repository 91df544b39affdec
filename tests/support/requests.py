"""Signed requests: the good ones of every route, and forgeries of them."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import httpx
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from tests.support.http_simulator import HttpStudy
from veiltab.crypto.entropy import CipherEntropy, SystemEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.party.context import PartyContext
from veiltab.party.evidence import examine
from veiltab.protocol.curator.agreement import public_identity, share_secret
from veiltab.protocol.rotating import revoke, rotate
from veiltab.protocol.verify import sign
from veiltab.server.http.routes import PUBLIC
from veiltab.wire.audit import Witness
from veiltab.wire.bundles import bundle
from veiltab.wire.codec import dump
from veiltab.wire.contract import Vault
from veiltab.wire.messages import (
    Alignment,
    Grant,
    GrantRevocation,
    Publication,
    Repad,
    SignedGrant,
)
from veiltab.wire.requests import (
    CONTENT_DIGEST_HEADER,
    MAX_SKEW_SECONDS,
    NONCE_BYTES,
    SERVER_HEADER,
    SIGNATURE_HEADER,
    SIGNATURE_INPUT_HEADER,
    RequestSignature,
    SignedParts,
    content_digest,
    signature_base,
    signature_headers,
)

HEADERS = (CONTENT_DIGEST_HEADER, SERVER_HEADER, SIGNATURE_INPUT_HEADER, SIGNATURE_HEADER)
MARGIN = 60
"""Seconds by which tests stay away from the limit of what is too old."""

_numbers = count(1)


@dataclass(frozen=True)
class Request:
    """A request exactly as it is sent; a header may come twice."""

    method: str
    path: str
    body: bytes = b""
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()

    def header(self, name: str) -> str:
        """Return the value of a header."""
        return dict(self.headers)[name]

    def with_header(self, name: str, value: str) -> "Request":
        """Return the request with another value of a header."""
        changed = tuple((key, value if key == name else old) for key, old in self.headers)
        return replace(self, headers=changed)

    def send(self, client: httpx.Client) -> httpx.Response:
        """Send the request; the client's base URL says where to."""
        target = self.path + (f"?{self.query}" if self.query else "")
        url = client.base_url.copy_with(raw_path=target.encode("ascii"))
        return client.send(
            httpx.Request(self.method, url, headers=list(self.headers), content=self.body)
        )


@dataclass(frozen=True)
class Signer:
    """A party that signs requests for one server; ``party`` is who it says that it is."""

    identity: PrivateIdentity
    server: bytes
    party: bytes | None = None

    def sign(
        self,
        request: Request,
        *,
        age: float = 0.0,
        now: float | None = None,
        nonce: bytes | None = None,
    ) -> Request:
        """Return a request with the four headers, of a time ``age`` seconds before now."""
        parts = SignedParts(
            request.method,
            request.path,
            request.query,
            content_digest(request.body),
            self.server.hex(),
        )
        created = int((time.time() if now is None else now) - age)
        fresh = nonce or next(_numbers).to_bytes(NONCE_BYTES, "big")
        party = self.party or self.identity.party_id
        signature = self.identity.signing.sign(signature_base(parts, created, fresh, party))
        headers = signature_headers(parts, RequestSignature(created, fresh, party, signature))
        return replace(request, headers=(*request.headers, *headers.items()))


def stranger(server: bytes) -> Signer:
    """Return somebody whom no server knows."""
    entropy = CipherEntropy.from_seed(7, "a stranger")
    return Signer(PrivateIdentity.create("stranger", entropy), server)


def forgeries(
    plain: Request, signer: Signer, other: Signer, spoiled: bytes | None = None
) -> Iterator[tuple[str, Request]]:
    """Yield requests that a gate must refuse, each with the way in which it is wrong.

    ``signer`` could send ``plain``; ``other`` is another registered party.  ``spoiled`` is the
    body with a change in it.
    """
    yield "unsigned", plain
    yield from _changed_content(plain, signer, spoiled or plain.body + b" ")
    yield from _changed_headers(signer.sign(plain), other)
    yield from _changed_parameters(plain, signer, other)
    for name in HEADERS:
        made = signer.sign(plain)
        without = tuple(each for each in made.headers if each[0] != name)
        yield f"{name} is missing", replace(made, headers=without)
        twice = (*signer.sign(plain).headers, (name, made.header(name)))
        yield f"{name} comes twice", replace(plain, headers=twice)
        merged = made.with_header(name, f"{made.header(name)}, {made.header(name)}")
        yield f"{name} has two values", merged
    yield "too old", signer.sign(plain, age=MAX_SKEW_SECONDS + MARGIN)
    yield "of the future", signer.sign(plain, age=-MAX_SKEW_SECONDS - MARGIN)
    elsewhere = replace(signer, server=bytes(31) + b"\x01")
    yield "for another server", elsewhere.sign(plain)
    yield "by another's key", replace(other, party=signer.identity.party_id).sign(plain)


def _changed_content(
    plain: Request, signer: Signer, spoiled: bytes
) -> Iterator[tuple[str, Request]]:
    """Yield requests that were changed on the way."""
    method = "POST" if plain.method == "GET" else "GET"
    changes: dict[str, Request] = {
        "another method": replace(plain, method=method),
        "another path": replace(plain, path=f"{plain.path}/x"),
        "the path percent-encoded": replace(plain, path=plain.path.replace("v1", "%761")),
        "a query": replace(plain, query="a=b"),
        "another body": replace(plain, body=spoiled),
    }
    for name, signed in changes.items():
        yield f"{name} was signed", replace(plain, headers=signer.sign(signed).headers)
    yield "a query was added", replace(signer.sign(plain), query="a=b")
    yield "the body was changed", replace(signer.sign(plain), body=spoiled)
    redigested = signer.sign(plain).with_header(CONTENT_DIGEST_HEADER, content_digest(spoiled))
    yield "the body and its digest were changed", replace(redigested, body=spoiled)


def _changed_headers(made: Request, other: Signer) -> Iterator[tuple[str, Request]]:
    value = made.header(SIGNATURE_HEADER)
    last = "B" if value[-5] != "B" else "C"
    changes = {
        CONTENT_DIGEST_HEADER: [content_digest(b"else"), "sha-512=:AAAA:", "-", "sha-256=::"],
        SERVER_HEADER: [
            other.identity.party_id.hex(),
            "0" * 64,
            made.header(SERVER_HEADER).upper(),
        ],
        SIGNATURE_HEADER: [
            f"veiltab=:{'A' * 86}==:",
            value[:-5] + last + value[-4:],
            value.replace("veiltab", "sig1"),
            "veiltab=::",
        ],
    }
    for name, values in changes.items():
        for changed in values:
            yield f"{name} was changed to {changed[:20]}", made.with_header(name, changed)


def _changed_parameters(
    plain: Request, signer: Signer, other: Signer
) -> Iterator[tuple[str, Request]]:
    """Yield requests with another Signature-Input than the one that was signed."""
    nonce = bytes(15) + b"\xfe"
    made = signer.sign(plain, nonce=nonce)
    parameters = made.header(SIGNATURE_INPUT_HEADER)
    created = parameters.partition("created=")[2].partition(";")[0]
    party = signer.identity.party_id.hex()
    changes = {
        "created": (f"created={created}", f"created={int(created) - 1}"),
        "nonce": ("AAAA_g", "AAAA_w"),
        "keyid": (party, other.identity.party_id.hex()),
        "keyid in capitals": (f'"{party}"', f'"{party.upper()}"'),
        "alg": ('alg="ed25519"', 'alg="rsa-v1_5-sha256"'),
        "alg left out": (';alg="ed25519"', ""),
        "tag": ('tag="veiltab"', 'tag="other"'),
        "tag left out": (';tag="veiltab"', ""),
        "label": ("veiltab=(", "sig1=("),
        "fewer components": (' "content-digest"', ""),
        "another order": ('"@method" "@path"', '"@path" "@method"'),
        "another component": ('"veiltab-server")', '"veiltab-server" "date")'),
        "expires": (";nonce", f";expires={int(created) + 9};nonce"),
    }
    for name, (old, new) in changes.items():
        changed = parameters.replace(old, new)
        assert changed != parameters, name
        yield f"{name} was changed", made.with_header(SIGNATURE_INPUT_HEADER, changed)


Route = tuple[str, str]
"""A method and a path with its parameters in braces."""

NAMED: frozenset[Route] = frozenset(
    {
        ("GET", "/v1/studies/{study}"),
        ("GET", "/v1/studies/{study}/contract"),
        ("GET", "/v1/studies/{study}/audit"),
        ("GET", "/v1/studies/{study}/heads"),
        ("POST", "/v1/studies/{study}/heads"),
        ("GET", "/v1/studies/{study}/grants"),
        ("GET", "/v1/studies/{study}/grants/{digest}"),
        ("GET", "/v1/studies/{study}/revocations/{digest}"),
        ("GET", "/v1/studies/{study}/publications"),
    }
)
"""What everybody whom a study names may ask."""

CURATORS: frozenset[Route] = frozenset(
    {
        ("POST", "/v1/studies/{study}/signatures"),
        ("POST", "/v1/studies/{study}/abort"),
        ("POST", "/v1/studies/{study}/secrets"),
        ("GET", "/v1/studies/{study}/secrets"),
        ("POST", "/v1/studies/{study}/alignments"),
        ("GET", "/v1/studies/{study}/alignments"),
        ("GET", "/v1/studies/{study}/chunks"),
        ("PUT", "/v1/studies/{study}/chunks"),
        ("POST", "/v1/studies/{study}/uploads"),
        ("GET", "/v1/studies/{study}/repad-request"),
        ("POST", "/v1/studies/{study}/repad-request/chunks"),
        ("POST", "/v1/studies/{study}/repads"),
        ("POST", "/v1/studies/{study}/grants"),
        ("POST", "/v1/studies/{study}/revocations"),
    }
)
"""What only curators may do."""

VAULTS: frozenset[Route] = frozenset(
    {
        ("GET", "/v1/vaults/{vault}"),
        ("GET", "/v1/vaults/{vault}/terms"),
        ("POST", "/v1/vaults/{vault}/signatures"),
        ("POST", "/v1/vaults/{vault}/close"),
        ("GET", "/v1/vaults/{vault}/audit"),
        ("POST", "/v1/vaults/{vault}/secrets"),
        ("GET", "/v1/vaults/{vault}/secrets"),
        ("GET", "/v1/vaults/{vault}/chunks"),
        ("PUT", "/v1/vaults/{vault}/chunks"),
        ("POST", "/v1/vaults/{vault}/uploads"),
    }
)
"""What only the curators of a vault may do."""

RELEASED: frozenset[Route] = frozenset(
    {
        ("GET", "/v1/studies/{study}/release"),
        ("POST", "/v1/studies/{study}/release/chunks"),
        ("POST", "/v1/studies/{study}/publications"),
    }
)
"""What a researcher needs a grant for."""

OUTSIDE: frozenset[Route] = frozenset(
    {
        ("POST", "/v1/parties"),
        ("GET", "/v1/parties/{party}"),
        ("GET", "/v1/studies"),
        ("POST", "/v1/studies"),
        ("GET", "/v1/blocks"),
        ("PUT", "/v1/blocks/{party}"),
        ("DELETE", "/v1/blocks/{party}"),
        ("GET", "/v1/vaults"),
        ("POST", "/v1/vaults"),
    }
)
"""Signed routes of no study or vault in particular."""

KEYS: frozenset[Route] = frozenset(
    {("POST", "/v1/parties/rotations"), ("POST", "/v1/parties/revocations")}
)
"""Routes whose body is signed, and not the request."""

GATED = sorted(NAMED | CURATORS | VAULTS | RELEASED | OUTSIDE | KEYS)
"""Every route that takes what somebody known has signed."""


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
        scope = self.scope.hex()
        party = self.sender.party_id.hex()
        path = template.format(study=scope, vault=scope, party=party, digest=party)
        if template.endswith("/chunks") and method == "PUT":
            return Request(method, path, bundle(list(self.example.chunks(0).items())))
        body = self._bodies().get(template) if method == "POST" else None
        return Request(method, path, body() if body else b"")

    def _bodies(self) -> dict[str, Callable[[], bytes]]:
        study, vault = "/v1/studies/{study}", "/v1/vaults/{vault}"
        return {
            "/v1/parties": self._registration,
            "/v1/parties/rotations": self._rotation,
            "/v1/parties/revocations": self._revocation,
            "/v1/studies": self._contract,
            f"{study}/signatures": self._contract,
            f"{study}/abort": lambda: dump({"reason": "no reason"}),
            f"{study}/secrets": self._secret,
            f"{study}/alignments": self._alignment,
            f"{study}/uploads": self._upload,
            f"{study}/grants": self._grant,
            f"{study}/revocations": self._grant_revocation,
            f"{study}/release/chunks": self._digests,
            f"{study}/publications": self._publication,
            f"{study}/heads": self._witness,
            f"{study}/repad-request/chunks": self._digests,
            f"{study}/repads": self._repad,
            "/v1/vaults": self._vault,
            f"{vault}/signatures": self._vault,
            f"{vault}/close": lambda: dump({"reason": "no reason"}),
            f"{vault}/secrets": self._secret,
            f"{vault}/uploads": self._upload,
        }

    def _digests(self) -> bytes:
        return asked(self.example.chunks(0))

    def _registration(self) -> bytes:
        identity = public_identity(self.sender).to_json()
        keys = {"identity": identity, "rotations": [], "sealing_key": identity["sealing_key"]}
        return dump({**keys, "invitation": self.invitation})

    def _rotation(self) -> bytes:
        """Return new keys of somebody who is not known: the sender keeps its own."""
        new = rotate(PrivateIdentity.create("nobody", SystemEntropy()), SystemEntropy(), 1)
        rotation = new.signing.proof[0].to_json()
        return dump({"rotation": rotation, "sealing_key": new.sealing.public.hex()})

    def _revocation(self) -> bytes:
        return revoke(PrivateIdentity.create("nobody", SystemEntropy()), 1, "lost").dumps()

    def _grant_revocation(self) -> bytes:
        body = GrantRevocation(
            curator=self.sender.party_id,
            grant_id=bytes(16),
            researcher=self.example.researcher.identity.party_id,
            study=self.scope,
        )
        return self._own(body)

    def _contract(self) -> bytes:
        return self.example.contract.dumps()

    def _secret(self) -> bytes:
        study = self.example
        first, second = (session.identity for session in study.curators[:2])
        contribution = study.curators[0].home.study(study.study).contribution()
        assert contribution is not None
        message = share_secret(study.contract.body, first, contribution, second.party_id)
        return self._own(replace(message.body, sender=self.sender.party_id, scope=self.scope))

    def _alignment(self) -> bytes:
        body = Alignment(
            attempt=1,
            curator=self.sender.party_id,
            decoys=None,
            digest=bytes(32),
            population=40,
            study=self.scope,
        )
        return self._own(body)

    def _upload(self) -> bytes:
        body = self.example.uploads[0].body
        return self._own(replace(body, curator=self.sender.party_id, scope=self.scope))

    def _repad(self) -> bytes:
        upload = self.example.uploads[0].body
        body = Repad(
            columns=upload.columns,
            curator=self.sender.party_id,
            request_digest=bytes(32),
            rows=upload.rows,
            study=self.scope,
            upload_id=upload.upload_id,
        )
        return self._own(body)

    def _vault(self) -> bytes:
        """Return a vault of the study's parties, which is not there and is never stored."""
        contract = self.example.contract.body
        body = Vault(
            title=contract.title,
            nonce=contract.nonce,
            curators=contract.curators,
            server=contract.server,
            linkage=replace(contract.linkage, mode="matched"),
            secret_commitment=contract.secret_commitment,
        )
        return self._own(body)

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

    def _publication(self) -> bytes:
        entries = examine(self.example.curators[0], self.example.study).entries
        released = [entry.message for entry in entries if entry.event == "released"]
        body = Publication(
            attributes=("smoker",),
            counts=bytes(32),
            epsilon=1.0,
            release=(released[0] if released else None) or bytes(32),
            researcher=self.sender.party_id,
            study=self.scope,
        )
        return self._own(body)

    def _witness(self) -> bytes:
        head = examine(self.example.curators[0], self.example.study).head
        return self._own(Witness(head=head, party=self.sender.party_id))

    def _own(self, body: Any) -> bytes:  # noqa: ANN401 - one of the protocol's messages
        return sign(body, self.sender.signing).dumps()


def asked(digests: Iterable[bytes]) -> bytes:
    """Return the body of a question for released chunks."""
    return dump({"chunks": [digest.hex() for digest in digests]})


def signer_of(session: PartyContext) -> Signer:
    """Return how a party signs for its server."""
    return Signer(session.identity, session.server.pinned.party_id)
