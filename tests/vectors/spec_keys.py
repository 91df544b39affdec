"""Sections 2.2 and 2.3 of the specification: rotations and revocations, from its text alone."""

import hashlib
from typing import Any

from tests.vectors.spec_bytes import canonical, party_id, require, verify
from tests.vectors.spec_messages import IDENTITY, SIGNATURES, hexadecimal, record, text, whole

HASH = hexadecimal(64)
ROTATION = record(
    at=whole(0, 2**53 - 1),
    kind=text,
    party=HASH,
    sealing_digest=HASH,
    sequence=whole(1, 64),
    signing_key=HASH,
    version=whole(1, 1),
)


def newest(keys: dict[str, Any]) -> dict[str, str]:
    """Return the newest keys of a party, or refuse what a server says of it."""
    require(set(keys) == {"identity", "rotations", "sealing_key", "revocation"}, "other fields")
    record(**IDENTITY)(keys["identity"])
    hexadecimal(2432)(keys["sealing_key"])
    identity, chain = keys["identity"], keys["rotations"]
    party = party_id(identity)
    require(keys["revocation"] is None, "the party is revoked, or somebody says so")
    require(len(chain) <= 64, "too many rotations")
    known, at = [identity["signing_key"]], 0
    for number, rotation in enumerate(chain, start=1):
        body = rotation["body"]
        record(body=ROTATION, signatures=SIGNATURES)(rotation)
        require((body["kind"], body["sequence"]) == ("rotation", number), "out of order")
        require(body["party"] == party and body["at"] >= at, "another party, or an older one")
        require(body["signing_key"] not in known, "an old key")
        signers = [each["key"] for each in rotation["signatures"]]
        require(signers == sorted({known[-1], body["signing_key"]}), "signed by others")
        check_signatures(rotation)
        known.append(body["signing_key"])
        at = body["at"]
    sealing = bytes.fromhex(keys["sealing_key"])
    if chain:
        digest = hashlib.sha256(sealing).hexdigest()
        require(digest == chain[-1]["body"]["sealing_digest"], "another sealing key")
    else:
        require(keys["sealing_key"] == identity["sealing_key"], "another sealing key")
    return {"party_id": party, "sealing_key": sealing.hex(), "signing_key": known[-1]}


def check_signatures(message: dict[str, Any]) -> None:
    """Refuse a wrong signature."""
    body = canonical(message["body"]).encode()
    for each in message["signatures"]:
        key, signature = bytes.fromhex(each["key"]), bytes.fromhex(each["signature"])
        verify(key, message["body"]["kind"], body, signature)
