"""Many proposals at little cost, such as one party makes to plague another."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import time as real_time

from tests.support.http_wire import FakeTime
from tests.support.servers import QUICK, Server, make_context, running
from veiltab.core.schema import Attribute
from veiltab.party.context import PartyContext
from veiltab.protocol.curator.agreement import public_identity, unsigned
from veiltab.protocol.verify import cosign
from veiltab.server.context import ServiceContext
from veiltab.server.limits import Settings
from veiltab.wire.contract import Contract, CuratorTerms, Linkage
from veiltab.wire.mechanism import PaperTerms
from veiltab.wire.signed import Signed


def proposal(
    proposer: PartyContext,
    *others: PartyContext,
    number: int = 0,
    title: str = "a study",
    attributes: tuple[Attribute, ...] = (Attribute("smoker", ("no", "yes")),),
    researchers: tuple[PartyContext, ...] | None = None,
) -> Signed[Contract]:
    """Return a contract that its proposer alone has signed; the number makes it a new one."""
    named = [
        CuratorTerms(public_identity(other.identity), (Attribute(f"held {place}", ("no", "yes")),))
        for place, other in enumerate(others)
    ]
    contract = Contract(
        title=title,
        nonce=number.to_bytes(16),
        curators=(CuratorTerms(public_identity(proposer.identity), attributes), *named),
        server=proposer.server.pinned,
        linkage=Linkage.by_ids(),
        secret_commitment=bytes(32),
        researchers=None
        if researchers is None
        else tuple(public_identity(each.identity) for each in researchers),
        epsilon=1.0,
        delta=0.0,
        accounting="pure-1",
        mechanism=PaperTerms(None),
        population=None,
        pads="stream",
        stored=None,
    )
    return cosign(unsigned(contract), proposer.identity.signing)


@dataclass(eq=False)
class Threesome:
    """A service in a time that the test sets, with one who attacks, one attacked, and another."""

    service: Server
    time: FakeTime
    attacker: PartyContext
    victim: PartyContext
    other: PartyContext

    @property
    def context(self) -> ServiceContext:
        """The server's own view."""
        return self.service.context


@contextmanager
def threesome(
    folder: Path,
    settings: Settings = QUICK,
    database: str | None = None,
    context: ServiceContext | None = None,
) -> Iterator[Threesome]:
    """Run a service with three parties; unless a context is given, it is made in the folder."""
    time = FakeTime(real_time())
    context = context or make_context(folder / "data", settings=settings, database=database)
    context = replace(context, clock=time.clock)
    with running(context) as service:
        parties = [service.join(name, folder / name) for name in ("attacker", "victim", "other")]
        for party in parties:
            party.server._clock = time.clock
        yield Threesome(service, time, *parties)
