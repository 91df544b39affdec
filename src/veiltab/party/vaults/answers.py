"""Answering a study on a vault: new pads for the rows that the server has drawn, once and for all.

The answer is on the disk before any of it is sent.  After an interruption the same bytes are sent
again, whoever asks; another request for the same study is refused.
"""

from collections.abc import Callable, Sequence
from itertools import islice

from veiltab.errors import DigestError, MismatchError, StateError
from veiltab.files.chunks import FolderChunks
from veiltab.files.private import locked
from veiltab.party.context import PartyContext
from veiltab.party.evidence import check_requested, check_uploaded
from veiltab.party.progress import OnProgress, Progress, ignore_progress
from veiltab.party.remote import Status
from veiltab.party.sending import LOCK_WAIT, ChunkSending, chunk_digests
from veiltab.party.vaults.folder import AnswerFolder
from veiltab.party.vaults.steps import check_stored_study, own_table
from veiltab.protocol.curator.stored import StoredTable
from veiltab.protocol.curator.upload import CuratorContext, Prepared
from veiltab.protocol.verify import renew, verify_agreement
from veiltab.wire.contract import Contract
from veiltab.wire.messages import Release, Repad, RepadRequest
from veiltab.wire.signed import Signed
from veiltab.wire.states import State

FETCHED_AT_ONCE = 8
"""Chunks of positions in one request: about 4 MiB."""

Fetch = Callable[[bytes, Sequence[bytes]], list[bytes]]
"""How chunks of a study's positions are fetched from the server, checked."""

BeforeSending = Callable[[Prepared[Repad]], None]


def send_nothing_yet(_: Prepared[Repad]) -> None:
    """Do nothing before an answer is sent."""


def answer_study(
    context: PartyContext,
    signed: Signed[Contract],
    progress: OnProgress = ignore_progress,
    before_sending: BeforeSending = send_nothing_yet,
) -> Status:
    """Answer the server's request for new pads, or send the answer that was prepared before.

    Everything is checked first: that every curator has signed and none is an impostor, that a
    ledger was charged, that the study is about this curator's own stored table, and that the rows
    are different rows of it, as many as were agreed on.  ``before_sending`` may still refuse.  An
    answer that the server's disk has damaged is sent once more.
    """
    contract = verify_agreement(signed)
    folder = answer_folder(context, contract)
    context.check_parties(contract)
    context.home.ledgers.check_charged(contract)
    check_stored_study(context, contract)
    status = context.server.status(contract.study_id)
    damaged = status.state == State.JOINED and status.reason is not None
    if status.state != State.SAMPLED and not damaged:
        return _not_asked(status)
    with locked(folder.lock, LOCK_WAIT):
        prepared = _prepare(context, signed, folder, progress)
        context.home.ledgers.check_charged(contract)  # it may be refunded meanwhile
        before_sending(prepared)
        status = _send(context, prepared, folder, progress)
        check_uploaded(context, contract, prepared.message)
        return status


def answer_folder(context: PartyContext, contract: Contract) -> AnswerFolder:
    """Return where the answer to a study is kept."""
    if contract.stored is None:
        raise StateError("the study reads no vault", hint="push a table to it, with `veiltab push`")
    schema = contract.schema_of(context.identity.party_id)
    return context.home.vault(contract.stored.vault).answer_folder(contract.study_id, schema)


def check_own_answer(release: Release, folder: AnswerFolder, answer: Prepared[Repad]) -> None:
    """Refuse a release that was not made from a curator's own answer, before pads are granted."""
    body, request = answer.message.body, folder.request()
    digests = [upload.digest for upload in release.uploads if upload.curator == body.curator]
    if (
        digests != [answer.message.digest]
        or release.rows != body.rows
        or request is None
        or release.population != request.body.population
    ):
        raise MismatchError(
            "the release was not made from the new pads that you have sent",
            hint="grant nothing; show the release to the other curators and ask the operator",
        )


def _not_asked(status: Status) -> Status:
    """Return the status if the answer is no longer needed; refuse if nothing is asked yet."""
    if status.state in (State.JOINED, State.RELEASED):
        return status
    reason = f": {status.reason}" if status.reason else ""
    raise StateError(
        f"the study is {status.state}{reason}",
        hint="new pads are asked for when every curator has signed and the rows are drawn",
    )


def _prepare(
    context: PartyContext, signed: Signed[Contract], folder: AnswerFolder, progress: OnProgress
) -> Prepared[Repad]:
    """Return the one answer to the study: the one that is kept, or a new one, kept from now on."""
    contract = signed.body
    vault, prepared = own_table(context, contract)
    request = context.server.vaults.repad_request(contract.study_id)
    check_requested(context, contract, request)
    if folder.answer(contract.study_id) is None:
        folder.clear()  # of an answer that was interrupted; its pads are lost with it
        folder.save_request(request)
        progress(Progress("encrypting"))
    table = StoredTable(vault, prepared, folder)
    positions = FetchedPositions(context.server.vaults.repad_chunks, request.body, folder.incoming)
    curator = CuratorContext(context.identity, context.entropy, folder.outgoing, folder.private)
    answer = table.repad(curator, signed, request, positions)
    positions.clear()
    return answer


def _send(
    context: PartyContext, prepared: Prepared[Repad], folder: AnswerFolder, progress: OnProgress
) -> Status:
    """Send what the server does not have yet, and then the message that refers to all of it."""
    server, study = context.server, prepared.message.body.study
    digests = chunk_digests(prepared.message.body)
    received = server.sent_chunks(study, folder.outgoing.size(digests))
    sending = ChunkSending(digests, received, folder.outgoing, progress)
    server.send_chunks(study, sending.missing(), sending.count)
    try:
        return server.vaults.repad(renew(prepared.message, context.identity.signing))
    except DigestError:
        sending.look_for_damage()
        raise


class FetchedPositions:
    """The rows that a request names, fetched when they are read, a few chunks at a time.

    They are kept on the disk, because they are read twice: to check them, and to answer.
    """

    def __init__(self, fetch: Fetch, request: RepadRequest, kept: FolderChunks) -> None:
        """Fetch nothing yet."""
        self._fetch, self._request, self._kept = fetch, request, kept

    def get(self, digest: bytes) -> bytes:
        """Return the chunk with this digest, checked."""
        if not self._kept.has(digest):
            upcoming = self._request.positions[self._request.positions.index(digest) :]
            missing = (other for other in upcoming if not self._kept.has(other))
            wanted = list(dict.fromkeys(islice(missing, FETCHED_AT_ONCE)))
            for chunk in self._fetch(self._request.study, wanted):
                self._kept.put(chunk)
        return self._kept.get(digest)

    def put(self, chunk: bytes) -> bytes:
        """Refuse: the server has drawn the rows."""
        raise StateError(
            f"a chunk of {len(chunk):,} bytes cannot be added to a request",
            hint="keep chunks of your own in a store of your own",
        )

    def clear(self) -> None:
        """Forget what was fetched."""
        self._kept.clear()
