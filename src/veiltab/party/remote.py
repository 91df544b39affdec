"""A server as a party sees it: one method for each route of the service.

The server is not trusted.  Whatever comes back has a limited size and the expected form, and
belongs to the study that was asked about; who signed it is for the roles to verify.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Any

from veiltab.core.entropy import Entropy, random_bytes
from veiltab.crypto.entropy import SystemEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import (
    MismatchError,
    NotFoundError,
    UnauthenticatedError,
    VeiltabError,
    VersionError,
)
from veiltab.party.answers import (
    MAX_LOG_PAGE_BYTES,
    Block,
    CuratorStatus,
    Log,
    ResearcherStatus,
    ServerStatus,
    Status,
    StudySummary,
    as_message,
    expect_digest,
    expect_study,
    read_list,
    read_log_page,
    read_log_pages,
    read_object,
    read_pages,
)
from veiltab.party.connection import CHUNK, Call, ClosedAtEnd, Connection, Headers, Reach, Retry
from veiltab.party.known.fingerprints import check_same_server
from veiltab.party.transfer import (
    ReleasedChunks,
    read_bundle,
    reading_order,
    released_sizes,
    send_all,
)
from veiltab.party.vaults.remote import RemoteVaults
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.keys import verify_rotations
from veiltab.wire.audit import Witness
from veiltab.wire.bundles import BUNDLE_BYTES, NamedChunk, bundle_pieces
from veiltab.wire.codec import check_typed, dump
from veiltab.wire.contract import DIGEST, Contract, PublicIdentity
from veiltab.wire.messages import (
    Alignment,
    GrantRevocation,
    Overlap,
    Publication,
    Release,
    Secret,
    SignedGrant,
    Upload,
)
from veiltab.wire.requests import (
    NONCE_BYTES,
    RequestSignature,
    SignedParts,
    content_digest,
    signature_base,
    signature_headers,
)
from veiltab.wire.rotation import PartyKeys, Revocation, Rotation
from veiltab.wire.signed import VERSION, Signed

__all__ = [
    "CuratorStatus",
    "Reach",
    "ReleasedChunks",
    "RemoteServer",
    "ResearcherStatus",
    "Retry",
    "Status",
    "StudySummary",
    "reading_order",
    "released_sizes",
]

_MAX_DISCOVERY_BYTES = 2**16

Meet = Callable[[PublicIdentity, Sequence[Signed[Rotation]]], None]
"""Refuses a server by who it is, and by the keys that it has had."""


class RemoteServer(ClosedAtEnd):
    """The pinned server of a party; many threads may use it at once."""

    def __init__(
        self,
        url: str,
        pinned: PublicIdentity,
        identity: PrivateIdentity,
        *,
        entropy: Entropy | None = None,
        clock: Callable[[], float] = time.time,
        retry: Retry | None = None,
        reach: Reach | None = None,
        meet: Meet | None = None,
    ) -> None:
        """Refuse an unsafe URL; nothing is sent yet.

        Every request is signed by ``identity`` for the ``pinned`` server, with a nonce drawn from
        ``entropy``, by default the operating system's.  Before the first one the server is asked
        who it is; ``meet`` looks at its answer too, and refuses what a home knows better.
        """
        self.pinned, self.identity = pinned, identity
        self._meet, self._met, self._meeting = meet, False, Lock()
        self._entropy = SystemEntropy() if entropy is None else entropy
        self._clock = clock
        self._lock = Lock()
        self._connection = Connection(url, reach or Reach(), retry or Retry(), clock)
        self.vaults = RemoteVaults(self._send)

    @staticmethod
    def discover(
        url: str, *, retry: Retry | None = None, reach: Reach | None = None
    ) -> PublicIdentity:
        """Ask a server who it is; people compare the fingerprint before they pin the identity."""
        connection = Connection(url, reach or Reach(), retry or Retry(), time.time)
        try:
            return _ask_who(connection, _unsigned).identity
        finally:
            connection.close()

    @staticmethod
    def revoke(
        url: str,
        certificate: Signed[Revocation],
        *,
        retry: Retry | None = None,
        reach: Reach | None = None,
        meet: Meet | None = None,
    ) -> bytes:
        """Tell a server that a party's keys are revoked; its own signature is all that counts.

        ``meet`` is shown who the server is, and may refuse it.
        """
        connection = Connection(url, reach or Reach(), retry or Retry(), time.time)
        try:
            if meet is not None:
                status = _ask_who(connection, _unsigned)
                meet(status.identity, status.rotations)
            call = Call("POST", "/v1/parties/revocations", certificate.dumps())
            answer = read_object(connection.send(call, _unsigned))
        finally:
            connection.close()
        return DIGEST.read(answer.get("party"), "party")

    def close(self) -> None:
        """Close every connection."""
        self._connection.close()

    # Parties and studies

    def register(self, invitation: str) -> bytes:
        """Make this party known to the server, and return its party id."""
        identity = public_identity(self.identity)
        body = dump({**self._keys(), "identity": identity.to_json(), "invitation": invitation})
        answer = read_object(self._post("/v1/parties", body))
        party = DIGEST.read(answer.get("party"), "party")
        if party != identity.party_id:
            raise MismatchError(
                f"the server registered {party.hex()}, not {identity.party_id.hex()}",
                hint="check the URL, and ask the server's operator",
            )
        return party

    def rotate(self) -> None:
        """Tell the server this party's newest keys; telling it again changes nothing."""
        keys = self._keys()
        body = dump({"rotation": keys["rotations"][-1], "sealing_key": keys["sealing_key"]})
        self._send(Call("POST", "/v1/parties/rotations", body), _unsigned)

    def party_keys(self, party: bytes) -> PartyKeys:
        """Return what the server knows of a party's keys, which is not verified yet."""
        body = self._get(f"/v1/parties/{DIGEST.write(party, 'party')}")
        return PartyKeys.from_json(read_object(body))

    def _keys(self) -> dict[str, Any]:
        """Return the rotations of this party, and its newest sealing key."""
        rotations = [rotation.to_json() for rotation in self.identity.signing.proof]
        return {"rotations": rotations, "sealing_key": self.identity.sealing.public.hex()}

    def studies(self, *, inbox: bool = False) -> list[StudySummary]:
        """Return all studies that this party has looked at, or with ``inbox`` those it has not."""
        read = StudySummary.from_json
        return read_pages(self._get, "/v1/studies", "studies", read, inbox=inbox)

    # Whose proposals one does not want

    def block(self, party: bytes) -> None:
        """Refuse a party's proposals from now on."""
        self._send(Call("PUT", _block(party)))

    def unblock(self, party: bytes) -> None:
        """Allow a party's proposals again."""
        self._send(Call("DELETE", _block(party)))

    def blocks(self) -> dict[bytes, int]:
        """Return whom this party has blocked on the server, and since when."""
        blocks = read_list(self._get("/v1/blocks"), "blocks", Block.from_json)
        return {block.party: block.at for block in blocks}

    # Contracts

    def propose(self, signed: Signed[Contract]) -> Status:
        """Propose a study; sending the same contract again changes nothing."""
        body = self._post("/v1/studies", signed.dumps())
        return _status(body, signed.body.study_id)

    def status(self, study: bytes) -> Status:
        """Return where a study stands."""
        return _status(self._get(_path(study)), study)

    def contract(self, study: bytes) -> Signed[Contract]:
        """Return the contract with all signatures so far, which are not verified yet."""
        signed = Contract.loads(self._get(_path(study, "contract")))
        expect_study(signed.body.study_id, study, "contract")
        return signed

    def sign(self, study: bytes, signed: Signed[Contract]) -> Status:
        """Send a contract with this curator's signature on it."""
        expect_study(signed.body.study_id, study, "contract")
        return _status(self._post(_path(study, "signatures"), signed.dumps()), study)

    def abort(self, study: bytes, reason: str) -> Status:
        """End a study before its release; everybody in it sees the reason."""
        body = dump({"reason": check_typed(reason, "the reason")})
        return _status(self._post(_path(study, "abort"), body), study)

    # What curators tell each other

    def send_secret(self, study: bytes, signed: Signed[Secret]) -> None:
        """Pass a contribution to the study's secret on, sealed to another curator."""
        expect_study(signed.body.scope, study, "secret")
        self._post(_path(study, "secrets"), signed.dumps())

    def secrets(self, study: bytes) -> list[Signed[Secret]]:
        """Return the sealed contributions that this curator has sent, or that were sent to it."""
        body = self._get(_path(study, "secrets"))
        secrets = read_list(body, "secrets", as_message(Secret.loads))
        for signed in secrets:
            expect_study(signed.body.scope, study, "secret")
        return secrets

    def send_alignment(self, study: bytes, signed: Signed[Alignment]) -> None:
        """Send the keyed digest of this curator's respondents."""
        expect_study(signed.body.study, study, "alignment")
        self._post(_path(study, "alignments"), signed.dumps())

    def alignments(self, study: bytes) -> list[Signed[Alignment]]:
        """Return the alignments of all curators so far."""
        body = self._get(_path(study, "alignments"))
        alignments = read_list(body, "alignments", as_message(Alignment.loads))
        for signed in alignments:
            expect_study(signed.body.study, study, "alignment")
        return alignments

    # Uploads

    def sent_chunks(self, study: bytes, total: int = 0) -> set[bytes]:
        """Return the digests of what this curator has sent; a resumed upload leaves these out.

        ``total`` is how many bytes all chunks have: a server without room for them says so now.
        """
        path = _path(study, "chunks") + (f"?total={total}" if total else "")
        return set(read_list(self._get(path), "chunks", DIGEST.read))

    def send_chunks(
        self,
        study: bytes,
        chunks: Iterable[NamedChunk],
        on_sent: Callable[[int], None] = lambda _: None,
    ) -> int:
        """Send chunks with their digests, a few bundles at a time; return how many they were.

        ``on_sent`` is told how many more the server has.
        """
        path = _path(study, "chunks")

        def send(some: Sequence[NamedChunk]) -> None:
            body, *more = bundle_pieces(some)
            self._send(Call("PUT", path, body, CHUNK, more=more))

        return send_all(send, chunks, on_sent)

    def upload(self, study: bytes, signed: Signed[Upload]) -> Status:
        """Send the message that refers to the chunks, which must have been sent before."""
        expect_study(signed.body.scope, study, "upload")
        return _status(self._post(_path(study, "uploads"), signed.dumps()), study)

    # The release, grants and the log

    def release(self, study: bytes) -> Signed[Release]:
        """Return the release, whose signature is not verified yet."""
        signed = Release.loads(self._get(_path(study, "release")))
        expect_study(signed.body.study, study, "release")
        return signed

    def overlap(self, study: bytes) -> Signed[Overlap]:
        """Return the number of an overlap count, whose signature is not verified yet."""
        signed = Overlap.loads(self._get(_path(study, "release")))
        expect_study(signed.body.study, study, "number")
        return signed

    def release_chunks(self, study: bytes, digests: Sequence[bytes]) -> list[bytes]:
        """Return chunks of the release that grants to this researcher cover, checked."""
        body = dump({"chunks": [DIGEST.write(digest, "digest") for digest in digests]})
        call = Call("POST", _path(study, "release", "chunks"), body, limit=BUNDLE_BYTES)
        return read_bundle(self._send(call), digests)

    def send_grant(self, study: bytes, grant: SignedGrant) -> None:
        """Send a grant; one with one-time pads without its sealed part, which nobody may store."""
        expect_study(grant.body.study, study, "grant")
        sent = grant.header() if grant.body.pads == "one-time" else grant
        self._post(_path(study, "grants"), sent.dumps())

    def grants(self, study: bytes) -> list[SignedGrant]:
        """Return the grants by this curator, or to this researcher."""
        body = self._get(_path(study, "grants"))
        grants = read_list(body, "grants", as_message(SignedGrant.loads))
        for grant in grants:
            expect_study(grant.body.study, study, "grant")
        return grants

    def grant_header(self, study: bytes, digest: bytes) -> SignedGrant:
        """Return what a curator has signed of a grant, by its digest in the log."""
        grant = SignedGrant.loads(self._get(_path(study, "grants", DIGEST.write(digest, "digest"))))
        expect_digest(grant.signed, digest)
        return grant

    def send_revocation(self, study: bytes, signed: Signed[GrantRevocation]) -> None:
        """Take a grant of one's own back; sending it again changes nothing."""
        expect_study(signed.body.study, study, "revocation")
        self._post(_path(study, "revocations"), signed.dumps())

    def revocation(self, study: bytes, digest: bytes) -> Signed[GrantRevocation]:
        """Return the revocation of a grant, by its digest in the log."""
        path = _path(study, "revocations", DIGEST.write(digest, "digest"))
        signed = GrantRevocation.loads(self._get(path))
        expect_digest(signed, digest)
        return signed

    def publish(self, study: bytes, signed: Signed[Publication]) -> None:
        """Say which copy of this researcher's counts is the published one; the same ever after."""
        expect_study(signed.body.study, study, "publication")
        self._post(_path(study, "publications"), signed.dumps())

    def publications(self, study: bytes) -> list[Signed[Publication]]:
        """Return what researchers have published, by the digests of their copies."""
        body = self._get(_path(study, "publications"))
        publications = read_list(body, "publications", as_message(Publication.loads))
        for signed in publications:
            expect_study(signed.body.study, study, "publication")
        return publications

    def audit(self, study: bytes, after: int = 0) -> Log:
        """Return a study's log from an entry on, and its head; ``protocol.audit_log`` checks it."""

        def fetch(start: int) -> Log:
            path = _path(study, "audit") + (f"?after={start}" if start else "")
            call = Call("GET", path, limit=MAX_LOG_PAGE_BYTES)
            return read_log_page(self._send(call), study)

        return read_log_pages(fetch, after)

    def leave_head(self, study: bytes, signed: Signed[Witness]) -> None:
        """Tell the others which end of the log the server has shown to this party."""
        expect_study(signed.body.head.body.study, study, "head of the audit log")
        self._post(_path(study, "heads"), signed.dumps())

    def heads(self, study: bytes) -> list[Signed[Witness]]:
        """Return what others say that the server has shown to them; nothing of it is verified."""
        return read_list(self._get(_path(study, "heads")), "heads", as_message(Witness.loads))

    def _get(self, path: str) -> bytes:
        return self._send(Call("GET", path))

    def _post(self, path: str, body: bytes) -> bytes:
        return self._send(Call("POST", path, body))

    def _send(self, call: Call, sign: Callable[[Call], Headers] | None = None) -> bytes:
        """Send a request to the pinned server, and to no other.

        A server that refuses the sender is asked once more who it is: another one may have taken
        its place in the meantime.
        """
        self.check_server()
        try:
            return self._connection.send(call, sign or self._sign)
        except UnauthenticatedError:
            self._met = False
            self.check_server()
            raise

    def check_server(self) -> None:
        """Ask the server who it is, unless it was asked before, and refuse any but the pinned one.

        This request is signed like all others: so it counts as the party's own, and not among
        those of strangers, which may be too many.
        """
        with self._meeting:
            if self._met:
                return
            status = _ask_who(self._connection, self._sign)
            check_same_server(self._connection.url, status.identity, self.pinned)
            if self._meet is not None:
                self._meet(status.identity, status.rotations)
            self.pinned, self._met = status.identity, True

    def _sign(self, call: Call) -> Headers:
        """Sign a request with a nonce of its own, as of now."""
        digest = content_digest(call.body, *call.more)
        path, _, query = call.path.partition("?")
        parts = SignedParts(call.method, path, query, digest, self.pinned.party_id.hex())
        with self._lock:  # a source of randomness need not be made for threads
            nonce = random_bytes(NONCE_BYTES, self._entropy)
        created, party = int(self._clock()), self.identity.party_id
        signature = self.identity.signing.sign(signature_base(parts, created, nonce, party))
        return signature_headers(parts, RequestSignature(created, nonce, party, signature))


