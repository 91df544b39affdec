"""A vault as the server keeps it: its records, its messages and its audit log."""

from dataclasses import dataclass, field

from veiltab.protocol.server.vault import ServerVault
from veiltab.server.context import ServiceContext
from veiltab.server.db.records import VAULT, Records
from veiltab.server.parsed import PARSED
from veiltab.server.stored_study import StoredAgreement
from veiltab.wire.codec import MAX_TEXT
from veiltab.wire.contract import Contract, Vault
from veiltab.wire.messages import Upload
from veiltab.wire.signed import Signed
from veiltab.wire.states import VaultState


@dataclass(slots=True, eq=False)
class StoredVault(StoredAgreement):
    """A vault as one transaction reads and writes it."""

    kind = VAULT

    _read: tuple[bytes, Signed[Vault]] | None = field(default=None, init=False, repr=False)

    @property
    def state(self) -> VaultState:
        """Where the vault stands."""
        return VaultState(self.record.state)

    @property
    def terms(self) -> Signed[Vault]:
        """The terms with the signatures so far; parsed again only after they were signed."""
        if self._read is None or self._read[0] is not self.record.contract:
            content = self.record.contract
            self._read = content, PARSED.load(Vault.loads, content)
        return self._read[1]

    def uploads(self) -> list[Signed[Upload]]:
        """Return the messages of the stored tables; a closed vault has none."""
        messages = self.records.messages(self.study, Upload.kind)
        return [
            PARSED.load(Upload.loads, message.content) for message in messages if message.content
        ]

    def resume(self, *, tables: bool = False) -> ServerVault:
        """Return the vault as the protocol's steps need it: only some need the tables' messages."""
        return ServerVault.resume(self.terms, self.state, self.uploads() if tables else ())

    def save(self, vault: ServerVault, reason: str | None = None) -> None:
        """Write the vault's state, signatures and reason."""
        self._update(
            contract=PARSED.keep(vault.terms),
            state=str(vault.state),
            reason=None if reason is None else reason[:MAX_TEXT],  # clients refuse longer texts
        )

    def save_end(self, vault: ServerVault, reason: str) -> None:
        """Write that the vault is closed, and erase the messages of its tables.

        Against the digests of their chunks, guesses could be tested.
        """
        self.save(vault, reason)
        self.records.forget_contents(self.study, Upload.kind)
        self.records.forget_held(self.study)
        self.records.hide_unseen(self.study)


def table_chunks(upload: Upload) -> set[bytes]:
    """Return the digests of all chunks of a table."""
    lists = [column.chunks for column in upload.columns] + [upload.tokens or ()]
    return {digest for chunks in lists for digest in chunks}


def check_study_on_vault(
    context: ServiceContext, records: Records, party: bytes, contract: Contract
) -> None:
    """Refuse a study on stored tables unless a vault of the party holds exactly these.

    The vault stays locked until the study is added, so that it cannot be closed in between.
    """
    if contract.stored is not None:
        stored = StoredVault.of_curator(context, records, contract.stored.vault, party)
        stored.resume().check_study(contract, records.digests(stored.study, Upload.kind))
