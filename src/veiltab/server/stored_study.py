"""A study as the server keeps it: its records, its messages and its audit log."""

from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

from veiltab.core.entropy import Entropy
from veiltab.errors import NotFoundError
from veiltab.files.bundles import BundledChunks
from veiltab.protocol.audit_log import next_entry
from veiltab.protocol.server.context import ServerContext
from veiltab.protocol.server.study import ServerStudy
from veiltab.protocol.server.transitions import expect
from veiltab.server.context import ServiceContext
from veiltab.server.db.records import CURATOR, MessageRecord, Records, StudyRecord
from veiltab.wire.audit import entry_hash
from veiltab.wire.codec import MAX_TEXT
from veiltab.wire.contract import Contract
from veiltab.wire.messages import Grant, Publication, Release, SignedGrant, Upload
from veiltab.wire.signed import Signed
from veiltab.wire.states import AuditEvent, State


@dataclass(slots=True, eq=False)
class StoredStudy:
    """A study as one transaction reads and writes it."""

    context: ServiceContext
    records: Records
    record: StudyRecord
    _read: tuple[bytes, Signed[Contract]] | None = field(default=None, init=False, repr=False)

    @classmethod
    def find(cls, context: ServiceContext, records: Records, study: bytes) -> "StoredStudy":
        """Load a study, or say that there is none."""
        record = records.study(study)
        if record is None:
            raise no_study()
        return cls(context, records, record)

    @classmethod
    def of(
        cls, context: ServiceContext, records: Records, study: bytes, party: bytes
    ) -> "StoredStudy":
        """Load a study that names the party; to everybody else it does not exist."""
        if records.role(study, party) is None:
            raise no_study()
        return cls.find(context, records, study)

    @classmethod
    def of_curator(
        cls, context: ServiceContext, records: Records, study: bytes, party: bytes
    ) -> "StoredStudy":
        """Load a study for one of its curators; to everybody else it does not exist."""
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
        """The contract with the signatures so far; parsed again only after it was signed."""
        if self._read is None or self._read[0] is not self.record.contract:
            self._read = self.record.contract, Contract.loads(self.record.contract)
        return self._read[1]

    def resume(
        self, *, entropy: Entropy | None = None, released: BundledChunks | None = None
    ) -> ServerStudy:
        """Return the study as the protocol's steps need it.

        A release names the randomness that was fixed for it, and the store that it will sync; all
        other steps draw nothing and write no chunk.
        """
        context, folders = self.context, self.context.folders
        curators = [terms.party_id for terms in self.contract.body.curators]
        uploads = self.records.messages(self.study, Upload.kind)
        grants = self.records.messages(self.study, Grant.kind)
        publications = self.records.messages(self.study, Publication.kind)
        return ServerStudy.resume(
            ServerContext(
                context.key,
                context.entropy if entropy is None else entropy,
                folders.received_all(self.study, curators),
                folders.released(self.study) if released is None else released,
                partial(folders.scratch, self.study),
            ),
            self.contract,
            self.state,
            # The contents of the uploads are erased when the study ends.
            [Upload.loads(message.content) for message in uploads if message.content],
            release=self.release(),
            grants=[SignedGrant.loads(message.content) for message in grants],
            publications=[Publication.loads(message.content) for message in publications],
        )

    def release_content(self) -> bytes:
        """Return the bytes of the release, or none before there is one."""
        messages = self.records.messages(self.study, Release.kind)
        return messages[0].content if messages else b""

    def release(self) -> Signed[Release] | None:
        """Return the release, if there is one."""
        content = self.release_content()
        return load_release(content) if content else None

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
        self._update(
            contract=study.contract.dumps(),
            state=str(study.state),
            reason=None if reason is None else reason[:MAX_TEXT],  # clients refuse longer texts
            noise_key=key.get("noise_key", self.record.noise_key),
        )

    def save_reason(self, reason: str) -> None:
        """Write why the study waits in the state in which it is."""
        self._update(reason=reason)

    def save_end(self, study: ServerStudy, reason: str | None = None) -> None:
        """Write that a study is released or aborted, and erase what only its release needed.

        With the noise key, the noise could be removed again; against the digests of chunks that are
        not perturbed, guesses could be tested.
        """
        expect(study.state, State.RELEASED, State.ABORTED)
        self.save(study, reason=reason, noise_key=None)
        self.records.forget_contents(self.study, Upload.kind)

    def log(self, event: AuditEvent, actor: bytes, message: bytes | None = None) -> None:
        """Add an event to the study's audit log, with the state that the study has now."""
        entry = next_entry(
            self.records.audit_head(self.study),
            self.study,
            at=self.context.now,
            actor=actor,
            event=event,
            message=message,
            state=self.state,
        )
        self.records.append_audit(self.study, entry.canonical(), entry_hash(entry))

    def _update(self, **changes: Any) -> None:
        self.record = replace(self.record, updated=self.context.now, **changes)
        self.records.update_study(self.record)


@lru_cache(maxsize=8)  # a release can have 16 MiB
def load_release(content: bytes) -> Signed[Release]:
    """Parse a release; a large one takes long, and every request for its chunks needs it."""
    return Release.loads(content)


def no_study() -> NotFoundError:
    """Return the same error for a study that does not exist and for one that is not the party's."""
    return NotFoundError(
        "there is no such study for you",
        hint="check the study's id; only parties that its contract names can see it",
    )
