"""Signed requests: our one form of RFC 9421, with the Content-Digest of RFC 9530.

Every request to the service is signed by its sender.  Both sides build the same signature base
from what is on the wire.  RFC 9421 leaves much to choose, and all of it is chosen here: a signed
request can be written in one way, and no other is read.  Callers sign and verify.
"""

import base64
import hashlib
import re
from dataclasses import dataclass

from veiltab.errors import UnauthenticatedError

LABEL = "veiltab"
"""The label of the signature in its two headers, and its tag."""

COMPONENTS = ("@method", "@path", "@query", "content-digest", "veiltab-server")
"""What a signature covers, in this order; with the digest, that is the whole request."""

NONCE_BYTES = 16
MAX_SKEW_SECONDS = 300
"""How far apart the clocks of a sender and the server may be."""

CONTENT_DIGEST_HEADER = "Content-Digest"
SERVER_HEADER = "Veiltab-Server"
SIGNATURE_INPUT_HEADER = "Signature-Input"
SIGNATURE_HEADER = "Signature"

_PARTY_BYTES = 32
_DIGEST_BYTES = 32
_SIGNATURE_BYTES = 64
_LIST = "(" + " ".join(f'"{name}"' for name in COMPONENTS) + ")"
_INPUT = re.compile(
    rf"{LABEL}={re.escape(_LIST)};created=(?P<created>0|[1-9][0-9]{{0,11}})"
    rf';nonce="(?P<nonce>[A-Za-z0-9_-]{{22}})";keyid="(?P<party>[0-9a-f]{{64}})"'
    rf';alg="ed25519";tag="{LABEL}"'
)
_SIGNATURE = re.compile(rf"{LABEL}=:([A-Za-z0-9+/]{{86}}==):")
_DIGEST = re.compile("sha-256=:([A-Za-z0-9+/]{43}=):")
_MAX_CREATED = 10**12 - 1

# Nothing that could end a line of the signature base, or be written in a second way.
_METHOD = re.compile("[A-Z]{1,20}")
_PATH = re.compile("/[!-~]*")
_QUERY = re.compile("[!-~]*")
_SERVER = re.compile("[0-9a-f]{64}")

_FORMS = {
    SIGNATURE_INPUT_HEADER: f'{LABEL}={_LIST};created=<unix seconds>;nonce="<22 characters of'
    f' base64url>";keyid="<party id>";alg="ed25519";tag="{LABEL}"',
    SIGNATURE_HEADER: f"{LABEL}=:<base64 of {_SIGNATURE_BYTES} bytes>:",
    CONTENT_DIGEST_HEADER: f"sha-256=:<base64 of {_DIGEST_BYTES} bytes>:",
    SERVER_HEADER: "<party id of the server, 64 lowercase hex digits>",
}


@dataclass(frozen=True, slots=True)
class SignedParts:
    """What a signature covers, as it is on the wire: in ASCII, and percent-encoded.

    ``path`` has neither the host nor the query, ``query`` not its question mark; ``server`` is
    the value of ``Veiltab-Server``, so that no server can pass a request on to another one.
    """

    method: str
    path: str
    query: str
    content_digest: str
    server: str


@dataclass(frozen=True, slots=True)
class RequestSignature:
    """Who signed a request (``party``), when, and with which nonce."""

    created: int
    nonce: bytes
    party: bytes
    signature: bytes


def content_digest(*body: bytes) -> str:
    """Return the value of ``Content-Digest`` for a body, in one part or in several.

    An empty one has a digest too.
    """
    digest = hashlib.sha256()
    for part in body:
        digest.update(part)
    return f"sha-256=:{base64.b64encode(digest.digest()).decode()}:"


def parse_content_digest(text: str) -> bytes:
    """Return the digest in a ``Content-Digest``: one of SHA-256, and no other beside it."""
    return _decoded(_DIGEST.fullmatch(text), CONTENT_DIGEST_HEADER)


def signature_parameters(created: int, nonce: bytes, party: bytes) -> str:
    """Return the covered components and the parameters, as RFC 9421 section 2.3 writes them."""
    if not 0 <= created <= _MAX_CREATED or len(nonce) != NONCE_BYTES or len(party) != _PARTY_BYTES:
        raise _unusable(SIGNATURE_INPUT_HEADER)
    return (
        f'{_LIST};created={created:d};nonce="{_base64url(nonce)}"'
        f';keyid="{party.hex()}";alg="ed25519";tag="{LABEL}"'
    )


def signature_base(parts: SignedParts, created: int, nonce: bytes, party: bytes) -> bytes:
    """Return the bytes that are signed (RFC 9421 section 2.5)."""
    _check_parts(parts)
    values = (parts.method, parts.path, f"?{parts.query}", parts.content_digest, parts.server)
    lines = [f'"{name}": {value}' for name, value in zip(COMPONENTS, values, strict=True)]
    lines.append(f'"@signature-params": {signature_parameters(created, nonce, party)}')
    return "\n".join(lines).encode("ascii")


def signature_headers(parts: SignedParts, signature: RequestSignature) -> dict[str, str]:
    """Return the four headers that turn a request into a signed one."""
    if len(signature.signature) != _SIGNATURE_BYTES:
        raise _unusable(SIGNATURE_HEADER)
    _check_parts(parts)
    parameters = signature_parameters(signature.created, signature.nonce, signature.party)
    return {
        CONTENT_DIGEST_HEADER: parts.content_digest,
        SERVER_HEADER: parts.server,
        SIGNATURE_INPUT_HEADER: f"{LABEL}={parameters}",
        SIGNATURE_HEADER: f"{LABEL}=:{base64.b64encode(signature.signature).decode()}:",
    }


def parse_signature(signature_input: str, signature: str) -> RequestSignature:
    """Read the two headers of a signature, which is not verified yet.

    A header that came twice, or with a second signature in it, is not in our form either.
    """
    match = _INPUT.fullmatch(signature_input)
    if match is None:
        raise _unusable(SIGNATURE_INPUT_HEADER)
    nonce = base64.urlsafe_b64decode(f"{match['nonce']}==")
    if _base64url(nonce) != match["nonce"]:  # the last character has bits that decode to nothing
        raise _unusable(SIGNATURE_INPUT_HEADER)
    return RequestSignature(
        created=int(match["created"]),
        nonce=nonce,
        party=bytes.fromhex(match["party"]),
        signature=_decoded(_SIGNATURE.fullmatch(signature), SIGNATURE_HEADER),
    )


def _check_parts(parts: SignedParts) -> None:
    target = (_METHOD, parts.method), (_PATH, parts.path), (_QUERY, parts.query)
    if not all(form.fullmatch(value) for form, value in target):
        raise UnauthenticatedError(
            "the request's method, path or query is not plain ASCII",
            hint="percent-encode whatever else is in the path and the query",
        )
    if not _SERVER.fullmatch(parts.server):
        raise _unusable(SERVER_HEADER)
    parse_content_digest(parts.content_digest)


def _decoded(match: re.Match[str] | None, header: str) -> bytes:
    """Decode the one group of a header's form, and refuse a second way to write the same bytes."""
    if match is None:
        raise _unusable(header)
    decoded = base64.b64decode(match[1])
    if base64.b64encode(decoded).decode() != match[1]:
        raise _unusable(header)
    return decoded


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unusable(header: str) -> UnauthenticatedError:
    return UnauthenticatedError(
        f"the header {header} is missing, or not in the one form that is read",
        hint=f"send it once, exactly as: {_FORMS[header]}",
    )
