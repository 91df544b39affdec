"""Nobody is bound by another's proposal: lists in pages, an inbox, blocks, and few proposals."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import delete

from tests.support.proposals import Threesome, proposal, threesome
from tests.support.servers import QUICK
from veiltab.errors import InputError, NotFoundError, QuotaError, UnknownPartyError
from veiltab.party.context import PartyContext
from veiltab.protocol.verify import cosign
from veiltab.server.db.records import Records
from veiltab.server.db.tables import PARTIES
from veiltab.server.http.routes import PAGE
from veiltab.wire.contract import Contract
from veiltab.wire.signed import Signed

MOST, A_DAY = 3, 5
SMALL = replace(QUICK, open_proposals=MOST, daily_proposals=A_DAY)
DAY = 86_400


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Threesome]:
    """Return a service that takes few proposals."""
    with threesome(tmp_path, SMALL) as parties:
        yield parties


@pytest.fixture
def usual(tmp_path: Path) -> Iterator[Threesome]:
    """Return a service with the usual quotas."""
    with threesome(tmp_path) as parties:
        yield parties


def titles(party: PartyContext, *, inbox: bool = False) -> list[str]:
    """Return what a party's list or inbox shows."""
    return [line.title for line in party.server.studies(inbox=inbox)]


def test_a_flood_of_proposals_ends_at_the_quota(
    small: Threesome,
) -> None:
    """One party has a few proposals open; others, and its signed ones, are not counted."""
    attacker, victim, other = small.attacker, small.victim, small.other
    for number in range(MOST):
        attacker.server.propose(proposal(attacker, victim, number=number))
    with pytest.raises(QuotaError, match=f"{MOST} of your proposals"):
        attacker.server.propose(proposal(attacker, victim, number=MOST))
    again = attacker.server.propose(proposal(attacker, victim, number=0))  # changes nothing
    assert again.state == "proposed"
    other.server.propose(proposal(other, victim))
    first = victim.server.contract(again.study)
    assert victim.server.sign(again.study, cosign(first, victim.identity.signing)).state == "open"
    attacker.server.propose(proposal(attacker, victim, number=MOST))


def test_proposing_and_aborting_ends_at_the_quota_of_a_day(
    small: Threesome,
) -> None:
    """An abort frees no proposal of today, and leaves nothing in anybody's inbox."""
    time, attacker, victim = small.time, small.attacker, small.victim
    for number in range(A_DAY):
        study = attacker.server.propose(proposal(attacker, victim, number=number)).study
        attacker.server.abort(study, "to plague you")
    with pytest.raises(QuotaError, match="within a day"):
        attacker.server.propose(proposal(attacker, victim, number=A_DAY))
    assert titles(victim) == titles(victim, inbox=True) == []
    time.sleep(DAY + 1)
    attacker.server.propose(proposal(attacker, victim, number=A_DAY))


def test_nobody_is_listed_without_looking(usual: Threesome) -> None:
    """A proposal is in the inbox of those whom it names until they look at it."""
    proposer, curator, researcher = usual.attacker, usual.victim, usual.other
    study = proposer.server.propose(proposal(proposer, curator, researchers=(researcher,))).study
    assert titles(proposer) == ["a study"]
    assert titles(proposer, inbox=True) == []
    for party, look in ((curator, "contract"), (researcher, "status")):
        assert titles(party) == []
        assert titles(party, inbox=True) == ["a study"]
        getattr(party.server, look)(study)
        assert titles(party) == ["a study"]
        assert titles(party, inbox=True) == []


def test_what_ends_unseen_leaves_the_inbox(usual: Threesome) -> None:
    """But those who have looked keep it, and those who have not can still find it by its id."""
    proposer, first, second = usual.attacker, usual.victim, usual.other
    study = proposer.server.propose(proposal(proposer, first, second)).study
    first.server.status(study)
    proposer.server.abort(study, "a mistake")
    assert titles(first) == ["a study"]
    assert titles(second) == titles(second, inbox=True) == []
    assert second.server.status(study).state == "aborted"
    assert titles(second) == ["a study"]


def test_a_blocked_party_cannot_tell(usual: Threesome) -> None:
    """Its proposals are refused with the very words for somebody who is not registered."""
    service, attacker, victim, other = usual.service, usual.attacker, usual.victim, usual.other
    attacker.server.propose(proposal(attacker, victim, number=1))
    assert titles(victim, inbox=True) == ["a study"]
    victim.server.block(attacker.identity.party_id)
    assert titles(victim, inbox=True) == []
    refused = refusal(attacker, proposal(attacker, victim, number=2))
    assert titles(victim, inbox=True) == []
    other.server.propose(proposal(other, victim, number=3))
    assert titles(victim, inbox=True) == ["a study"]
    with service.context.database.transaction() as records:
        records._connection.execute(delete(PARTIES).where(PARTIES.c.name == "victim"))
    assert refusal(other, proposal(other, victim, number=4)) == refused


def test_a_block_can_be_lifted(usual: Threesome) -> None:
    """Then proposals reach the inbox again; doing either twice changes nothing."""
    proposer, other = usual.attacker, usual.victim
    for _ in range(2):
        other.server.block(proposer.identity.party_id)
    assert list(other.server.blocks()) == [proposer.identity.party_id]
    for _ in range(2):
        other.server.unblock(proposer.identity.party_id)
    assert other.server.blocks() == {}
    proposer.server.propose(proposal(proposer, other))
    assert titles(other, inbox=True) == ["a study"]


def refusal(party: PartyContext, signed: Signed[Contract]) -> str:
    """Return the words with which a proposal is refused."""
    with pytest.raises(UnknownPartyError) as caught:
        party.server.propose(signed)
    return f"{caught.value.message} {caught.value.hint}"


def test_long_lists_come_in_pages(usual: Threesome, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page reads what it shows and no contract; the client reads all pages, in order."""
    service, proposer, victim = usual.service, usual.attacker, usual.victim
    context = service.context
    count = 2 * PAGE + 1
    template = proposal(proposer, victim)
    study = proposer.server.propose(template).study
    with context.database.transaction() as records:
        record = records.study(study)
        assert record is not None
        for number in range(1, count):
            made = number.to_bytes(32)
            records.add_study(replace(record, study=made, title=f"study {number}"))
            records.add_member(made, victim.identity.party_id, "curator", now=context.now + number)
    monkeypatch.setattr(Records, "study", lambda *_: pytest.fail("a contract was read"))
    assert titles(victim, inbox=True) == ["a study", *(f"study {n}" for n in range(1, count))]
    assert len(titles(victim, inbox=True)) == count
    assert titles(victim) == []


@pytest.mark.parametrize("query", ["after=x", "after=1-ff", "limit=0", "limit=101", "inbox=maybe"])
def test_wrong_pages_are_refused(usual: Threesome, query: str) -> None:
    """A cursor is the server's own, and a page is short."""
    party = usual.attacker
    with pytest.raises(InputError, match=query.partition("=")[0]):
        party.server._get(f"/v1/studies?{query}")


def test_a_hidden_study_names_nobody_else(usual: Threesome) -> None:
    """A study that does not name a party does not exist for it, in inbox, list or by id."""
    proposer, curator, outsider = usual.attacker, usual.victim, usual.other
    study = proposer.server.propose(proposal(proposer, curator)).study
    assert titles(outsider) == titles(outsider, inbox=True) == []
    with pytest.raises(NotFoundError):
        outsider.server.status(study)
