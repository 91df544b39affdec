"""One study within a transaction: what is loaded, what is written, and the audit log."""

from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

from veiltab.errors import NotFoundError
from veiltab.protocol.audit_log import next_entry
from veiltab.protocol.server.context import ServerContext
from veiltab.protocol.server.states import State
from veiltab.protocol.server.study import ServerStudy
from veiltab.server.context import Context
from veiltab.server.db.records import CURATOR, MessageRecord, Records, StudyRecord
from veiltab.wire.audit import entry_hash
from veiltab.wire.codec import MAX_TEXT
from veiltab.wire.contract import Contract
from veiltab.wire.messages import Release, SignedGrant, Upload
from veiltab.wire.signed import Signed

RELEASE = "release"
UPLOAD = "upload"
GRANT = "grant"


@dataclass(slots=True, eq=False)
class Case:
    """A study in the hands of one request or job, inside one transaction."""

    context: Context
    records: Records
    record: StudyRecord
    _read: tuple[bytes, Signed[Contract]] | None = field(default=None, init=False, repr=False)

    @classmethod
    def find(cls, context: Context, records: Records, study: bytes) -> "Case":
        """Load a study, or say that there is none."""
        record = records.study(study)
        if record is None:
            raise no_study()
        return cls(context, records, record)

    @classmethod
    def of(cls, context: Context, records: Records, study: bytes, party: bytes) -> "Case":
        """Load a study that names the party; to everybody else it does not exist."""
        if records.role(study, party) is None:
            raise no_study()
        return cls.find(context, records, study)

    @classmethod
    def of_curator(cls, context: Context, records: Records, study: bytes, party: bytes) -> "Case":
        """Load a study for one of its curators; to everybody else there is nothing to see."""
        if records.role(study, party) != CURATOR:
            raise no_study()
        return cls.find(context, records, study)

    @property
    def study(self) -> bytes:
        """The study's id."""
        return self.record.study

    @property
    def state(self) -> State:
        """Where the study stands."""
        return State(self.record.state)

    @property
    def contract(self) -> Signed[Contract]:
        """The contract with the signatures so far; read once, unless it is signed meanwhile."""
        if self._read is None or self._read[0] is not self.record.contract:
            self._read = self.record.contract, Contract.loads(self.record.contract)
        return self._read[1]

    def bench(self) -> ServerContext:
        """Return what a step of the server needs, for steps that draw nothing."""
        folders = self.context.folders
        curators = [terms.party_id for terms in self.contract.body.curators]
        return ServerContext(
            self.context.key,
            self.context.entropy,
            folders.received_all(self.study, curators),
            folders.released(self.study),
            partial(folders.scratch, self.study),
        )

    def resume(self) -> ServerStudy:
        """Take the study up where it stands; when its life is over, its uploads are erased."""
        uploads = self.records.messages(self.study, UPLOAD)
        return ServerStudy.resume(
            self.bench(),
            self.contract,
            self.state,
            [Upload.loads(m.content) for m in uploads if m.content],
            release=self.release(),
            grants=[SignedGrant.loads(m.content) for m in self.records.messages(self.study, GRANT)],
        )

    def end(self, study: ServerStudy, reason: str | None = None) -> None:
        """Write that a study is released or aborted, and erase what only its release needed.

        With the noise key the noise could be taken away again, and against the digests of chunks
        that are not perturbed, guesses could be tried.
        """
        self.save(study, reason=reason, noise_key=None)
        self.records.forget_contents(self.study, UPLOAD)

    def release(self) -> Signed[Release] | None:
        """Return the release, if there is one."""
        found = self.records.messages(self.study, RELEASE)
        return load_release(found[0].content) if found else None

    def keep(self, kind: str, sender: bytes, digest: bytes, content: bytes, **to: bytes) -> bool:
        """Keep a message; ``False`` if it was kept before."""
        record = MessageRecord(
            study=self.study,
            kind=kind,
            sender=sender,
            reference=to.get("reference", b""),
            digest=digest,
            content=content,
            at=self.context.now,
        )
        return self.records.add_message(record)

    def save(self, study: ServerStudy, reason: str | None = None, **key: bytes | None) -> None:
        """Write the study's state, signatures and reason; the noise key only if it is given."""
        self.record = replace(
            self.record,
            contract=study.contract.dumps(),
            state=str(study.state),
            reason=None if reason is None else reason[:MAX_TEXT],  # more, no client would read
            noise_key=key.get("noise_key", self.record.noise_key),
            updated=self.context.now,
        )
        self.records.update_study(self.record)

    def log(self, event: str, actor: bytes, message: bytes | None = None) -> None:
        """Add an event to the study's audit log, in the state that the study has now."""
        entry = next_entry(
            self.records.audit_head(self.study),
            self.study,
            at=self.context.now,
            actor=actor,
            event=event,
            message=message,
            state=str(self.state),
        )
        self.records.append_audit(self.study, entry.canonical(), entry_hash(entry))


@lru_cache(maxsize=8)  # a release can have 16 MiB
def load_release(content: bytes) -> Signed[Release]:
    """Read a stored release; a large one takes long, and every chunk of it is asked for."""
    return Release.loads(content)


def no_study() -> NotFoundError:
    """Return the one answer for a study that is not there and for one that is none of yours."""
    return NotFoundError(
        "there is no such study for you",
        hint="check the study's id; only parties that its contract names can see it",
    )
