"""Signed requests: as RFC 9421 and RFC 9530 say, in one form, and nothing left uncovered."""

import base64
import hashlib
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from http_message_signatures import (
    HTTPMessageSigner,
    HTTPMessageVerifier,
    HTTPSignatureKeyResolver,
    InvalidSignature,
)
from http_message_signatures.algorithms import ED25519
from hypothesis import given
from hypothesis import strategies as st

from tests.support.messages import filler
from veiltab.crypto.signing import SigningKey, verify
from veiltab.errors import SignatureError, UnauthenticatedError
from veiltab.wire.requests import (
    COMPONENTS,
    LABEL,
    NONCE_BYTES,
    RequestSignature,
    SignedParts,
    content_digest,
    parse_content_digest,
    parse_signature,
    signature_base,
    signature_headers,
    signature_parameters,
)

KEY = SigningKey(filler("signing key"))
PARTY = filler("party")
SERVER = filler("server").hex()
NONCE = filler("nonce", NONCE_BYTES)
BODY = b'{"reason":"a test"}'
PATH = f"/v1/studies/{filler('study').hex()}/abort"

BYTES_32 = st.binary(min_size=32, max_size=32)
SIGNATURES = st.builds(
    RequestSignature,
    created=st.integers(0, 10**12 - 1),
    nonce=st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES),
    party=BYTES_32,
    signature=st.binary(min_size=64, max_size=64),
)
VISIBLE = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E))


def parts(**changes: str) -> SignedParts:
    """Build the covered parts of a request."""
    fields = {
        "method": "POST",
        "path": PATH,
        "query": "",
        "content_digest": content_digest(BODY),
        "server": SERVER,
    }
    return SignedParts(**fields | changes)


def signed(covered: SignedParts, created: int = 1_700_000_000) -> dict[str, str]:
    """Sign a request, and return its headers."""
    signature = KEY.sign(signature_base(covered, created, NONCE, PARTY))
    return signature_headers(covered, RequestSignature(created, NONCE, PARTY, signature))


class Keys(HTTPSignatureKeyResolver):
    """The keys of the one party, for the other implementation."""

    def resolve_public_key(self, key_id: str) -> Any:  # noqa: ANN401 - as in its base class
        """Return the public key."""
        assert key_id == PARTY.hex()
        return self.resolve_private_key(key_id).public_key()

    def resolve_private_key(self, key_id: str) -> Any:  # noqa: ANN401 - as in its base class
        """Return the private key."""
        assert key_id == PARTY.hex()
        return KEY._key


class OurOrder(HTTPMessageSigner):
    """The other implementation, with the parameters in the order of our form."""

    def _build_signature_base(self, message: Any, *, signature_params: Any, **others: Any) -> Any:  # noqa: ANN401
        order = ("created", "nonce", "keyid", "alg", "tag")
        ordered = {name: signature_params[name] for name in order}
        return super()._build_signature_base(message, signature_params=ordered, **others)


def request(covered: SignedParts, headers: dict[str, str]) -> SimpleNamespace:
    """Build a request as the other implementation sees one."""
    query = f"?{covered.query}" if covered.query else ""
    url = f"https://stats.example.org{covered.path}{query}"
    return SimpleNamespace(method=covered.method, url=url, headers=dict(headers))


def read_by_others(covered: SignedParts, headers: dict[str, str], body: bytes) -> None:
    """Verify a request with the other implementation."""
    verifier = HTTPMessageVerifier(signature_algorithm=ED25519, key_resolver=Keys())
    (result,) = verifier.verify(
        request(covered, headers),
        max_age=None,
        expect_tag=LABEL,
        require_components=COMPONENTS,
        body=body,
    )
    assert result.body == body
    assert result.parameters["nonce"] == base64.urlsafe_b64encode(NONCE).decode().rstrip("=")


def verified(covered: SignedParts, headers: dict[str, str]) -> None:
    """Verify a request as the service does."""
    found = parse_signature(headers["Signature-Input"], headers["Signature"])
    base = signature_base(covered, found.created, found.nonce, found.party)
    verify(KEY.public, base, found.signature)


@pytest.mark.parametrize("query", ["", "page=2&x=%20y"])
@pytest.mark.parametrize("body", [b"", BODY])
def test_another_implementation_verifies_what_we_sign(query: str, body: bytes) -> None:
    """An independent reader of RFC 9421 and RFC 9530 accepts our headers as they are."""
    covered = parts(query=query, content_digest=content_digest(body))
    read_by_others(covered, signed(covered), body)


def test_another_implementation_refuses_another_body() -> None:
    """The test above can fail: the reader does look at the body and the path."""
    headers = signed(parts())
    with pytest.raises(InvalidSignature):
        read_by_others(parts(), headers, BODY + b" ")
    with pytest.raises(InvalidSignature):
        read_by_others(parts(path=f"{PATH}s"), headers, BODY)


