"""What each party can see of a study: no more than its role allows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import chain
from threading import Lock

from veiltab.errors import DamagedError, DigestError, UnavailableError, WithheldError
from veiltab.files.bundles import BundledChunks, Copy
from veiltab.protocol.server.transitions import expect
from veiltab.protocol.verify import may_see_release
from veiltab.server.context import ServiceContext
from veiltab.server.db.lists import INBOX, LISTED, Cursor
from veiltab.server.db.records import CURATOR, RESEARCHER
from veiltab.server.http.auth import Sender
from veiltab.server.http.models import (
    Block,
    Blocks,
    CuratorStatus,
    NamedParty,
    Status,
    StudyLine,
    StudyList,
)
from veiltab.server.limits import Memory, too_large
from veiltab.server.quotas import check_room
from veiltab.server.stored_study import StoredAgreement, StoredStudy, archived, not_there
from veiltab.wire.bundles import bundled_bytes, in_pieces, write_index
from veiltab.wire.messages import (
    Alignment,
    GrantRevocation,
    Publication,
    Repad,
    Secret,
    SignedGrant,
    Upload,
)
from veiltab.wire.states import State

MANY_CHUNKS = 4_096
"""Above this, listing what was sent takes long."""

_READING = Lock()
"""Held while chunks are read: threads that hash small chunks at the same time slow each other."""


def studies(
    context: ServiceContext, sender: Sender, after: Cursor | None, limit: int, *, inbox: bool
) -> StudyList:
    """Return a page of the studies that the sender has looked at, or of those it has not."""
    with context.database.reading() as records:
        place = INBOX if inbox else LISTED
        page = records.page_of_studies(sender.party, place, after, limit + 1)
    return StudyList(
        studies=[
            StudyLine(
                study=line.study.hex(),
                title=line.title,
                state=line.state,
                role=line.role,
                updated=line.updated,
            )
            for line in page[:limit]
        ],
        next=write_cursor(page[limit - 1].cursor) if len(page) > limit else None,
    )


def write_cursor(cursor: Cursor) -> str:
    """Return the text by which a client asks for the page that follows."""
    created, study = cursor
    return f"{created}-{study.hex()}"


def read_cursor(text: str) -> Cursor:
    """Read what :func:`write_cursor` has written."""
    created, _, study = text.partition("-")
    return int(created), bytes.fromhex(study)


def blocks(context: ServiceContext, sender: Sender) -> Blocks:
    """List whom the sender has blocked."""
    with context.database.reading() as records:
        blocked = records.blocked_by(sender.party)
    return Blocks(blocks=[Block(party=party.hex(), at=at) for party, at in blocked])


def status(context: ServiceContext, sender: Sender, study: bytes) -> Status:
    """Say where a study stands, and who has done what, without reading contract or grants."""
    with context.database.reading() as records:
        stored = StoredStudy.of(context, records, study, sender.party)
        role = records.role(study, sender.party) or ""
        record, named = stored.record, records.named(study)
        place = records.place(study, sender.party)
        aligned = records.digests(study, Alignment.kind)
        sent = Upload.kind if stored.record.vault is None else Repad.kind
        uploaded = records.digests(study, sent)
        granted = records.granted_to(study, sender.party, context.now)
    look(context, sender, study, place)
    researchers = [member for member in named if member.role == RESEARCHER]
    return Status(
        study=study.hex(),
        title=record.title,
        state=record.state,
        reason=record.reason,
        role=role,
        updated=record.updated,
        curators=[
            CuratorStatus(
                name=member.name,
                party=member.party.hex(),
                signed=member.signed,
                aligned=member.party in aligned,
                uploaded=member.party in uploaded,
            )
            for member in named
            if member.role == CURATOR
        ],
        researchers=None
        if record.any_researcher
        else [NamedParty(name=member.name, party=member.party.hex()) for member in researchers],
        granted=granted,
    )


def look(context: ServiceContext, sender: Sender, study: bytes, place: str | None) -> None:
    """Move a study from the sender's inbox to its list; on a full disk, some other time."""
    if place != LISTED:
        with suppress(UnavailableError), context.database.transaction() as records:
            records.look(study, sender.party)


def contract(
    context: ServiceContext,
    sender: Sender,
    study: bytes,
    kind: type[StoredAgreement] = StoredStudy,
) -> bytes:
    """Return the contract of a study, or the terms of a vault, with the signatures so far."""
    with context.database.reading() as records:
        content = kind.of(context, records, study, sender.party).record.contract
        place = records.place(study, sender.party)
    look(context, sender, study, place)
    return content


def secrets(
    context: ServiceContext,
    sender: Sender,
    study: bytes,
    kind: type[StoredAgreement] = StoredStudy,
) -> list[object]:
    """Return the parts of the secret that the sender has sealed, or that are sealed to it."""
    with context.database.reading() as records:
        kind.of_curator(context, records, study, sender.party)
        messages = records.messages_of(study, Secret.kind, sender.party)
    return [Secret.loads(message.content).to_json() for message in messages]


def alignments(context: ServiceContext, sender: Sender, study: bytes) -> list[object]:
    """Return the alignments of all curators, to curators alone."""
    with context.database.reading() as records:
        StoredStudy.of_curator(context, records, study, sender.party)
        messages = records.messages(study, Alignment.kind)
    return [Alignment.loads(message.content).to_json() for message in messages if message.content]


def chunks(
    context: ServiceContext,
    sender: Sender,
    study: bytes,
    kind: type[StoredAgreement] = StoredStudy,
    *,
    total: int = 0,
) -> list[str]:
    """Return the digests of the chunks that the sender has sent, so that it can continue.

    Many of them are listed in turn.  An upload of ``total`` bytes is refused if there is no room.
    """
    with context.database.reading() as records:
        kind.of_curator(context, records, study, sender.party)
        check_room(context, records, study, sender.party, total)
        many = records.held_chunks(study, sender.party) > MANY_CHUNKS
    with context.lane.turn(sender.party) if many else nullcontext():
        return [digest.hex() for digest in context.folders.received(study, sender.party).digests()]


