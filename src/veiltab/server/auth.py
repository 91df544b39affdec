"""Who has sent a request: RFC 9421 signatures, each good once and for a few minutes.

A stranger becomes a party by an invitation, which is a code that works once.
"""

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from veiltab.core.entropy import random_bytes
from veiltab.core.hashing import labelled_hash
from veiltab.crypto import signing
from veiltab.errors import SignatureError, UnauthenticatedError
from veiltab.server.context import ServiceContext
from veiltab.server.db.records import Records
from veiltab.server.limits import MAX_SENDERS, Buckets, Places, too_large
from veiltab.wire.codec import TEXT, exact_fields, load
from veiltab.wire.contract import PublicIdentity
from veiltab.wire.requests import (
    CONTENT_DIGEST_HEADER,
    MAX_SKEW_SECONDS,
    SERVER_HEADER,
    SIGNATURE_HEADER,
    SIGNATURE_INPUT_HEADER,
    RequestSignature,
    SignedParts,
    parse_content_digest,
    parse_signature,
    signature_base,
)

CODE_BYTES = 20
DEFAULT_DAYS = 14
SECONDS_A_DAY = 86_400

LARGE_AT_ONCE = 8
"""How many bodies that may be longer than a chunk are read at once; others wait."""

_STRANGER = "register with the server first; sign with the identity that you registered"


@dataclass(frozen=True, slots=True)
class Sender:
    """A registered party, proved by its signature, and the body of its request in pieces.

    ``digest`` is the SHA-256 of the body, which was signed.
    """

    identity: PublicIdentity
    pieces: Sequence[bytes] = field(repr=False)
    digest: bytes

    @property
    def body(self) -> bytes:
        """The whole body, copied from its pieces."""
        return b"".join(self.pieces)

    @property
    def party(self) -> bytes:
        """The sender's party id."""
        return self.identity.party_id


@dataclass(frozen=True, slots=True)
class Newcomer:
    """Somebody who asks to be registered, and shows an invitation."""

    identity: PublicIdentity
    invitation: str = field(repr=False)
    signature: RequestSignature


class Gate:
    """Admits requests of registered parties; refuses all others before they cost much."""

    def __init__(self, context: ServiceContext) -> None:
        """Start with full buckets."""
        settings = context.settings
        self._context = context
        self._parties = Buckets(settings.rate, settings.burst, context.clock)
        self._strangers = Buckets(settings.stranger_rate, settings.stranger_burst, context.clock)
        self._known: dict[bytes, PublicIdentity] = {}
        self._places = Places(LARGE_AT_ONCE)

    def stranger(self, request: Request) -> None:
        """Count a request of somebody unknown against its network address."""
        self._strangers.take(request.client.host if request.client else "")

    def sender(self, most_bytes: int) -> Callable[[Request], AsyncIterator[Sender]]:
        """Return the dependency of a route that takes signed requests of registered parties."""

        async def check(request: Request) -> AsyncIterator[Sender]:
            try:
                signature, parts = _parse(request)
                identity = await self._registered(signature.party)
                self._check(signature, parts, identity)
            except UnauthenticatedError:
                self.stranger(request)
                raise
            self._parties.take(signature.party)
            async with self._place(signature.party, most_bytes):
                pieces = await _body(request, most_bytes)
                digest = parse_content_digest(parts.content_digest)
                await run_in_threadpool(self._use, signature, pieces, digest)
                yield Sender(identity, pieces, digest)

        return check

    def _place(self, party: bytes, most: int) -> AbstractAsyncContextManager[None]:
        """Wait, if the body may be large, for a place in memory, and keep it meanwhile."""
        large = most > self._context.settings.chunk_bytes
        return self._places.take(party) if large else nullcontext()

    async def newcomer(self, request: Request) -> Newcomer:
        """Return a party that asks to be registered, proved by its own signature."""
        self.stranger(request)
        signature, parts = _parse(request)
        pieces = await _body(request, self._context.settings.small_bytes)
        _check_digest(pieces, parse_content_digest(parts.content_digest))
        identity, invitation = _registration(b"".join(pieces))
        if identity.party_id != signature.party:
            raise UnauthenticatedError(
                "the request is not signed by the identity that it registers",
                hint="sign the registration with the new identity itself",
            )
        self._check(signature, parts, identity)
        return Newcomer(identity, invitation, signature)

    async def _registered(self, party: bytes) -> PublicIdentity:
        """Return a registered party; it is remembered, because it never changes."""
        identity = self._known.get(party)
        if identity is None:
            identity = await run_in_threadpool(self._look_up, party)
            if len(self._known) >= MAX_SENDERS:
                self._known.clear()
            self._known[party] = identity
        return identity

    def _look_up(self, party: bytes) -> PublicIdentity:
        with self._context.database.reading() as records:
            identity = records.party(party)
        if identity is None:
            raise UnauthenticatedError("the sender is not registered here", hint=_STRANGER)
        return identity

    def _check(
        self, signature: RequestSignature, parts: SignedParts, identity: PublicIdentity
    ) -> None:
        """Refuse a request to another server, from another time, or signed by somebody else."""
        if parts.server != self._context.identity.party_id.hex():
            raise UnauthenticatedError(
                "the request is meant for another server",
                hint="compare the server's fingerprint; it may have changed its identity",
            )
        if abs(signature.created - self._context.now) > MAX_SKEW_SECONDS:
            raise UnauthenticatedError(
                f"the request was signed more than {MAX_SKEW_SECONDS} s from now",
                hint="set the clock of your machine right",
            )
        base = signature_base(parts, signature.created, signature.nonce, signature.party)
        try:
            signing.verify(identity.signing_key, base, signature.signature)
        except SignatureError as error:
            raise UnauthenticatedError(
                "the request's signature is wrong", hint=_STRANGER
            ) from error

    def _use(self, signature: RequestSignature, pieces: Sequence[bytes], digest: bytes) -> None:
        """Refuse a body that is not the one that was signed, or that has come before."""
        _check_digest(pieces, digest)
        with self._context.database.transaction() as records:
            use_once(records, signature)


