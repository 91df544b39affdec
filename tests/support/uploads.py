"""Studies on a server's own desk: its use cases called directly, without a network."""

import hashlib
from dataclasses import dataclass

from tests.support.studies import Recorded, Staged, pair, prepare, stage
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.curator.upload import Prepared
from veiltab.rehearsal import Terms
from veiltab.server import steps
from veiltab.server.auth import Sender
from veiltab.server.context import ServiceContext
from veiltab.wire.bundles import bundle
from veiltab.wire.messages import Upload


@dataclass(eq=False)
class Uploaded:
    """A study with everything that its curators have made for it."""

    rehearsal: Recorded
    staged: Staged
    prepared: list[Prepared[Upload]]

    @property
    def study(self) -> bytes:
        """The study's id."""
        return self.staged.contract.study_id

    def sender(self, number: int, body: bytes) -> Sender:
        """Return a request of a curator."""
        digest = hashlib.sha256(body).digest()
        return Sender(public_identity(self.rehearsal.curators[number]), [body], digest)


def open_study(
    context: ServiceContext, terms: Terms, rehearsal: Recorded | None = None
) -> Uploaded:
    """Propose a study that every curator has signed; the uploads are made, and not sent."""
    parties = rehearsal or pair()
    staged = stage(parties, terms)
    found = Uploaded(parties, staged, prepare(parties, staged))
    for number, _ in enumerate(parties.curators):
        body = staged.outcome.contract.dumps()
        if number == 0:
            steps.propose(context, found.sender(number, body))
        else:
            steps.sign(context, found.sender(number, body), found.study)
    return found


def send_chunks(context: ServiceContext, found: Uploaded, number: int) -> None:
    """Send all chunks of one curator."""
    body = bundle(list(found.rehearsal.sent[number]._chunks.items()))
    steps.put_chunks(context, found.sender(number, body), found.study)


def send_upload(context: ServiceContext, found: Uploaded, number: int) -> None:
    """Send the chunks of one curator, and the upload that refers to them."""
    send_chunks(context, found, number)
    body = found.prepared[number].message.dumps()
    steps.upload(context, found.sender(number, body), found.study)


def uploaded_study(
    context: ServiceContext, terms: Terms, rehearsal: Recorded | None = None
) -> Uploaded:
    """Bring a study to the point where only its release is missing."""
    found = open_study(context, terms, rehearsal)
    for number, _ in enumerate(found.prepared):
        send_upload(context, found, number)
    return found
