"""Each route of the service as a method: what is sent, what comes back, and what is refused."""

import hashlib
import json
from typing import Any

import httpx
import pytest

from tests.support import messages
from tests.support.answers import (
    BASE,
    CHUNK,
    DIGEST,
    EXPECTED,
    GETS,
    ME,
    OTHER,
    PINNED,
    POSTS,
    STATUS,
    STUDY,
    SUMMARY,
    answering,
    mocked,
)
from tests.support.messages import filler, signed
from veiltab.errors import (
    MalformedError,
    MismatchError,
    ParameterError,
    ServerChangedError,
    UnauthenticatedError,
    VersionError,
)
from veiltab.party.remote import Reach, RemoteServer
from veiltab.wire.bundles import bundle
from veiltab.wire.codec import dump


@pytest.mark.parametrize("name", GETS)
def test_what_is_asked_for_comes_back(name: str) -> None:
    """Each question has its path and no body, is signed, and its answer is a typed message."""
    call, body, path = GETS[name]
    server, (seen) = answering(body)
    found = call(server)
    assert [(each.method, each.url.raw_path.decode(), each.content) for each in seen] == [
        ("GET", path, b"")
    ]
    assert found == EXPECTED.get(name, found)


@pytest.mark.parametrize("name", POSTS)
def test_what_is_sent_arrives(name: str) -> None:
    """Each message is sent as its canonical bytes, as JSON; repeated or new makes no difference."""
    call, body, path = POSTS[name]
    for status in (200, 201):
        server, seen = answering(STATUS, status)
        call(server)
        assert [(each.method, each.url.raw_path.decode(), each.content) for each in seen] == [
            ("POST", path, body)
        ]
        assert seen[0].headers["Content-Type"] == "application/json"


def test_chunks_are_sent_as_they_are() -> None:
    """Their number, the digest and the length of each, and then one after the other."""
    server, seen = answering({})
    other = hashlib.sha256(b"two").digest()
    assert server.send_chunks(STUDY, [(DIGEST, CHUNK), (other, b"two")]) == 2
    (request,) = seen
    body = b"\0\0\0\x02" + DIGEST + len(CHUNK).to_bytes(4, "big") + other + b"\0\0\0\x03"
    body += CHUNK + b"two"
    assert (request.method, request.content) == ("PUT", body)
    assert request.url.raw_path.decode() == f"{BASE}/chunks"
    assert request.headers["Content-Type"] == "application/octet-stream"


def test_released_chunks_are_asked_for_by_their_digests() -> None:
    """In canonical JSON, and come back in that order."""
    digest = hashlib.sha256(b"two").digest()
    server, seen = answering(bundle([(DIGEST, CHUNK), (digest, b"two")]))
    assert server.release_chunks(STUDY, [DIGEST, digest]) == [CHUNK, b"two"]
    (request,) = seen
    assert (request.method, request.url.raw_path.decode()) == ("POST", f"{BASE}/release/chunks")
    assert request.content == dump({"chunks": [DIGEST.hex(), digest.hex()]})
    assert request.headers["Content-Type"] == "application/json"


def test_a_status_is_typed() -> None:
    """With everything that stands in it; fields that a later server adds do no harm."""
    server, _ = answering(STATUS)
    status = server.status(STUDY)
    assert (status.study, status.state, status.role) == (STUDY, "open", "curator")
    assert (status.title, status.updated, status.reason) == (SUMMARY["title"], 1_700_000_000, None)
    (curator,) = status.curators
    assert (curator.name, curator.party) == ("Tax office", filler("party"))
    assert (curator.signed, curator.aligned, curator.uploaded) == (True, False, False)
    assert status.researchers is not None
    assert [each.name for each in status.researchers] == ["Dr. 王"]
    assert status.granted == ("smoker",)


def test_a_status_without_researchers_and_grants() -> None:
    """A contract may name none, and only researchers have grants."""
    value = {key: item for key, item in STATUS.items() if key != "granted"}
    server, _ = answering(value | {"researchers": None, "state": "aborted", "reason": "a flood"})
    status = server.status(STUDY)
    assert (status.researchers, status.granted, status.reason) == (None, (), "a flood")


