"""One vault as a curator sees it: every step that it can take, as a method."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING

from veiltab.errors import ParameterError, StateError
from veiltab.party.context import PartyContext
from veiltab.party.progress import OnProgress, Patience, Progress, ignore_progress
from veiltab.party.vaults.remote import VaultStatus
from veiltab.party.vaults.steps import (
    audit_vault,
    close_vault,
    fetch_terms,
    sign_vault,
)
from veiltab.protocol.audit_log import Seen
from veiltab.protocol.curator.table import Duplicates
from veiltab.wire.audit import AuditEntry
from veiltab.wire.contract import Vault as VaultTerms
from veiltab.wire.signed import Signed
from veiltab.wire.states import VaultState

if TYPE_CHECKING:  # tables take a while to load, and few steps read one
    from veiltab.data.recode import Recode, Rule
    from veiltab.party.checking import Source


class Vault:
    """A vault that names this party.  ``Session.vault`` and ``propose_vault`` make these.

    A curator calls :meth:`sign` and :meth:`push`, in this order.  Then studies can be proposed that
    draw from it, and :meth:`veiltab.Study.answer` answers them.
    """

    def __init__(self, context: PartyContext, vault_id: bytes) -> None:
        """Name the vault; nothing is fetched yet."""
        self._context = context
        self._id = vault_id

    def __repr__(self) -> str:
        """Show the title, if it is known, and the start of the id."""
        title = self._context.home.vault(self._id).title()
        return f"<Vault {self.id[:16]}{f' {title!r}' if title else ''}>"

    @property
    def id(self) -> str:
        """The vault's id, in hexadecimal digits: a hash of its terms."""
        return self._id.hex()

    @property
    def title(self) -> str:
        """The title in the terms."""
        return self.terms().body.title

    def terms(self) -> Signed[VaultTerms]:
        """Fetch what the curators have agreed on, with the signatures so far."""
        return fetch_terms(self._context, self._id)

    def status(self) -> VaultStatus:
        """Ask where the vault stands, and who has done what."""
        return self._context.server.vaults.status(self._id)

    def sign(self) -> VaultStatus:
        """Sign the vault; it costs no privacy until a study reads it."""
        with self._context.home.lock():
            return sign_vault(self._context, self.terms())

    def push(
        self,
        table: object = None,
        ids: str | Sequence[str] = (),
        *,
        recode: "Recode | Mapping[str, Rule] | str | PathLike[str] | None" = None,
        duplicates: Duplicates | None = None,
        query: str | None = None,
        progress: OnProgress = ignore_progress,
    ) -> VaultStatus:
        """Encrypt and send a whole table; after an interruption, the same call resumes.

        The arguments are those of :meth:`veiltab.Study.push`.  Nothing is compared with the other
        curators first, so that it never waits for them.
        """
        from veiltab.party.checking import as_recode, make_source  # noqa: PLC0415 - as above
        from veiltab.party.vaults.push import push_vault  # noqa: PLC0415 - as above

        signed = self.terms()
        schema = signed.body.schema_of(self._context.identity.party_id)

        def source() -> "Source":
            return make_source(table, ids, as_recode(recode, schema, duplicates), query)

        return push_vault(self._context, signed, None if table is None else source, progress)

    def wait(
        self,
        state: str = VaultState.STORED,
        timeout: float | None = None,
        *,
        progress: OnProgress = ignore_progress,
    ) -> VaultStatus:
        """Wait until the vault is in this state or further; ``None`` waits as long as it takes."""
        order = [str(known) for known in VaultState]
        if state not in order:
            raise ParameterError(
                f"no vault ever becomes {state!r}", hint=f"wait for one of: {', '.join(order)}"
            )
        patience = Patience(timeout)
        while True:
            status = self.status()
            if status.state == state or order.index(state) < order.index(status.state):
                return status
            if patience.over:
                raise StateError(
                    f"the vault is {status.state} after {timeout:g} seconds, not {state}",
                    hint="give it more time: a longer timeout, or none",
                )
            progress(Progress("waiting", waiting_for=vault_waits_for(status), state=status.state))
            patience.wait()

    def close(self, reason: str) -> VaultStatus:
        """Close the vault for good: the server deletes its tables, and no new study can read it.

        Studies whose rows are drawn already go on.
        """
        return close_vault(self._context, self._id, reason)

    def audit(self) -> tuple[list[AuditEntry], Seen]:
        """Fetch and verify the audit log; return its entries, its length and its last hash."""
        return audit_vault(self._context, self._id)


def vault_waits_for(status: VaultStatus) -> tuple[str, ...]:
    """Return the names of the curators who have to act next."""
    if status.state == VaultState.PROPOSED:
        return tuple(curator.name for curator in status.curators if not curator.signed)
    if status.state == VaultState.OPEN:
        return tuple(curator.name for curator in status.curators if not curator.uploaded)
    return ()
