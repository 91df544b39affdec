"""Audit logs that a server makes long: the client reads what is new, in pages, and gives up."""

from dataclasses import replace
from unittest import mock

import pytest

from tests.support.messages import filler
from veiltab.crypto.signing import SigningKey
from veiltab.errors import AuditError
from veiltab.party import answers
from veiltab.party.answers import Log, read_log_pages
from veiltab.protocol.audit_log import next_entry, verify_more
from veiltab.protocol.verify import sign
from veiltab.wire.audit import MAX_ENTRIES, AuditEntry, AuditHead, entry_hash

STUDY, SERVER = filler("study"), SigningKey(filler("server"))
PAGE = 10


def log_of(length: int) -> list[AuditEntry]:
    """Write a log."""
    entries: list[AuditEntry] = []
    for number in range(length):
        seen = (number, entry_hash(entries[-1])) if entries else None
        actor = filler("a curator")
        entries.append(
            next_entry(
                seen, STUDY, at=0, actor=actor, event="granted", message=STUDY, state="released"
            )
        )
    return entries


LOG = log_of(35)
HEAD = sign(AuditHead(at=0, hash=entry_hash(LOG[-1]), length=35, study=STUDY), SERVER)


def page(start: int) -> Log:
    """Return a page of the log."""
    return LOG[start : start + PAGE], HEAD


@pytest.mark.parametrize("after", [0, 7, 30, 35])
def test_only_what_is_new_is_read(after: int) -> None:
    """From where the log was seen, to its end, and the chain goes on from there."""
    entries, head = read_log_pages(page, after)
    assert entries == LOG[after:]
    seen = (after, entry_hash(LOG[after - 1])) if after else (0, STUDY)
    assert verify_more(STUDY, entries, head, SERVER.public, seen) == (35, entry_hash(LOG[-1]))


def test_a_log_that_never_ends_is_given_up() -> None:
    """A head of four billion entries, and a page whenever one is asked for."""
    endless = replace(HEAD, body=replace(HEAD.body, length=MAX_ENTRIES))
    asked: list[int] = []

    def more(start: int) -> Log:
        asked.append(start)
        return LOG[:PAGE], endless

    with (
        mock.patch.object(answers, "MAX_LOG_ENTRIES", 100),
        pytest.raises(AuditError, match="more than 100 entries"),
    ):
        read_log_pages(more, 0)
    assert len(asked) == 11


def test_pages_that_lead_nowhere_end_the_reading() -> None:
    """A server that signs for more than it shows is asked once, and the log is refused."""
    entries, head = read_log_pages(lambda _: ([], HEAD), 7)
    with pytest.raises(AuditError, match="is missing, but the server signed for 35"):
        verify_more(STUDY, entries, head, SERVER.public, (7, entry_hash(LOG[6])))