def is_unknown(fetch: Callable[[bytes], object], scope: bytes) -> bool:
    """Tell whether the server knows no such study or vault, whose state is fetched so."""
    try:
        fetch(scope)
    except VeiltabError as error:
        return isinstance(error, NotFoundError)
    return False


def _unsigned(_: Call) -> Headers:
    return {}


def _ask_who(connection: Connection, sign: Callable[[Call], Headers]) -> ServerStatus:
    """Ask a server who it is, and check that what it says is possible."""
    call = Call("GET", "/v1/server", limit=_MAX_DISCOVERY_BYTES)
    status = ServerStatus.from_json(read_object(connection.send(call, sign)))
    if VERSION not in status.versions:
        raise VersionError(
            f"the server does not speak version {VERSION} of the protocol",
            hint="use the same version of veiltab on both sides",
        )
    verify_rotations(status.identity, status.rotations)
    return status


def _block(party: bytes) -> str:
    return f"/v1/blocks/{DIGEST.write(party, 'party')}"


def _path(study: bytes, *parts: str) -> str:
    return "/".join(("/v1/studies", DIGEST.write(study, "study"), *parts))


def _status(body: bytes, study: bytes) -> Status:
    status = Status.from_json(read_object(body))
    expect_study(status.study, study, "status")
    return status
