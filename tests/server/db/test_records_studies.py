"""Studies and their members, on both databases."""

from dataclasses import replace
from typing import Any

import pytest

from tests.server.db.study_records import (
    NOISE_KEY,
    OTHER_STUDY,
    STUDY,
    add_study,
    study_record,
)
from veiltab.errors import StateError
from veiltab.server.db.database import Database
from veiltab.server.db.lists import INBOX, LISTED
from veiltab.server.db.records import CURATOR, RESEARCHER
from veiltab.wire.contract import PublicIdentity

ALICE, BOB = b"a" * 32, b"b" * 32


def test_a_study_comes_back_whole(database: Database) -> None:
    """Every field, in a transaction that writes and in one that reads."""
    add_study(database)
    with database.transaction() as records:
        assert records.study(STUDY) == study_record()
    with database.reading() as records:
        assert records.study(STUDY) == study_record()
        assert records.study(OTHER_STUDY) is None


def test_the_noise_key_is_not_shown(database: Database) -> None:
    """A record may end up in a log; its noise key must not."""
    add_study(database)
    with database.reading() as records:
        record = records.study(STUDY)
    assert record is not None
    assert record.noise_key == NOISE_KEY
    assert repr(NOISE_KEY)[2:-1] not in repr(record)
    assert "noise_key" not in repr(record)


def test_a_study_is_added_once(database: Database) -> None:
    """A second one with the same id is refused, and the first stays."""
    add_study(database)
    with pytest.raises(StateError, match="already"), database.transaction() as records:
        records.add_study(study_record(state="aborted"))
    with database.reading() as records:
        assert records.study(STUDY) == study_record()


def test_a_study_is_updated_in_place(database: Database) -> None:
    """Every field can change, and only in the study that is named."""
    add_study(database)
    add_study(database, OTHER_STUDY)
    changes: dict[str, Any] = {
        "state": "released",
        "noise_key": None,
        "contract": b"",
        "updated": 2**40,
    }
    changed = replace(study_record(), **changes)
    with database.transaction() as records:
        records.change_study(STUDY, **changes)
    with database.reading() as records:
        assert records.study(STUDY) == changed
        assert records.study(OTHER_STUDY) == study_record(OTHER_STUDY)


def test_only_a_study_that_is_there_is_updated(database: Database) -> None:
    """An update never adds a study."""
    with database.transaction() as records:
        records.change_study(STUDY, state="released")
    with database.reading() as records:
        assert records.study(STUDY) is None


def test_members_keep_their_first_role(database: Database) -> None:
    """Adding a member again is no error; a curator does not become a researcher."""
    add_study(database)
    with database.transaction() as records:
        records.add_member(STUDY, ALICE, CURATOR)
        records.add_member(STUDY, BOB, RESEARCHER)
        records.add_member(STUDY, ALICE, CURATOR)
        records.add_member(STUDY, ALICE, RESEARCHER)
    with database.reading() as records:
        assert records.role(STUDY, ALICE) == CURATOR
        assert records.role(STUDY, BOB) == RESEARCHER
        assert records.role(STUDY, b"c" * 32) is None
        assert records.role(OTHER_STUDY, ALICE) is None


@pytest.mark.parametrize("role", ["", "server", "Curator"])
def test_other_roles_are_refused(database: Database, role: str) -> None:
    """The database itself knows the two roles."""
    add_study(database)
    with pytest.raises(StateError), database.transaction() as records:
        records.add_member(STUDY, ALICE, role)


def test_a_member_needs_its_study(database: Database) -> None:
    """Nothing can belong to a study that is not there."""
    with pytest.raises(StateError), database.transaction() as records:
        records.add_member(STUDY, ALICE, CURATOR)


def test_a_party_sees_its_studies_oldest_first(database: Database) -> None:
    """Each with the party's own role; those of others are left out."""
    young, old, foreign = (bytes([number]) * 32 for number in (1, 2, 3))
    with database.transaction() as records:
        for study, created in ((young, 300), (old, 200), (foreign, 100)):
            records.add_study(study_record(study, created=created))
        records.add_member(young, ALICE, CURATOR, now=300)
        records.add_member(old, ALICE, RESEARCHER, now=200)
        records.add_member(foreign, BOB, CURATOR, now=100)
    with database.reading() as records:
        page = records.page_of_studies(ALICE, INBOX, None, 10)
        assert [(line.study, line.role) for line in page] == [(old, RESEARCHER), (young, CURATOR)]
        assert records.page_of_studies(ALICE, INBOX, None, 1) == page[:1]
        assert records.page_of_studies(ALICE, INBOX, page[0].cursor, 10) == page[1:]
        assert records.page_of_studies(ALICE, INBOX, page[1].cursor, 10) == []
        assert records.page_of_studies(ALICE, LISTED, None, 10) == []
        assert records.page_of_studies(b"c" * 32, INBOX, None, 10) == []


def test_blocks_are_each_partys_own(database: Database) -> None:
    """Whoever is unknown or banned, or has blocked the sender, is out of reach for it."""
    carol, dave = (
        PublicIdentity(name, name.encode().ljust(32), bytes(1216)) for name in ("carol", "dave")
    )
    with database.transaction() as records:
        for party in (carol, dave):
            assert records.add_party(party, 100)
        assert records.block(carol.party_id, ALICE, 100)
        assert not records.block(carol.party_id, ALICE, 200)
    parties = [carol.party_id, dave.party_id, BOB]
    with database.reading() as records:
        assert records.blocked_by(carol.party_id) == [(ALICE, 100)]
        assert records.out_of_reach(parties, ALICE) == {carol.party_id, BOB}
        assert records.out_of_reach(parties, BOB) == {BOB}
    with database.transaction() as records:
        assert records.unblock(carol.party_id, ALICE)
        assert not records.unblock(carol.party_id, ALICE)
        assert records.out_of_reach(parties, ALICE) == {BOB}


def test_studies_are_found_by_their_state(database: Database) -> None:
    """In any of the given states, the oldest first; in no state there is none."""
    states = ["open", "released", "open", "aborted"]
    studies = [bytes([number]) * 32 for number in range(4)]
    with database.transaction() as records:
        for number, (study, state) in enumerate(zip(studies, states, strict=True)):
            records.add_study(study_record(study, state, created=900 - number))
    with database.reading() as records:
        assert records.studies_in({"open"}) == [studies[2], studies[0]]
        assert records.studies_in(["aborted", "released"]) == [studies[3], studies[1]]
        assert records.studies_in([]) == []
