"""Everything that the server remembers, as one transaction sees it."""

from veiltab.storage.access import CURATOR, RESEARCHER
from veiltab.storage.messages import MessageRecord, MessageRecords
from veiltab.storage.people import Invitation, PeopleRecords
from veiltab.storage.studies import StudyRecord, StudyRecords

__all__ = [
    "CURATOR",
    "RESEARCHER",
    "Invitation",
    "MessageRecord",
    "Records",
    "StudyRecord",
]


class Records(PeopleRecords, StudyRecords, MessageRecords):
    """One transaction's view of the database; ``Database`` makes it, and ends the transaction.

    Times are in seconds since 1970; ids, digests and messages are bytes.
    """
