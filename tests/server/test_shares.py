"""What one invited party can take from the others: requests in progress, and memory for bodies."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated
from unittest import mock

import httpx
import pytest
from fastapi import Depends, Response
from starlette.requests import Request as HttpRequest

from tests.support.http_wire import Wire, wire
from tests.support.requests import Request, Signer
from tests.support.servers import QUICK, Server, make_context, running
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import RateLimitError, UnavailableError
from veiltab.protocol.curator.agreement import public_identity
from veiltab.server.http.app import create_app
from veiltab.server.http.auth import Gate, Known, Sender, _body
from veiltab.server.limits import InFlight, Place, Places, Settings, Turns

SMALL, LARGE = 1_000, 3_000
ABORT = f"/v1/studies/{'5' * 64}/abort"


@dataclass(eq=False)
class Shared:
    """A service, and its parties."""

    service: Server
    parties: list[Signer]
    stack: ExitStack

    def begin(self, party: Signer, path: str = ABORT, size: int = 100) -> Wire:
        """Begin a request whose body never comes; it is in progress when this returns."""
        opened = self.stack.enter_context(wire(self.service.url))
        request = party.sign(Request("POST", path, bytes(size)))
        opened.begin(request, Content_Length=str(size), Expect="100-continue")
        return opened

    def ask(self, party: Signer, request: Request | None = None) -> httpx.Response:
        """Send a whole request, by default for something small."""
        signed = party.sign(request or Request("GET", "/v1/studies"))
        with httpx.Client(base_url=self.service.url) as client:
            return signed.send(client)


@contextmanager
def sharing(folder: Path, settings: Settings) -> Iterator[Shared]:
    """Run a service with these limits for three parties."""
    context = make_context(folder / "data", settings=settings)
    parties = []
    with context.database.transaction() as records:
        for number in range(3):
            entropy = CipherEntropy.from_seed(number, "a party")
            identity = PrivateIdentity.create(f"party {number}", entropy)
            records.add_party(public_identity(identity), context.now)
            parties.append(Signer(identity, context.identity.party_id))
    app = create_app(context)
    gated = Annotated[Sender, Depends(Gate(context).sender(0))]

    @app.get("/large")
    def large(_sender: gated) -> Response:
        return Response(bytes(24 * 2**20))

    with running(context, app) as service, ExitStack() as stack:
        yield Shared(service, parties, stack)


def continued(opened: Wire) -> bool:
    """Tell whether the service wants the body, which it does when it has a place for it."""
    return opened._socket.recv(100).startswith(b"HTTP/1.1 100")


def test_a_party_has_few_requests_in_progress(tmp_path: Path) -> None:
    """It waits for its own answers, and nobody else does."""
    with sharing(tmp_path, replace(QUICK, party_requests=3)) as shared:
        greedy, other, _ = shared.parties
        begun = [shared.begin(greedy) for _ in range(3)]
        assert all(map(continued, begun))
        refused = shared.ask(greedy)
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
        assert refused.headers["retry-after"] == "1"
        assert shared.ask(other).status_code == 200
        begun[0].send(bytes(100))
        assert begun[0].answer().status == 422
        assert shared.ask(greedy).status_code == 200


def test_all_parties_together_have_a_limit(tmp_path: Path) -> None:
    """Beyond it they are told to come back."""
    with sharing(tmp_path, replace(QUICK, requests=4, party_requests=2)) as shared:
        begun = [shared.begin(party) for party in shared.parties[:2] for _ in range(2)]
        assert all(map(continued, begun))
        refused = shared.ask(shared.parties[2])
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        assert httpx.get(f"{shared.service.url}/healthz").status_code == 200


def test_slow_bodies_do_not_block_the_writes_of_others(tmp_path: Path) -> None:
    """Eight of them by two parties, in memory for eight: they lose their places to a third."""
    settings = replace(
        QUICK,
        small_bytes=SMALL,
        chunk_bytes=SMALL,
        message_bytes=LARGE,
        body_memory_bytes=8 * LARGE,
        grace_seconds=4.0,
    )
    with sharing(tmp_path, settings) as shared:
        begun = [
            shared.begin(party, "/v1/studies", LARGE)
            for party in shared.parties[:2]
            for _ in range(4)
        ]
        assert all(map(continued, begun))
        started = time.monotonic()
        served = shared.ask(shared.parties[2], Request("POST", "/v1/studies", b"x" * LARGE))
        assert served.status_code == 422
        assert time.monotonic() - started < settings.grace_seconds  # when all would have lost them
        lost = [opened for opened in begun if not opened.is_quiet(0)]
        assert [opened.answer().code for opened in lost] == ["unavailable"]


def test_places_need_no_more_than_the_announced_bytes(tmp_path: Path) -> None:
    """Short bodies on a route of long ones do not wait at all."""
    settings = replace(
        QUICK,
        small_bytes=SMALL,
        chunk_bytes=SMALL,
        message_bytes=LARGE,
        body_memory_bytes=2 * LARGE,
        grace_seconds=60.0,
    )
    with sharing(tmp_path, settings) as shared:
        held = [shared.begin(party, "/v1/studies", LARGE) for party in shared.parties[:2]]
        assert all(map(continued, held))
        request = Request("POST", "/v1/studies", b"x" * SMALL)
        assert shared.ask(shared.parties[2], request).status_code == 422


# The rules by themselves


def test_a_body_in_crumbs_takes_no_more_memory() -> None:
    """A piece of two bytes is an object of forty."""
    crumbs = 100_000
    messages = [{"type": "http.request", "body": b"ab", "more_body": True}] * crumbs
    messages.append({"type": "http.request", "body": bytes(70_000), "more_body": True})
    messages.append({"type": "http.request", "body": b"c", "more_body": False})
    remaining = iter(messages)

    async def receive() -> dict[str, object]:
        return next(remaining)

    request = HttpRequest({"type": "http", "headers": []}, receive)
    pieces = asyncio.run(_body(request, 10**6))
    assert b"".join(pieces) == b"ab" * crumbs + bytes(70_000) + b"c"
    assert len(pieces) <= 7


def test_few_requests_of_a_sender_are_worked_on_at_once() -> None:
    """Its others wait in their order, and nobody else's do; what is over leaves nothing."""

    async def run() -> list[str]:
        turns, begun = Turns(2), []

        async def work(name: str) -> None:
            end = await turns.begin(name[0])
            begun.append(name)
            await asyncio.sleep(0.01)
            end()
            end()

        await asyncio.gather(*map(work, ("a1", "a2", "a3", "a4", "b1", "a5")))
        assert len(turns._by_sender) == 0
        return begun

    assert asyncio.run(run()) == ["a1", "a2", "b1", "a3", "a4", "a5"]


