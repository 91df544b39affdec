"""Stored tables for the tests of the roles, and studies whose rows are drawn from them."""

from dataclasses import dataclass, replace
from typing import Any

from tests.support.studies import (
    Recorded,
    pair,
    stored_contract,
)
from veiltab.protocol.curator.upload import Prepared
from veiltab.protocol.server.study import ServerStudy
from veiltab.protocol.verify import sign
from veiltab.rehearsal import Deposit, Outcome, Terms
from veiltab.wire.contract import Contract
from veiltab.wire.messages import Repad, RepadRequest
from veiltab.wire.signed import Signed

TERMS = Terms(epsilon=1.0, sample_size=20, sampler="server")


@dataclass(eq=False)
class Case:
    """A deposit, and a study on it whose rows are drawn."""

    rehearsal: Recorded
    deposit: Deposit
    outcome: Outcome
    requests: list[Signed[RepadRequest]]

    @property
    def study(self) -> ServerStudy:
        """The server's side."""
        return self.outcome.study

    def answer(self, place: int, /, **changes: Any) -> Prepared[Repad]:
        """Let a curator answer its request, with some fields changed by the server."""
        request, desk = self.requests[place], self.outcome.desks[place]
        if changes:
            body = replace(request.body, **changes)
            request = sign(body, self.rehearsal.server.signing)
        return self.deposit.stored[place].repad(
            desk, self.outcome.contract, request, self.outcome.received
        )


def draw(case: tuple[Recorded, Deposit], contract: Contract | None = None) -> Case:
    """Open a study on a deposit and draw its rows."""
    rehearsal, deposit = case
    outcome = rehearsal._open(contract or stored_contract(rehearsal, TERMS, deposit))
    uploads = [table.upload for table in deposit.stored]
    requests = outcome.study.draw_from(deposit.vault, uploads, deposit.tables)
    return Case(rehearsal, deposit, outcome, list(requests.values()))


def deposited() -> tuple[Recorded, Deposit]:
    """Return the ordinary parties and their deposit."""
    rehearsal = pair()
    return rehearsal, rehearsal.deposit()
