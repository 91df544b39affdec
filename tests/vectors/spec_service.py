"""Signed requests and the audit log, written from ``docs/spec/service-v1.md`` alone.

The numbers are sections of that document; what it takes from the protocol is in ``spec_bytes``.
"""

import base64
import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from tests.vectors.spec_bytes import canonical, labelled, parse, party_id, require
from tests.vectors.spec_bytes import verify as verify_message
from tests.vectors.spec_messages import (
    HASH,
    IDENTITY,
    SIGNATURES,
    nullable,
    only,
    record,
    text,
    whole,
)

SKEW = 300
COVERED = '("@method" "@path" "@query" "content-digest" "veiltab-server")'
INPUT = re.compile(
    rf"veiltab={re.escape(COVERED)};created=(0|[1-9][0-9]{{0,11}})"
    r';nonce="([A-Za-z0-9_-]{22})";keyid="([0-9a-f]{64})";alg="ed25519";tag="veiltab"'
)
EVENTS = (
    "proposed",
    "signed",
    "opened",
    "secret",
    "aligned",
    "uploaded",
    "complete",
    "sampled",
    "repadded",
    "released",
    "granted",
    "published",
    "aborted",
    "closed",
)
STATES = (
    *("proposed", "open", "uploaded", "sampled", "joined", "released", "aborted"),
    *("stored", "closed"),  # of a vault
)
ENTRY = record(
    actor=HASH,
    at=whole(0),
    event=only(*EVENTS),
    message=nullable(HASH),
    previous=HASH,
    sequence=whole(0, 2**32 - 1),
    state=only(*STATES),
    study=HASH,
)
HEAD = record(
    kind=only("audit-head"),
    version=only(1),
    at=whole(0),
    hash=HASH,
    length=whole(1, 2**32),
    study=HASH,
)


# Section 3: signed requests


@dataclass(frozen=True)
class Parts:
    """What a signature covers."""

    method: str
    path: str
    query: str
    digest: str
    server: str