def use_once(records: Records, signature: RequestSignature) -> None:
    """Refuse a request that was answered before: somebody may have recorded and repeated it."""
    if not records.use_nonce(signature.party, signature.nonce, signature.created):
        raise UnauthenticatedError(
            "this very request has been answered before", hint="sign each request anew"
        )


def _parse(request: Request) -> tuple[RequestSignature, SignedParts]:
    """Read the signed parts of a request; a header that comes twice is ambiguous, and not read."""

    def header(name: str) -> str:
        values = request.headers.getlist(name)
        return values[0] if len(values) == 1 else ""

    parts = SignedParts(
        method=request.method,
        path=request.scope["raw_path"].decode("latin-1"),
        query=request.scope["query_string"].decode("latin-1"),
        content_digest=header(CONTENT_DIGEST_HEADER),
        server=header(SERVER_HEADER),
    )
    return parse_signature(header(SIGNATURE_INPUT_HEADER), header(SIGNATURE_HEADER)), parts


async def _body(request: Request, most: int) -> list[bytes]:
    """Read the body, up to its limit, in the pieces in which it arrives."""
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > most:
        raise too_large("the body", most)
    pieces, size = [], 0
    try:
        async for piece in request.stream():
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise too_large("the body", most)
    except ClientDisconnect as error:  # nobody reads the answer, but it is not a bug either
        raise UnauthenticatedError(
            "the body broke off", hint="send it again, with its Content-Digest"
        ) from error
    return pieces


def _check_digest(pieces: Sequence[bytes], digest: bytes) -> None:
    """Refuse a body that is not the one that was signed."""
    body_hash = hashlib.sha256()
    for piece in pieces:
        body_hash.update(piece)
    if body_hash.digest() != digest:
        raise UnauthenticatedError(
            "the body is not the one that was signed", hint="send it again, with its Content-Digest"
        )


def _registration(body: bytes) -> tuple[PublicIdentity, str]:
    fields = exact_fields(load(body), ("identity", "invitation"), "")
    return (
        PublicIdentity.from_json(fields["identity"], "identity"),
        TEXT.read(fields["invitation"], "invitation"),
    )


def invite(context: ServiceContext, name: str, days: int = DEFAULT_DAYS) -> str:
    """Return a new one-time code; ``name`` reminds the operator for whom it is.

    Only a hash of the code is kept, so it cannot be shown again.
    """
    code = random_bytes(CODE_BYTES, context.entropy).hex()
    with context.database.transaction() as records:
        records.add_invitation(_hash(code), name, context.now, context.now + days * SECONDS_A_DAY)
    return code


def register(context: ServiceContext, newcomer: Newcomer) -> bool:
    """Register a party that shows an invitation; ``False`` if it was registered before."""
    with context.database.transaction() as records:
        use_once(records, newcomer.signature)
        records.use_invitation(_hash(newcomer.invitation), newcomer.identity.party_id, context.now)
        return records.add_party(newcomer.identity, context.now)


def _hash(code: str) -> bytes:
    """Hash a code; it has 160 random bits, so a fast hash is enough."""
    return labelled_hash("invitation", code.strip().lower().encode())