def test_a_turn_is_over_when_the_answer_begins(tmp_path: Path) -> None:
    """A reader that takes its time keeps none of its party's turns."""
    with sharing(tmp_path, replace(QUICK, party_turns=1)) as shared:
        party = shared.parties[0]
        with wire(shared.service.url, buffer=2**16) as opened:
            opened.begin(party.sign(Request("GET", "/large")))
            assert not opened.is_quiet(10)
            assert shared.ask(party).status_code == 200


def test_requests_in_flight_are_forgotten() -> None:
    """When they end, however they do."""
    in_flight = InFlight(3, 2)
    with in_flight.take("a"), suppress(ZeroDivisionError), in_flight.take("a"):
        with pytest.raises(RateLimitError), in_flight.take("a"):
            pass
        with in_flight.take("b"), pytest.raises(UnavailableError), in_flight.take("c"):
            pass
        raise ZeroDivisionError
    assert not in_flight._counts


class Bodies:
    """Senders whose bodies arrive, or do not, until they are told to end."""

    def __init__(self, places: Places) -> None:
        """Start without any."""
        self.places, self.end = places, asyncio.Event()
        self.inside: list[str] = []
        self.lost: list[str] = []

    async def send(self, sender: str, size: int = 1, *, arrived: int = 0) -> None:
        """Take a place, and keep it; some of the body is there at once."""
        async with self.places.take(sender, size) as place:
            self.inside.append(sender)
            place.received = arrived
            try:
                await self._keep(place)
            except UnavailableError:
                self.lost.append(sender)

    async def _keep(self, place: Place) -> None:
        if place.received == place.size:  # and is being worked on
            await self.end.wait()
            return
        async with place.arriving():
            await self.end.wait()


