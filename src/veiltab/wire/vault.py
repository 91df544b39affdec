"""A vault: what the curators sign to store tables for many studies (spec 12.1)."""

from typing import ClassVar

from veiltab.wire.agreement import Agreement
from veiltab.wire.fields import message


@message
class Vault(Agreement):
    """The parties, attributes and linkage of stored tables, for no study in particular."""

    kind: ClassVar[str] = "vault"
    label: ClassVar[str] = "vault"

    @property
    def vault_id(self) -> bytes:
        """The id that takes the place of a study id in the stored uploads (spec 12.1)."""
        return self.scope
