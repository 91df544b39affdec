"""A study as the server keeps it: its records, its messages and its audit log."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Final, Self

from veiltab.core.entropy import Entropy
from veiltab.errors import NotFoundError, StateError
from veiltab.files.bundles import BundledChunks
from veiltab.protocol.audit_log import next_entry
from veiltab.protocol.server.context import ServerContext
from veiltab.protocol.server.release import Drawn
from veiltab.protocol.server.study import ServerStudy
from veiltab.protocol.server.transitions import Event, advance, expect
from veiltab.protocol.stores import ChunkStore
from veiltab.server.context import ServiceContext
from veiltab.server.db.records import CURATOR, STUDY, MessageRecord, Records, StudyRecord
from veiltab.server.parsed import PARSED
from veiltab.server.quotas import check_usage
from veiltab.wire.audit import entry_hash
from veiltab.wire.codec import MAX_TEXT
from veiltab.wire.contract import Contract
from veiltab.wire.messages import (
    GrantRevocation,
    Overlap,
    Publication,
    Release,
    Repad,
    RepadRequest,
    SignedGrant,
    Upload,
)
from veiltab.wire.signed import Signed
from veiltab.wire.states import AuditEvent, State

DRAWN: Final = "drawn"
"""The kind of the server's own note of what it has drawn of stored tables."""


@dataclass(slots=True, eq=False)
class StoredAgreement:
    """A study or a vault as one transaction reads and writes it."""

    kind: ClassVar[str]

    context: ServiceContext
    records: Records
    record: StudyRecord

    @classmethod
    def find(cls, context: ServiceContext, records: Records, study: bytes) -> Self:
        """Load a study or vault, or say that there is none of this kind."""
        record = records.study(study)
        if record is None or record.kind != cls.kind:
            raise not_there(cls.kind)
        return cls(context, records, record)

    @classmethod
    def of(cls, context: ServiceContext, records: Records, study: bytes, party: bytes) -> Self:
        """Load what names the party; to everybody else it does not exist."""
        if records.role(study, party) is None:
            raise not_there(cls.kind)
        return cls.find(context, records, study)

    @classmethod
    def of_curator(
        cls, context: ServiceContext, records: Records, study: bytes, party: bytes
    ) -> Self:
        """Load a study or vault for one of its curators; to everybody else it does not exist."""
        if records.role(study, party) != CURATOR:
            raise not_there(cls.kind)
        return cls.find(context, records, study)

    @property
    def study(self) -> bytes:
        """The id of the study or of the vault."""
        return self.record.study

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
        new = self.records.add_message(record)
        if new and sender != self.context.identity.party_id:
            check_usage(self.context, self.records, sender)
            self.records.change_study(self.study, updated=self.context.now)
        return new

    def save_reason(self, reason: str | None) -> None:
        """Write why this waits in the state in which it is, or that it does not any more."""
        self._update(reason=reason)

    def log(self, event: AuditEvent, actor: bytes, message: bytes | None = None) -> None:
        """Add an event to the audit log, with the state of now."""
        entry = next_entry(
            self.records.audit_head(self.study),
            self.study,
            at=self.context.now,
            actor=actor,
            event=event,
            message=message,
            state=self.record.state,
        )
        self.records.append_audit(self.study, entry.canonical(), entry_hash(entry))

    def _update(self, **changes: Any) -> None:
        self.record = replace(self.record, updated=self.context.now, **changes)
        self.records.change_study(self.study, updated=self.context.now, **changes)


