"""Who has sent a request: RFC 9421 signatures, each good once and for a few minutes.

A stranger becomes a party by an invitation, which is a code that works once.
"""

import asyncio
import hashlib
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.types import Scope

from veiltab.crypto import signing
from veiltab.errors import (
    LengthRequiredError,
    RateLimitError,
    SignatureError,
    TooLargeError,
    UnauthenticatedError,
)
from veiltab.protocol.keys import newest_sealing, verify_rotations
from veiltab.server.context import ServiceContext
from veiltab.server.db.records import Records
from veiltab.server.limits import (
    KIB,
    MAX_SENDERS,
    Buckets,
    InFlight,
    Place,
    Places,
    Turns,
    network,
    too_large,
)
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
from veiltab.wire.rotation import PartyKeys
from veiltab.wire.signed import Signed

PROVED = "veiltab.proved"
"""The ASGI extension by which a connection is told that the sender of a request is known."""

TURN = "veiltab.turn"
"""Where a request has what ends its turn, when its answer begins."""

BODY_TOKENS = 5
"""What a stranger's request with a body costs: it is read before its sender is known."""

ALL_STRANGERS = 10
"""How many times one stranger's rate all of them have together."""

LOOK_UPS_AT_ONCE = 4
"""Senders that are looked up in the database at once: most of them are strangers."""

REMEMBERED_SECONDS = 5
"""How long a sender is not looked up again; the operator may have changed it meanwhile."""

_PIECE = 64 * KIB
_LONGEST_LENGTH = 15
"""Digits of a Content-Length that are read."""

Known = tuple[PublicIdentity, bytes]
"""A registered party, and its newest signing key."""


@dataclass(frozen=True, slots=True)
class Sender:
    """A registered party, proved by its signature, and the body of its request in pieces.

    ``digest`` is the SHA-256 of the body, which was signed by ``key``, the party's newest; that is
    its first one unless it is given.
    """

    identity: PublicIdentity
    pieces: Sequence[bytes] = field(repr=False)
    digest: bytes
    key: bytes | None = None

    @property
    def body(self) -> bytes:
        """The whole body, copied from its pieces."""
        return b"".join(self.pieces)

    @property
    def party(self) -> bytes:
        """The sender's party id."""
        return self.identity.party_id

    def check_newest(self, signed: Signed[Any]) -> None:
        """Refuse a message of the sender under a key that it has replaced: who knows who has it."""
        newest = self.key or self.identity.signing_key
        for signature in signed.signatures:
            if signature.root == self.identity.signing_key and signature.key != newest:
                raise SignatureError(
                    f"the {signed.body.kind} is signed with a key that its party has replaced",
                    hint="sign it again with the newest key; if you have not replaced it, revoke"
                    " the identity",
                )


@dataclass(frozen=True, slots=True)
class Newcomer:
    """Somebody who asks to be registered, and shows an invitation."""

    keys: PartyKeys
    invitation: str = field(repr=False)
    signature: RequestSignature

    @property
    def identity(self) -> PublicIdentity:
        """Who asks, by its first keys."""
        return self.keys.identity

    @property
    def party(self) -> bytes:
        """The newcomer's party id."""
        return self.identity.party_id


