"""The routes of the service; all but those in ``PUBLIC`` take signed requests only."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Response
from fastapi.responses import HTMLResponse, StreamingResponse

from veiltab.server import block_steps, grant_steps, invitations, steps, views
from veiltab.server.context import ServiceContext
from veiltab.server.http.auth import Gate, Newcomer, Sender
from veiltab.server.http.front_page import front_page
from veiltab.server.http.models import (
    BYTES,
    JSON,
    PROBLEMS,
    Alignments,
    Blocks,
    Chunks,
    Grants,
    Nothing,
    Publications,
    Ready,
    Registered,
    Secrets,
    Server,
    Status,
    StudyList,
    ThreadRoute,
    body,
    bytes_answer,
    repeated,
)
from veiltab.server.http.readiness import Readiness
from veiltab.server.limits import SOFTWARE_VERSION
from veiltab.server.worker import Worker
from veiltab.wire.bundles import MAX_ASKED
from veiltab.wire.codec import MAX_INTEGER, TEXT, exact_fields, items, load
from veiltab.wire.contract import DIGEST
from veiltab.wire.signed import VERSION

PUBLIC = frozenset({"/", "/healthz", "/readyz", "/openapi.json", "/v1/server"})
"""Routes that answer anybody; none of them says anything about a party or a study."""

HEX = r"^[0-9a-f]{64}$"
StudyId = Annotated[str, Path(pattern=HEX, description="The study's id, in hexadecimal.")]

PartyId = Annotated[str, Path(pattern=HEX, description="A party's id, in hexadecimal.")]
Digest = Annotated[
    str, Path(pattern=HEX, description="The digest of a message in the log, in hexadecimal.")
]
PAGE = 100
After = Annotated[
    str | None,
    Query(pattern=r"^[0-9]{1,12}-[0-9a-f]{64}$", description="`next` of the page before."),
]
Limit = Annotated[int, Query(ge=1, le=PAGE, description="How many studies at most.")]

Total = Annotated[
    int,
    Query(ge=0, le=MAX_INTEGER, description="How many bytes all chunks of your upload have."),
]

ASKED = items(DIGEST, least=1, most=MAX_ASKED)


def operator_routes(context: ServiceContext, worker: Worker, gate: Gate) -> APIRouter:
    """Return the routes of the operator's tools, and the one that says who the server is."""
    router = APIRouter(
        tags=["operator"],
        responses=PROBLEMS,
        route_class=ThreadRoute,
    )
    stranger, anybody = [Depends(gate.stranger)], [Depends(gate.anybody)]
    ready = Readiness(context, worker)

    @router.get(
        "/", summary="A page for people", response_class=HTMLResponse, dependencies=stranger
    )
    def root() -> HTMLResponse:
        return front_page(context.identity)

    @router.get("/healthz", summary="The process runs", dependencies=stranger)
    def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @router.get(
        "/readyz", summary="The database, the disk and the worker answer", dependencies=stranger
    )
    def readyz() -> Ready:
        return Ready(status="ready", takes_uploads=ready.check())

    @router.get("/v1/server", summary="Who this server is", dependencies=anybody)
    def server() -> Server:
        return Server(
            identity=context.identity.to_json(),
            rotations=[rotation.to_json() for rotation in context.key.proof],
            software=f"veiltab {SOFTWARE_VERSION}",
            time=context.now,
            versions=[VERSION],
        )

    return router


def party_routes(context: ServiceContext, gate: Gate) -> APIRouter:
    """Return the one route for parties that are not registered yet."""
    router = APIRouter(tags=["parties"], responses=PROBLEMS, route_class=ThreadRoute)

    @router.post(
        "/v1/parties",
        summary="Register with an invitation",
        status_code=201,
        responses=repeated(Registered),
        openapi_extra=body("identity and invitation, signed by that identity"),
    )
    def register(
        response: Response, newcomer: Annotated[Newcomer, Depends(gate.newcomer)]
    ) -> Registered:
        created(response, new=invitations.register(context, newcomer))
        gate.forget(newcomer.party)
        return Registered(party=newcomer.party.hex())

    return router


def block_routes(context: ServiceContext, gate: Gate) -> APIRouter:
    """Return the routes by which a party says whose proposals it does not want."""
    router = APIRouter(tags=["parties"], responses=PROBLEMS, route_class=ThreadRoute)
    small = Annotated[Sender, Depends(gate.sender(context.settings.small_bytes))]

    @router.get("/v1/blocks", summary="Whose proposals you do not want")
    def blocks(sender: small) -> Blocks:
        return views.blocks(context, sender)

    @router.put(
        "/v1/blocks/{party}",
        summary="Refuse a party's proposals from now on",
        status_code=201,
        responses=repeated(Nothing),
    )
    def block(response: Response, party: PartyId, sender: small) -> Nothing:
        created(response, new=block_steps.block(context, sender, bytes.fromhex(party)))
        return Nothing()

    @router.delete("/v1/blocks/{party}", summary="Allow a party's proposals again")
    def unblock(party: PartyId, sender: small) -> Nothing:
        block_steps.unblock(context, sender, bytes.fromhex(party))
        return Nothing()

    return router