def release(context: ServiceContext, sender: Sender, study: bytes) -> bytes:
    """Return the release to curators, and to researchers who hold an unexpired grant.

    A curator knows the decoys: where the server matches, the number of rows would tell it how many
    of the respondents who take part the other curators hold.
    """
    with context.database.reading() as records:
        stored = StoredStudy.of(context, records, study, sender.party)
        expect(stored.state, State.RELEASED)
        if stored.record.archived is not None:
            raise archived()
        if records.role(study, sender.party) != CURATOR:
            stored.resume(reader=sender.party).check_researcher(sender.party, context.now)
        elif not may_see_release(stored.contract.body, sender.party):
            raise WithheldError(
                "the release of this study is not for its curators",
                hint="grant without it: the server and the researcher check that both fit",
            )
        content = stored.release_content()
    if not content:
        raise DamagedError(
            "the server's records of this release are damaged",
            hint="ask the operator to restore the database from a copy",
        )
    return content


@dataclass(frozen=True, slots=True)
class Served:
    """A bundle of released chunks: its length, and its pieces as they are read."""

    length: int
    pieces: Iterator[bytes]


def release_chunks(
    context: ServiceContext, sender: Sender, study: bytes, digests: Sequence[bytes]
) -> Served:
    """Return perturbed chunks if grants of the sender cover all of them.

    Every chunk is read and checked before the answer begins, so that the answer can still be an
    error if the disk has damaged one.
    """
    with context.database.reading() as records:
        stored = StoredStudy.of(context, records, study, sender.party)
        stored.resume(reader=sender.party).check_granted(sender.party, digests, context.now)
    return serve_chunks(context, context.folders.released(study), digests)


def serve_chunks(context: ServiceContext, store: BundledChunks, digests: Sequence[bytes]) -> Served:
    """Return chunks of a store, each read and checked before the answer begins."""
    with _damage_reported(), _READING:
        copies = _find(store, digests, context.settings.bundle_bytes)
        chunks = store.read(copies)
    index = write_index((digest, len(chunk)) for digest, chunk in zip(digests, chunks, strict=True))
    size = sum(map(len, chunks))
    parts: Iterator[bytes | memoryview] = chain(
        [index], _in_turn(context.answers, store, copies, chunks)
    )
    return Served(len(index) + size, in_pieces(parts))


def _find(store: BundledChunks, digests: Sequence[bytes], most: int) -> list[Copy]:
    """Return where the chunks are; refuse more of them than an answer may hold."""
    copies = store.find(digests)
    if bundled_bytes(place.length for _, place in copies) > most:
        raise too_large("the answer", most)
    return copies


@contextmanager
def _damage_reported() -> Iterator[None]:
    """Turn a damaged chunk into an error that says who can help: not the researcher."""
    try:
        yield
    except DigestError as error:
        raise DamagedError(
            "the server's disk has damaged this part of the release",
            hint="ask the operator to restore it from a copy; it never changes, so any copy does",
        ) from error


def _in_turn(
    memory: Memory, store: BundledChunks, copies: Sequence[Copy], chunks: list[memoryview]
) -> Iterator[memoryview]:
    """Yield chunks as they are sent.

    When the answers to slow readers fill the memory, the chunks of this answer are dropped, and
    then read and checked again, one at a time.
    """
    size = sum(map(len, chunks))
    if not memory.take(size):
        chunks.clear()
        for copy in copies:
            yield from store.read([copy])
        return
    try:
        yield from chunks
    finally:  # also if the reader goes away
        memory.give_back(size)


def grants(context: ServiceContext, sender: Sender, study: bytes) -> list[object]:
    """Return the grants that the sender has given, or was given."""
    with context.database.reading() as records:
        StoredStudy.of(context, records, study, sender.party)
        contents = records.grants_of(study, sender.party)
    return [SignedGrant.loads(content).to_json() for content in contents]


def grant_header(context: ServiceContext, sender: Sender, study: bytes, digest: bytes) -> bytes:
    """Return what a curator has signed of a grant, by its digest in the log, without its pads."""
    content = _logged(context, sender, study, SignedGrant, digest)
    return SignedGrant.loads(content).header().dumps()


def revocation(context: ServiceContext, sender: Sender, study: bytes, digest: bytes) -> bytes:
    """Return the revocation of a grant, by its digest in the log."""
    return _logged(context, sender, study, GrantRevocation, digest)


def _logged(
    context: ServiceContext,
    sender: Sender,
    study: bytes,
    kind: type[SignedGrant] | type[GrantRevocation],
    digest: bytes,
) -> bytes:
    """Return a message about a grant: to all curators, and to the researcher of the grant."""
    with context.database.reading() as records:
        stored = StoredStudy.of(context, records, study, sender.party)
        if stored.record.archived is not None:
            raise archived()
        message = records.message_with(study, kind.kind, digest)
        curator = records.role(study, sender.party) == CURATOR
    if message is None or not (
        curator or kind.loads(message.content).body.researcher == sender.party
    ):
        raise not_there(kind.kind)
    return message.content


def publications(context: ServiceContext, sender: Sender, study: bytes) -> list[object]:
    """Return what researchers have published, to everybody in the study."""
    with context.database.reading() as records:
        StoredStudy.of(context, records, study, sender.party)
        messages = records.messages(study, Publication.kind)
    return [Publication.loads(message.content).to_json() for message in messages if message.content]