@pytest.mark.parametrize("query", ["", "page=2"])
def test_we_verify_what_another_implementation_signs(query: str) -> None:
    """If it writes our form, we accept it, and find the same signature base."""
    covered = parts(query=query)
    plain = {"Content-Digest": covered.content_digest, "Veiltab-Server": covered.server}
    message = request(covered, plain)
    OurOrder(signature_algorithm=ED25519, key_resolver=Keys()).sign(
        message,
        key_id=PARTY.hex(),
        created=datetime.fromtimestamp(1_700_000_000, UTC),
        nonce=base64.urlsafe_b64encode(NONCE).decode().rstrip("="),
        label=LABEL,
        tag=LABEL,
        covered_component_ids=COMPONENTS,
        use_existing_digest=True,
        body=BODY,
    )
    assert dict(message.headers) == signed(covered)
    verified(covered, dict(message.headers))


def test_the_signature_base_is_written_out() -> None:
    """The bytes of RFC 9421 section 2.5, line by line."""
    assert signature_base(parts(), 1_700_000_000, NONCE, PARTY).decode().split("\n") == [
        '"@method": POST',
        f'"@path": {PATH}',
        '"@query": ?',
        f'"content-digest": {content_digest(BODY)}',
        f'"veiltab-server": {SERVER}',
        '"@signature-params": (' + " ".join(f'"{name}"' for name in COMPONENTS) + ")"
        f';created=1700000000;nonce="{base64.urlsafe_b64encode(NONCE).decode()[:22]}"'
        f';keyid="{PARTY.hex()}";alg="ed25519";tag="veiltab"',
    ]


def test_the_digest_of_the_standard_example() -> None:
    """RFC 9530 appendix B.1 has this body and this digest."""
    text = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:"
    assert content_digest(b'{"hello": "world"}\n') == text
    assert parse_content_digest(text) == hashlib.sha256(b'{"hello": "world"}\n').digest()


@given(signature=SIGNATURES, path=VISIBLE, query=VISIBLE, digest=BYTES_32)
def test_what_is_written_is_read_back(
    signature: RequestSignature, path: str, query: str, digest: bytes
) -> None:
    """Any signature survives its headers, and any digest too."""
    written = f"sha-256=:{base64.b64encode(digest).decode()}:"
    covered = parts(path=f"/{path}", query=query, content_digest=written)
    headers = signature_headers(covered, signature)
    assert parse_signature(headers["Signature-Input"], headers["Signature"]) == signature
    assert parse_content_digest(headers["Content-Digest"]) == digest


def changes(text: str) -> list[str]:
    """Return every text that differs in one character, by its lowest bit or its case."""
    return [
        f"{text[:i]}{chr(ord(character) ^ bit)}{text[i + 1 :]}"
        for i, character in enumerate(text)
        for bit in (1, 32)
    ]


@pytest.mark.parametrize("field", ["method", "path", "query", "content_digest", "server"])
def test_every_changed_byte_of_every_covered_part_is_found(field: str) -> None:
    """Whatever is changed on the way, the signature is wrong, or the part cannot be read."""
    covered = parts(query="page=2")
    headers = signed(covered)
    verified(covered, headers)
    for changed in changes(getattr(covered, field)):
        fields = {name: getattr(covered, name) for name in SignedParts.__dataclass_fields__}
        with pytest.raises((SignatureError, UnauthenticatedError)):
            verified(SignedParts(**fields | {field: changed}), headers)


@pytest.mark.parametrize("header", ["Signature-Input", "Signature"])
def test_every_changed_byte_of_the_signature_is_found(header: str) -> None:
    """The parameters are signed too: time, nonce, party, algorithm, tag; also their order."""
    headers = signed(parts())
    for changed in changes(headers[header]):
        with pytest.raises((SignatureError, UnauthenticatedError)):
            verified(parts(), headers | {header: changed})


def test_the_query_cannot_be_moved_into_the_path() -> None:
    """Two requests that look alike when their parts are joined have different signatures."""
    headers = signed(parts(path="/v1/a", query="b"))
    with pytest.raises(SignatureError):
        verified(parts(path="/v1/a?b", query=""), headers)


