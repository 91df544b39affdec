"""A vault on the server: stored tables, to be read by many studies (spec 12.1)."""

from collections.abc import Iterable, Mapping
from typing import Self

from veiltab.errors import MismatchError, StateError
from veiltab.protocol.server.accept import check_upload
from veiltab.protocol.stores import ChunkStore
from veiltab.protocol.verify import add_missing, check_vault, verify_some
from veiltab.wire.contract import Contract, Vault
from veiltab.wire.messages import Upload
from veiltab.wire.signed import Signed
from veiltab.wire.states import VaultState


class ServerVault:
    """The server's side of one vault, and the only place that changes the vault's state.

    A message that is sent again changes nothing; a different one in its place is refused.
    """

    def __init__(self, vault: Vault) -> None:
        """Take the terms of a vault, which nobody need have signed yet."""
        self._terms = Signed(vault, ())
        self._state = VaultState.PROPOSED
        self.uploads: dict[bytes, Signed[Upload]] = {}

    @classmethod
    def resume(
        cls, terms: Signed[Vault], state: VaultState, uploads: Iterable[Signed[Upload]] = ()
    ) -> Self:
        """Continue a vault from its kept state; every message given here was checked before."""
        vault = cls(terms.body)
        vault._terms, vault._state = terms, state
        vault.uploads = {upload.body.curator: upload for upload in uploads}
        return vault

    @property
    def terms(self) -> Signed[Vault]:
        """The terms with the signatures so far."""
        return self._terms

    @property
    def state(self) -> VaultState:
        """Where the vault stands; only the steps below change it."""
        return self._state

    def sign(self, signed: Signed[Vault]) -> None:
        """Take signatures; the vault opens when every curator has signed.

        The first one of a curator stays, also if it has other keys by now.
        """
        if signed.body != self.terms.body:
            raise MismatchError(
                "the signature is on the terms of another vault", hint="sign those of this vault"
            )
        keys = [terms.identity.signing_key for terms in signed.body.curators]
        verify_some(signed, keys)
        self._terms = add_missing(self._terms, signed)
        if self.state is VaultState.PROPOSED and len(self.terms.signatures) == len(keys):
            self._state = VaultState.OPEN

    def has_upload(self, signed: Signed[Upload]) -> bool:
        """Tell whether this very table was taken before; refuse one that cannot be taken now."""
        before = self.uploads.get(signed.body.curator)
        if before is not None and before != signed:
            raise StateError(
                "this curator has stored another table already",
                hint="it cannot be replaced; close the vault and propose a new one",
            )
        if before is None:
            expect_vault(self.state, VaultState.OPEN)
        return before is not None

    def upload(self, signed: Signed[Upload], chunks: ChunkStore) -> None:
        """Check a curator's table, whose chunks have been received, and take it."""
        if not self.has_upload(signed):
            check_upload(self.terms.body, signed, chunks)
            self.take_upload(signed)

    def take_upload(self, signed: Signed[Upload]) -> None:
        """Take a table that :func:`check_upload` has accepted."""
        if self.has_upload(signed):
            return
        self.uploads[signed.body.curator] = signed
        if len(self.uploads) == len(self.terms.body.curators):
            self._state = VaultState.STORED

    def check_study(self, contract: Contract, uploads: Mapping[bytes, bytes]) -> None:
        """Refuse a study that does not read exactly the tables that are stored here.

        ``uploads`` has the digest of each curator's upload: the messages themselves can be long.
        """
        check_vault(contract, self.terms.body)
        expect_vault(self.state, VaultState.STORED)
        stored = tuple(uploads[terms.party_id] for terms in contract.curators)
        if contract.stored is None or contract.stored.uploads != stored:
            raise MismatchError(
                "the contract names other uploads than those that the vault holds",
                hint="take the uploads from the vault's status, in the order of the curators",
            )

    def close(self) -> None:
        """End the vault: no further study reads its tables."""
        if self.state is VaultState.CLOSED:
            raise StateError("the vault is closed", hint="a closed vault stays closed")
        self._state = VaultState.CLOSED


def expect_vault(state: VaultState, *allowed: VaultState) -> None:
    """Refuse a step that is possible only in other states."""
    if state not in allowed:
        raise StateError(
            f"the vault is {state}, not {' or '.join(allowed)}",
            hint="look at the vault, which says whose signature or table is missing",
        )
