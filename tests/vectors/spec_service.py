"""Signed requests and the audit log, written from ``docs/spec/service-v1.md`` alone.

The numbers are sections of that document; what it takes from the protocol is in ``spec_bytes``.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from tests.vectors.spec_bytes import canonical, labelled, parse, party_id, require
from tests.vectors.spec_bytes import verify as verify_message
from tests.vectors.spec_keys import newest
from tests.vectors.spec_messages import (
    HASH,
    SIGNATURES,
    many,
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
    "revoked",
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
SIGNED_HEAD = record(body=HEAD, signatures=SIGNATURES)
WITNESS = record(kind=only("witness"), version=only(1), head=SIGNED_HEAD, party=HASH)
EQUIVOCATION = record(
    kind=only("equivocation"),
    version=only(1),
    entries=many(ENTRY),
    first=SIGNED_HEAD,
    second=SIGNED_HEAD,
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
    require(set(found) == {"identity", "invitation", "rotations", "sealing_key"}, "other fields")
    text(found.pop("invitation"))
    newest(found | {"revocation": None})
    identity: dict[str, Any] = found["identity"]
    return identity


# Section 7: the audit log


def verify_log(
    study: str, server_key: str, seen: dict[str, Any] | None, entries: list[str], head: str
) -> dict[str, Any]:
    """Return the hash of each entry, what to remember and what binds, or refuse the log."""
    body = _signed(parse(head.encode()), HEAD, "audit-head", server_key)
    read = [parse(entry.encode()) for entry in entries]
    hashes = [study]
    for number, entry in enumerate(entries):
        found = read[number]
        ENTRY(found)
        stated = (found["study"], found["sequence"], found["previous"])
        require(stated == (study, number, hashes[-1]), "an entry is out of place")
        hashes.append(labelled("audit", entry.encode()).hex())
    last = {"length": len(entries), "hash": hashes[-1]}
    require({"study": study, **last} == {key: body[key] for key in ("study", *last)}, "the end")
    if seen is not None:
        require(len(entries) >= seen["length"], "the log has become shorter")
        require(hashes[seen["length"]] == seen["hash"], "the log is another one")
    return {"hashes": hashes[1:], "seen": last, "logged": _logged(read)}


def _logged(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the digests that bind everybody; refuse a log that contradicts itself (7.3)."""
    contracts = {e["message"] for e in entries if e["event"] in ("proposed", "signed", "opened")}
    require(len(contracts) <= 1 and None not in contracts, "two contracts, or none")
    uploads: dict[str, str] = {}
    for entry in entries:
        if entry["event"] in ("uploaded", "repadded"):
            require(entry["message"] is not None, "an upload has no digest")
            earlier = uploads.setdefault(entry["actor"], entry["message"])
            require(earlier == entry["message"], "a curator has two uploads")
    releases = [entry["message"] for entry in entries if entry["event"] == "released"]
    require(len(releases) <= 1 and None not in releases, "two releases")
    return {
        "contract": next(iter(contracts), None),
        "signers": sorted({e["actor"] for e in entries if e["event"] == "signed"}),
        "uploads": uploads,
        "release": next(iter(releases), None),
    }


# Section 7.5: witnesses


def verify_witness(
    study: str,
    party_key: str,
    server_key: str,
    witness: str | None = None,
    proof: str | None = None,
) -> dict[str, Any]:
    """Return what a party was shown, or the study of which a server has signed two logs."""
    if proof is not None:
        return {"study": _equivocation(parse(proof.encode()), server_key)}
    body = _signed(parse((witness or "").encode()), WITNESS, "witness", party_key)
    head = _signed(body["head"], HEAD, "audit-head", server_key)
    require(head["study"] == study, "the head is of another study")
    return {"length": head["length"], "hash": head["hash"]}


def _equivocation(found: dict[str, Any], server_key: str) -> str:
    EQUIVOCATION(found)
    first, second = (
        _signed(found[key], HEAD, "audit-head", server_key) for key in ("first", "second")
    )
    study: str = first["study"]
    require(second["study"] == study, "the heads are of two studies")
    if first["length"] == second["length"]:
        require(first["hash"] != second["hash"], "the heads are the same")
        require(not found["entries"], "heads of one length need no entries")
        return study
    texts = [canonical(entry) for entry in found["entries"]]
    head = canonical(found["second"])
    hashes = verify_log(study, server_key, None, texts, head)["hashes"]
    require(first["length"] < second["length"], "the first head is of the longer log")
    require(hashes[first["length"] - 1] != first["hash"], "the log goes through the first head")
    return study


def _signed(
    signed: dict[str, Any], form: Callable[[Any], None], kind: str, key: str
) -> dict[str, Any]:
    """Return the body of a message that one key alone has signed."""
    record(body=form, signatures=SIGNATURES)(signed)
    body: dict[str, Any] = signed["body"]
    (signature,) = _single(signed["signatures"])
    require(signature["key"] == key, "somebody else has signed")
    data = canonical(body).encode()
    verify_message(bytes.fromhex(key), kind, data, bytes.fromhex(signature["signature"]))
    return body


def _single(signatures: list[Any]) -> list[Any]:
    require(len(signatures) == 1, "a head has one signature")
    return signatures
