"""What curators can see of a vault, and of the rows that are drawn from it."""

from collections.abc import Sequence

from veiltab.errors import DamagedError, NotGrantedError, UnavailableError
from veiltab.protocol.server.transitions import expect
from veiltab.server.context import ServiceContext
from veiltab.server.db.lists import INBOX, LISTED, Cursor
from veiltab.server.db.records import CURATOR, VAULT
from veiltab.server.http.auth import Sender
from veiltab.server.http.models import VaultCurator, VaultLine, VaultList, VaultStatus
from veiltab.server.stored_study import StoredStudy
from veiltab.server.vaults.stored_vault import StoredVault
from veiltab.server.views import Served, look, serve_chunks, write_cursor
from veiltab.wire.messages import RepadRequest, Upload
from veiltab.wire.states import State


def vaults(
    context: ServiceContext, sender: Sender, after: Cursor | None, limit: int, *, inbox: bool
) -> VaultList:
    """Return a page of the vaults that the sender has looked at, or of those it has not."""
    with context.database.reading() as records:
        place = INBOX if inbox else LISTED
        page = records.page_of_studies(sender.party, place, after, limit + 1, VAULT)
    return VaultList(
        vaults=[
            VaultLine(
                vault=line.study.hex(),
                title=line.title,
                state=line.state,
                role=line.role,
                updated=line.updated,
            )
            for line in page[:limit]
        ],
        next=write_cursor(page[limit - 1].cursor) if len(page) > limit else None,
    )


def status(context: ServiceContext, sender: Sender, vault: bytes) -> VaultStatus:
    """Say where a vault stands, who has done what, and which tables it holds."""
    with context.database.reading() as records:
        record = StoredVault.of_curator(context, records, vault, sender.party).record
        place, named = records.place(vault, sender.party), records.named(vault)
        uploads = records.digests(vault, Upload.kind)
    look(context, sender, vault, place)
    return VaultStatus(
        vault=vault.hex(),
        title=record.title,
        state=record.state,
        reason=record.reason,
        role=CURATOR,
        updated=record.updated,
        curators=[
            VaultCurator(
                name=member.name,
                party=member.party.hex(),
                signed=member.signed,
                uploaded=member.party in uploads,
                upload=uploads[member.party].hex() if member.party in uploads else None,
            )
            for member in named
        ],
    )


def repad_request(context: ServiceContext, sender: Sender, study: bytes) -> bytes:
    """Return what the server asks of the sender: new pads for its own drawn rows."""
    with context.database.reading() as records:
        stored = StoredStudy.of_curator(context, records, study, sender.party)
        expect(stored.state, State.SAMPLED, State.JOINED)
        server = context.identity.party_id
        message = records.message(study, RepadRequest.kind, server, sender.party)
    return b"" if message is None else message.content


def position_chunks(
    context: ServiceContext, sender: Sender, study: bytes, digests: Sequence[bytes]
) -> Served:
    """Return chunks of the sender's own drawn positions, and of nobody else's."""
    request = RepadRequest.loads(repad_request(context, sender, study)).body
    if not set(request.positions).issuperset(digests):
        raise NotGrantedError(
            "these are not positions of your own rows",
            hint="ask for the chunks that your request names",
        )
    try:
        return serve_chunks(context, context.folders.drawn(study), digests)
    except DamagedError as error:
        _ask_for_rows(context, study)
        raise UnavailableError(
            "the server's disk has damaged the drawn rows",
            hint="ask again later: the server draws the same rows again",
        ) from error


def _ask_for_rows(context: ServiceContext, study: bytes) -> None:
    """Let the worker draw damaged rows again."""
    with context.database.transaction() as records:
        stored = StoredStudy.find(context, records, study)
        if stored.state is State.SAMPLED and stored.record.reason is None:
            stored.save_reason("the server's disk has damaged the drawn rows; they are drawn again")
