"""Requests to servers that are away, slow, restarted, in the way, or hostile."""

import gzip
import json
from threading import Thread

import httpx
import pytest

from tests.support.answers import client, mocked
from tests.support.http_wire import Drop, FakeTime, Reply, Seen, scripted_server
from tests.support.messages import filler
from veiltab.errors import (
    ConnectionFailedError,
    MalformedError,
    OutputError,
    StateError,
)
from veiltab.party.remote import RemoteServer, Retry

STUDY = filler("study")
EMPTY = Reply(body=b'{"chunks":[]}')


def problem(status: int, code: str, **headers: str) -> Reply:
    """Build a refusal."""
    body = json.dumps({"code": code, "detail": "no", "hint": "yes"}).encode()
    return Reply(status, body, {"Content-Type": "application/problem+json", **headers})


FAILURES: dict[str, Reply | Drop] = {
    "no word": Drop(),
    "half an answer": Reply(body=b'{"chunks"', promised=100),
    "an empty answer": Reply(body=b"", promised=100),
    "too many requests": problem(429, "too_many_requests"),
    "a restart": Reply(502, b"<html>bad gateway</html>"),
    "a long page about a restart": Reply(502, bytes(100_000)),
    "unavailable": problem(503, "unavailable"),
    "a slow gateway": Reply(504, b""),
    "an accident": Reply(500, b"Internal Server Error", {"Content-Type": "text/plain"}),
    "no problem document": Reply(500, b"[]", {"Content-Type": "application/problem+json"}),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_that_pass_are_survived(name: str) -> None:
    """Twice, then an answer; each try has a nonce and a time of its own."""
    time = FakeTime()
    with (
        scripted_server(FAILURES[name], FAILURES[name], EMPTY) as http,
        client(http.url, time) as server,
    ):
        assert server.sent_chunks(STUDY) == set()
    assert time.slept == [0.5, 1.0]
    inputs = [each.headers["signature-input"] for each in http.seen]
    assert len(set(inputs)) == 3
    assert "created=1700000000;" in inputs[0]
    assert "created=1700000001;" in inputs[2]


def test_a_restarted_server_is_found_again() -> None:
    """Nobody listens for a while; then it does again, on the same port."""
    time = FakeTime()
    with scripted_server(EMPTY) as http:
        port = http.port
    restarted = []

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        if len(time.slept) == 4:
            context = scripted_server(EMPTY, port=port)
            restarted.append((context, context.__enter__()))

    told: list[str] = []
    retry = Retry(
        sleep=sleep,
        clock=time.clock,
        jitter=lambda: 1.0,
        on_wait=lambda reason, _: told.append(reason),
    )
    with client(http.url, time, retry=retry) as server:
        assert server.sent_chunks(STUDY) == set()
    assert told == ["it cannot be reached"] * 4
    ((context, again),) = restarted
    assert len(again.seen) == 1
    context.__exit__(None, None, None)


def test_a_server_that_stays_away_is_given_up() -> None:
    """After five minutes, with a hint."""
    time = FakeTime()
    with scripted_server(EMPTY) as http:
        pass
    with (
        client(http.url, time) as server,
        pytest.raises(ConnectionFailedError, match="cannot be reached"),
    ):
        server.sent_chunks(STUDY)
    assert time.now == pytest.approx(1_700_000_300)


@pytest.mark.parametrize(
    ("value", "wait"),
    [("7", 7.5), ("0", 0.5), ("86400", 60.5), ("soon", 0.5), ("-5", 0.5), ("9" * 400, 0.5)],
)
def test_retry_after_is_honoured_within_reason(value: str, wait: float) -> None:
    """Up to a minute; what is no number of seconds is not looked at."""
    time = FakeTime()
    busy = problem(429, "too_many_requests", **{"Retry-After": value})
    with scripted_server(busy, EMPTY) as http, client(http.url, time) as server:
        server.sent_chunks(STUDY)
    assert time.slept == [wait]


@pytest.mark.parametrize("error", [httpx.ReadTimeout, httpx.ConnectTimeout, httpx.PoolTimeout])
def test_slow_servers_are_asked_again(error: type[httpx.TimeoutException]) -> None:
    """Silence is a failure that may pass."""
    failures = [error("slow")]

    def handler(_: httpx.Request) -> httpx.Response:
        if failures:
            raise failures.pop()
        return httpx.Response(200, content=EMPTY.body)

    assert mocked(handler).sent_chunks(STUDY) == set()
    assert failures == []


def test_refusals_are_not_retried() -> None:
    """They are answers; also an internal error that explains itself."""
    for reply, error in (
        (problem(409, "wrong_state"), StateError),
        (problem(500, "cannot_write"), OutputError),
    ):
        time = FakeTime()
        with scripted_server(reply) as http, client(http.url, time) as server:
            with pytest.raises(error):
                server.sent_chunks(STUDY)
            assert len(http.seen) == 1
        assert time.slept == []


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirections_are_not_followed(status: int) -> None:
    """A signed request goes where its sender meant it to go."""
    with scripted_server(EMPTY) as elsewhere:
        reply = Reply(status, b"", {"Location": f"{elsewhere.url}/v1/server"})
        with scripted_server(reply) as http, client(http.url, FakeTime()) as server:
            with pytest.raises(ConnectionFailedError, match="redirection"):
                server.sent_chunks(STUDY)
            assert len(http.seen) == 1
        assert elsewhere.seen == []


@pytest.mark.parametrize("status", [204, 400, 404, 405, 418])
def test_what_is_no_service_is_not_taken_for_one(status: int) -> None:
    """A page that happens to be at the URL is no refusal of a veiltab service."""
    with scripted_server(Reply(status, b"")) as http, client(http.url, FakeTime()) as server:
        with pytest.raises((ConnectionFailedError, MalformedError)):
            server.sent_chunks(STUDY)
        assert len(http.seen) == 1


def endless(promised: int | None) -> Reply:
    """Build an answer that is far too long for a bundle."""
    return Reply(body=bytes(16 * 2**20), promised=promised)


@pytest.mark.parametrize("promised", [None, 2**40])
def test_answers_that_are_too_long_are_cut_off(promised: int | None) -> None:
    """While they come in, not afterwards; whatever length they promise."""
    with (
        scripted_server(endless(promised)) as http,
        client(http.url, FakeTime()) as server,
        pytest.raises(MalformedError, match="more than 8,388,608 bytes"),
    ):
        server.release_chunks(STUDY, [filler("digest")])


def test_compressed_answers_are_not_unpacked() -> None:
    """A small bomb stays small; it is simply not JSON."""
    bomb = gzip.compress(bytes(50 * 2**20))
    reply = Reply(body=bomb, headers={"Content-Encoding": "gzip"})
    with scripted_server(reply) as http, client(http.url, FakeTime()) as server:
        with pytest.raises(MalformedError, match="not JSON"):
            server.sent_chunks(STUDY)
        assert http.seen[0].headers["accept-encoding"] == "identity"


def test_connections_are_kept() -> None:
    """Many requests, one connection: hand-shakes cost more than requests."""
    with scripted_server(EMPTY) as http, client(http.url, FakeTime()) as server:
        for _ in range(10):
            server.sent_chunks(STUDY)
        assert len({each.port for each in http.seen}) == 1


def test_nothing_is_sent_along() -> None:
    """No cookies back, no passwords of a netrc, nothing that identifies the machine."""
    cookie = Reply(body=EMPTY.body, headers={"Set-Cookie": "a=b"})
    with scripted_server(cookie) as http, client(http.url, FakeTime()) as server:
        server.sent_chunks(STUDY)
        server.sent_chunks(STUDY)
    assert http.seen[1].headers.keys() <= {
        "host",
        "accept",
        "accept-encoding",
        "connection",
        "user-agent",
        "content-digest",
        "veiltab-server",
        "signature-input",
        "signature",
    }


def test_a_closed_server_is_not_asked() -> None:
    """Threads that still try stop trying when the server is closed under them."""
    time = FakeTime()
    server: list[RemoteServer] = []
    retry = Retry(
        sleep=lambda _: server[0].close(), clock=time.clock, jitter=lambda: 1.0, attempts=3
    )
    with scripted_server(Drop()) as http:
        server.append(client(http.url, time, retry=retry))
        with pytest.raises(ConnectionFailedError, match="was closed"):
            server[0].sent_chunks(STUDY)
        assert len(http.seen) == 1


def test_many_threads_share_a_client() -> None:
    """Every request is answered, with a nonce of its own."""

    def echo(seen: Seen) -> Reply:
        digest = seen.target.split("/")[3]
        return Reply(body=json.dumps({"chunks": [digest]}).encode())

    found: dict[bytes, set[bytes]] = {}
    with scripted_server(echo) as http, client(http.url, FakeTime()) as server:

        def ask(number: int) -> None:
            for study in (filler(f"{number} {again}") for again in range(5)):
                found[study] = server.sent_chunks(study)

        threads = [Thread(target=ask, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 80
    assert all(chunks == {study} for study, chunks in found.items())
    # A connection that a busy machine has lost is tried again, and signed anew.
    assert len({each.headers["signature-input"] for each in http.seen}) == len(http.seen) >= 80