class Gate:
    """Admits requests of registered parties; refuses all others before they cost much.

    All who are refused get the same answer, after the same work.
    """

    def __init__(self, context: ServiceContext) -> None:
        """Start with full buckets."""
        settings = context.settings
        self._context = context
        self._parties = Buckets(settings.rate, settings.burst, context.clock)
        self._strangers = Buckets(settings.stranger_rate, settings.stranger_burst, context.clock)
        self._known: OrderedDict[bytes, tuple[Known | None, float]] = OrderedDict()
        self._forgotten = 0
        self._look_ups = asyncio.Semaphore(LOOK_UPS_AT_ONCE)
        self._all_strangers = Buckets(
            ALL_STRANGERS * settings.stranger_rate,
            ALL_STRANGERS * settings.stranger_burst,
            context.clock,
        )
        self._letters = Turns(1)
        self._turns = Turns(settings.party_turns)
        self._in_flight = InFlight(settings.requests, settings.party_requests)
        self._places = Places(
            settings.body_memory_bytes, settings.grace_seconds / 4, settings.crowded_rate
        )

    async def stranger(self, request: Request) -> None:
        """Count a request of somebody unknown against its network address.

        One too many is refused after a while: a connection carries one request at a time, so
        waiting costs its sender more than the service.
        """
        await self._count_stranger(request.scope)

    async def anybody(self, request: Request) -> None:
        """Count a request that anybody may send: to its sender, if it proves who that is.

        So whoever floods the service as a stranger does not keep its parties from asking who it is.
        """
        try:
            signature, parts = _parse(request)
            self._check(signature, parts, await self._registered(signature.party))
        except UnauthenticatedError:
            await self.stranger(request)
            return
        async with self._late():
            self._parties.take(signature.party)

    async def _count_stranger(self, scope: Scope, tokens: int = 1) -> None:
        async with self._late():
            self._strangers.take(_network(scope), tokens)
            self._all_strangers.take("", tokens)

    async def lost(self, scope: Scope) -> None:
        """Count a request to no route, which is answered late if they are too many."""
        with suppress(RateLimitError):
            await self._count_stranger(scope)

    @asynccontextmanager
    async def _late(self) -> AsyncIterator[None]:
        """Refuse what is too much after a while, in which its connection can ask nothing else."""
        try:
            yield
        except RateLimitError:
            await asyncio.sleep(self._context.settings.refusal_wait_seconds)
            raise

    def sender(self, most_bytes: int) -> Callable[[Request], AsyncIterator[Sender]]:
        """Return the dependency of a route that takes signed requests of registered parties."""

        async def check(request: Request) -> AsyncIterator[Sender]:
            try:
                signature, parts = _parse(request)
                known = self._check(signature, parts, await self._registered(signature.party))
            except UnauthenticatedError:
                await self.stranger(request)
                raise
            async with AsyncExitStack() as stack:
                async with self._late():
                    self._parties.take(signature.party)
                    stack.enter_context(self._in_flight.take(signature.party))
                _note_proved(request.scope)
                pieces = await self._receive(request, signature.party, most_bytes, stack)
                digest = parse_content_digest(parts.content_digest)
                request.scope[TURN] = stack.callback(await self._turns.begin(signature.party))
                await run_in_threadpool(self._use, signature, pieces, digest)
                yield Sender(known[0], pieces, digest, known[1])

        return check

    async def _receive(
        self, request: Request, party: bytes, most: int, stack: AsyncExitStack
    ) -> list[bytes]:
        """Read a body; a large one waits for a place in memory, which the stack gives back."""
        small = self._context.settings.small_bytes
        length = _length(request, most)
        if length is None and most > small:
            return await _unannounced(request, small)
        if length is None or length <= small:
            return await _body(request, most if length is None else length)
        place = await stack.enter_async_context(self._places.take(party, length))
        async with place.arriving():
            return await _body(request, length, place)

    async def newcomer(self, request: Request) -> Newcomer:
        """Return a party that asks to be registered, proved by its own signature."""
        await self._count_stranger(request.scope, BODY_TOKENS)
        signature, parts = _parse(request)
        pieces = await self._short_body(request)
        end = await self._letters.begin("")
        try:
            return await run_in_threadpool(self._newcomer, signature, parts, pieces)
        finally:
            end()

    def _newcomer(
        self, signature: RequestSignature, parts: SignedParts, pieces: Sequence[bytes]
    ) -> Newcomer:
        _check_digest(pieces, parse_content_digest(parts.content_digest))
        keys, invitation = _registration(b"".join(pieces))
        identity = keys.identity
        if identity.party_id != signature.party:
            raise UnauthenticatedError(
                "the request is not signed by the identity that it registers",
                hint="sign the registration with the new identity itself",
            )
        self._check(signature, parts, (identity, _newest(keys)))
        return Newcomer(keys, invitation, signature)

    async def letter(self, request: Request) -> AsyncIterator[bytes]:
        """Return the body of a request that anybody may send; one at a time is worked on."""
        await self._count_stranger(request.scope, BODY_TOKENS)
        pieces = await self._short_body(request)
        end = request.scope[TURN] = await self._letters.begin("")
        try:
            yield b"".join(pieces)
        finally:
            end()

    async def _short_body(self, request: Request) -> list[bytes]:
        most = self._context.settings.small_bytes
        _length(request, most)
        return await _body(request, most)

    async def _registered(self, party: bytes) -> Known | None:
        """Return a registered party with its newest key, or none; remembered for a moment."""
        known, then = self._known.get(party, (None, -math.inf))
        if abs(self._context.clock() - then) > REMEMBERED_SECONDS:
            async with self._look_ups:
                forgotten = self._forgotten
                known = await run_in_threadpool(self._look_up, party)
            if forgotten == self._forgotten:  # else it may have changed after it was read
                self._known[party] = known, self._context.clock()
            if len(self._known) > MAX_SENDERS:
                self._known.popitem(last=False)
        return known

    def forget(self, party: bytes) -> None:
        """Look a party up again: it has changed."""
        self._forgotten += 1
        self._known.pop(party, None)

    def _look_up(self, party: bytes) -> Known | None:
        """Return a party that may ask, with the newest of its keys, or none."""
        with self._context.database.reading() as records:
            identity, key = records.party(party), records.newest_key(party)
        return None if identity is None or key is None else (identity, key)

    def _check(self, signature: RequestSignature, parts: SignedParts, known: Known | None) -> Known:
        """Refuse a request to another server, from another time, or signed by somebody else.

        The signature of somebody unknown is verified too, by a key that is not its own: how long
        the answer takes must not tell whether a party is registered.
        """
        key = self._context.identity.signing_key if known is None else known[1]
        base = signature_base(parts, signature.created, signature.nonce, signature.party)
        is_signed = False
        with suppress(SignatureError):
            signing.verify(key, base, signature.signature)
            is_signed = True
        is_here = parts.server == self._context.identity.party_id.hex()
        is_now = abs(signature.created - self._context.now) <= MAX_SKEW_SECONDS
        if known is None or not (is_signed and is_here and is_now):
            raise UnauthenticatedError(
                "the sender is not known, or the signature is not good here and now",
                hint="sign with the identity that is registered; compare clock and server",
            )
        return known

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