def test_a_list_of_studies_is_typed() -> None:
    """One line each."""
    server, _ = answering({"studies": [SUMMARY, SUMMARY | {"study": OTHER.hex()}]})
    assert [each.study for each in server.studies()] == [STUDY, OTHER]


def test_one_time_grants_are_sent_without_their_pads() -> None:
    """A sealed copy on the server would make the promise of one-time pads computational."""
    grant = signed(messages.grant(study=STUDY, pads="one-time"))
    server, seen = answering({})
    server.send_grant(STUDY, grant)
    assert json.loads(seen[0].content)["sealed"] is None
    assert seen[0].content == grant.header().dumps()


def test_registering() -> None:
    """The public identity and the invitation, signed by the new key; nothing private."""
    server, seen = answering({"party": ME.party_id.hex()}, 201)
    assert server.register("CODE-1234") == ME.party_id
    identity = {
        "name": ME.name,
        "sealing_key": ME.sealing.public.hex(),
        "signing_key": ME.signing.public.hex(),
    }
    assert seen[0].url.raw_path == b"/v1/parties"
    keys = {"identity": identity, "rotations": [], "sealing_key": identity["sealing_key"]}
    assert seen[0].content == dump({**keys, "invitation": "CODE-1234"})


@pytest.mark.parametrize(
    ("answer", "error"),
    [({"party": OTHER.hex()}, MismatchError), ({}, MalformedError), ({"party": 1}, MalformedError)],
)
def test_being_registered_as_somebody_else(answer: dict[str, Any], error: type[Exception]) -> None:
    """Is noticed."""
    server, _ = answering(answer, 201)
    with pytest.raises(error):
        server.register("CODE-1234")


@pytest.mark.parametrize("reason", ["", "a\nb", "x" * 1_001])
def test_a_reason_is_one_line(reason: str) -> None:
    """Others will read it in their terminals."""
    server, seen = answering(STATUS)
    with pytest.raises(ParameterError):
        server.abort(STUDY, reason)
    assert seen == []


def test_a_server_that_is_replaced_meanwhile_is_noticed() -> None:
    """It refuses the sender, whom it does not know, and is asked once more who it is."""
    asked: list[str] = []
    identities = [PINNED, messages.RESEARCHER]

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if request.url.path != "/v1/server":
            problem = {"code": "unauthenticated", "detail": "who?", "hint": "register"}
            headers = {"content-type": "application/problem+json"}
            return httpx.Response(401, content=json.dumps(problem).encode(), headers=headers)
        about = {"identity": identities.pop(0).to_json(), "rotations": []}
        return httpx.Response(200, json=about | {"software": "x", "versions": [1]})

    server = mocked(handler)
    server._met = False
    with pytest.raises(ServerChangedError, match="THE SERVER HAS CHANGED"):
        server.studies()
    assert asked == ["/v1/server", "/v1/studies", "/v1/server"]
    identities += [PINNED, PINNED]
    with pytest.raises(UnauthenticatedError):
        server.studies()  # it is the right one, and does not know the sender


def discover(answer: dict[str, Any]) -> Any:  # noqa: ANN401 - a PublicIdentity, or an error
    """Ask a made-up server who it is, without a signature."""

    def handler(request: httpx.Request) -> httpx.Response:
        assert (request.method, request.url.path) == ("GET", "/v1/server")
        assert "Signature" not in request.headers
        return httpx.Response(200, json=answer)

    reach = Reach(transport=httpx.MockTransport(handler))
    return RemoteServer.discover("https://stats.example.org", reach=reach)


def test_discovering_a_server() -> None:
    """It says who it is; nobody has to sign for that."""
    about = {"software": "veiltab 0.1.0", "time": 1, "versions": [1]}
    answer = {"identity": PINNED.to_json(), "rotations": [], **about}
    assert discover(answer) == PINNED
    with pytest.raises(VersionError):
        discover(answer | {"versions": [2]})
    with pytest.raises(MalformedError):
        discover(answer | {"identity": {}})


def test_every_request_has_its_own_nonce() -> None:
    """Also two equal ones in the same second."""
    server, seen = answering(STATUS)
    for _ in range(20):
        server.status(STUDY)
    assert len({request.headers["Signature-Input"] for request in seen}) == 20
