"""Messages and the audit log, on both databases."""

from dataclasses import replace

import pytest
from sqlalchemy import text

from tests.server.db.study_records import OTHER_STUDY, STUDY, add_study
from veiltab.errors import StateError
from veiltab.server.db.database import Database
from veiltab.server.db.records import MessageRecord

ALICE, BOB = b"a" * 32, b"b" * 32
MESSAGE = MessageRecord(
    study=STUDY,
    kind="secret",
    sender=ALICE,
    reference=BOB,
    digest=b"d" * 32,
    content=b"\x00content\xff",
    at=500,
)
CHANGES = (
    "UPDATE audit SET content = hash",
    "UPDATE audit SET sequence = sequence + 1",
    "DELETE FROM audit",
    "DELETE FROM audit WHERE sequence = 1",
)


@pytest.fixture
def filled(database: Database) -> Database:
    """Return a database with two studies, and an audit log of two entries in the first."""
    add_study(database)
    add_study(database, OTHER_STUDY)
    with database.transaction() as records:
        records.append_audit(STUDY, b"first", b"1" * 32)
        records.append_audit(STUDY, b"second", b"2" * 32)
    return database


def test_a_message_comes_back_whole(filled: Database) -> None:
    """It is found by its study, kind, sender and reference, and by nothing less."""
    with filled.transaction() as records:
        assert records.add_message(MESSAGE)
    with filled.reading() as records:
        assert records.message(STUDY, "secret", ALICE, BOB) == MESSAGE
        assert records.message(STUDY, "secret", ALICE) is None
        assert records.message(STUDY, "upload", ALICE, BOB) is None
        assert records.message(STUDY, "secret", BOB, BOB) is None
        assert records.message(OTHER_STUDY, "secret", ALICE, BOB) is None


def test_the_same_message_may_come_again(filled: Database) -> None:
    """The repetition is noticed, and the first time of arrival stays."""
    with filled.transaction() as records:
        assert records.add_message(MESSAGE)
        assert not records.add_message(replace(MESSAGE, at=900))
    with filled.reading() as records:
        assert records.messages(STUDY, "secret") == [MESSAGE]


def test_another_message_in_its_place_is_refused(filled: Database) -> None:
    """What was sent stays."""
    with filled.transaction() as records:
        records.add_message(MESSAGE)
    other = replace(MESSAGE, digest=b"e" * 32, content=b"other")
    with (
        pytest.raises(StateError, match="was sent to this study before"),
        filled.transaction() as records,
    ):
        records.add_message(other)
    with filled.reading() as records:
        assert records.messages(STUDY, "secret") == [MESSAGE]


def test_messages_are_ordered_by_time_and_sender(filled: Database) -> None:
    """Whatever the order in which they were added; other kinds and studies are left out."""
    early = replace(MESSAGE, sender=BOB, at=499)
    late = replace(MESSAGE, sender=BOB, reference=ALICE)
    noise = [replace(MESSAGE, kind="upload"), replace(MESSAGE, study=OTHER_STUDY)]
    with filled.transaction() as records:
        for message in (late, MESSAGE, early, *noise):
            assert records.add_message(message)
    with filled.reading() as records:
        assert records.messages(STUDY, "secret") == [early, MESSAGE, late]
        assert records.messages(STUDY, "grant") == []


def test_a_large_message_is_kept(filled: Database) -> None:
    """An upload that lists many chunks is megabytes long."""
    large = replace(MESSAGE, content=bytes(range(256)) * 20_000)
    with filled.transaction() as records:
        records.add_message(large)
    with filled.reading() as records:
        assert records.message(STUDY, "secret", ALICE, BOB) == large


def test_a_message_needs_its_study(database: Database) -> None:
    """Nothing can belong to a study that is not there."""
    with pytest.raises(StateError), database.transaction() as records:
        records.add_message(MESSAGE)


def test_each_study_has_an_audit_log_of_its_own(filled: Database) -> None:
    """Entries come back in their order, and the head is the last of them."""
    with filled.transaction() as records:
        records.append_audit(OTHER_STUDY, b"elsewhere", b"3" * 32)
    with filled.reading() as records:
        assert records.audit(STUDY) == [b"first", b"second"]
        assert records.audit_head(STUDY) == (2, b"2" * 32)
        assert records.audit(OTHER_STUDY) == [b"elsewhere"]
        assert records.audit_head(OTHER_STUDY) == (1, b"3" * 32)
        assert records.audit(b"?" * 32) == []
        assert records.audit_head(b"?" * 32) is None


@pytest.mark.parametrize("change", CHANGES)
def test_the_audit_log_cannot_be_changed(filled: Database, change: str) -> None:
    """Not even by somebody who writes SQL: the database refuses."""
    refused(filled, change)


def test_the_audit_log_cannot_be_replaced(filled: Database) -> None:
    """Each database has one more way to lose rows, which is closed too."""
    if "sqlite" in repr(filled):
        refused(filled, "INSERT OR REPLACE INTO audit SELECT study, 0, hash, hash FROM audit")
    else:
        refused(filled, "TRUNCATE audit")


@pytest.mark.parametrize("sequence", [-1, 1, 3])
def test_the_audit_log_has_no_gaps(filled: Database, sequence: int) -> None:
    """An entry comes after the last one, and nowhere else."""
    insert = "INSERT INTO audit SELECT study, {}, content, hash FROM audit WHERE sequence = 0"
    refused(filled, insert.format(sequence))
    with filled.transaction() as records:
        records._connection.execute(text(insert.format(2)))


def refused(database: Database, statement: str) -> None:
    """Fail unless the database refuses a statement and keeps both entries."""
    with pytest.raises(StateError), database.transaction() as records:
        records._connection.execute(text(statement))
    with database.reading() as records:
        assert records.audit(STUDY) == [b"first", b"second"]
