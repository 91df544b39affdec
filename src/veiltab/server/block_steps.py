"""Blocks: a party says whose proposals it does not want."""

from veiltab.errors import QuotaError
from veiltab.server.auth import Sender
from veiltab.server.context import ServiceContext
from veiltab.server.quotas import MAX_BLOCKS


def block(context: ServiceContext, sender: Sender, party: bytes) -> bool:
    """Refuse a party's proposals to the sender; ``False`` if they were refused before."""
    with context.database.transaction() as records:
        new = records.block(sender.party, party, context.now)
        if records.block_count(sender.party) > MAX_BLOCKS:
            raise QuotaError(
                f"you have blocked {MAX_BLOCKS:,} parties already",
                hint="unblock some; and tell the operator, who can ban a party",
            )
    return new


def unblock(context: ServiceContext, sender: Sender, party: bytes) -> bool:
    """Allow a party's proposals to the sender again; ``False`` if they were allowed before."""
    with context.database.transaction() as records:
        return records.unblock(sender.party, party)
