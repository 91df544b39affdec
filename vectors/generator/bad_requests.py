"""Requests that every server must refuse: sections 3 and 4 of the specification of the service."""

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from vectors.generator.files import Case, Document, bad, document, filler
from vectors.generator.requests import (
    ELSEWHERE,
    GOOD,
    NOW,
    OTHER,
    SENDER,
    SERVER,
    nonce_text,
    registration,
)
from veiltab.protocol.curator.agreement import public_identity
from veiltab.wire.codec import dump
from veiltab.wire.requests import COMPONENTS, MAX_SKEW_SECONDS, content_digest

UNAUTHENTICATED = "unauthenticated"
_ORDER = 2**252 + 27742317777372353535851937790883648493
"""The order of Ed25519's group: a signature's second half is below it."""

_SPACED = '("@method"  "@path" "@query" "content-digest" "veiltab-server")'
_TURNED = 'nonce="{nonce}";created={created};keyid="{keyid}";alg="ed25519";tag="veiltab"'


def bad_requests() -> Document:
    """Sections 3 and 4: requests that a server must refuse."""
    cases = [
        *_forms(),
        *_headers(),
        *_changed(),
        *_times_and_senders(),
        *_registrations(),
    ]
    return document(
        "Service, sections 3 and 4. Each request must be refused by the server with the party id"
        " `server`, at the time `now`, which knows the parties `registered` and has seen the"
        " nonces `used`, pairs of party and nonce. Signatures are right, over what the headers"
        " state, unless they are what is wrong.",
        cases,
    )


def _case(name: str, sent: dict[str, Any], code: str = UNAUTHENTICATED, **other: Any) -> Case:
    world: dict[str, Any] = {
        "server": SERVER.party_id.hex(),
        "now": NOW,
        "registered": [public_identity(SENDER).to_json()],
        "used": [],
    }
    return bad(name, code, request=sent, **world | other)


def _forms() -> Iterator[Case]:
    """Other forms of ``Signature-Input``: what RFC 9421 allows besides, and what not."""
    method, path, query, digest, server = COMPONENTS
    usual = GOOD.parameters
    party = SENDER.party_id.hex()
    drafts: dict[str, dict[str, Any]] = {
        "component_order": {"components": (path, method, query, digest, server)},
        "component_missing_query": {"components": (method, path, digest, server)},
        "component_missing_digest": {"components": (method, path, query, server)},
        "component_missing_server": {"components": (method, path, query, digest)},
        "component_extra": {"components": (*COMPONENTS, "@authority")},
        "component_twice": {"components": (method, method, path, query, digest, server)},
        "component_parameter": {"listed": GOOD.signature_parameters.split(")")[0] + ";req)"},
        "components_two_spaces": {"listed": _SPACED},
        "parameter_order": {"parameters": _TURNED},
        "parameter_extra": {"parameters": usual + f";expires={NOW + 60}"},
        "parameter_twice": {"parameters": usual + ';tag="veiltab"'},
        "parameter_space": {"parameters": usual.replace(";", "; ")},
        "created_missing": {"parameters": usual.removeprefix("created={created};")},
        "created_zero_first": {"created": f"0{NOW}"},
        "created_fraction": {"created": f"{NOW}.0"},
        "created_text": {"created": f'"{NOW}"'},
        "nonce_missing": {"parameters": usual.replace(';nonce="{nonce}"', "")},
        "nonce_padded": {"nonce": GOOD.nonce + "=="},
        "nonce_short": {"nonce": nonce_text(filler("requests: nonce", 15))},
        "nonce_long": {"nonce": nonce_text(filler("requests: nonce", 17))},
        "nonce_standard_alphabet": {"nonce": "+" * 21 + "w"},
        "nonce_second_spelling": {"nonce": _next(GOOD.nonce)},
        "keyid_missing": {"parameters": usual.replace(';keyid="{keyid}"', "")},
        "keyid_uppercase": {"keyid": party.upper()},
        "keyid_short": {"keyid": party[:-2]},
        "keyid_is_the_key": {"keyid": SENDER.signing.public.hex()},
        "alg_missing": {"parameters": usual.replace(';alg="ed25519"', "")},
        "alg_other": {"parameters": usual.replace("ed25519", "hmac-sha256")},
        "tag_missing": {"parameters": usual.replace(';tag="veiltab"', "")},
        "tag_other": {"parameters": usual.replace('tag="veiltab"', 'tag="other"')},
        "label_other": {"label": "sig1"},
    }
    for name, changes in drafts.items():
        yield _case(name, replace(GOOD, **changes).sent())
    yield _case("created_negative", replace(GOOD, created="-1").sent(), now=0)


