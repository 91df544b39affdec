"""The routes of vaults, and of studies that read them; all take signed requests only."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response
from fastapi.responses import StreamingResponse

from veiltab.server import views
from veiltab.server.context import ServiceContext
from veiltab.server.http.auth import Gate, Sender
from veiltab.server.http.models import (
    BYTES,
    JSON,
    PROBLEMS,
    Chunks,
    Nothing,
    Secrets,
    Status,
    ThreadRoute,
    VaultList,
    VaultStatus,
    body,
    bytes_answer,
    repeated,
)
from veiltab.server.http.routes import ASKED, HEX, PAGE, After, Limit, StudyId, Total, created
from veiltab.server.vaults import steps as vault_steps
from veiltab.server.vaults import views as vault_views
from veiltab.server.vaults.stored_vault import StoredVault
from veiltab.server.worker import Worker
from veiltab.wire.codec import TEXT, exact_fields, load

VaultId = Annotated[str, Path(pattern=HEX, description="The vault's id, in hexadecimal.")]


def vault_routes(context: ServiceContext, gate: Gate) -> APIRouter:
    """Return the routes of vaults, which are for their curators alone."""
    router = APIRouter(tags=["vaults"], responses=PROBLEMS, route_class=ThreadRoute)
    limits = context.settings
    small = Annotated[Sender, Depends(gate.sender(limits.small_bytes))]
    long = Annotated[Sender, Depends(gate.sender(limits.contract_bytes))]

    @router.get("/v1/vaults", summary="The vaults that name you, in pages")
    def list_vaults(
        sender: small, after: After = None, limit: Limit = PAGE, *, inbox: bool = False
    ) -> VaultList:
        cursor = None if after is None else views.read_cursor(after)
        return vault_views.vaults(context, sender, cursor, limit, inbox=inbox)

    @router.post(
        "/v1/vaults",
        summary="Propose a vault",
        status_code=201,
        responses=repeated(VaultStatus),
        openapi_extra=body("a vault, signed by its proposer (spec 12.1)"),
    )
    def propose(response: Response, sender: long) -> VaultStatus:
        vault, new = vault_steps.propose(context, sender)
        created(response, new=new)
        return vault_views.status(context, sender, vault)

    @router.get("/v1/vaults/{vault}", summary="Where a vault stands, and the tables in it")
    def status(vault: VaultId, sender: small) -> VaultStatus:
        return vault_views.status(context, sender, bytes.fromhex(vault))

    @router.get(
        "/v1/vaults/{vault}/terms",
        summary="The vault's terms with their signatures so far",
        response_class=Response,
        responses=bytes_answer("a vault (spec 12.1)"),
    )
    def terms(vault: VaultId, sender: small) -> Response:
        content = views.contract(context, sender, bytes.fromhex(vault), StoredVault)
        return Response(content, media_type=JSON)

    @router.post(
        "/v1/vaults/{vault}/signatures",
        summary="Sign the vault's terms",
        openapi_extra=body("the vault, signed by a curator (spec 12.1)"),
    )
    def sign(vault: VaultId, sender: long) -> VaultStatus:
        vault_steps.sign(context, sender, bytes.fromhex(vault))
        return vault_views.status(context, sender, bytes.fromhex(vault))

    @router.post(
        "/v1/vaults/{vault}/close",
        summary="Delete a vault's tables, for good",
        openapi_extra=body("the reason, a text"),
    )
    def close(vault: VaultId, sender: small) -> VaultStatus:
        fields = exact_fields(load(sender.body), ("reason",), "")
        reason = TEXT.read(fields["reason"], "reason")
        vault_steps.close(context, sender, bytes.fromhex(vault), reason)
        return vault_views.status(context, sender, bytes.fromhex(vault))

    _add_table_routes(router, context, gate)
    return router


def _add_table_routes(router: APIRouter, context: ServiceContext, gate: Gate) -> None:
    limits = context.settings
    small = Annotated[Sender, Depends(gate.sender(limits.small_bytes))]
    large = Annotated[Sender, Depends(gate.sender(limits.message_bytes))]
    bundle = Annotated[Sender, Depends(gate.sender(limits.bundle_bytes))]

    @router.post(
        "/v1/vaults/{vault}/secrets",
        summary="Pass the vault's secret to another curator, sealed",
        status_code=201,
        responses=repeated(Nothing),
        openapi_extra=body("a sealed secret (spec 4.2)"),
    )
    def send_secret(response: Response, vault: VaultId, sender: small) -> Nothing:
        created(response, new=vault_steps.send_secret(context, sender, bytes.fromhex(vault)))
        return Nothing()

    @router.get(
        "/v1/vaults/{vault}/secrets",
        summary="The vault's secret as you sealed it, or as it is sealed to you",
    )
    def secrets(vault: VaultId, sender: small) -> Secrets:
        messages: Any = views.secrets(context, sender, bytes.fromhex(vault), StoredVault)
        return Secrets(secrets=messages)

    @router.get("/v1/vaults/{vault}/chunks", summary="The chunks of your table so far")
    def chunks(vault: VaultId, sender: small, total: Total = 0) -> Chunks:
        sent = views.chunks(context, sender, bytes.fromhex(vault), StoredVault, total=total)
        return Chunks(chunks=sent)

    @router.put(
        "/v1/vaults/{vault}/chunks",
        summary="Send chunks of your table",
        status_code=201,
        responses=repeated(Nothing),
        openapi_extra=body("a bundle of chunks (spec 7)", BYTES),
    )
    def put_chunks(response: Response, vault: VaultId, sender: bundle) -> Nothing:
        created(response, new=vault_steps.put_chunks(context, sender, bytes.fromhex(vault)))
        return Nothing()

    @router.post(
        "/v1/vaults/{vault}/uploads",
        summary="Complete your stored table",
        openapi_extra=body("an upload, whose chunks were sent before (spec 8)"),
    )
    def upload(vault: VaultId, sender: large) -> VaultStatus:
        vault_steps.upload(context, sender, bytes.fromhex(vault))
        return vault_views.status(context, sender, bytes.fromhex(vault))


def repad_routes(context: ServiceContext, gate: Gate, worker: Worker) -> APIRouter:
    """Return the routes by which curators give new pads for the drawn rows of a study."""
    router = APIRouter(tags=["studies"], responses=PROBLEMS, route_class=ThreadRoute)
    small = Annotated[Sender, Depends(gate.sender(context.settings.small_bytes))]
    large = Annotated[Sender, Depends(gate.sender(context.settings.message_bytes))]

    @router.get(
        "/v1/studies/{study}/repad-request",
        summary="The request for new pads of your drawn rows",
        response_class=Response,
        responses=bytes_answer("a repad request (spec 12.2)"),
    )
    def repad_request(study: StudyId, sender: small) -> Response:
        content = vault_views.repad_request(context, sender, bytes.fromhex(study))
        return Response(content, media_type=JSON)

    @router.post(
        "/v1/studies/{study}/repad-request/chunks",
        summary="The positions of your drawn rows",
        response_class=Response,
        responses=bytes_answer("a bundle of chunks (spec 7)", BYTES),
        openapi_extra=body("the digests of the chunks"),
    )
    def position_chunks(study: StudyId, sender: small) -> Response:
        fields = exact_fields(load(sender.body), ("chunks",), "")
        digests = ASKED.read(fields["chunks"], "chunks")
        served = vault_views.position_chunks(context, sender, bytes.fromhex(study), digests)
        headers = {"Content-Length": str(served.length)}
        return StreamingResponse(served.pieces, media_type=BYTES, headers=headers)

    @router.post(
        "/v1/studies/{study}/repads",
        summary="Complete your new pads",
        openapi_extra=body("a repad, whose chunks were sent before (spec 12.2)"),
    )
    def repad(study: StudyId, sender: large) -> Status:
        vault_steps.repad(context, sender, bytes.fromhex(study))
        worker.wake()
        return views.status(context, sender, bytes.fromhex(study))

    return router
