"""Vaults on a server, and studies on them, through the server's own steps and without a network.

vault = VaultOnServer(context).store()  # two curators, whose tables are stored
study = vault.study()                   # open; its rows are not drawn yet
study.work()                            # the worker draws them
study.answer_all()
study.work()                            # the worker releases the study
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.simulator import STORED_TERMS, Simulator
from veiltab.crypto.identity import PrivateIdentity
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.curator.upload import CuratorContext, Prepared
from veiltab.protocol.in_process import Deposit, Terms
from veiltab.protocol.stores import MemoryChunks
from veiltab.protocol.verify import sign
from veiltab.server import steps, views
from veiltab.server.context import ServiceContext
from veiltab.server.db.records import StudyRecord
from veiltab.server.http.auth import Sender
from veiltab.server.http.models import Status, VaultStatus
from veiltab.server.stored_study import StoredStudy
from veiltab.server.vaults import steps as vault_steps
from veiltab.server.vaults import views as vault_views
from veiltab.server.vaults.stored_vault import StoredVault
from veiltab.server.witnesses import study_audit
from veiltab.server.worker import release_study
from veiltab.wire.bundles import bundle, check_bundle
from veiltab.wire.contract import Contract
from veiltab.wire.messages import Release, Repad, RepadRequest, Upload
from veiltab.wire.signed import Signed


def request_of(party: PrivateIdentity, body: bytes = b"") -> Sender:
    """Return a request of a party, as the gate has admitted it."""
    return Sender(public_identity(party), [body], hashlib.sha256(body).digest())


def chunk_body(store: MemoryChunks, messages: Iterable[Upload | Repad]) -> bytes:
    """Return the chunks that messages refer to, as one bundle."""
    lists = [column.chunks for message in messages for column in message.columns]
    lists += [m.tokens or () for m in messages if isinstance(m, Upload)]
    return bundle([(digest, store.get(digest)) for digests in lists for digest in digests])


class VaultOnServer:
    """A vault in a server's records and folders, and the curators whose tables it holds."""

    def __init__(
        self,
        context: ServiceContext,
        parties: Simulator | None = None,
        server: PrivateIdentity | None = None,
        *,
        signed: bool = True,
    ) -> None:
        """Let every curator sign the vault; :meth:`store` sends the tables."""
        self.context = context
        self.parties = parties or Simulator()
        if server is not None:
            self.parties.server = server
        self.parties.register(context)
        self.deposit: Deposit = self.parties.deposit()
        body = self.deposit.vault.body
        first = sign(body, self.parties.curators[0].signing)
        self.vault, _ = vault_steps.propose(context, self.sender(0, first.dumps()))
        if signed:
            for place in range(1, len(self.parties.curators)):
                self.sign(place)

    @property
    def state(self) -> str:
        """Where the vault stands."""
        return self.status.state

    @property
    def status(self) -> VaultStatus:
        """The vault's status as the first curator sees it."""
        return vault_views.status(self.context, self.sender(0), self.vault)

    def sender(self, place: int, body: bytes = b"") -> Sender:
        """Return a request of a curator."""
        return request_of(self.parties.curators[place], body)

    def sign(self, place: int) -> None:
        """Let a curator sign the vault."""
        signed = sign(self.deposit.vault.body, self.parties.curators[place].signing)
        vault_steps.sign(self.context, self.sender(place, signed.dumps()), self.vault)

    def send_table(self, place: int) -> None:
        """Send the chunks of a curator's table, and the upload that refers to them."""
        upload = self.deposit.stored[place].upload
        chunks = chunk_body(self.deposit.tables, [upload.body])
        vault_steps.put_chunks(self.context, self.sender(place, chunks), self.vault)
        vault_steps.upload(self.context, self.sender(place, upload.dumps()), self.vault)

    def store(self) -> "VaultOnServer":
        """Send every table."""
        for place, _ in enumerate(self.parties.curators):
            self.send_table(place)
        return self

    def close(self, place: int = 0, reason: str = "enough") -> None:
        """Let a curator close the vault."""
        vault_steps.close(self.context, self.sender(place), self.vault, reason)

    def contract(self, terms: Terms = STORED_TERMS) -> Contract:
        """Return a new contract on the vault."""
        return self.parties.stored_contract(terms, self.deposit)

    def study(
        self,
        terms: Terms = STORED_TERMS,
        contract: Contract | None = None,
        *,
        opened: bool = True,
    ) -> "VaultStudy":
        """Propose a study on the vault, and open it unless it shall stay proposed."""
        signed = self.parties.sign(contract or self.contract(terms))
        first = sign(signed.body, self.parties.curators[0].signing)
        steps.propose(self.context, self.sender(0, first.dumps()))
        study = VaultStudy(self, signed)
        if opened:
            steps.sign(self.context, self.sender(1, signed.dumps()), study.study)
        return study


