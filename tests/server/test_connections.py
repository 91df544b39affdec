"""What strangers can do with connections alone: fill them, starve them, drip into them.

Each test is an attack; the limits are small, so that it is over soon.
"""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from fastapi import Response

from tests.support.http_wire import Wire, wire
from tests.support.requests import Request, Signer
from tests.support.servers import (
    QUICK,
    Server,
    make_context,
    running,
    serving,
    soon,
    write_certificate,
)
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.protocol.curator.agreement import public_identity
from veiltab.server.http.app import Address, create_app
from veiltab.server.limits import Patience, Settings, network
from veiltab.wire.codec import dump

MIB = 2**20
SECONDS = 0.6
"""Every deadline of the service here."""

LATE = 15 * SECONDS
"""When a deadline counts as missed; other tests may run beside these."""

LARGE = 24 * MIB
TIGHT = replace(
    QUICK,
    header_bytes=4096,
    header_lines=32,
    handshake_seconds=SECONDS,
    first_byte_seconds=SECONDS,
    header_seconds=SECONDS,
    keep_alive_seconds=SECONDS,
    grace_seconds=SECONDS,
)
ABORT = f"/v1/studies/{'5' * 64}/abort"
HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
ASK = HEAD + b"\r\n"


@dataclass(eq=False)
class Target:
    """A service under attack, and a party of it."""

    service: Server
    party: Signer

    @property
    def url(self) -> str:
        """Where it answers."""
        return self.service.url

    @property
    def connections(self) -> float:
        """How many connections it has."""
        found: float = self.service.context.metrics.connections._value.get()
        return found

    def ended(self, reason: str) -> float:
        """Return how many connections it has ended for a reason."""
        found: float = self.service.context.metrics.ended.labels(reason)._value.get()
        return found

    def is_well(self, source: str = "127.0.0.1") -> bool:
        """Tell whether the party is served, from an address of this computer."""
        request = self.party.sign(Request("GET", "/v1/studies"))
        with wire(self.url, source=source) as opened:
            opened.begin(request)
            return opened.answer().status == 200

    def post(self, body: bytes) -> Request:
        """Return a signed request whose body is read to its end."""
        return self.party.sign(Request("POST", ABORT, body))


