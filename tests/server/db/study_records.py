"""A study's records for tests of storage."""

from veiltab.server.db.database import Database
from veiltab.server.db.records import StudyRecord

STUDY, OTHER_STUDY = b"\x00s" * 16, b"\xffs" * 16
NOISE_KEY = bytes(range(0xC0, 0xE0))


def study_record(study: bytes = STUDY, state: str = "open", created: int = 100) -> StudyRecord:
    """Return a study with every field set."""
    return StudyRecord(
        study=study,
        title="Ein Titel – ε≤½",
        contract=b'{"kind":"contract"}\x00\xff',
        state=state,
        noise_key=NOISE_KEY,
        reason="because",
        created=created,
        updated=created + 1,
    )


def add_study(database: Database, study: bytes = STUDY) -> None:
    """Keep a study in a transaction of its own."""
    with database.transaction() as records:
        records.add_study(study_record(study))