@dataclass(eq=False)
class VaultStudy:
    """A study on a vault, that all have signed."""

    vault: VaultOnServer
    contract: Signed[Contract]
    answers: dict[int, Prepared[Repad]] = field(default_factory=dict)
    sent: MemoryChunks = field(default_factory=MemoryChunks)

    @property
    def study(self) -> bytes:
        """The study's id."""
        return self.contract.body.study_id

    @property
    def context(self) -> ServiceContext:
        """The server."""
        return self.vault.context

    @property
    def status(self) -> Status:
        """The study's status as the first curator sees it."""
        return views.status(self.context, self.vault.sender(0), self.study)

    @property
    def state(self) -> str:
        """Where the study stands."""
        return self.status.state

    def events(self) -> list[str]:
        """Return the events of the study's log."""
        log = study_audit(self.context, self.vault.sender(0), self.study)
        return [entry["event"] for entry in log.entries]

    def work(self) -> str:
        """Let the worker do its next step with this study."""
        return release_study(self.context, self.study)

    def request(self, place: int) -> Signed[RepadRequest]:
        """Return what the server asks of a curator."""
        sender = self.vault.sender(place)
        return RepadRequest.loads(vault_views.repad_request(self.context, sender, self.study))

    def positions(self, place: int, digests: Sequence[bytes] | None = None) -> MemoryChunks:
        """Fetch the positions of a curator's drawn rows."""
        wanted = self.request(place).body.positions if digests is None else digests
        sender = self.vault.sender(place)
        served = vault_views.position_chunks(self.context, sender, self.study, wanted)
        body = b"".join(served.pieces)
        assert len(body) == served.length
        chunks = MemoryChunks()
        for found in check_bundle([body]):
            chunks.put(body[found.start : found.start + found.length])
        return chunks

    def prepare(self, place: int) -> Prepared[Repad]:
        """Let a curator make its new pads; the same for the same request."""
        if place not in self.answers:
            identity, entropy = self.vault.parties.curators[place], self.vault.parties.entropy
            desk = CuratorContext(identity, entropy, self.sent, MemoryChunks())
            table, request = self.vault.deposit.stored[place], self.request(place)
            self.answers[place] = table.repad(desk, self.contract, request, self.positions(place))
        return self.answers[place]

    def answer(self, place: int, **changes: Any) -> None:
        """Send a curator's new pads, with some fields of the message changed."""
        message = self.prepare(place).message
        self.put(place, chunk_body(self.sent, [message.body]))
        if changes:
            signer = self.vault.parties.curators[place].signing
            message = sign(replace(message.body, **changes), signer)
        vault_steps.repad(self.context, self.vault.sender(place, message.dumps()), self.study)

    def put(self, place: int, body: bytes) -> bool:
        """Send a bundle of a curator's chunks."""
        return steps.put_chunks(self.context, self.vault.sender(place, body), self.study)

    def answer_all(self) -> "VaultStudy":
        """Let every curator answer."""
        for place, _ in enumerate(self.vault.parties.curators):
            self.answer(place)
        return self

    @property
    def record(self) -> StudyRecord:
        """The study as it is in the records."""
        with self.context.database.reading() as records:
            return StoredStudy.find(self.context, records, self.study).record

    def release(self) -> Signed[Release]:
        """Return the release."""
        return Release.loads(self.messages(Release.kind)[0])

    def messages(self, kind: str) -> list[bytes]:
        """Return the contents of the messages of a kind."""
        with self.context.database.reading() as records:
            return [message.content for message in records.messages(self.study, kind)]


def stored_vault(context: ServiceContext, vault: bytes) -> StoredVault:
    """Return a vault as it is in the records."""
    with context.database.reading() as records:
        return StoredVault.find(context, records, vault)
