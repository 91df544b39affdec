"""Who is refused on which route: generated from the route table, so that no route is forgotten."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import httpx
import pytest
from fastapi import FastAPI

from tests.support.http_simulator import HttpStudy, HttpTerms, http_study, join_parties
from tests.support.requests import (
    CURATORS,
    GATED,
    KEYS,
    MARGIN,
    NAMED,
    RELEASED,
    Calls,
    Request,
    Route,
    Signer,
    forgeries,
    gated_routes,
    routes_of,
    signer_of,
    stranger,
)
from tests.support.servers import Server, make_context, running
from tests.support.simulator import Stage
from veiltab.crypto import signing
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import UnauthenticatedError
from veiltab.party.context import PartyContext
from veiltab.party.evidence import examine
from veiltab.server.http.app import create_app
from veiltab.server.http.auth import Gate
from veiltab.server.http.problems import problem
from veiltab.server.http.routes import PUBLIC
from veiltab.server.invitations import invite
from veiltab.wire.requests import MAX_SKEW_SECONDS

REGISTER = ("POST", "/v1/parties")
ROUTES = GATED
OF_PARTIES = sorted(set(ROUTES) - KEYS - {REGISTER})
IN_STUDIES = sorted(NAMED | CURATORS | RELEASED)
UNKNOWN = bytes(range(32))
"""The id of a study that does not exist."""


@dataclass(eq=False)
class World:
    """A service with a released study that names a researcher, and a party that it does not."""

    service: Server
    app: FastAPI
    client: httpx.Client
    study: HttpStudy
    outsider: PartyContext

    @property
    def curator(self) -> PartyContext:
        """One of the study's curators."""
        return self.study.curators[0]

    def ask(
        self, session: PartyContext, route: Route, scope: bytes | None = None
    ) -> httpx.Response:
        """Send a good request of a party; ``scope`` is the study by default."""
        calls = Calls(self.study, session.identity, scope or self.study.study)
        return signer_of(session).sign(calls.request(route)).send(self.client)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One world for all tests here: whatever is refused leaves no trace in it."""
    folder = tmp_path_factory.mktemp("world")
    context = make_context(folder / "data")
    app = create_app(context)
    with running(context, app) as service, httpx.Client(base_url=service.url) as client:
        *parties, outsider = join_parties(service, folder, ("Süd", "Nord", "Dr. West", "Ost"))
        terms = HttpTerms(title="Lungs and incomes")
        study = http_study(service, folder, Stage.RELEASED, terms=terms, parties=parties)
        yield World(service, app, client, study, outsider)


def complaints(app: FastAPI, client: httpx.Client) -> Iterator[str]:
    """Yield what is wrong with the routes of an app."""
    for route in gated_routes(app):
        method, template = route
        if route not in ROUTES:
            yield f"{method} {template} is not in the tables of tests/support/route_calls.py"
        unknown = UNKNOWN.hex()
        path = template.format(study=unknown, vault=unknown, party=unknown, digest=unknown)
        status = Request(method, path).send(client).status_code
        if status != 401:
            yield f"{method} {template} answers strangers with {status}"


def assert_unauthenticated(answer: httpx.Response, why: object) -> None:
    """Check a refusal, which says nothing but that it is one: not a byte tells why."""
    assert answer.status_code == 401, why
    assert answer.content == problem(UnauthenticatedError(str(why), hint=str(why))).body
    assert _comparable(answer) == {
        "content-length": str(len(answer.content)),
        "content-type": "application/problem+json",
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
    }, why


def test_every_route_is_gated(world: World) -> None:
    """Every route but the public ones is known here, and answers no stranger."""
    assert list(complaints(world.app, world.client)) == []
    assert set(ROUTES) == set(gated_routes(world.app))


def test_a_route_without_the_gate_is_noticed(tmp_path: Path) -> None:
    """Somebody adds a route and forgets who may ask: the checker above complains twice."""
    context = make_context(tmp_path / "data")
    app = create_app(context)

    @app.get("/v1/studies/{study}/leak")
    def leak(study: str) -> str:
        return study

    with running(context, app) as service, httpx.Client(base_url=service.url) as client:
        found = list(complaints(app, client))
    assert found == [
        "GET /v1/studies/{study}/leak is not in the tables of tests/support/route_calls.py",
        "GET /v1/studies/{study}/leak answers strangers with 200",
    ]


def test_public_routes_are_few_and_take_nothing(world: World) -> None:
    """None has a parameter, so none can be about a study or a party."""
    public = {route for route in routes_of(world.app) if route[1] in PUBLIC}
    assert {method for method, _ in public} == {"GET"}
    assert {path for _, path in public} == PUBLIC
    assert not any("{" in path for path in PUBLIC)
    assert not any(path.startswith(("/v1/studies", "/v1/parties")) for path in PUBLIC)


@pytest.mark.parametrize("path", sorted(PUBLIC))
def test_public_routes_name_no_study_and_no_party(world: World, path: str) -> None:
    """Not even when there is a study, with parties, and much has happened."""
    study = world.study
    parties = [*study.curators, study.researcher, world.outsider]
    secrets = [study.study.hex(), study.terms.title, *(each.hex() for each in study.chunks(0))]
    secrets += [session.identity.party_id.hex() for session in parties]
    secrets += [f'"{session.identity.name}"' for session in parties]
    answer = world.client.get(path)
    assert answer.status_code == 200
    assert [secret for secret in secrets if secret in answer.text] == []


@pytest.mark.parametrize("route", OF_PARTIES, ids=" ".join)
def test_forgeries_are_refused(world: World, route: Route) -> None:
    """Whatever is changed after signing; the same request unchanged is let in."""
    curator, other = world.curator, world.study.curators[1]
    plain = Calls(world.study, curator.identity, world.study.study).request(route)
    for why, request in forgeries(plain, signer_of(curator), signer_of(other)):
        assert_unauthenticated(request.send(world.client), why)
    for age in (0.0, MAX_SKEW_SECONDS - MARGIN, MARGIN - MAX_SKEW_SECONDS):
        good = signer_of(curator).sign(plain, age=age)
        assert good.send(world.client).status_code != 401


@pytest.mark.parametrize("route", OF_PARTIES, ids=" ".join)
def test_parties_that_are_not_registered_are_refused(world: World, route: Route) -> None:
    """However well they sign."""
    unknown = stranger(world.curator.server.pinned.party_id)
    plain = Calls(world.study, unknown.identity, world.study.study).request(route)
    assert_unauthenticated(unknown.sign(plain).send(world.client), route)


@pytest.mark.parametrize("route", OF_PARTIES, ids=" ".join)
def test_replays_are_refused(world: World, route: Route) -> None:
    """The same bytes a second time, whatever the first answer was."""
    curator = world.curator
    plain = Calls(world.study, curator.identity, world.study.study).request(route)
    signed = signer_of(curator).sign(plain)
    assert signed.send(world.client).status_code != 401
    assert_unauthenticated(signed.send(world.client), route)


def test_the_signature_of_a_stranger_is_verified_too(world: World) -> None:
    """Once, as of a party: the time that the answer takes must not tell who is registered."""
    server = world.curator.server.pinned.party_id
    known = signer_of(world.curator)
    as_known = replace(stranger(server), party=known.identity.party_id)
    for why, request in (
        ("unknown", stranger(server).sign(Request("GET", "/v1/studies"))),
        ("forged", as_known.sign(Request("GET", "/v1/studies"))),
        ("old", known.sign(Request("GET", "/v1/studies"), age=2 * MAX_SKEW_SECONDS)),
        ("elsewhere", replace(known, server=bytes(32)).sign(Request("GET", "/v1/studies"))),
    ):
        with mock.patch(
            "veiltab.server.http.auth.signing.verify", wraps=signing.verify
        ) as verified:
            assert_unauthenticated(request.send(world.client), why)
        assert verified.call_count == 1, why


def test_a_stranger_is_looked_up_once(world: World) -> None:
    """As a party is: work before the signature is known to be good is the same, and little."""
    identity = PrivateIdentity.create("nobody", CipherEntropy.from_seed(8, "nobody"))
    unknown = Signer(identity, world.curator.server.pinned.party_id)
    with mock.patch.object(Gate, "_look_up", return_value=None) as looked:
        for _ in range(3):
            answer = unknown.sign(Request("GET", "/v1/studies")).send(world.client)
            assert_unauthenticated(answer, "unknown")
    assert looked.call_count == 1


def test_a_nonce_is_the_senders_own(world: World) -> None:
    """Nobody can use up the nonces of somebody else."""
    plain, nonce = Request("GET", "/v1/studies"), b"the same nonce.."
    for session in world.study.curators:
        signed = signer_of(session).sign(plain, nonce=nonce)
        assert signed.send(world.client).status_code == 200


def test_a_registration_is_its_own_proof(world: World) -> None:
    """It is signed by the key that it registers, cannot be replayed, and needs an invitation."""
    server = world.curator.server.pinned.party_id
    newcomer = stranger(server)
    code = invite(world.service.context, "newcomer")
    calls = Calls(world.study, newcomer.identity, world.study.study, code)
    plain = calls.request(REGISTER)
    wrong = replace(calls, invitation="0" * 40).request(REGISTER)
    by_another = signer_of(world.curator).sign(plain)
    assert_unauthenticated(by_another.send(world.client), "signed by somebody else")
    forged = Signer(world.curator.identity, server, newcomer.identity.party_id).sign(plain)
    assert_unauthenticated(forged.send(world.client), "signed in another's name")
    for why, request in forgeries(plain, newcomer, signer_of(world.curator), wrong.body):
        assert_unauthenticated(request.send(world.client), why)
    refused = newcomer.sign(wrong).send(world.client)
    assert (refused.status_code, refused.json()["code"]) == (403, "bad_invitation")
    good = newcomer.sign(plain)
    assert good.send(world.client).status_code == 201
    assert_unauthenticated(good.send(world.client), "replayed")
    again = newcomer.sign(plain).send(world.client)
    assert (again.status_code, again.json()) == (200, {"party": newcomer.identity.party_id.hex()})


@pytest.mark.slow
@pytest.mark.parametrize("route", IN_STUDIES, ids=" ".join)
def test_outsiders_cannot_tell_whether_there_is_a_study(world: World, route: Route) -> None:
    """A registered party that a study does not name gets what it gets for one that is not there."""
    for session in (world.outsider, world.study.researcher):
        if session is world.study.researcher and route not in CURATORS:
            continue
        real = world.ask(session, route)
        unreal = world.ask(session, route, UNKNOWN)
        assert (real.status_code, real.json()["code"]) == (404, "not_found")
        assert real.content == unreal.content
        assert _comparable(real) == _comparable(unreal)


def test_outsiders_cannot_probe_by_proposing(world: World) -> None:
    """A contract that does not name the sender is refused, whether its study exists or not."""
    signed = world.study.contract
    unreal = replace(signed, body=replace(signed.body, nonce=bytes(16)), signatures=())
    signer = signer_of(world.outsider)
    answers = [
        signer.sign(Request("POST", "/v1/studies", each.dumps())).send(world.client)
        for each in (signed, unreal)
    ]
    assert [answer.status_code for answer in answers] == [409, 409]
    assert answers[0].content == answers[1].content


def test_outsiders_see_no_studies(world: World) -> None:
    """Neither their list nor their inbox has any that does not name them."""
    seen = [s.server.studies() + s.server.studies(inbox=True) for s in _everybody(world)]
    listed = [world.study.study in {line.study for line in found} for found in seen]
    assert listed == [True, True, True, False]


@pytest.mark.parametrize("route", sorted(RELEASED), ids=" ".join)
def test_a_researcher_needs_a_grant(world: World, route: Route) -> None:
    """To be named in the contract is not enough."""
    answer = world.ask(world.study.researcher, route)
    assert (answer.status_code, answer.json()["code"]) == (403, "not_granted")


def test_messages_are_good_in_their_own_study_alone(world: World, tmp_path: Path) -> None:
    """A curator of two studies cannot use a message of the one in the other."""
    parties = [*world.study.curators, world.outsider]
    terms = HttpTerms(title="another study")
    other = http_study(world.service, tmp_path, Stage.OPEN, terms=terms, parties=parties)
    posted = [path for method, path in sorted(CURATORS) if method == "POST"]
    of_no_study = {f"/v1/studies/{{study}}/{name}" for name in ("abort", "repad-request/chunks")}
    for template in set(posted) - of_no_study:  # by its body
        made = Calls(world.study, world.curator.identity, world.study.study)
        plain = made.request(("POST", template))
        moved = replace(plain, path=template.format(study=other.study.hex(), digest="00" * 32))
        answer = signer_of(world.curator).sign(moved).send(world.client)
        assert (answer.status_code, answer.json()["code"]) == (409, "mismatch"), template
    assert [entry.event for entry in examine(world.curator, other.study).entries] == [
        "proposed",
        "signed",
        "secret",
        "secret",
        "signed",
        "opened",
    ]


def test_refusals_leave_no_trace(world: World) -> None:
    """After everything above, the study's log has only what its curators did."""
    events = [entry.event for entry in examine(world.curator, world.study.study).entries]
    assert events == [
        "proposed",
        "signed",
        "secret",
        "secret",
        "signed",
        "opened",
        "aligned",
        "aligned",
        "uploaded",
        "uploaded",
        "complete",
        "released",
        "revoked",  # a curator may say so of a grant that the server has never seen
    ]


def _everybody(world: World) -> list[PartyContext]:
    return [*world.study.curators, world.study.researcher, world.outsider]


def _comparable(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name != "date"}
