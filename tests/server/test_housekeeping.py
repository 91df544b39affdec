"""Proposals that nobody signs expire, and what ended long ago is archived."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from tests.support.http_simulator import HttpStudy, HttpTerms, http_study
from tests.support.proposals import Threesome, proposal, threesome
from tests.support.simulator import Stage
from veiltab.errors import StateError
from veiltab.party.evidence import examine
from veiltab.party.session import Session
from veiltab.server.db.tables import GRANTED
from veiltab.server.db.usage import UsageRecords
from veiltab.server.housekeeping import archive, archive_finished, expire_proposals, keep_house
from veiltab.server.worker import HOUSE_SECONDS, Worker

DAY = 86_400


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threesome]:
    """One service for all tests here."""
    with threesome(tmp_path_factory.mktemp("house")) as made:
        yield made


@pytest.fixture(scope="module")
def granted(parties: Threesome, tmp_path_factory: pytest.TempPathFactory) -> HttpStudy:
    """Return a released study with grants that do not expire soon."""
    chosen = [parties.attacker, parties.victim, parties.other]
    folder = tmp_path_factory.mktemp("granted")
    return http_study(parties.service, folder, Stage.GRANTED, terms=HttpTerms(), parties=chosen)


def test_unsigned_proposals_expire(parties: Threesome) -> None:
    """After thirty days; signed ones stay, however old."""
    server, context = parties.attacker.server, parties.context
    waiting = server.propose(proposal(parties.attacker, parties.victim, number=1)).study
    signed = server.propose(proposal(parties.attacker, number=2)).study
    parties.time.sleep(29 * DAY)
    keep_house(context)
    assert server.status(waiting).state == "proposed"
    parties.time.sleep(2 * DAY)
    keep_house(context)
    status = server.status(waiting)
    assert (status.state, status.reason) == (
        "aborted",
        "the server: not everybody has signed within 30 days",
    )
    assert server.status(signed).state == "open"
    entries, _ = server.audit(waiting)
    assert (entries[-1].event, entries[-1].actor) == ("aborted", context.identity.party_id)
    assert expire_proposals(context, 30) == []


def test_what_is_signed_at_the_last_moment_does_not_expire(
    parties: Threesome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last signature comes between the look at old proposals and their end."""
    server, context = parties.attacker.server, parties.context
    signed = server.propose(proposal(parties.attacker, number=3)).study
    monkeypatch.setattr(UsageRecords, "unsigned_since", lambda *_: [signed])
    expire_proposals(context, 30)
    assert server.status(signed).state == "open"


def test_finished_studies_are_archived(parties: Threesome, granted: HttpStudy) -> None:
    """A year after the last change, and never while somebody may read them."""
    context, study = parties.context, granted.study
    published = Session(parties.other).study(study.hex()).publish()
    parties.time.sleep(366 * DAY)
    archive_finished(context, 365)
    assert parties.other.server.release(study).body.study == study
    with context.database.transaction() as records:  # as if the grants had been for a year
        records._connection.execute(update(GRANTED).values(expires=context.now))
    assert study in archive_finished(context, 365)
    for ask in (parties.victim.server.release, parties.other.server.release):
        with pytest.raises(StateError, match="archived"):
            ask(study)
    assert parties.victim.server.status(study).state == "released"
    assert parties.victim.server.grants(study) == []
    assert parties.victim.server.contract(study).body.study_id == study
    again = Session(parties.other).study(study.hex()).publish()  # it has its own copy for ever
    assert again.digest == published.digest
    entries = examine(parties.victim, study).entries
    assert [entry.event for entry in entries][-3:] == ["granted", "published", "archived"]
    assert context.folders.released_bytes(study) == 0
    with context.database.reading() as records:
        assert records.held_by_study(study) == {}
        assert {m.content for m in records.messages(study, "grant")} == {b""}
    assert archive_finished(context, 365) == []


def test_what_goes_on_is_not_archived(parties: Threesome) -> None:
    """Only what was released or aborted."""
    study = parties.attacker.server.propose(proposal(parties.attacker, number=3)).study
    with pytest.raises(StateError, match="only what has ended"):
        archive(parties.context, study)


def test_a_running_server_keeps_house(tmp_path: Path) -> None:
    """Its worker looks every hour by its clock."""
    with threesome(tmp_path) as parties:
        server = parties.attacker.server
        study = server.propose(proposal(parties.attacker, parties.victim)).study
        worker = Worker(parties.context)
        worker._keep_house()
        parties.time.sleep(31 * DAY)
        parties.service.context.database.ping()
        assert HOUSE_SECONDS <= 31 * DAY
        worker._keep_house()
        assert server.status(study).state == "aborted"
        assert parties.context.folders.has_ballast()
