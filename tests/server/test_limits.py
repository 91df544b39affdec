"""How much the service takes, and how often: from parties, and from those who say they are."""

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from tests.support.http_wire import FakeTime, wire
from tests.support.requests import Request, Signer, stranger
from tests.support.servers import QUICK, Server, make_context, running
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import RateLimitError
from veiltab.protocol.curator.agreement import public_identity
from veiltab.server import limits
from veiltab.server.http.app import Address
from veiltab.server.limits import Buckets, Settings
from veiltab.wire.codec import dump

STUDY = f"/v1/studies/{'5' * 64}"
VAULT = f"/v1/vaults/{'6' * 64}"
SMALL, CHUNK, BUNDLE, CONTRACT, MESSAGE = 1_000, 1_500, 2_000, 2_500, 3_000
LIMITS = {
    ("POST", f"{STUDY}/abort"): SMALL,
    ("GET", f"{STUDY}/audit"): SMALL,
    ("POST", f"{STUDY}/release/chunks"): SMALL,
    ("PUT", f"{STUDY}/chunks"): BUNDLE,
    ("POST", "/v1/studies"): CONTRACT,
    ("POST", f"{STUDY}/signatures"): CONTRACT,
    ("POST", f"{STUDY}/uploads"): MESSAGE,
    ("POST", "/v1/vaults"): CONTRACT,
    ("POST", f"{VAULT}/signatures"): CONTRACT,
    ("POST", f"{VAULT}/uploads"): MESSAGE,
}


@dataclass(eq=False)
class Limited:
    """A service in time that stands still, and two registered parties."""

    service: Server
    time: FakeTime
    client: httpx.Client
    parties: list[Signer]

    @property
    def server(self) -> bytes:
        """The server's party id."""
        return self.service.context.identity.party_id

    def sign(self, request: Request, signer: Signer | None = None) -> Request:
        """Sign a request of the first party, or of somebody else."""
        return (signer or self.parties[0]).sign(request, now=self.time.now)

    def ask(self, signer: Signer | None = None) -> httpx.Response:
        """Ask for something small."""
        return self.sign(Request("GET", "/v1/studies"), signer).send(self.client)


def serve(folder: Path, settings: Settings, address: Address | None = None) -> Iterator[Limited]:
    """Run a service with these limits."""
    time = FakeTime()
    context = replace(make_context(folder / "data", settings=settings), clock=time.clock)
    parties = []
    with context.database.transaction() as records:
        for number in range(2):
            entropy = CipherEntropy.from_seed(number, "a party")
            identity = PrivateIdentity.create(f"party {number}", entropy)
            records.add_party(public_identity(identity), context.now)
            parties.append(Signer(identity, context.identity.party_id))
    with running(context, address=address) as service, httpx.Client(base_url=service.url) as client:
        yield Limited(service, time, client, parties)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    """Return a service that takes little at a time."""
    settings = replace(
        QUICK,
        small_bytes=SMALL,
        chunk_bytes=CHUNK,
        bundle_bytes=BUNDLE,
        message_bytes=MESSAGE,
        contract_bytes=CONTRACT,
    )
    yield from serve(tmp_path_factory.mktemp("small"), settings)


@pytest.fixture
def rare(tmp_path: Path) -> Iterator[Limited]:
    """Return a service that may be asked rarely."""
    yield from serve(
        tmp_path, replace(QUICK, rate=1.0, burst=3, stranger_rate=1.0, stranger_burst=5)
    )


@pytest.mark.parametrize(("route", "most"), LIMITS.items(), ids=lambda each: str(each)[:40])
def test_long_bodies_are_refused_unread(small: Limited, route: tuple[str, str], most: int) -> None:
    """Their announced length is enough: the answer comes before the body."""
    request = small.sign(Request(*route, bytes(most + 1)))
    with wire(small.service.url) as opened:
        opened.begin(request, Content_Length=str(most + 1))
        answer = opened.answer()
    assert (answer.status, answer.code) == (413, "too_large")


