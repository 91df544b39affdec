"""A made-up server: the answers it gives, and a party that is connected to it."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import httpx

from tests.support import messages
from tests.support.http_wire import FakeTime
from tests.support.messages import SERVER, filler, signed
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.signing import verify
from veiltab.party.remote import Reach, RemoteServer, Retry
from veiltab.protocol.audit_log import next_entry
from veiltab.wire.audit import AuditHead, entry_hash
from veiltab.wire.messages import Publication
from veiltab.wire.requests import (
    SignedParts,
    content_digest,
    parse_signature,
    signature_base,
)

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
    server = RemoteServer(url, PINNED, ME, **settings | options)
    server._met = True  # it was asked who it is: these tests count the requests that follow
    return server


def mocked(handler: Any, time: FakeTime | None = None, **options: Any) -> RemoteServer:  # noqa: ANN401
    """Connect to a function instead of a server."""
    reach = Reach(transport=httpx.MockTransport(handler))
    return client("https://stats.example.org", time or FakeTime(), reach=reach, **options)


CONTRACT = signed(messages.contract())
STUDY: bytes = CONTRACT.body.study_id
OTHER = filler("another study")
CHUNK = b"a chunk"
DIGEST = hashlib.sha256(CHUNK).digest()
BASE = f"/v1/studies/{STUDY.hex()}"

SUMMARY = {
    "study": STUDY.hex(),
    "title": "Smoking and income",
    "state": "open",
    "role": "curator",
    "updated": 1_700_000_000,
}
STATUS = SUMMARY | {
    "reason": None,
    "curators": [
        {
            "name": "Tax office",
            "party": filler("party").hex(),
            "signed": True,
            "aligned": False,
            "uploaded": False,
        }
    ],
    "researchers": [{"name": "Dr. 王", "party": filler("doctor").hex()}],
    "granted": ["smoker"],
    "added later": True,
}


def of_study(build: Callable[..., Any], key: str = "study", study: bytes = STUDY) -> Any:  # noqa: ANN401
    """Build a signed message of the study."""
    return signed(build(**{key: study}))


SECRET = of_study(messages.secret, "scope")
ALIGNMENT = of_study(messages.alignment)
UPLOAD = of_study(messages.upload, "scope")
RELEASE = of_study(messages.release)
GRANT = of_study(messages.grant)
PUBLICATION = signed(
    Publication(
        attributes=("smoker", "income"),
        counts=filler("published counts"),
        epsilon=0.5,
        release=filler("release"),
        researcher=messages.RESEARCHER.party_id,
        study=STUDY,
    )
)
ENTRY = next_entry(
    None, STUDY, at=1, actor=filler("actor"), event="proposed", message=None, state="proposed"
)
HEAD = signed(AuditHead(at=2, hash=entry_hash(ENTRY), length=1, study=STUDY))
AUDIT = {"entries": [ENTRY.to_json()], "head": HEAD.to_json()}


def answering(
    body: bytes | dict[str, Any], status: int = 200
) -> tuple[RemoteServer, list[httpx.Request]]:
    """Connect to a server that gives one answer to everything; return its requests too."""
    seen: list[httpx.Request] = []
    content = json.dumps(body).encode() if isinstance(body, dict) else body

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        check_signature(request)
        return httpx.Response(status, content=content)

    return mocked(handler), seen


def check_signature(request: httpx.Request) -> None:
    """Verify a request as the service does: every byte of it is signed for this server."""
    parts = SignedParts(
        request.method,
        request.url.raw_path.decode(),
        "",
        request.headers["Content-Digest"],
        request.headers["Veiltab-Server"],
    )
    assert parts.content_digest == content_digest(request.content)
    assert parts.server == PINNED.party_id.hex()
    found = parse_signature(request.headers["Signature-Input"], request.headers["Signature"])
    assert found.party == ME.party_id
    assert found.created == 1_700_000_000
    base = signature_base(parts, found.created, found.nonce, found.party)
    verify(ME.signing.public, base, found.signature)


Call = Callable[[RemoteServer], Any]
GETS: dict[str, tuple[Call, bytes | dict[str, Any], str]] = {
    "status": (lambda s: s.status(STUDY), STATUS, BASE),
    "contract": (lambda s: s.contract(STUDY), CONTRACT.dumps(), f"{BASE}/contract"),
    "secrets": (
        lambda s: s.secrets(STUDY),
        {"secrets": [SECRET.to_json()]},
        f"{BASE}/secrets",
    ),
    "alignments": (
        lambda s: s.alignments(STUDY),
        {"alignments": [ALIGNMENT.to_json()]},
        f"{BASE}/alignments",
    ),
    "release": (lambda s: s.release(STUDY), RELEASE.dumps(), f"{BASE}/release"),
    "grants": (lambda s: s.grants(STUDY), {"grants": [GRANT.to_json()]}, f"{BASE}/grants"),
    "publications": (
        lambda s: s.publications(STUDY),
        {"publications": [PUBLICATION.to_json()]},
        f"{BASE}/publications",
    ),
    "audit": (lambda s: s.audit(STUDY), AUDIT, f"{BASE}/audit"),
    "studies": (lambda s: s.studies(), {"studies": [SUMMARY]}, "/v1/studies"),
    "chunks": (lambda s: s.sent_chunks(STUDY), {"chunks": [DIGEST.hex()]}, f"{BASE}/chunks"),
}
EXPECTED: dict[str, Any] = {
    "contract": CONTRACT,
    "secrets": [SECRET],
    "alignments": [ALIGNMENT],
    "release": RELEASE,
    "grants": [GRANT],
    "publications": [PUBLICATION],
    "audit": ([ENTRY], HEAD),
    "chunks": {DIGEST},
}
POSTS: dict[str, tuple[Call, bytes, str]] = {
    "propose": (lambda s: s.propose(CONTRACT), CONTRACT.dumps(), "/v1/studies"),
    "sign": (lambda s: s.sign(STUDY, CONTRACT), CONTRACT.dumps(), f"{BASE}/signatures"),
    "abort": (lambda s: s.abort(STUDY, "so sorry"), b'{"reason":"so sorry"}', f"{BASE}/abort"),
    "upload": (lambda s: s.upload(STUDY, UPLOAD), UPLOAD.dumps(), f"{BASE}/uploads"),
    "secret": (lambda s: s.send_secret(STUDY, SECRET), SECRET.dumps(), f"{BASE}/secrets"),
    "alignment": (
        lambda s: s.send_alignment(STUDY, ALIGNMENT),
        ALIGNMENT.dumps(),
        f"{BASE}/alignments",
    ),
    "grant": (lambda s: s.send_grant(STUDY, GRANT), GRANT.dumps(), f"{BASE}/grants"),
    "publication": (
        lambda s: s.publish(STUDY, PUBLICATION),
        PUBLICATION.dumps(),
        f"{BASE}/publications",
    ),
}