def content_digest(body: bytes) -> str:
    """Return the header ``Content-Digest`` (3.1)."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"


def parameters(created: int, nonce: str, party: str) -> str:
    """Return what follows the label in ``Signature-Input`` (3.1)."""
    return (
        f'{COVERED};created={created};nonce="{nonce}";keyid="{party}";alg="ed25519";tag="veiltab"'
    )


def signature_base(parts: Parts, signed: str) -> str:
    """Return what is signed (3.2)."""
    return "\n".join(
        [
            f'"@method": {parts.method}',
            f'"@path": {parts.path}',
            f'"@query": ?{parts.query}',
            f'"content-digest": {parts.digest}',
            f'"veiltab-server": {parts.server}',
            f'"@signature-params": {signed}',
        ]
    )


def sign(seed: bytes, parts: Parts, created: int, nonce: bytes, party: str) -> tuple[str, Any]:
    """Return the signature base and the four headers."""
    text = base64.urlsafe_b64encode(nonce).decode().rstrip("=")
    signed = parameters(created, text, party)
    base = signature_base(parts, signed)
    signature = Ed25519PrivateKey.from_private_bytes(seed).sign(base.encode("ascii"))
    return base, {
        "Content-Digest": parts.digest,
        "Veiltab-Server": parts.server,
        "Signature-Input": f"veiltab={signed}",
        "Signature": f"veiltab=:{base64.b64encode(signature).decode()}:",
    }


# Section 4: what a server checks


def admit(
    request: Mapping[str, Any],
    server: str,
    now: int,
    registered: Sequence[Mapping[str, Any]],
    used: Collection[Sequence[str]],
) -> str:
    """Return who has sent a request, or refuse it."""
    headers = _headers(request)
    created, nonce, party, signature = _read(headers)
    parts = _parts(request, headers)
    known = {party_id(dict(each)): each["signing_key"] for each in registered}
    body = bytes.fromhex(request["body"])
    if request["path"] == "/v1/parties":  # 4.2: the body says whose key it is
        _check_body(parts, body)
        identity = _registration(body)
        known = {party_id(identity): identity["signing_key"]}
    require(party in known, "the sender is not known")
    require(parts.server == server, "the request is for another server")
    require(abs(created - now) <= SKEW, "the request is not of now")
    base = signature_base(parts, headers["signature-input"].removeprefix("veiltab="))
    _verify(bytes.fromhex(known[party]), base.encode("ascii"), signature)
    _check_body(parts, body)
    require([party, nonce.hex()] not in [list(each) for each in used], "the nonce was used")
    return party


def _headers(request: Mapping[str, Any]) -> dict[str, str]:
    """Gather the headers of a request, each of the four exactly once (3.4)."""
    found: dict[str, str] = {}
    for name, value in request["headers"]:
        require(name.lower() not in found, "a header comes twice")
        found[name.lower()] = value
    for name in ("content-digest", "veiltab-server", "signature-input", "signature"):
        require(name in found, "a header is missing")
    return found


def _read(headers: Mapping[str, str]) -> tuple[int, bytes, str, bytes]:
    found = INPUT.fullmatch(headers["signature-input"])
    require(found is not None, "the signature's parameters are of another form")
    assert found is not None
    nonce = base64.urlsafe_b64decode(found[2] + "==")
    again = base64.urlsafe_b64encode(nonce).decode().rstrip("=")
    require(again == found[2], "the nonce has a second spelling")
    signature = _one(headers["signature"], "veiltab=:([A-Za-z0-9+/]{86}==):")
    return int(found[1]), nonce, found[3], signature


def _parts(request: Mapping[str, Any], headers: Mapping[str, str]) -> Parts:
    parts = Parts(
        request["method"],
        request["path"],
        request["query"],
        headers["content-digest"],
        headers["veiltab-server"],
    )
    require(bool(re.fullmatch("[A-Z]{1,20}", parts.method)), "the method is no method")
    require(bool(re.fullmatch("/[!-~]*", parts.path)), "the path is not ASCII")
    require(bool(re.fullmatch("[!-~]*", parts.query)), "the query is not ASCII")
    _one(parts.digest, "sha-256=:([A-Za-z0-9+/]{43}=):")
    return parts


def _one(value: str, form: str) -> bytes:
    """Decode base64 in its one spelling."""
    found = re.fullmatch(form, value)
    require(found is not None, "a header is of another form")
    assert found is not None
    data = base64.b64decode(found[1])
    require(base64.b64encode(data).decode() == found[1], "base64 has a second spelling")
    return data


def _verify(key: bytes, base: bytes, signature: bytes) -> None:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, base)
    except (InvalidSignature, ValueError):
        require(fact=False, what="the signature is wrong")


def _check_body(parts: Parts, body: bytes) -> None:
    require(content_digest(body) == parts.digest, "the body is not the one that was signed")


def _registration(body: bytes) -> dict[str, Any]:
    found = parse(body)
    record(identity=record(**IDENTITY), invitation=text)(found)
    identity: dict[str, Any] = found["identity"]
    return identity


# Section 7: the audit log


def verify_log(
    study: str, server_key: str, seen: dict[str, Any] | None, entries: list[str], head: str
) -> dict[str, Any]:
    """Return the hash of each entry and what to remember, or refuse the log."""
    signed = parse(head.encode())
    record(body=HEAD, signatures=SIGNATURES)(signed)
    body, (signature,) = signed["body"], _single(signed["signatures"])
    require(signature["key"] == server_key, "somebody else has signed")
    verify_message(
        bytes.fromhex(server_key),
        "audit-head",
        canonical(body).encode(),
        bytes.fromhex(signature["signature"]),
    )
    hashes = [study]
    for number, entry in enumerate(entries):
        found = parse(entry.encode())
        ENTRY(found)
        stated = (found["study"], found["sequence"], found["previous"])
        require(stated == (study, number, hashes[-1]), "an entry is out of place")
        hashes.append(labelled("audit", entry.encode()).hex())
    last = {"length": len(entries), "hash": hashes[-1]}
    require({"study": study, **last} == {key: body[key] for key in ("study", *last)}, "the end")
    if seen is not None:
        require(len(entries) >= seen["length"], "the log has become shorter")
        require(hashes[seen["length"]] == seen["hash"], "the log is another one")
    return {"hashes": hashes[1:], "seen": last}


def _single(signatures: list[Any]) -> list[Any]:
    require(len(signatures) == 1, "a head has one signature")
    return signatures
