"""Vectors of signed requests: section 3 of the specification of the service."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from vectors.generator.files import Document, case, document, filler
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.sealing import SealingKey
from veiltab.crypto.signing import SigningKey
from veiltab.protocol.curator.agreement import public_identity
from veiltab.wire.bundles import bundle
from veiltab.wire.codec import dump
from veiltab.wire.requests import COMPONENTS, content_digest

NOW = 1_790_000_000
STUDY = filler("requests: study").hex()
CHUNKS = [(hashlib.sha256(chunk).digest(), chunk) for chunk in (bytes(range(9)), b"\xff" * 3)]

Headers = list[list[str]]


def party(name: str) -> PrivateIdentity:
    """Return a party whose keys everybody knows."""
    signing = SigningKey(filler(f"requests: {name} signs"))
    return PrivateIdentity(name, signing, SealingKey(filler(f"requests: {name} opens", 96)))


SENDER, OTHER, SERVER, ELSEWHERE = map(party, ("sender", "other", "server", "elsewhere"))


@dataclass(frozen=True)
class Draft:
    """A request before it is signed: every part of its headers as text, right or wrong."""

    method: str = "POST"
    path: str = f"/v1/studies/{STUDY}/abort"
    query: str = ""
    body: bytes = dump({"reason": "the table was wrong"})
    created: str = str(NOW)
    nonce: str = base64.urlsafe_b64encode(filler("requests: nonce", 16)).decode().rstrip("=")
    keyid: str = SENDER.party_id.hex()
    server: str = SERVER.party_id.hex()
    digest: str | None = None
    components: Sequence[str] = COMPONENTS
    listed: str | None = None
    parameters: str = (
        'created={created};nonce="{nonce}";keyid="{keyid}";alg="ed25519";tag="veiltab"'
    )
    label: str = "veiltab"
    signer: PrivateIdentity = SENDER

    @property
    def content_digest(self) -> str:
        """The header ``Content-Digest``."""
        return content_digest(self.body) if self.digest is None else self.digest

    @property
    def signature_parameters(self) -> str:
        """What follows the label in ``Signature-Input``."""
        names = " ".join(f'"{name}"' for name in self.components)
        found = vars(self)
        values = {name: found[name] for name in ("created", "nonce", "keyid")}
        return f"{self.listed or f'({names})'};{self.parameters.format(**values)}"

    @property
    def base(self) -> str:
        """The signature base, of whatever components there are."""
        values = {
            "@method": self.method,
            "@path": self.path,
            "@query": f"?{self.query}",
            "@authority": "stats.example.org",
            "content-digest": self.content_digest,
            "veiltab-server": self.server,
        }
        lines = [f'"{name}": {values[name]}' for name in self.components]
        return "\n".join([*lines, f'"@signature-params": {self.signature_parameters}'])

    @property
    def signature(self) -> str:
        """The signature in base64."""
        return base64.b64encode(self.signer.signing.sign(self.base.encode())).decode()

    def headers(self) -> Headers:
        """Return the four headers, signed."""
        return [
            ["Content-Digest", self.content_digest],
            ["Veiltab-Server", self.server],
            ["Signature-Input", f"{self.label}={self.signature_parameters}"],
            ["Signature", f"{self.label}=:{self.signature}:"],
        ]

    def sent(self, headers: Headers | None = None) -> dict[str, Any]:
        """Return the request as it arrives."""
        return {
            "method": self.method,
            "path": self.path,
            "query": self.query,
            "headers": self.headers() if headers is None else headers,
            "body": self.body.hex(),
        }


GOOD = Draft()


def requests() -> Document:
    """Section 3: what is signed, and the four headers."""
    drafts = {
        "a reason to abort, the example of section 3.3": GOOD,
        "nothing to send": replace(GOOD, method="GET", path="/v1/studies", body=b""),
        "two chunks": replace(
            GOOD, method="PUT", path=f"/v1/studies/{STUDY}/chunks", body=bundle(CHUNKS)
        ),
        "a question for chunks": replace(
            GOOD,
            path=f"/v1/studies/{STUDY}/release/chunks",
            body=dump({"chunks": [digest.hex() for digest, _ in CHUNKS]}),
        ),
        "a query": replace(GOOD, method="GET", path="/v1/studies", query="a=%C3%A9&b", body=b""),
        "a percent-encoded path": replace(GOOD, method="GET", path="/v1/%73tudies", body=b""),
        "a nonce of ones": replace(GOOD, nonce=nonce_text(b"\xff" * 16)),
        "a registration": registration(),
    }
    cases = [
        case(
            name,
            {"base": draft.base, "headers": dict(draft.headers())},
            signing_seed=draft.signer.signing.secret_bytes().hex(),
            party=draft.keyid,
            server=draft.server,
            method=draft.method,
            path=draft.path,
            query=draft.query,
            body=draft.body.hex(),
            created=int(draft.created),
            nonce=base64.urlsafe_b64decode(f"{draft.nonce}==").hex(),
        )
        for name, draft in drafts.items()
    ]
    return document(
        "Service, section 3. A request, the party that signs it with `signing_seed`, and the"
        " server that it is for, give the signature base and the headers.",
        cases,
    )


def registration() -> Draft:
    """Return how somebody who is not known yet asks to be registered."""
    code = filler("requests: invitation", 20).hex()
    identity = public_identity(ELSEWHERE).to_json()
    keys = {"identity": identity, "rotations": [], "sealing_key": identity["sealing_key"]}
    body = dump({**keys, "invitation": code})
    keyid = ELSEWHERE.party_id.hex()
    return replace(GOOD, path="/v1/parties", body=body, keyid=keyid, signer=ELSEWHERE)


def nonce_text(data: bytes) -> str:
    """Write a nonce as a header has it."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
