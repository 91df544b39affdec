"""A study with decoys over HTTP, with real tables that are really pushed, and the truth behind it.

Two curators, three and two cells.  In matched linkage each also holds people whom the other does
not have.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from tests.support.decoys import EPSILON, decoy_terms, reference_decoys
from tests.support.http_simulator import HttpTerms, join_parties
from tests.support.servers import Server, wait_for
from tests.support.simulator import attribute
from tests.vectors import spec_decoys
from veiltab.core.mechanism import LinkageMode
from veiltab.crypto.derivation import token_key
from veiltab.crypto.linkage import tokens
from veiltab.data.ids import id_messages
from veiltab.data.tables import open_table
from veiltab.party import curator
from veiltab.party.checking import Source
from veiltab.party.context import PartyContext
from veiltab.party.progress import OnProgress, Patience, ignore_progress
from veiltab.party.push import push
from veiltab.party.remote import Status
from veiltab.party.secrets import combined_secret
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.in_process import LATER
from veiltab.protocol.stores import MemoryChunks
from veiltab.wire.contract import Contract, PadMode
from veiltab.wire.messages import SignedGrant
from veiltab.wire.signed import Signed

SIZES = {"first": 3, "second": 2}
ATTRIBUTES = tuple(attribute(name, size) for name, size in SIZES.items())
CELLS = list(product(range(3), range(2)))


def table_of(place: int, people: range) -> pl.DataFrame:
    """Return a curator's table of these people, in an order of its own."""
    name, size = list(SIZES.items())[place]
    step = 1 if place == 0 else -1
    ids = list(people)[::step]
    return pl.DataFrame({"id": ids, name: [str((7 * n + n // 5) % size) for n in ids]})


@dataclass(eq=False)
class DecoyStudy:
    """Everybody in a study with decoys, and their tables."""

    curators: list[PartyContext]
    researcher: PartyContext
    tables: list[pl.DataFrame]
    study: bytes
    grants: list[SignedGrant] = field(default_factory=list)

    @property
    def contract(self) -> Signed[Contract]:
        """The contract, as the first curator knows it."""
        return self.curators[0].contract(self.study)

    def source(self, place: int, table: pl.DataFrame | None = None) -> Callable[[], Source]:
        """Return what a curator pushes: its table, unless another is given."""
        frame = self.tables[place] if table is None else table
        return lambda: Source(open_table(frame), ("id",))

    def push(
        self, place: int, progress: OnProgress = ignore_progress, *, wait: bool = False
    ) -> Status:
        """Push a curator's table."""
        session = self.curators[place]
        patience = Patience(30) if wait else None
        signed = session.contract(self.study)
        return push(session, signed, self.source(place), progress, patience)

    def push_all(self) -> None:
        """Let both curators push, and wait for the release; the first has to come back."""
        for place in (0, 1, 0):
            self.push(place)
        wait_for(self.curators[0], self.study, "released")

    def prepared_rows(self, place: int) -> int:
        """Return how many rows a curator has really uploaded."""
        session, schema = self.curators[place], self.contract.body.curators[place].schema
        prepared = session.home.study(self.study).prepared(schema, MemoryChunks())
        assert prepared is not None
        return prepared.message.body.rows

    def grant(self) -> None:
        """Let both curators grant everything to the researcher."""
        to = public_identity(self.researcher.identity)
        for session in self.curators:
            signed = session.contract(self.study)
            self.grants.append(curator.give_grant(session, signed, to, None, LATER))

    def truth(self) -> "Truth":
        """Return what only the curators can know: who takes part, and all decoys."""
        contract = self.contract.body
        secret = combined_secret(self.curators[0], contract)
        return Truth.of(contract, secret, self.tables)


@dataclass(frozen=True)
class Truth:
    """The coins and the decoys of a study, from the specification alone."""

    people: list[Counter[Any]]
    """Of each curator, how many who take part it holds in each of its cells."""
    common: Counter[tuple[int, ...]]
    """How many who take part, and whom all curators hold, are in each joint cell."""
    decoys: Counter[tuple[int | None, ...]]
    """How many decoys each pattern has; None stands for absent."""

    @classmethod
    def of(cls, contract: Contract, secret: bytes, tables: list[pl.DataFrame]) -> "Truth":
        """Throw every coin, and invent every decoy."""
        assert contract.decoys is not None
        coin, key = contract.decoys.coin_threshold, token_key(secret, contract.study_id)
        held: list[dict[int, int]] = []
        for table in tables:
            messages = id_messages(table, ["id"], ())
            made = tokens(key, messages.data, messages.offsets)
            rows = zip(table["id"], table.get_columns()[1], made, strict=True)
            held.append(
                {
                    person: int(code)
                    for person, code, token in rows
                    if int.from_bytes(token[:8].tobytes(), "big") < coin
                }
            )
        both = set(held[0]) & set(held[1])
        sizes = list(SIZES.values())
        patterns = Counter(pattern for pattern, _ in reference_decoys(contract, secret))
        decoys: Counter[tuple[int | None, ...]] = Counter()
        for pattern, count in patterns.items():
            digits = spec_decoys.digits(pattern, sizes, matched=contract.matched)
            decoys[tuple(d if d < s else None for d, s in zip(digits, sizes, strict=True))] += count
        return cls(
            [Counter(each.values()) for each in held],
            Counter((held[0][person], held[1][person]) for person in both),
            decoys,
        )

    @property
    def joined(self) -> list[int]:
        """How many rows the released table has in each joint cell, without the server's noise."""
        return [self.common[cell] + self.decoys[cell] for cell in CELLS]

    def uploaded(self, place: int) -> int:
        """How many rows a curator uploads."""
        present = sum(n for pattern, n in self.decoys.items() if pattern[place] is not None)
        return sum(self.people[place].values()) + present


def decoy_study(
    server: Server,
    folder: Path,
    linkage: LinkageMode,
    *,
    pads: PadMode = "stream",
    people: int = 300,
    **changes: Any,
) -> DecoyStudy:
    """Open a study with decoys; new parties have their homes in ``folder``."""
    names = ["hospital", "office", "researcher"]
    *curators, researcher = join_parties(server, folder, names)
    chosen: dict[str, Any] = {"epsilon": EPSILON, "mechanism": decoy_terms()}
    terms = HttpTerms(title=f"decoys, {linkage}", linkage=linkage, pads=pads, **chosen | changes)
    draft = terms.draft(curators, [[each] for each in ATTRIBUTES], researcher)
    study = curator.propose(curators[0], draft, terms.ledger).study_id
    curator.sign(curators[1], curators[1].contract(study), terms.ledger)
    own = people // 4 if linkage == "matched" else 0
    held = (range(people), range(own, people + own))
    tables = [table_of(place, numbers) for place, numbers in enumerate(held)]
    return DecoyStudy(curators, researcher, tables, study)
