"""Generated requests on every documented route: no crash, and no answer that is not documented."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle, product
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from requests.auth import AuthBase
from schemathesis import Case, GenerationMode, Response
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.http_simulator import HttpStudy, http_study
from tests.support.requests import GATED, KEYS, Calls, Request, Route, Signer, signer_of
from tests.support.servers import Server, make_context, running
from tests.support.simulator import Stage
from veiltab.server.http.routes import PUBLIC
from veiltab.wire.codec import dump, load

pytestmark = pytest.mark.slow

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
ROUTES = GATED
OPERATOR = sorted(("GET", path) for path in PUBLIC - {"/openapi.json"})
TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | st.just("0" * 64),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=3,
)
EXAMPLES = 4
"""Requests of each kind and route; a run of the same code makes the same ones."""

bounded = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # a failure is shown as it was found; shrinking asks the server more
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True)
class Signing(AuthBase):
    """Signs every request as it is about to be sent."""

    signer: Signer

    def __call__(self, prepared: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the four headers."""
        path, _, query = (prepared.path_url or "").partition("?")
        body = prepared.body or b""
        content = body.encode() if isinstance(body, str) else body
        assert isinstance(content, bytes)
        plain = Request(prepared.method or "", path, content, query)
        prepared.headers.update(dict(self.signer.sign(plain).headers))
        return prepared


@dataclass(eq=False)
class Fuzzed:
    """A service with a study and a vault, its documentation, and what it has answered."""

    service: Server
    study: HttpStudy
    vault: str
    schema: schemathesis.BaseSchema
    session: requests.Session
    answers: Counter[int] = field(default_factory=Counter)

    def cases(self, route: Route, mode: GenerationMode) -> st.SearchStrategy[Case[Any]]:
        """Return requests as the documentation has them, or not quite."""
        method, path = route
        return self.schema[path][method].as_strategy(generation_mode=mode)

    def check(self, case: Case[Any], auth: AuthBase | None = None) -> Response:
        """Send a request, and check the answer against the documentation."""
        response = case.call(base_url=self.service.url, session=self.session, auth=auth)
        self.answers[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)
        if response.status_code >= 400:
            assert response.headers["content-type"] == ["application/problem+json"]
            found = json.loads(response.content)
            assert found["status"] == response.status_code
            assert found["type"] == f"urn:veiltab:error:{found['code']}"
        return response


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    """One service for all tests here: a generated request changes nothing that matters."""
    folder = tmp_path_factory.mktemp("fuzzed")
    with running(make_context(folder / "data")) as service, requests.Session() as session:
        study = http_study(service, folder, Stage.GRANTED)
        schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
        curator = study.curators[0]
        body = Calls(study, curator.identity, study.study).request(("POST", "/v1/vaults")).body
        signing = Signing(signer_of(curator))
        answer = session.post(f"{service.url}/v1/vaults", data=body, auth=signing, timeout=10)
        yield Fuzzed(service, study, answer.json()["vault"], schema, session)


def with_modes(routes: list[Route]) -> pytest.MarkDecorator:
    """Let each route have good requests, and bad ones if there is anything that can be wrong."""
    found = [(route, GenerationMode.POSITIVE) for route in routes]
    found += [(r, GenerationMode.NEGATIVE) for r in routes if r[0] != "GET" or "{" in r[1]]
    names = [f"{' '.join(route)} {mode.value}" for route, mode in found]
    return pytest.mark.parametrize(("route", "mode"), found, ids=names)


@with_modes([*OPERATOR, *ROUTES])
def test_strangers(fuzzed: Fuzzed, route: Route, mode: GenerationMode) -> None:
    """Unsigned, whatever it is: refused where it should be, and never a crash."""
    expected = {200, 405} if route in OPERATOR else {401, 404, 405}

    @settings(bounded, max_examples=EXAMPLES // 2)
    @given(case=fuzzed.cases(route, mode))
    def run(case: Case[Any]) -> None:
        assert fuzzed.check(case).status_code in expected

    run()


@with_modes([route for route in ROUTES if route not in KEYS])
def test_parties(fuzzed: Fuzzed, route: Route, mode: GenerationMode) -> None:
    """Signed by parties of a study, about that study or another, with anything in the body."""
    study = fuzzed.study
    signings = [Signing(signer_of(each)) for each in (study.curators[1], study.researcher)]
    seen: set[int] = set()
    # In turn, and not drawn: each route must meet a curator who asks about what is there.
    turns = cycle(product((True, False), signings))
    grant = study.curators[0].home.study(study.study).grants()[0]
    reached = {200, 201, 403, 409, 422} | ({404} if "/revocations/" in route[1] else set())

    @bounded
    @given(case=fuzzed.cases(route, mode))
    def run(case: Case[Any]) -> None:
        known, auth = next(turns)
        party = study.curators[0].identity.party_id.hex()
        there = {"study": study.study.hex(), "vault": fuzzed.vault, "party": party}
        there["digest"] = grant.signed.digest.hex()
        _replace_parameters(case, there if known else {})
        seen.add(fuzzed.check(case, auth).status_code)

    run()
    assert seen & reached, "nothing got as far as what the route does"
    if route != ("POST", "/v1/parties"):  # where nobody is known by a signature alone
        assert 401 not in seen


@pytest.mark.parametrize("route", [r for r in ROUTES if r[0] == "POST"], ids=" ".join)
def test_spoiled_messages(fuzzed: Fuzzed, route: Route) -> None:
    """A message of the protocol with anything in the place of one of its parts."""
    study, curator = fuzzed.study, fuzzed.study.curators[0]
    plain = Calls(study, curator.identity, study.study).request(route)
    signing = Signing(signer_of(curator))
    places = list(_places(load(plain.body)))

    @settings(bounded, max_examples=2 * EXAMPLES)
    @given(place=st.sampled_from(places), value=JSON)
    def run(place: tuple[str | int, ...], value: object) -> None:
        body = dump(_replaced(load(plain.body), place, value))
        url = fuzzed.service.url + plain.path
        answer = fuzzed.session.post(url, data=body, auth=signing, timeout=10)
        assert answer.status_code in {200, 201, 403, 409, 422} | ({401} if route in KEYS else set())

    run()


def test_everything_documented_is_tested(fuzzed: Fuzzed) -> None:
    """The documentation has every route, and each has words for people."""
    documented = fuzzed.schema.raw_schema["paths"]
    found = {(method.upper(), path) for path, each in documented.items() for method in each}
    assert found == {*OPERATOR, *ROUTES}
    for path, methods in documented.items():
        for method, operation in methods.items():
            assert len(operation["summary"]) > 5, (method, path)
            assert {"4XX", "5XX"} <= operation["responses"].keys()
            body = operation.get("requestBody")
            is_bare = method in {"get", "delete"} or path == "/v1/blocks/{party}"
            assert (body is None) == is_bare, (method, path)
            assert body is None or len(body["description"]) > 5


def _places(value: Any, before: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:  # noqa: ANN401
    """Yield where something stands in a message."""
    if before:
        yield before
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield from _places(inner, (*before, key))


def _replaced(value: Any, place: tuple[str | int, ...], new: object) -> Any:  # noqa: ANN401
    """Put something else in a place of a message."""
    *path, last = place
    found = value
    for key in path:
        found = found[key]
    found[last] = new
    return value


def _replace_parameters(case: Case[Any], known: Mapping[str, str]) -> None:
    """Ask about something that is there."""
    for name, value in known.items():
        if name in case.path_parameters:
            case.path_parameters[name] = value