def played(size: int, story: Callable[[Bodies], Awaitable[None]]) -> Bodies:
    """Run a story with places for so many bytes; nothing is left when it is over."""

    async def run() -> Bodies:
        bodies = Bodies(Places(size, grace=0.02, rate=1000.0))
        await story(bodies)
        places = bodies.places
        assert (places._free, places._held, places._waiting) == (size, {}, [])
        return bodies

    return asyncio.run(run())


def test_nobody_has_all_places() -> None:
    """A sender that keeps its places leaves the other half to the others."""

    async def story(bodies: Bodies) -> None:
        tasks = [asyncio.create_task(bodies.send(sender, 2, arrived=2)) for sender in "aaaabbbccc"]
        await asyncio.sleep(0.1)
        assert bodies.inside == list("aabb")
        bodies.end.set()
        await asyncio.gather(*tasks)

    assert sorted(played(8, story).inside) == sorted("aaaabbbccc")


def test_places_go_to_whoever_has_least() -> None:
    """Not to whoever has asked most often."""

    async def story(bodies: Bodies) -> None:
        first = asyncio.create_task(bodies.send("a", 4, arrived=4))
        second = asyncio.create_task(bodies.send("b", 4, arrived=4))
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(bodies.send(who, 2, arrived=2)) for who in "aaaac"]
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0.01)
        assert bodies.inside[:3] == ["a", "b", "c"]
        bodies.end.set()
        await asyncio.gather(first, *waiting)

    played(8, story)


def test_slow_bodies_lose_their_places_to_those_who_wait() -> None:
    """Those of the sender with the most first; fast ones, and complete ones, lose nothing."""

    async def story(bodies: Bodies) -> None:
        tasks = [
            asyncio.create_task(bodies.send(who, 2, arrived=arrived))
            for who, arrived in (("slow", 1), ("fast", 10**9), ("slow", 0), ("complete", 2))
        ]
        await asyncio.sleep(0.1)
        assert bodies.lost == []  # nobody waits
        waiting = asyncio.create_task(bodies.send("waiting", 2, arrived=2))
        await asyncio.sleep(0.1)
        assert bodies.lost == ["slow"]
        assert "waiting" in bodies.inside
        bodies.end.set()
        await asyncio.gather(waiting, *tasks)

    played(8, story)


def test_a_sender_does_not_push_others_out_for_itself() -> None:
    """One that has its half waits for its own bodies alone."""

    async def story(bodies: Bodies) -> None:
        tasks = [asyncio.create_task(bodies.send(who, 2, arrived=2)) for who in "aa"]
        tasks += [asyncio.create_task(bodies.send("slow", 2)) for _ in range(2)]
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(bodies.send("a", 2, arrived=2)))
        await asyncio.sleep(0.1)
        assert bodies.lost == []
        bodies.end.set()
        await asyncio.gather(*tasks)

    played(8, story)


def test_a_party_that_changes_while_it_is_looked_up_is_looked_up_again(tmp_path: Path) -> None:
    """Else a revoked key would be good for as long as it is remembered."""
    context = make_context(tmp_path / "data")
    identity = public_identity(PrivateIdentity.create("robbed", CipherEntropy.from_seed(7, "it")))
    with context.database.transaction() as records:
        records.add_party(identity, context.now)
    gate = Gate(context)
    looked: list[bytes] = []
    look_up = gate._look_up

    def look_up_and_change(party: bytes) -> Known | None:
        known = look_up(party)
        if not looked:
            with context.database.transaction() as records:
                records.set_banned(party, context.now)
            gate.forget(party)
        looked.append(party)
        return known

    with mock.patch.object(gate, "_look_up", look_up_and_change):
        assert asyncio.run(gate._registered(identity.party_id)) is not None
        assert asyncio.run(gate._registered(identity.party_id)) is None
    context.database.close()