def _network(scope: Scope) -> str:
    """Return the network address that a request is counted against."""
    client = scope.get("client")
    return network(client[0]) if client else ""


def _note_proved(scope: Scope) -> None:
    """Tell the connection, if it is one of ours, that it is needed."""
    connection = scope.get("extensions", {}).get(PROVED)
    if connection is not None:
        connection["prove"]()


def _length(request: Request, most: int) -> int | None:
    """Return the length of a body as it is announced, if it is."""
    announced = request.headers.get("content-length")
    if announced is None:
        return None
    is_read = announced.isdecimal() and len(announced) <= _LONGEST_LENGTH
    if not is_read or int(announced) > most:
        raise too_large("the body", most)
    return int(announced)


async def _body(request: Request, most: int, place: Place | None = None) -> list[bytes]:
    """Read the body, up to its limit, in pieces: byte by byte it would take more memory."""
    pieces, small, size = [], bytearray(), 0
    try:
        async for piece in request.stream():
            size += len(piece)
            if size > most:
                raise too_large("the body", most)
            if place is not None:
                place.received = size
            if len(piece) < _PIECE:
                small += piece
            if len(piece) >= _PIECE or len(small) >= _PIECE:
                pieces += [bytes(small), piece] if len(piece) >= _PIECE else [bytes(small)]
                small.clear()
    except ClientDisconnect as error:  # nobody reads the answer, but it is not a bug either
        raise UnauthenticatedError(
            "the body broke off", hint="send it again, with its Content-Digest"
        ) from error
    return [*pieces, bytes(small)]


async def _unannounced(request: Request, most: int) -> list[bytes]:
    """Read a body that could have been long, and has not said so."""
    try:
        return await _body(request, most)
    except TooLargeError as error:
        raise LengthRequiredError(
            f"the body has more than {most:,} bytes, and its length is not announced",
            hint="send it with a Content-Length",
        ) from error


def _check_digest(pieces: Sequence[bytes], digest: bytes) -> None:
    """Refuse a body that is not the one that was signed."""
    body_hash = hashlib.sha256()
    for piece in pieces:
        body_hash.update(piece)
    if body_hash.digest() != digest:
        raise UnauthenticatedError(
            "the body is not the one that was signed", hint="send it again, with its Content-Digest"
        )


def _registration(body: bytes) -> tuple[PartyKeys, str]:
    names = ("identity", "invitation", "rotations", "sealing_key")
    fields = exact_fields(load(body), names, "")
    invitation = TEXT.read(fields.pop("invitation"), "invitation")
    return PartyKeys.from_json({**fields, "revocation": None}), invitation


def _newest(keys: PartyKeys) -> bytes:
    """Return the newest signing key of a newcomer; all that leads to it has to be signed."""
    newest_sealing(keys.identity, keys.rotations, keys.sealing_key)
    return verify_rotations(keys.identity, keys.rotations)