def _headers() -> Iterator[Case]:
    """Headers that are missing, doubled, or written in another way."""
    for name, value in GOOD.headers():
        short = name.lower().replace("-", "_")
        without = [each for each in GOOD.headers() if each[0] != name]
        yield _case(f"no_{short}", GOOD.sent(without))
        yield _case(f"{short}_twice", GOOD.sent([*GOOD.headers(), [name, value]]))
        yield _case(f"{short}_listed_twice", _with(name, f"{value}, {value}"))
    empty = replace(GOOD, method="GET", path="/v1/studies", body=b"", digest="")
    without = [each for each in empty.headers() if each[0] != "Content-Digest"]
    yield _case("no_content_digest_of_no_body", empty.sent(without))
    digest, sha512 = GOOD.content_digest, base64.b64encode(bytes(64)).decode()
    drafts = {
        "digest_uppercase": digest.replace("sha", "SHA"),
        "digest_unpadded": digest.replace("=:", ":", 2).replace("256:", "256=:"),
        "digest_second_spelling": _respelled(digest, 2),
        "digest_of_another_kind": f"sha-512=:{sha512}:",
        "digest_and_another": f"{digest}, sha-512=:{sha512}:",
        "digest_in_hexadecimal": f"sha-256=:{filler('requests: digest').hex()}:",
    }
    for name, value in drafts.items():
        yield _case(name, replace(GOOD, digest=value).sent())
    signature = GOOD.signature
    raw = base64.b64decode(signature)
    half = int.from_bytes(raw[32:], "little") + _ORDER
    signatures = {
        "signature": base64.b64encode(raw[:-1] + bytes([raw[-1] ^ 1])).decode(),
        "malleable_signature": base64.b64encode(raw[:32] + half.to_bytes(32, "little")).decode(),
        "zero_signature": base64.b64encode(bytes(64)).decode(),
        "short_signature": base64.b64encode(raw[:-1]).decode(),
        "empty_signature": "",
        "signature_unpadded": signature.rstrip("="),
        "signature_second_spelling": _next(signature.rstrip("=")) + "==",
        "signature_in_hexadecimal": raw.hex(),
    }
    for name, text in signatures.items():
        yield _case(name, _with("Signature", f"veiltab=:{text}:"))
    yield _case("signature_label", _with("Signature", f"sig1=:{signature}:"))
    yield _case("signature_as_text", _with("Signature", f'veiltab="{signature}"'))


def _changed() -> Iterator[Case]:
    """Right signatures, on something else than what arrives."""
    headers = GOOD.headers()
    other = dump({"reason": "the table was right"})
    arrived: dict[str, dict[str, Any]] = {
        "method": {"method": "PUT"},
        "path": {"path": GOOD.path.replace("abort", "signatures")},
        "path_encoded": {"path": GOOD.path.replace("abort", "%61bort")},
        "path_slash": {"path": GOOD.path + "/"},
        "query_added": {"query": "force"},
        "body": {"body": other},
        "body_missing": {"body": b""},
        "body_longer": {"body": GOOD.body + b"\n"},
    }
    for name, changes in arrived.items():
        yield _case(f"changed_{name}", replace(GOOD, **changes).sent(headers))
    queried = replace(GOOD, query="force")
    yield _case("changed_query_removed", GOOD.sent(queried.headers()))
    yield _case("changed_query", replace(queried, query="Force").sent(queried.headers()))
    moved = replace(queried, path=f"{GOOD.path}?force", query="")
    yield _case("changed_query_moved", moved.sent(queried.headers()))
    redigested = _with("Content-Digest", content_digest(other)) | {"body": other.hex()}
    yield _case("changed_body_and_digest", redigested)
    yield _case("changed_server", _with("Veiltab-Server", OTHER.party_id.hex()))
    relayed = replace(GOOD, server=ELSEWHERE.party_id.hex())
    yield _case("another_server", relayed.sent())
    patched = _with("Signature", f"veiltab=:{relayed.signature}:")
    yield _case("another_server_patched", patched)
    yield _case("server_uppercase", replace(GOOD, server=GOOD.server.upper()).sent())
    yield _case("server_name", replace(GOOD, server="stats.example.org").sent())


def _times_and_senders() -> Iterator[Case]:
    yield _case("too_old", GOOD.sent(), now=NOW + MAX_SKEW_SECONDS + 1)
    yield _case("too_early", GOOD.sent(), now=NOW - MAX_SKEW_SECONDS - 1)
    nonce = filler("requests: nonce", 16).hex()
    yield _case("repeated", GOOD.sent(), used=[[GOOD.keyid, nonce]])
    moved = replace(GOOD, path=GOOD.path.replace("abort", "signatures"))
    yield _case("nonce_used_elsewhere", moved.sent(), used=[[GOOD.keyid, nonce]])
    yield _case("unknown_sender", GOOD.sent(), registered=[public_identity(OTHER).to_json()])
    both = [public_identity(each).to_json() for each in (SENDER, OTHER)]
    yield _case("anothers_key", replace(GOOD, signer=OTHER).sent(), registered=both)
    renamed = replace(GOOD, keyid=OTHER.party_id.hex())
    yield _case("anothers_name", renamed.sent(), registered=both)


def _registrations() -> Iterator[Case]:
    good, malformed = registration(), "malformed_message"
    identity = public_identity(ELSEWHERE).to_json()
    yield _case("registration_by_another", replace(good, keyid=GOOD.keyid, signer=SENDER).sent())
    yield _case("registration_in_anothers_name", replace(good, signer=SENDER).sent())
    relayed = replace(good, server=OTHER.party_id.hex())
    yield _case("registration_elsewhere", relayed.sent())
    yield _case("registration_too_old", good.sent(), now=NOW + MAX_SKEW_SECONDS + 1)
    bodies = {
        "not_canonical": good.body.replace(b":", b": ", 1),
        "unknown_field": dump({"identity": identity, "invitation": "x", "role": "curator"}),
        "no_invitation": dump({"identity": identity}),
        "identity": dump({"identity": identity | {"party": "x"}, "invitation": "x"}),
        "empty_invitation": dump({"identity": identity, "invitation": ""}),
    }
    for name, body in bodies.items():
        yield _case(f"registration_{name}", replace(good, body=body).sent(), malformed)


def _with(name: str, value: str) -> dict[str, Any]:
    """Return the good request with another value of a header."""
    return GOOD.sent([[key, value if key == name else old] for key, old in GOOD.headers()])


def _next(text: str) -> str:
    """Return a second spelling of base64: its last character has bits that decode to nothing."""
    return text[:-1] + chr(ord(text[-1]) + 1)


def _respelled(digest: str, tail: int) -> str:
    """Return a second spelling of the base64 in a digest, which ends in ``tail`` characters."""
    return _next(digest[:-tail]) + digest[-tail:]
