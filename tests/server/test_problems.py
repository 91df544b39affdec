"""Failures as answers: problem documents with stable codes, and nothing that is not for all."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import Request as AppRequest

from tests.support.http_wire import wire
from tests.support.requests import Request, Signer
from tests.support.servers import Server, make_context, running, soon
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import RateLimitError, UnauthenticatedError, UnavailableError, VeiltabError
from veiltab.protocol.curator.agreement import public_identity
from veiltab.server.http.app import create_app

MARKER = "peekaboo1937"
"""Stands in requests, and must not stand in answers."""


def tree(root: type[VeiltabError] = VeiltabError) -> Iterator[type[VeiltabError]]:
    """Yield every class of the error tree; other tests may have made some of their own."""
    if root.__module__ == "veiltab.errors":
        yield root
    for child in root.__subclasses__():
        yield from tree(child)


CLASSES = {each.__name__: each for each in tree()}


@dataclass(eq=False)
class Failing:
    """A service with routes that fail, and a party that asks."""

    service: Server
    client: httpx.Client
    signer: Signer

    def signed(self, method: str, path: str, body: bytes = b"") -> httpx.Response:
        """Send a signed request."""
        return self.signer.sign(Request(method, path, body)).send(self.client)


def add_failures(app: FastAPI) -> None:
    """Add routes that raise what they are asked to raise."""

    @app.get("/fail/{name}")
    def fail(name: str) -> None:
        raise CLASSES[name](f"what is wrong with {name}", hint=f"what to do about {name}")

    @app.post("/crash")
    async def crash(request: AppRequest) -> None:
        await request.body()
        raise RuntimeError(f"the secret {MARKER}")


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Failing]:
    """Return one service for all tests here."""
    context = make_context(tmp_path_factory.mktemp("failing") / "data")
    identity = PrivateIdentity.create("party", CipherEntropy.from_seed(1, "party"))
    with context.database.transaction() as records:
        records.add_party(public_identity(identity), context.now)
    app = create_app(context)
    add_failures(app)
    with running(context, app) as service, httpx.Client(base_url=service.url) as client:
        yield Failing(service, client, Signer(identity, context.identity.party_id))


def assert_problem(answer: httpx.Response, status: int, code: str) -> dict[str, object]:
    """Check the form that every failure has, and return it."""
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    problem: dict[str, object] = answer.json()
    assert problem.keys() == {"type", "title", "status", "detail", "hint", "code"}
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["type"] == f"urn:veiltab:error:{code}"
    assert all(problem.values())
    assert MARKER not in answer.text
    assert MARKER not in str(answer.headers)
    return problem


@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
def test_every_error_has_its_answer(failing: Failing, kind: type[VeiltabError]) -> None:
    """Status, code, message and hint are those of the error tree."""
    name = kind.__name__
    answer = failing.client.get(f"/fail/{name}")
    problem = assert_problem(answer, kind.http_status, kind.code)
    if kind is not UnauthenticatedError:  # whose one text says nothing
        assert problem["detail"] == f"what is wrong with {name}"
        assert problem["hint"] == f"what to do about {name}"
    words = str(problem["title"])
    assert words.replace(" ", "").lower() == name.removesuffix("Error").lower()
    assert words == words.capitalize()
    waits = issubclass(kind, RateLimitError | UnavailableError)
    assert ("retry-after" in answer.headers) == waits


def test_titles_are_words(failing: Failing) -> None:
    """For people, not for programs."""
    names = ("NotFoundError", "ValueNotInSchemaError", "VeiltabError")
    titles = [failing.client.get(f"/fail/{name}").json()["title"] for name in names]
    assert titles == ["Not found", "Value not in schema", "Veiltab"]


def test_bugs_are_logged_and_not_shown(failing: Failing, caplog: pytest.LogCaptureFixture) -> None:
    """The trace is for the operator alone, and there is one of it."""
    with caplog.at_level(logging.INFO):
        answer = failing.client.post("/crash", content=b"body")
    problem = assert_problem(answer, 500, "error")
    assert "operator" in str(problem["hint"])
    assert "Traceback" not in answer.text
    traces = [record for record in caplog.records if record.exc_info]
    assert [(record.name, record.levelname) for record in traces] == [("veiltab.service", "ERROR")]
    assert MARKER in caplog.text
    assert "Traceback" in caplog.text
    # It is counted after the answer, which the client may have read by then.
    assert soon(lambda: "/crash" in failing.service.context.metrics.expose().decode())


def test_bugs_do_not_end_the_service(failing: Failing) -> None:
    """The next request is answered."""
    assert failing.client.post("/crash").status_code == 500
    assert failing.client.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", f"/{MARKER}", 404, "not_found"),
        ("GET", f"/v1/{MARKER}?{MARKER}=1", 404, "not_found"),
        ("GET", "/v1/studies/", 404, "not_found"),
        ("GET", "/healthz/", 404, "not_found"),
        ("GET", "//healthz", 404, "not_found"),
        ("GET", "/docs", 404, "not_found"),
        ("GET", "/redoc", 404, "not_found"),
        ("POST", "/healthz", 405, "method_not_allowed"),
        ("DELETE", "/v1/studies", 405, "method_not_allowed"),
        ("OPTIONS", "/v1/studies", 405, "method_not_allowed"),
        ("PATCH", "/v1/studies/x", 405, "method_not_allowed"),
        ("PROPFIND", "/v1/studies", 405, "method_not_allowed"),
    ],
)
def test_the_frameworks_refusals(
    failing: Failing, method: str, path: str, status: int, code: str
) -> None:
    """They have the same form, and repeat nothing of the request."""
    headers = (("X-Marker", MARKER), ("Origin", f"https://{MARKER}"), ("Cookie", f"a={MARKER}"))
    target, _, query = path.partition("?")
    answer = Request(method, target, MARKER.encode(), query, headers).send(failing.client)
    assert_problem(answer, status, code)
    assert "location" not in answer.headers
    assert ("allow" in answer.headers) == (status == 405)
    assert "access-control-allow-origin" not in answer.headers


def test_another_host_is_not_repeated(failing: Failing) -> None:
    """Nobody can make the service name another one."""
    answer = failing.client.get("/v1/studies/", headers={"Host": f"{MARKER}.example.org"})
    assert_problem(answer, 404, "not_found")


@pytest.mark.parametrize(
    "path",
    [
        f"/v1/studies/{MARKER}",
        f"/v1/studies/{'A' * 64}",
        f"/v1/studies/{'a' * 63}",
        f"/v1/studies/{'a' * 65}",
        f"/v1/studies/{'a' * 64}%0a",
        f"/v1/studies/{'%61' * 64}x/audit",
    ],
)
def test_ids_have_one_form(failing: Failing, path: str) -> None:
    """Anything else is refused without being repeated, before anything looks for it."""
    answer = failing.signed("GET", path)
    problem = assert_problem(answer, 422, "invalid_input")
    assert "path." in str(problem["detail"])


@pytest.mark.parametrize(
    "path",
    [
        "/v1/studies/../../etc/passwd",
        "/v1/studies/../parties",
        f"/v1/studies/{'a' * 64}/release/..",
        f"/v1/studies/{'a' * 64}/release/%2e%2e%2f%2e%2e",
    ],
)
def test_paths_lead_nowhere_else(failing: Failing, path: str) -> None:
    """A path is compared with the routes, and is never one of the disk."""
    with wire(failing.service.url) as opened:  # other clients tidy such paths up
        opened.begin(failing.signer.sign(Request("GET", path)))
        assert opened.answer().status in (404, 422)


def test_percent_encoding_is_signed_as_it_is_sent(failing: Failing) -> None:
    """The signature covers the bytes on the wire, and the route what they mean."""
    study = "a" * 64
    assert failing.signed("GET", f"/v1/studies/%61{study[1:]}").status_code == 404
    assert failing.signed("GET", f"/v1/studies/{study}").status_code == 404
    assert failing.signed("GET", f"/%76%31/studies/{study}").status_code == 404


def test_refused_messages_say_little_of_what_was_sent(failing: Failing) -> None:
    """A field is named, and of what stands in it at most a few characters are shown."""
    body = b'{"reason":"' + b"x" * 5000 + MARKER.encode() + b'"}'
    answer = failing.signed("POST", f"/v1/studies/{'a' * 64}/abort", body)
    problem = assert_problem(answer, 422, "malformed_message")
    assert len(str(problem["detail"])) < 200