@dataclass(slots=True, eq=False)
class StoredStudy(StoredAgreement):
    """A study as one transaction reads and writes it."""

    kind = STUDY

    _read: tuple[bytes, Signed[Contract]] | None = field(default=None, init=False, repr=False)

    @property
    def state(self) -> State:
        """Where the study stands."""
        return State(self.record.state)

    @property
    def contract(self) -> Signed[Contract]:
        """The contract with the signatures so far; parsed again only after it was signed."""
        if self._read is None or self._read[0] is not self.record.contract:
            content = self.record.contract
            self._read = content, PARSED.load(Contract.loads, content)
        return self._read[1]

    def resume(
        self,
        *,
        entropy: Entropy | None = None,
        released: BundledChunks | None = None,
        received: ChunkStore | None = None,
        drawn: Drawn | None = None,
        state: State | None = None,
        reader: bytes | None = None,
        about: bytes | None = None,
    ) -> ServerStudy:
        """Return the study as the protocol's steps need it.

        A draw or a release names the randomness that was fixed for it, and the store that it will
        sync; all other steps draw nothing and write no chunk.  What was drawn of stored tables is
        needed for the release alone.  Of grants, their revocations and publications,
        those of the ``reader`` alone are loaded, because others may have given many; or the grant
        of the id that the step is ``about``.  With another ``state`` than its own, a study takes
        the steps of that state once more.
        """
        if self.record.archived is not None:
            raise archived()
        context, folders = self.context, self.context.folders
        curators = [terms.party_id for terms in self.contract.body.curators]
        uploads = self.records.messages(self.study, Upload.kind)
        grants = self._about_grants(SignedGrant.kind, reader, about)
        revoked = self._about_grants(GrantRevocation.kind, reader, about)
        published = self._message(Publication.kind, reader)
        return ServerStudy.resume(
            ServerContext(
                context.key,
                context.entropy if entropy is None else entropy,
                folders.received_all(self.study, curators) if received is None else received,
                folders.released(self.study) if released is None else released,
                partial(folders.scratch, self.study),
            ),
            self.contract,
            state or self.state,
            # The contents of the uploads are erased when the study ends.
            [PARSED.load(Upload.loads, message.content) for message in uploads if message.content],
            release=self.release(),
            overlap=self.overlap(),
            grants=[SignedGrant.loads(content) for content in grants],
            revocations=[GrantRevocation.loads(content) for content in revoked],
            publications=[Publication.loads(content) for content in published],
            requests=() if state is State.OPEN else self.requests(),
            repads=() if state is State.OPEN else self.repads(),
            drawn=drawn,
        )

    def _about_grants(self, kind: str, reader: bytes | None, about: bytes | None) -> list[bytes]:
        """Return the messages of a kind about a reader's grants, or about the grant of one id."""
        if about is not None:
            return self.records.about_grant(self.study, kind, about)
        return [] if reader is None else self.records.grants_of(self.study, reader, kind)

    def _message(self, kind: str, sender: bytes | None) -> list[bytes]:
        """Return the one message of a kind that a party has sent, if it has."""
        message = None if sender is None else self.records.message(self.study, kind, sender)
        return [message.content] if message is not None and message.content else []

    def requests(self) -> list[Signed[RepadRequest]]:
        """Return the requests for new pads, until the study ends."""
        return [RepadRequest.loads(content) for content in self._unerased(RepadRequest.kind)]

    def repads(self) -> list[Signed[Repad]]:
        """Return the new pads that curators have sent, until the study ends."""
        return [Repad.loads(content) for content in self._unerased(Repad.kind)]

    def _unerased(self, kind: str) -> list[bytes]:
        """Return the messages of a study on stored tables that are not erased yet."""
        if self.record.vault is None:
            return []
        messages = self.records.messages(self.study, kind)
        return [message.content for message in messages if message.content]

    def release_content(self) -> bytes:
        """Return the bytes of the release, rows or one number, or none before there is one."""
        kind = Release.kind if self.contract.body.overlap is None else Overlap.kind
        messages = self.records.messages(self.study, kind)
        return messages[0].content if messages else b""

    def release(self) -> Signed[Release] | None:
        """Return the release, if there is one, and it has rows."""
        content = b"" if self.contract.body.overlap is not None else self.release_content()
        return PARSED.load(Release.loads, content) if content else None

    def overlap(self) -> Signed[Overlap] | None:
        """Return the number of an overlap count, if there is one."""
        content = b"" if self.contract.body.overlap is None else self.release_content()
        return PARSED.load(Overlap.loads, content) if content else None

    def save(self, study: ServerStudy, reason: str | None = None, **key: bytes | None) -> None:
        """Write the study's state, signatures and reason; the noise key only if it is given."""
        self._update(
            contract=PARSED.keep(study.contract),
            state=str(study.state),
            reason=None if reason is None else reason[:MAX_TEXT],  # clients refuse longer texts
            noise_key=key.get("noise_key", self.record.noise_key),
        )

    def save_end(self, study: ServerStudy, reason: str | None = None) -> None:
        """Write that a study is released or aborted, and erase what only its release needed.

        With the noise key, the noise could be removed again; against the digests of chunks that are
        not perturbed, guesses could be tested.
        """
        expect(study.state, State.RELEASED, State.ABORTED)
        self.save(study, reason=reason, noise_key=None)
        self._erase()

    def save_aborted(self, reason: str) -> None:
        """Write that a study is aborted: its contract is not even read, however long it is."""
        state = advance(self.state, Event.ABORTED)
        self._update(state=str(state), reason=reason[:MAX_TEXT], noise_key=None)
        self._erase()

    def _erase(self) -> None:
        for kind in (Upload.kind, DRAWN, RepadRequest.kind, Repad.kind):
            self.records.forget_contents(self.study, kind)
        self.records.forget_held(self.study)
        if self.state is State.ABORTED:
            self.records.hide_unseen(self.study)


def archived() -> StateError:
    """Return the error for what is asked of a study whose contents are deleted."""
    return StateError(
        "the study is archived: its messages and chunks are deleted",
        hint="its contract and its log are still there; keep your own copies of estimates",
    )


def not_there(kind: str) -> NotFoundError:
    """Return the same error for a study that does not exist and for one that is not the party's."""
    return NotFoundError(
        f"there is no such {kind} for you",
        hint=f"check the {kind}'s id; only parties that its contract names can see it",
    )
