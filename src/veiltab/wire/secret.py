"""The message that passes a study's or a vault's secret from curator to curator (spec 4.2)."""

from typing import ClassVar

from veiltab.wire.agreement import DIGEST
from veiltab.wire.fields import BASE64, message, wired
from veiltab.wire.identity import PARTY_ID
from veiltab.wire.signed import SignedMessage


@message
class Secret(SignedMessage):
    """The secret of a scope, sealed by one curator to another."""

    kind: ClassVar[str] = "secret"

    sender: bytes = wired(PARTY_ID, key="from")
    receiver: bytes = wired(PARTY_ID, key="to")
    scope: bytes = wired(DIGEST)
    sealed: bytes = wired(BASE64)