def study_routes(context: ServiceContext, gate: Gate, worker: Worker) -> APIRouter:
    """Return the routes of studies: for all parties, for curators, and for researchers."""
    router = APIRouter(tags=["studies"], responses=PROBLEMS, route_class=ThreadRoute)
    limits = context.settings
    small = Annotated[Sender, Depends(gate.sender(limits.small_bytes))]
    long = Annotated[Sender, Depends(gate.sender(limits.contract_bytes))]

    @router.get("/v1/studies", summary="The studies that name you, in pages")
    def list_studies(
        sender: small, after: After = None, limit: Limit = PAGE, *, inbox: bool = False
    ) -> StudyList:
        cursor = None if after is None else views.read_cursor(after)
        return views.studies(context, sender, cursor, limit, inbox=inbox)

    @router.post(
        "/v1/studies",
        summary="Propose a study",
        status_code=201,
        responses=repeated(Status),
        openapi_extra=body("a contract, signed by its proposer (spec 4)"),
    )
    def propose(response: Response, sender: long) -> Status:
        study, new = steps.propose(context, sender)
        worker.wake()
        created(response, new=new)
        return views.status(context, sender, study)

    @router.get("/v1/studies/{study}", summary="Where a study stands")
    def status(study: StudyId, sender: small) -> Status:
        return views.status(context, sender, bytes.fromhex(study))

    @router.get(
        "/v1/studies/{study}/contract",
        summary="The contract with its signatures so far",
        response_class=Response,
        responses=bytes_answer("a contract (spec 4)"),
    )
    def contract(study: StudyId, sender: small) -> Response:
        return Response(views.contract(context, sender, bytes.fromhex(study)), media_type=JSON)

    @router.post(
        "/v1/studies/{study}/signatures",
        summary="Sign the contract",
        openapi_extra=body("the contract, signed by a curator (spec 4)"),
    )
    def sign(study: StudyId, sender: long) -> Status:
        steps.sign(context, sender, bytes.fromhex(study))
        worker.wake()
        return views.status(context, sender, bytes.fromhex(study))

    @router.post(
        "/v1/studies/{study}/abort",
        summary="End a study before its release",
        openapi_extra=body("the reason, a text"),
    )
    def abort(study: StudyId, sender: small) -> Status:
        fields = exact_fields(load(sender.body), ("reason",), "")
        reason = TEXT.read(fields["reason"], "reason")
        steps.abort(context, sender, bytes.fromhex(study), reason)
        return views.status(context, sender, bytes.fromhex(study))

    _add_curator_routes(router, context, gate, worker)
    _add_researcher_routes(router, context, gate)
    return router


def _add_curator_routes(
    router: APIRouter, context: ServiceContext, gate: Gate, worker: Worker
) -> None:
    limits = context.settings
    small = Annotated[Sender, Depends(gate.sender(limits.small_bytes))]
    large = Annotated[Sender, Depends(gate.sender(limits.message_bytes))]
    grant = Annotated[Sender, Depends(gate.sender(limits.grant_bytes))]
    bundle = Annotated[Sender, Depends(gate.sender(limits.bundle_bytes))]

    @router.post(
        "/v1/studies/{study}/secrets",
        summary="Pass your part of the study's secret to another curator, sealed",
        status_code=201,
        responses=repeated(Nothing),
        openapi_extra=body("a sealed secret (spec 4.2)"),
    )
    def send_secret(response: Response, study: StudyId, sender: small) -> Nothing:
        created(response, new=steps.send_secret(context, sender, bytes.fromhex(study)))
        return Nothing()

    @router.get(
        "/v1/studies/{study}/secrets",
        summary="Parts of the study's secret that you sealed, or that are sealed to you",
    )
    def secrets(study: StudyId, sender: small) -> Secrets:
        messages: Any = views.secrets(context, sender, bytes.fromhex(study))
        return Secrets(secrets=messages)

    @router.post(
        "/v1/studies/{study}/alignments",
        summary="Send keyed digests of your respondents and decoys",
        status_code=201,
        responses=repeated(Nothing),
        openapi_extra=body("an alignment (spec 5.1)"),
    )
    def send_alignment(response: Response, study: StudyId, sender: small) -> Nothing:
        created(response, new=steps.send_alignment(context, sender, bytes.fromhex(study)))
        return Nothing()

    @router.get("/v1/studies/{study}/alignments", summary="The curators' alignments")
    def alignments(study: StudyId, sender: small) -> Alignments:
        messages: Any = views.alignments(context, sender, bytes.fromhex(study))
        return Alignments(alignments=messages)

    @router.get("/v1/studies/{study}/chunks", summary="The chunks that you have sent")
    def chunks(study: StudyId, sender: small, total: Total = 0) -> Chunks:
        return Chunks(chunks=views.chunks(context, sender, bytes.fromhex(study), total=total))

    @router.put(
        "/v1/studies/{study}/chunks",
        summary="Send chunks",
        status_code=201,
        responses=repeated(Nothing),
        openapi_extra=body("a bundle of chunks (spec 7)", BYTES),
    )
    def put_chunks(response: Response, study: StudyId, sender: bundle) -> Nothing:
        created(response, new=steps.put_chunks(context, sender, bytes.fromhex(study)))
        return Nothing()

    @router.post(
        "/v1/studies/{study}/uploads",
        summary="Complete your upload",
        openapi_extra=body("an upload, whose chunks were sent before (spec 8)"),
    )
    def upload(study: StudyId, sender: large) -> Status:
        steps.upload(context, sender, bytes.fromhex(study))
        worker.wake()
        return views.status(context, sender, bytes.fromhex(study))

    @router.post(
        "/v1/studies/{study}/grants",
        summary="Grant attributes to a researcher",
        status_code=201,
        responses=repeated(Nothing),
        openapi_extra=body("a grant; of one-time pads only its header (spec 11)"),
    )
    def send_grant(response: Response, study: StudyId, sender: grant) -> Nothing:
        created(response, new=grant_steps.grant(context, sender, bytes.fromhex(study)))
        return Nothing()

    @router.post(
        "/v1/studies/{study}/revocations",
        summary="Take a grant of yours back",
        status_code=201,
        responses=repeated(Nothing),
        openapi_extra=body("the revocation of a grant (spec 11.2)"),
    )
    def revoke_grant(response: Response, study: StudyId, sender: small) -> Nothing:
        created(response, new=grant_steps.revoke(context, sender, bytes.fromhex(study)))
        return Nothing()