def target(folder: Path, settings: Settings, address: Address | None = None) -> Iterator[Target]:
    """Run a service with these limits, and with a long answer for anybody."""
    context = make_context(folder / "data", settings=settings)
    identity = PrivateIdentity.create("party", CipherEntropy.from_seed(1, "party"))
    with context.database.transaction() as records:
        records.add_party(public_identity(identity), context.now)
    app = create_app(context)

    @app.get("/large")
    def large() -> Response:
        return Response(bytes(LARGE))

    with running(context, app, address) as service:
        yield Target(service, Signer(identity, context.identity.party_id))


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Return a service with little patience, for all tests here."""
    yield from target(tmp_path_factory.mktemp("tight"), TIGHT)


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Target]:
    """Return a service with few places, and much patience."""
    few = replace(QUICK, connections=12, connections_per_address=4)
    yield from target(tmp_path, few)


def send_on(opened: Wire, data: bytes, most: int) -> int:
    """Send the same again and again, until the service ends it; return how many bytes went out."""
    sent = 0
    try:
        while sent < most:
            opened.send(data)
            sent += len(data)
    except ConnectionError:
        pass
    return sent


def drip(opened: Wire, drop: bytes, pause: float = SECONDS / 10) -> None:
    """Send a little at a time until the service has had enough; fail if it never has."""
    end = time.monotonic() + LATE
    while opened.is_quiet(pause):
        assert time.monotonic() < end
        with suppress(ConnectionError):
            opened.send(drop)


def status_of(answer: bytes) -> int:
    """Return the status of the first answer, 0 if there is none."""
    return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0


# Heads


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (HEAD, b"a: b\r\n"),
        (HEAD + b"a: ", b"b"),
        (HEAD, b"a"),
        (b"GET /", b"a"),
        (b"GET /?", b"a=b&"),
        (b"", b"\r\n"),
    ],
    ids=["lines", "a value", "a name", "a path", "a query", "empty lines"],
)
def test_a_head_has_a_ceiling(tight: Target, begin: bytes, more: bytes) -> None:
    """However it grows: the service stops reading at 4 KiB, and says so."""
    with wire(tight.url) as opened:
        opened.send(begin + more * (5000 // len(more)))
        assert status_of(opened.rest()) == 431
    with wire(tight.url) as opened:
        opened.send(begin)
        # Whatever is sent beyond the ceiling is in buffers of the system, and is not read.
        assert send_on(opened, more * (2**16 // len(more)), 64 * MIB) < 16 * MIB
        assert opened.rest()[9:12] in (b"431", b"")


def test_the_lines_of_a_head_are_counted(tight: Target) -> None:
    """Each costs more memory than its bytes."""
    for lines, status in ((31, 200), (32, 431)):  # and the line that names the host
        with wire(tight.url) as opened:
            opened.send(HEAD + b"a: b\r\n" * lines + b"\r\n")
            assert opened.answer().status == status


def test_a_head_of_just_that_size_is_read(tight: Target) -> None:
    """The ceiling is where it is said to be."""
    rest = b"a: %s\r\n\r\n"
    room = 4096 - len(HEAD) - len(rest % b"")
    for size, status in ((room - 1, 200), (room + 1, 431)):
        with wire(tight.url) as opened:
            opened.send(HEAD + rest % (b"x" * size))
            assert opened.answer().status == status


@pytest.mark.slow
def test_98_mib_of_header_lines_take_no_memory(tmp_path: Path) -> None:
    """Which once took 3 GB: from one stranger, and from ten at once."""
    lines = b"".join(b"x%06d: y\r\n" % number for number in range(100_000))
    with serving(tmp_path) as server, ExitStack() as stack:
        with wire(server.url) as opened:
            opened.send(ASK)
            assert opened.answer().status == 200
        before = server.peak
        attackers = [stack.enter_context(wire(server.url)) for _ in range(10)]
        for opened in attackers:
            opened.send(HEAD)
            send_on(opened, lines, 98 * MIB)
        assert server.peak - before < 16 * MIB
        assert httpx.get(f"{server.url}/healthz").status_code == 200


# Time


def test_silent_connections_are_ended(tight: Target) -> None:
    """Whoever connects and says nothing."""
    started = time.monotonic()
    with wire(tight.url) as opened:
        assert opened.rest() == b""
    assert SECONDS <= time.monotonic() - started < LATE


def test_connections_between_requests_are_ended(tight: Target) -> None:
    """They are kept for a while, in case there is more to ask."""
    with wire(tight.url) as opened:
        for _ in range(2):
            opened.send(ASK)
            assert opened.answer().status == 200
        started = time.monotonic()
        assert opened.rest() == b""
    assert SECONDS / 2 <= time.monotonic() - started < LATE


@pytest.mark.parametrize(("begin", "drop"), [(HEAD, b"a"), (HEAD, b"a: b\r\n"), (b"\r\n", b"\r\n")])
def test_a_head_that_drips_is_ended(tight: Target, begin: bytes, drop: bytes) -> None:
    """No byte prolongs the deadline."""
    started = time.monotonic()
    with wire(tight.url) as opened:
        opened.send(begin)
        drip(opened, drop)
        assert status_of(opened.rest()) == 408
    assert SECONDS <= time.monotonic() - started < LATE


@pytest.mark.parametrize("pause", [SECONDS / 10, LATE], ids=["drips", "stands still"])
def test_slow_bodies_are_ended(tight: Target, pause: float) -> None:
    """Those of a known party as well."""
    with wire(tight.url) as opened:
        opened.begin(tight.post(bytes(60_000)), Content_Length="60000")
        started = time.monotonic()
        drip(opened, b"x", pause)
        assert status_of(opened.rest()) == 408
    assert time.monotonic() - started < LATE


def test_a_fast_beginning_earns_no_pause(tight: Target) -> None:
    """All but the end of a body at once is no reason to wait for the end for ever."""
    with wire(tight.url) as opened:
        opened.begin(tight.post(bytes(60_000)), Content_Length="60000")
        opened.send(bytes(59_999))
        started = time.monotonic()
        assert status_of(opened.rest()) == 408
    assert time.monotonic() - started < LATE


def test_steady_bodies_are_read(tight: Target) -> None:
    """For longer than any deadline, at a little more than the least rate."""
    body = dump({"reason": "x" * 4_000})
    step = int(TIGHT.least_rate * SECONDS / 4) * 5 // 4
    with wire(tight.url) as opened:
        opened.begin(tight.post(body), Content_Length=str(len(body)))
        for start in range(0, len(body), step):
            opened.send(body[start : start + step])
            time.sleep(SECONDS / 4)
        assert opened.answer().status in (404, 422)


def test_extensions_of_chunks_are_no_progress(tight: Target) -> None:
    """A body that is all wrapping does not arrive."""
    with wire(tight.url) as opened:
        opened.begin(tight.post(b"x"), Transfer_Encoding="chunked")
        opened.send(b"1;")
        drip(opened, b"a" * 1000)
        assert status_of(opened.rest()) == 408


def test_readers_that_do_not_read_are_ended(tight: Target) -> None:
    """An answer of 24 MiB is not kept for whoever takes none of it."""
    before = tight.ended("too_slow")
    with wire(tight.url, buffer=2**16) as opened:
        opened.send(HEAD.replace(b"healthz", b"large") + b"\r\n")
        assert soon(lambda: tight.ended("too_slow") == before + 1)
        assert soon(lambda: tight.connections == 0)
        assert len(opened.rest()) < LARGE // 4


def test_readers_that_drip_are_ended(tight: Target) -> None:
    """A little of the answer, again and again."""
    before = tight.ended("too_slow")
    with wire(tight.url, buffer=2**16) as opened:
        opened.send(HEAD.replace(b"healthz", b"large") + b"\r\n")
        started = time.monotonic()
        while tight.ended("too_slow") == before and time.monotonic() - started < LATE:
            opened._socket.recv(10)
            time.sleep(SECONDS / 20)
    assert tight.ended("too_slow") == before + 1


def test_steady_readers_get_everything(tight: Target) -> None:
    """For longer than any deadline."""
    with wire(tight.url, buffer=2**16) as opened:
        opened.send(HEAD.replace(b"healthz", b"large") + b"Connection: close\r\n\r\n")
        started, received = time.monotonic(), 0
        while part := opened._socket.recv(2**20):
            received += len(part)
            if time.monotonic() - started < 3 * SECONDS:
                time.sleep(SECONDS / 20)
    assert received > LARGE
    assert time.monotonic() - started > 3 * SECONDS


def test_an_answer_is_in_progress_until_it_is_taken(patient: Target) -> None:
    """So that it counts for its sender, and not only while it is made."""
    with wire(patient.url, buffer=2**16) as opened:
        opened.send(HEAD.replace(b"healthz", b"large") + b"Connection: close\r\n\r\n")
        assert not opened.is_quiet(LATE)
        time.sleep(SECONDS / 4)
        assert "/large" not in patient.service.metrics()
        assert len(opened.rest()) > LARGE
    assert soon(lambda: "/large" in patient.service.metrics())


# How many


def test_idle_connections_do_not_stop_the_service(patient: Target) -> None:
    """More of them than it takes, from many addresses: the new ones push the old ones out."""
    with ExitStack() as stack:
        idle = [
            stack.enter_context(wire(patient.url, source=f"127.0.1.{number}"))
            for number in range(40)
        ]
        for opened in idle[::2]:
            if opened.is_open():
                opened.send(b"GET ")
        assert all(patient.is_well(f"127.0.2.{number}") for number in range(20))
        assert patient.connections <= 12
        assert not idle[0].is_open()
        assert idle[39].is_open() or idle[38].is_open()


def test_an_address_has_few_connections(patient: Target) -> None:
    """It pushes out its own; others keep theirs, however long they have been idle."""
    with ExitStack() as stack:

        def connect(source: str) -> Wire:
            return stack.enter_context(wire(patient.url, source=source))

        neighbours = [connect(f"127.0.2.{number}") for number in range(3)]
        greedy = [connect("127.0.1.1") for _ in range(10)]
        states = [False] * 6 + [True] * 4
        assert soon(lambda: [opened.is_open() for opened in greedy] == states)
        assert patient.connections == 7
        assert all(opened.is_open() for opened in neighbours)


def test_the_address_with_the_most_makes_room(patient: Target) -> None:
    """When all places are taken, the idle ones of many lose before the idle one of one."""
    with ExitStack() as stack:
        first = stack.enter_context(wire(patient.url, source="127.0.2.1"))
        for number in range(20):
            stack.enter_context(wire(patient.url, source=f"127.0.1.{1 + number % 5}"))
        assert soon(lambda: patient.ended("too_many") == 9)
        assert first.is_open()


def test_requests_of_the_known_are_not_pushed_out(patient: Target) -> None:
    """A party sends a body slowly, while strangers connect without end."""
    body = dump({"reason": "slow"})
    with ExitStack() as stack:
        mine = stack.enter_context(wire(patient.url, source="127.0.2.1"))
        mine.begin(patient.post(body), Content_Length=str(len(body)), Expect="100-continue")
        assert mine._socket.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        for number in range(40):
            stack.enter_context(wire(patient.url, source=f"127.0.1.{number}"))
        mine.send(body)
        assert mine.answer().status == 404


def test_requests_of_strangers_are_pushed_out(patient: Target) -> None:
    """They cannot hold a place by a request that is never complete, or an answer never read."""
    begun = Request("POST", "/v1/parties")
    with ExitStack() as stack:
        for number in range(12):
            opened = stack.enter_context(
                wire(patient.url, source=f"127.0.1.{number}", buffer=2**16)
            )
            if number % 2:
                opened.begin(patient.party.sign(begun), Content_Length="1000")
            else:
                opened.send(HEAD.replace(b"healthz", b"large") + b"\r\n")
        assert all(patient.is_well(f"127.0.2.{number}") for number in range(4))


def test_an_address_cannot_connect_too_often(tmp_path: Path) -> None:
    """A handshake costs more than the connection that is refused it."""
    settings = replace(QUICK, connection_rate=0.001, connection_burst=5)
    for attacked in target(tmp_path, settings):
        for number in range(8):
            with wire(attacked.url, source="127.0.1.1") as opened:
                if number < 5:
                    opened.send(ASK)
                    assert opened.answer().status == 200
                else:
                    assert opened.rest() == b""
        assert attacked.is_well("127.0.2.1")


def test_a_customers_ipv6_network_is_one_address() -> None:
    """It has 2⁶⁴ addresses to choose from."""
    assert network("2001:db8:1:2::1") == network("2001:db8:1:2:ffff::9")
    assert network("2001:db8:1:2::1") != network("2001:db8:1:3::1")
    assert network("::ffff:192.0.2.1") == network("192.0.2.1") == "192.0.2.1"
    assert network("192.0.2.1") != network("192.0.2.2")
    assert network("fe80::1%eth0") == network("fe80::2%eth1")
    assert network("not an address") == network("x" * 10_000) == ""


# What HTTP allows, and nobody needs


def test_requests_come_one_after_the_other(tight: Target) -> None:
    """Thousands in one breath would each cost memory: the first is answered, and that is all."""
    with wire(tight.url) as opened:
        opened.send(ASK * 2_000)
        received = opened.rest()
    assert received.count(b"HTTP/1.1 ") == 1
    assert status_of(received) == 200
    assert b"connection: close" in received.lower()


def test_a_second_request_waits_for_the_first_answer(tight: Target) -> None:
    """A client that has all of an answer may ask again before the service notes its end."""
    with wire(tight.url, buffer=2**16) as opened:
        opened.send(ASK.replace(b"healthz", b"large"))
        assert not opened.is_quiet(LATE)  # the long answer is on its way
        opened.send(ASK)
        received = opened.rest()
    assert received.count(b"HTTP/1.1 200 ") == 2
    assert received.endswith(b'{"status":"ok"}')


@pytest.mark.parametrize(
    "lines",
    [
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
    ],
    ids=["web socket", "HTTP/2"],
)
def test_no_other_protocol_is_spoken(tight: Target, lines: bytes) -> None:
    """It would know none of these limits."""
    with wire(tight.url) as opened:
        opened.send(HEAD + lines + b"\r\n")
        assert status_of(opened.rest()) == 400


def test_no_tunnel_is_dug(tight: Target) -> None:
    """The service is no proxy."""
    with wire(tight.url) as opened:
        opened.send(b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n")
        assert status_of(opened.rest()) == 400


def test_lines_after_a_body_are_refused(tight: Target) -> None:
    """Nobody reads them, and they would pile up."""
    with wire(tight.url) as opened:
        opened.begin(tight.post(b"x"), Transfer_Encoding="chunked")
        opened.send(b"1\r\nx\r\n0\r\n")
        send_on(opened, b"a: b\r\n" * 1000, MIB)
        assert status_of(opened.rest()) in (400, 0)
    assert tight.is_well()


def test_strangers_are_not_asked_for_their_bodies(tight: Target) -> None:
    """Whoever waits for leave to send gets the answer instead, and the connection ends."""
    with wire(tight.url) as opened:
        opened.begin(Request("POST", "/v1/studies"), Content_Length="9", Expect="100-continue")
        received = opened.rest()
    assert status_of(received) == 401
    assert b"connection: close" in received


def test_bodies_after_their_answer_are_not_read_for_ever(tight: Target) -> None:
    """Some of a stranger's body is thrown away, so that the answer arrives; then it is enough."""
    with wire(tight.url) as opened:
        opened.begin(Request("POST", "/v1/studies"), Content_Length=str(10**12))
        started = time.monotonic()
        sent = send_on(opened, bytes(2**16), 2**36)
        assert sent < TIGHT.message_bytes + 16 * MIB
        assert time.monotonic() - started < LATE
    with wire(tight.url) as opened:
        opened.begin(Request("POST", "/v1/studies"), Content_Length=str(10**12))
        assert opened.answer().status == 401
        assert opened.rest() == b""


