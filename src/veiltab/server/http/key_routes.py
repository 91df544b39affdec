"""The routes of parties' keys: rotations, revocations, and who has which."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from veiltab.server import party_steps
from veiltab.server.context import ServiceContext
from veiltab.server.http.auth import Gate
from veiltab.server.http.models import PROBLEMS, Registered, ThreadRoute, body, repeated
from veiltab.server.http.routes import PartyId, created


def key_routes(context: ServiceContext, gate: Gate) -> APIRouter:
    """Return the routes by which parties change their keys, and learn those of others."""
    router = APIRouter(tags=["parties"], responses=PROBLEMS, route_class=ThreadRoute)

    @router.post(
        "/v1/parties/rotations",
        summary="Replace the keys of a party",
        status_code=201,
        responses=repeated(Registered),
        openapi_extra=body("a rotation, signed by both keys, and the new sealing key"),
    )
    def rotate(response: Response, letter: Annotated[bytes, Depends(gate.letter)]) -> Registered:
        party, new = party_steps.rotate(context, letter)
        created(response, new=new)
        gate.forget(party)
        return Registered(party=party.hex())

    @router.post(
        "/v1/parties/revocations",
        summary="Revoke the keys of a party for good",
        openapi_extra=body("a revocation, signed by any key of the party"),
    )
    def revoke(letter: Annotated[bytes, Depends(gate.letter)]) -> Registered:
        party = party_steps.revoke(context, letter)
        gate.forget(party)
        return Registered(party=party.hex())

    @router.get(
        "/v1/parties/{party}",
        summary="The keys of a party, and whether they are revoked",
        dependencies=[Depends(gate.sender(context.settings.small_bytes))],
    )
    def party_keys(party: PartyId) -> dict[str, Any]:
        return party_steps.party_keys(context, bytes.fromhex(party)).to_json()

    return router
