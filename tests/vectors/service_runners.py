"""How the package answers the vectors of the service: the gate itself, and the audit log."""

import asyncio
import atexit
import shutil
import tempfile
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

from tests.support.servers import make_context
from vectors.generator.requests import SENDER, SERVER
from veiltab.crypto.signing import SigningKey
from veiltab.protocol.audit_log import Seen, verify_log
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.logged import Logged
from veiltab.protocol.witness import verify_equivocation, verify_witness
from veiltab.server.context import ServiceContext
from veiltab.server.http.auth import Gate, Newcomer, Sender
from veiltab.wire.audit import AuditEntry, AuditHead, Equivocation, Witness, entry_hash
from veiltab.wire.codec import load
from veiltab.wire.contract import PublicIdentity
from veiltab.wire.requests import (
    MAX_SKEW_SECONDS,
    RequestSignature,
    SignedParts,
    content_digest,
    signature_base,
    signature_headers,
)

REGISTRATION = "/v1/parties"
MOST_BYTES = 1 << 20
_FOREVER = 1 << 62


def requests(signing_seed: str, party: str, server: str, created: int, **request: str) -> Any:  # noqa: ANN401 - JSON
    """Sign a request, which the gate must let in, up to both edges of its time."""
    key, who = SigningKey(bytes.fromhex(signing_seed)), bytes.fromhex(party)
    nonce = bytes.fromhex(request.pop("nonce"))
    digest = content_digest(bytes.fromhex(request["body"]))
    parts = SignedParts(request["method"], request["path"], request["query"], digest, server)
    base = signature_base(parts, created, nonce, who)
    headers = signature_headers(parts, RequestSignature(created, nonce, who, key.sign(base)))
    sent = {**request, "headers": list(headers.items())}
    registered = [public_identity(SENDER).to_json()]
    for late in (-MAX_SKEW_SECONDS, 0, MAX_SKEW_SECONDS):
        assert _pass(sent, server, created + late, registered, []).identity.party_id == who
    return {"base": base.decode(), "headers": headers}


def bad_requests(
    request: dict[str, Any],
    server: str,
    now: int,
    registered: list[dict[str, Any]],
    used: list[list[str]],
) -> None:
    """Show the gate a request."""
    _pass(request, server, now, registered, used)
    raise AssertionError("the request was let in")


def audit(
    study: str, server_key: str, seen: dict[str, Any] | None, entries: list[str], head: str
) -> dict[str, Any]:
    """Verify a log as a client does."""
    read = [AuditEntry.from_json(load(entry.encode())) for entry in entries]
    assert [entry.canonical().decode() for entry in read] == entries
    signed = AuditHead.loads(head.encode())
    known: Seen | None = None
    if seen is not None:
        known = seen["length"], bytes.fromhex(seen["hash"])
    key = bytes.fromhex(server_key)
    length, last = verify_log(bytes.fromhex(study), read, signed, key, known)
    hashes = [entry_hash(entry).hex() for entry in read]
    facts = Logged((0, bytes.fromhex(study))).followed_by(read, (length, last))
    return {
        "hashes": hashes,
        "seen": {"length": length, "hash": last.hex()},
        "logged": {
            "contract": None if facts.contract is None else facts.contract.hex(),
            "signers": sorted(signer.hex() for signer in facts.signers),
            "uploads": {who.hex(): digest.hex() for who, digest in facts.uploads.items()},
            "release": None if facts.release is None else facts.release.hex(),
        },
    }


def witness(
    study: str,
    party_key: str,
    server_key: str,
    witness: str | None = None,
    proof: str | None = None,
) -> dict[str, Any]:
    """Verify what a party says that it was shown, or a proof that a server has signed two logs."""
    key = bytes.fromhex(server_key)
    if proof is not None:
        found = Equivocation.from_json(load(proof.encode()))
        assert found.canonical().decode() == proof
        return {"study": verify_equivocation(found, key).hex()}
    signed = Witness.loads((witness or "").encode())
    head = verify_witness(bytes.fromhex(study), signed, bytes.fromhex(party_key), key)
    return {"length": head.body.length, "hash": head.body.hash.hex()}


SERVICE_RUNNERS: dict[str, Callable[..., Any]] = {
    "audit": audit,
    "bad_requests": bad_requests,
    "requests": requests,
    "witness": witness,
}


def _pass(
    request: dict[str, Any],
    server: str,
    now: int,
    registered: list[dict[str, Any]],
    used: list[list[str]],
) -> Sender | Newcomer:
    """Show the service's own gate a request; it knows these parties and nonces alone."""
    known = [PublicIdentity.from_json(each) for each in registered]
    context = replace(_context(frozenset(known)), clock=lambda: float(now))
    assert context.identity.party_id.hex() == server
    with context.database.transaction() as records:
        records.forget_nonces(_FOREVER)
        for party, nonce in used:
            assert records.use_nonce(bytes.fromhex(party), bytes.fromhex(nonce), now)
    gate = Gate(context)

    async def show() -> Sender | Newcomer:
        arrived = _request(request)
        if request["path"] == REGISTRATION:
            return await gate.newcomer(arrived)
        async with asynccontextmanager(gate.sender(MOST_BYTES))(arrived) as sender:
            return sender

    return asyncio.run(show())


def _request(request: dict[str, Any]) -> Request:
    """Return a request as the web server hands it over."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": bytes.fromhex(request["body"])}

    path = request["path"].encode()
    scope = {
        "type": "http",
        "method": request["method"],
        "path": unquote_to_bytes(path).decode(),
        "raw_path": path,
        "query_string": request["query"].encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in request["headers"]],
        "client": ("192.0.2.1", 1),
    }
    return Request(scope, receive)


@cache
def _context(known: frozenset[PublicIdentity]) -> ServiceContext:
    """Make one server for all cases that know the same parties."""
    folder = Path(tempfile.mkdtemp(prefix="vectors-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    context = make_context(folder / "data", identity=SERVER)
    with context.database.transaction() as records:
        for identity in known:
            assert records.add_party(identity, 0)
    return context