def test_garbage_is_no_news(tight: Target, caplog: pytest.LogCaptureFixture) -> None:
    """Strangers cannot fill the log: what is no HTTP is counted, and not told."""
    before = tight.ended("unusable")
    for garbage in (b"\x16\x03\x01" * 50, b"GET\r\n\r\n", HEAD + b"Content-Length: -1\r\n\r\n"):
        with wire(tight.url) as opened:
            opened.send(garbage)
            assert status_of(opened.rest()) == 400
    assert tight.ended("unusable") == before + 3
    assert [record for record in caplog.records if record.name != "httpx"] == []


# TLS, and a proxy


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Target, ssl.SSLContext]]:
    """Return a service with a certificate, and what trusts it."""
    folder = tmp_path_factory.mktemp("encrypted")
    certificate, key = write_certificate(folder)
    address = Address(port=0, certificate=certificate, certificate_key=key)
    settings = replace(TIGHT, connections_per_address=8)
    for attacked in target(folder, settings, address):
        yield attacked, ssl.create_default_context(cafile=certificate)


def test_handshakes_have_a_deadline(encrypted: tuple[Target, ssl.SSLContext]) -> None:
    """And count as connections before they are over; others get in meanwhile."""
    attacked, trusted = encrypted
    with ExitStack() as stack:
        silent = [stack.enter_context(wire(attacked.url)) for _ in range(20)]
        assert soon(lambda: attacked.connections == 8)
        assert httpx.get(f"{attacked.url}/healthz", verify=trusted).status_code == 200
        silent[-1].send(b"\x16\x03\x01\x02\x00")
        assert [opened.rest() for opened in silent] == [b""] * 20
        assert soon(lambda: attacked.connections == 0)


