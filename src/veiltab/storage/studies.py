"""Records about studies and who is named in them."""

from collections.abc import Collection
from dataclasses import asdict, dataclass, field

from sqlalchemy import RowMapping, bindparam, select, update

from veiltab.errors import StateError
from veiltab.storage.access import Access
from veiltab.storage.tables import MEMBERS, STUDIES

# Almost every request runs these; building them takes longer than running them.
_STUDY = select(STUDIES).where(STUDIES.c.study == bindparam("wanted"))
_STUDY_TO_CHANGE = _STUDY.with_for_update()  # SQLite has one writer at a time, and leaves this out
_ROLE = select(MEMBERS.c.role).where(
    MEMBERS.c.study == bindparam("wanted"), MEMBERS.c.party == bindparam("member")
)


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """A study as the server knows it.

    ``contract`` is the canonical bytes of the contract with its signatures so far.
    """

    study: bytes
    title: str
    contract: bytes
    state: str
    noise_key: bytes | None = field(repr=False)
    reason: str | None
    created: int
    updated: int


class StudyRecords(Access):
    """Studies and their members."""

    def add_study(self, record: StudyRecord) -> None:
        """Keep a new study; refuse one that is there."""
        if not self._insert_new(STUDIES, asdict(record)):
            raise StateError(
                f"the study {record.study.hex()} is there already",
                hint="ask for its status; repeat the request if it was sent twice at once",
            )

    def study(self, study: bytes) -> StudyRecord | None:
        """Return a study.

        While something may be written, no other transaction that writes gets it before this one
        ends: the requests on one study follow each other.
        """
        statement = _STUDY_TO_CHANGE if self._writing else _STUDY
        row = self._connection.execute(statement, {"wanted": study}).mappings().one_or_none()
        return None if row is None else StudyRecord(**row)

    def update_study(self, record: StudyRecord) -> None:
        """Put a record in the place of the one with the same study."""
        statement = update(STUDIES).where(STUDIES.c.study == record.study).values(**asdict(record))
        if self._connection.execute(statement).rowcount != 1:
            raise StateError(
                f"there is no study {record.study.hex()} to change", hint="add the study first"
            )

    def studies_of(self, party: bytes) -> list[tuple[StudyRecord, str]]:
        """Return the studies that name a party, each with its role, the oldest first."""
        statement = (
            select(STUDIES, MEMBERS.c.role)
            .join(MEMBERS, MEMBERS.c.study == STUDIES.c.study)
            .where(MEMBERS.c.party == party)
            .order_by(STUDIES.c.created, STUDIES.c.study)
        )
        return [_with_role(row) for row in self._connection.execute(statement).mappings()]

    def studies_in(self, states: Collection[str]) -> list[bytes]:
        """Return the ids of the studies that are in one of these states, the oldest first."""
        statement = (
            select(STUDIES.c.study)
            .where(STUDIES.c.state.in_(states))
            .order_by(STUDIES.c.created, STUDIES.c.study)
        )
        return list(self._connection.execute(statement).scalars())

    def add_member(self, study: bytes, party: bytes, role: str) -> None:
        """Note a party's role in a study; if it has one, that one stays."""
        self._insert_new(MEMBERS, {"study": study, "party": party, "role": role})

    def role(self, study: bytes, party: bytes) -> str | None:
        """Return a party's role in a study: ``curator``, ``researcher`` or none."""
        wanted = {"wanted": study, "member": party}
        role: str | None = self._connection.execute(_ROLE, wanted).scalar_one_or_none()
        return role


def _with_role(row: RowMapping) -> tuple[StudyRecord, str]:
    fields = dict(row)
    role = fields.pop("role")
    return StudyRecord(**fields), role