INPUT = signed(parts())["Signature-Input"]
SIGNATURE = signed(parts())["Signature"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        INPUT.removeprefix("veiltab="),
        f"{INPUT}, {INPUT}",
        f"{INPUT}, other={signature_parameters(0, NONCE, PARTY)}",
        f" {INPUT}",
        f"{INPUT}\n",
        f"{INPUT};expires=1800000000",
        f"{INPUT};created=1700000001",
        INPUT.replace("veiltab=", "sig1=", 1),
        INPUT.replace(';tag="veiltab"', ""),
        INPUT.replace(';alg="ed25519"', ""),
        INPUT.replace("ed25519", "hmac-sha256"),
        INPUT.replace(' "content-digest"', ""),
        INPUT.replace('"@query"', '"@query" "@query"'),
        INPUT.replace('"@path"', '"@path";req'),
        INPUT.replace('"@path" "@query"', '"@query" "@path"'),
        INPUT.replace("created=", "created=0"),
        INPUT.replace("created=", "created=-"),
        INPUT.replace("created=1700000000", "created=1700000000.0"),
        INPUT.replace("created=1700000000", "created=1000000000000"),
        INPUT.replace("created=1", "created=\N{ARABIC-INDIC DIGIT ONE}"),
        INPUT.replace(PARTY.hex(), PARTY.hex().upper()),
        INPUT.replace('";keyid', '==";keyid'),
        INPUT.replace("; ", ";").replace(";nonce", "; nonce"),
    ],
)
def test_other_signature_inputs_are_refused(text: str) -> None:
    """Other labels, components, parameters, orders, spaces, repetitions: with a useful hint."""
    assert text != INPUT
    with pytest.raises(UnauthenticatedError, match="Signature-Input") as caught:
        parse_signature(text, SIGNATURE)
    assert '"@method" "@path"' in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"{SIGNATURE}, {SIGNATURE}",
        f"{SIGNATURE}, other=:AAAA:",
        f"{SIGNATURE};extra",
        SIGNATURE.replace("veiltab=", "sig1="),
        SIGNATURE.replace("==", ""),
        "veiltab=:AAAA:",
        f"veiltab=:{base64.b64encode(bytes(65)).decode()}:",
        f"{SIGNATURE[:-5]}B==:",
    ],
)
def test_other_signatures_are_refused(text: str) -> None:
    """Other labels, lengths, repetitions, and a second way to write the same bytes."""
    assert text != SIGNATURE
    with pytest.raises(UnauthenticatedError, match="Signature"):
        parse_signature(INPUT, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"{content_digest(BODY)}, {content_digest(BODY)}",
        f"{content_digest(BODY)}, md5=:AAAA:",
        content_digest(BODY).replace("sha-256", "sha-512"),
        content_digest(BODY).replace("sha-256", "SHA-256"),
        content_digest(BODY).replace("=:", "=", 1),
        f"{content_digest(BODY)};q=1",
        f"{content_digest(b'')[:-3]}V=:",  # the same bytes end in U
    ],
)
def test_other_digests_are_refused(text: str) -> None:
    """One SHA-256, in its one form."""
    with pytest.raises(UnauthenticatedError, match="Content-Digest"):
        parse_content_digest(text)
    with pytest.raises(UnauthenticatedError, match="Content-Digest"):
        signature_base(parts(content_digest=text), 0, NONCE, PARTY)


@pytest.mark.parametrize(
    "change",
    [
        {"method": "post"},
        {"method": ""},
        {"path": "v1"},
        {"path": "/v1/a\nb"},
        {"path": "/v1/ü"},
        {"query": 'a\n"content-digest": x'},
        {"query": "a b"},
        {"server": SERVER.upper()},
        {"server": ""},
    ],
)
def test_no_part_can_pretend_to_be_another(change: dict[str, str]) -> None:
    """What could end a line of the signature base is refused before anything is signed."""
    with pytest.raises(UnauthenticatedError):
        signature_base(parts(**change), 0, NONCE, PARTY)
    with pytest.raises(UnauthenticatedError):
        signature_headers(parts(**change), RequestSignature(0, NONCE, PARTY, bytes(64)))


@pytest.mark.parametrize(
    "signature",
    [
        RequestSignature(-1, NONCE, PARTY, bytes(64)),
        RequestSignature(10**12, NONCE, PARTY, bytes(64)),
        RequestSignature(0, NONCE[1:], PARTY, bytes(64)),
        RequestSignature(0, NONCE, PARTY[1:], bytes(64)),
        RequestSignature(0, NONCE, PARTY, bytes(63)),
    ],
)
def test_what_could_not_be_read_is_not_written(signature: RequestSignature) -> None:
    """Both sides have the same idea of what a signature is."""
    with pytest.raises(UnauthenticatedError):
        signature_headers(parts(), signature)


@given(signature_input=st.text() | st.just(INPUT), signature=st.text(), digest=st.text())
def test_garbage_is_refused_with_one_error(
    signature_input: str, signature: str, digest: str
) -> None:
    """Whatever the headers are, nothing else is raised."""
    with pytest.raises(UnauthenticatedError):
        parse_signature(signature_input, signature)
    with pytest.raises(UnauthenticatedError):
        parse_content_digest(digest)