@pytest.mark.parametrize(("route", "most"), LIMITS.items(), ids=lambda each: str(each)[:40])
def test_endless_bodies_are_refused(small: Limited, route: tuple[str, str], most: int) -> None:
    """Without an announced length, a short body alone is read, and nothing beyond its limit."""
    request = small.sign(Request(*route, bytes(10 * most)))
    with wire(small.service.url) as opened:
        opened.begin(request, Transfer_Encoding="chunked")
        for _ in range(3):
            opened.send_part(bytes(SMALL // 2))
        answer = opened.answer()  # and the end of the body was never sent
    refusal = (413, "too_large") if most == SMALL else (411, "length_required")
    assert (answer.status, answer.code) == refusal


@pytest.mark.parametrize(("route", "most"), LIMITS.items(), ids=lambda each: str(each)[:40])
def test_bodies_of_just_that_size_are_read(
    small: Limited, route: tuple[str, str], most: int
) -> None:
    """In one piece or in several; announced or, if they are short, not."""
    plain = Request(*route, b"x" * most)
    assert small.sign(plain).send(small.client).status_code not in (401, 411, 413)
    with wire(small.service.url) as opened:
        opened.begin(small.sign(plain), Content_Length=str(most))
        for _ in range(2):
            opened.send(b"x" * (most // 2))
        assert opened.answer().status not in (401, 411, 413)
    plain = Request(*route, b"x" * SMALL)
    with wire(small.service.url) as opened:
        opened.begin(small.sign(plain), Transfer_Encoding="chunked")
        for _ in range(2):
            opened.send_part(b"x" * (SMALL // 2))
        opened.send(b"0\r\n\r\n")
        assert opened.answer().status not in (401, 411, 413)


def test_nothing_of_a_strangers_body_is_read(small: Limited) -> None:
    """Who sent it is decided by the headers."""
    for headers in ({"Content_Length": str(10**12)}, {"Transfer_Encoding": "chunked"}):
        with wire(small.service.url) as opened:
            opened.begin(Request("POST", "/v1/studies"), **headers)
            assert opened.answer().status == 401


def test_a_registration_is_short(small: Limited) -> None:
    """It must be read before its sender is known."""
    newcomer = stranger(small.server)
    request = small.sign(Request("POST", "/v1/parties", bytes(SMALL + 1)), newcomer)
    with wire(small.service.url) as opened:
        opened.begin(request, Content_Length=str(SMALL + 1))
        assert opened.answer().status == 413
    with wire(small.service.url) as opened:
        opened.begin(request, Transfer_Encoding="chunked")
        opened.send_part(bytes(SMALL + 1))
        assert opened.answer().status == 413


def test_a_length_that_is_too_short(small: Limited) -> None:
    """The rest of the body is no part of the request: it is not the one that was signed."""
    body = dump({"reason": "none"})
    request = small.sign(Request("POST", f"{STUDY}/abort", body))
    with wire(small.service.url) as opened:
        opened.begin(request, Content_Length=str(len(body) - 1))
        opened.send(body)
        assert opened.answer().status in (400, 401)  # whichever end is seen first


def test_a_length_that_is_too_long(small: Limited, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever hangs up in the middle of a body leaves nothing behind, not even a complaint."""
    body = dump({"reason": "none"})
    request = small.sign(Request("POST", f"{STUDY}/abort", body))
    with caplog.at_level(logging.INFO), wire(small.service.url) as opened:
        opened.begin(request, Content_Length=str(len(body) + 1))
        opened.send(body)
    with caplog.at_level(logging.INFO):
        assert small.ask().status_code == 200
        _wait_for_log(small, caplog, 401)
    assert [record.message for record in caplog.records if record.levelno > logging.INFO] == []
    again = request.send(small.client)  # the nonce was not used up, as nothing was done with it
    assert (again.status_code, again.json()["code"]) == (404, "not_found")


def test_two_lengths_are_refused(small: Limited) -> None:
    """What one machine on the way reads as a body, the next could read as a request."""
    request = small.sign(Request("POST", f"{STUDY}/abort", b""))
    for headers in (
        {"Content_Length": "0", "Transfer_Encoding": "chunked"},
        {"Content_Length": "0", "content_length": "5"},
        {"Content_Length": "-1"},
    ):
        with wire(small.service.url) as opened:
            opened.begin(request, **headers)
            opened.send(b"0\r\n\r\n")
            assert opened.answer().status == 400


def test_slow_bodies_keep_nobody_waiting(small: Limited) -> None:
    """More of them than there are threads, and still others are served."""
    with ExitStack() as stack:
        opened = [stack.enter_context(wire(small.service.url)) for _ in range(60)]
        body = dump({"reason": "slow"})
        for each in opened:
            request = small.sign(Request("POST", f"{STUDY}/abort", body))
            each.begin(request, Content_Length=str(len(body)))
            each.send(body[:5])
        assert small.ask().status_code == 200
        for each in opened:
            each.send(body[5:])
        assert {each.answer().status for each in opened} == {404}


def test_parties_that_ask_too_often_wait(rare: Limited) -> None:
    """They are told so, and may ask again when time has passed."""
    assert [rare.ask().status_code for _ in range(4)] == [200, 200, 200, 429]
    refused = rare.ask()
    assert refused.json()["code"] == "too_many_requests"
    rare.time.sleep(int(refused.headers["retry-after"]))
    assert [rare.ask().status_code for _ in range(2)] == [200, 429]
    rare.time.sleep(1000)  # a bucket holds no more than it does
    assert [rare.ask().status_code for _ in range(4)] == [200, 200, 200, 429]


def test_one_party_does_not_use_up_anothers_requests(rare: Limited) -> None:
    """Each has a bucket of its own."""
    while rare.ask().status_code != 429:
        pass
    assert rare.ask(rare.parties[1]).status_code == 200


def test_strangers_that_ask_too_often_wait(rare: Limited) -> None:
    """On any route that they can reach."""
    plain = Request("GET", "/v1/studies")
    statuses = [plain.send(rare.client).status_code for _ in range(6)]
    assert statuses == [401, 401, 401, 401, 401, 429]
    for path in ("/", "/v1/server", "/healthz", "/readyz", "/openapi.json"):
        refused = rare.client.get(path)
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
        assert refused.headers["retry-after"] == "1"
    newcomer = stranger(rare.server)
    assert rare.sign(Request("POST", "/v1/parties"), newcomer).send(rare.client).status_code == 429
    rare.time.sleep(1)
    assert plain.send(rare.client).status_code == 401


def test_a_party_meets_the_server_in_a_flood_of_strangers(rare: Limited) -> None:
    """Its question who is there is signed, and so its own; a bad signature is a stranger's."""
    while rare.client.get("/healthz").status_code != 429:
        pass
    who = Request("GET", "/v1/server")
    assert rare.sign(who, rare.parties[0]).send(rare.client).status_code == 200
    assert rare.sign(who, stranger(rare.server)).send(rare.client).status_code == 429
    statuses = [rare.sign(who, rare.parties[0]).send(rare.client).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]  # and its own limit holds


def test_strangers_that_ask_too_often_are_answered_late(tmp_path: Path) -> None:
    """On every route, and beside the routes; a party beside them is not."""
    settings = replace(QUICK, stranger_rate=1.0, stranger_burst=1, refusal_wait_seconds=0.2)
    for limited in serve(tmp_path, settings):
        limited.client.get("/healthz")
        asked = [("GET", "/healthz"), ("GET", "/openapi.json"), ("GET", "/v1/studies")]
        for method, path in (*asked, ("GET", "/nothing"), ("DELETE", "/healthz")):
            started = time.monotonic()
            status = limited.client.request(method, path).status_code
            assert status in (429, 404, 405)
            assert time.monotonic() - started >= 0.2
        assert limited.ask().status_code == 200
        forged = replace(stranger(limited.server), party=limited.parties[0].identity.party_id)
        assert limited.ask(forged).status_code == 429
        assert limited.ask().status_code == 200


def test_bodies_of_strangers_cost_more(tmp_path: Path) -> None:
    """A registration is parsed before its invitation is known to be one."""
    settings = replace(QUICK, stranger_rate=0.001, stranger_burst=10)
    for limited in serve(tmp_path, settings):
        request = Request("POST", "/v1/parties", dump({"identity": "nobody"}))
        newcomer = stranger(limited.server)
        statuses = [limited.sign(request, newcomer).send(limited.client) for _ in range(3)]
        assert [answer.status_code for answer in statuses] == [422, 422, 429]


def test_all_strangers_together_have_a_limit(tmp_path: Path) -> None:
    """A network of many addresses has many buckets; all of them together are one more."""
    settings = replace(QUICK, stranger_rate=0.001, stranger_burst=2)
    for limited in serve(tmp_path, settings, Address(port=0, behind_proxy=True)):
        statuses = [
            limited.client.get("/healthz", headers={"X-Forwarded-For": f"192.0.2.{number}"})
            for number in range(30)
        ]
        assert [answer.status_code for answer in statuses] == [200] * 20 + [429] * 10
        assert limited.ask().status_code == 200


def test_strangers_cannot_fill_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """All refusals are counted; a hundred are told, and then one a second."""
    for limited in serve(tmp_path, QUICK):
        with caplog.at_level(logging.INFO, "veiltab.access"):
            for path in ("/v1/studies", "/nothing"):
                for _ in range(100):
                    limited.client.get(path)
            told = [record for record in caplog.records if record.name == "veiltab.access"]
            assert 100 <= len(told) <= 130
            limited.ask()
            _wait_for_log(limited, caplog, 200)  # whatever is not refused is told
        counted = limited.service.context.metrics.requests.labels("GET", "/v1/studies", 401)
        assert counted._value.get() == 100


def test_strangers_cannot_use_up_a_partys_requests(rare: Limited) -> None:
    """Neither in its name nor from its address: only a good signature is counted as its own."""
    victim = rare.parties[0]
    forger = replace(stranger(rare.server), party=victim.identity.party_id)
    statuses = [rare.ask(forger).status_code for _ in range(10)]
    assert statuses == [401] * 5 + [429] * 5
    assert [rare.ask().status_code for _ in range(4)] == [200, 200, 200, 429]


def test_buckets_are_forgotten_not_piled_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks from many addresses fills no memory; the busiest are remembered longest."""
    monkeypatch.setattr(limits, "MAX_SENDERS", 3)
    buckets = Buckets(rate=1.0, burst=1, clock=lambda: 0.0)
    for sender in (1, 2, 3, 4):
        buckets.take(sender)
    assert len(buckets._levels) == 3
    buckets.take(1)
    with pytest.raises(RateLimitError):
        buckets.take(4)


def test_a_clock_that_is_set_back_empties_no_bucket() -> None:
    """Time that runs backwards is taken as no time."""
    time = FakeTime()
    buckets = Buckets(rate=1.0, burst=2, clock=time.clock)
    buckets.take("me")
    time.now -= 1000
    buckets.take("me")
    with pytest.raises(RateLimitError):
        buckets.take("me")
    time.now += 1
    buckets.take("me")


def _wait_for_log(small: Limited, caplog: pytest.LogCaptureFixture, status: int) -> None:
    """Ask until the other request is through as well: the service has no reason to hurry."""
    for _ in range(100):
        if status in {getattr(record, "status", None) for record in caplog.records}:
            return
        small.ask()
    raise AssertionError("the request that broke off was never answered")