def _add_researcher_routes(router: APIRouter, context: ServiceContext, gate: Gate) -> None:
    small = Annotated[Sender, Depends(gate.sender(context.settings.small_bytes))]

    @router.get(
        "/v1/studies/{study}/release",
        summary="The release, without its chunks",
        response_class=Response,
        responses=bytes_answer("a release (spec 10)"),
    )
    def release(study: StudyId, sender: small) -> Response:
        return Response(views.release(context, sender, bytes.fromhex(study)), media_type=JSON)

    @router.post(
        "/v1/studies/{study}/release/chunks",
        summary="Perturbed chunks that grants of yours cover",
        response_class=Response,
        responses=bytes_answer("a bundle of chunks (spec 7)", BYTES),
        openapi_extra=body("the digests of the chunks"),
    )
    def release_chunks(study: StudyId, sender: small) -> Response:
        fields = exact_fields(load(sender.body), ("chunks",), "")
        digests = ASKED.read(fields["chunks"], "chunks")
        bundle = views.release_chunks(context, sender, bytes.fromhex(study), digests)
        headers = {"Content-Length": str(bundle.length)}
        return StreamingResponse(bundle.pieces, media_type=BYTES, headers=headers)

    @router.get("/v1/studies/{study}/grants", summary="Grants that you gave or were given")
    def grants(study: StudyId, sender: small) -> Grants:
        messages: Any = views.grants(context, sender, bytes.fromhex(study))
        return Grants(grants=messages)

    @router.get(
        "/v1/studies/{study}/grants/{digest}",
        summary="What a curator has signed of a grant in the log",
        response_class=Response,
        responses=bytes_answer("a grant, without its sealed part (spec 11)"),
    )
    def grant_header(study: StudyId, digest: Digest, sender: small) -> Response:
        of = bytes.fromhex(study), bytes.fromhex(digest)
        return Response(views.grant_header(context, sender, *of), media_type=JSON)

    @router.get(
        "/v1/studies/{study}/revocations/{digest}",
        summary="A revocation in the log",
        response_class=Response,
        responses=bytes_answer("the revocation of a grant (spec 11.2)"),
    )
    def revocation(study: StudyId, digest: Digest, sender: small) -> Response:
        of = bytes.fromhex(study), bytes.fromhex(digest)
        return Response(views.revocation(context, sender, *of), media_type=JSON)

    @router.post(
        "/v1/studies/{study}/publications",
        summary="Say which copy of your counts others may read; once",
        status_code=201,
        responses=repeated(Nothing),
        openapi_extra=body("a publication (spec 11.1)"),
    )
    def publish(response: Response, study: StudyId, sender: small) -> Nothing:
        created(response, new=grant_steps.publish(context, sender, bytes.fromhex(study)))
        return Nothing()

    @router.get("/v1/studies/{study}/publications", summary="What researchers have published")
    def publications(study: StudyId, sender: small) -> Publications:
        messages: Any = views.publications(context, sender, bytes.fromhex(study))
        return Publications(publications=messages)


def created(response: Response, *, new: bool) -> None:
    """Answer 201 the first time and 200 when a request is repeated."""
    response.status_code = 201 if new else 200