def test_the_same_limits_hold_over_tls(encrypted: tuple[Target, ssl.SSLContext]) -> None:
    """Ceilings, deadlines, and readers that do not read."""
    attacked, trusted = encrypted
    host, _, port = attacked.url.removeprefix("https://").partition(":")

    def connect() -> ssl.SSLSocket:
        opened = socket.create_connection((host, int(port)), LATE)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        return trusted.wrap_socket(opened, server_hostname=host)

    with connect() as opened:
        opened.sendall(HEAD + b"a: b\r\n" * 1000)
        assert status_of(Wire(opened).rest()) == 431
    with connect() as opened:
        assert Wire(opened).rest() == b""
    with connect() as opened:
        opened.sendall(HEAD)
        assert status_of(Wire(opened).rest()) == 408
    before = attacked.ended("too_slow")
    with connect() as opened:
        opened.sendall(HEAD.replace(b"healthz", b"large") + b"\r\n")
        assert soon(lambda: attacked.ended("too_slow") == before + 1)
    with connect() as opened:
        opened.sendall(HEAD.replace(b"healthz", b"large") + b"Connection: close\r\n\r\n")
        assert len(Wire(opened).rest()) > LARGE
    assert soon(lambda: attacked.connections == 0)


def test_behind_a_proxy_its_clients_are_counted(tmp_path: Path) -> None:
    """Its own connections are not; strangers of one IPv6 network share a limit."""
    settings = replace(
        QUICK, connections_per_address=2, stranger_rate=0.001, stranger_burst=3, connections=50
    )
    for attacked in target(tmp_path, settings, Address(port=0, behind_proxy=True)):
        with ExitStack() as stack:
            opened = [stack.enter_context(wire(attacked.url)) for _ in range(20)]
            statuses = []
            for number, proxied in enumerate(opened):
                client = f"2001:db8::{number:x}" if number < 10 else f"2001:db8:0:{number:x}::1"
                proxied.begin(Request("GET", "/healthz"), X_Forwarded_For=client)
                statuses.append(proxied.answer().status)
        assert statuses == [200] * 3 + [429] * 7 + [200] * 10


# Patience


def test_patience_is_a_grace_period_and_a_rate() -> None:
    """Pauses up to the grace period, and the rate on average."""
    patience = Patience(grace=10.0, rate=100.0)
    assert patience.lasts(9.0, 0)
    assert patience.lasts(0.0, 10**6)
    assert not patience.lasts(10.0, 0)
    patience.renew()
    assert all(patience.lasts(1.0, 100) for _ in range(1000))
    assert sum(patience.lasts(1.0, 50) for _ in range(1000)) == 19
