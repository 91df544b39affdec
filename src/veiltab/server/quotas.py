"""What one party may use of the server: proposals, messages, and space on the disk.

Every quota is checked inside the transaction that writes, after it has written: what is over is
rolled back.
"""

from veiltab.errors import OutOfSpaceError, QuotaError
from veiltab.server.context import ServiceContext
from veiltab.server.db.records import Records

MAX_BLOCKS = 1_000
SECONDS_A_DAY = 86_400


def check_space(context: ServiceContext) -> None:
    """Refuse what would take space while the disk is nearly full."""
    free, reserve = context.folders.free_bytes(), reserve_bytes(context)
    if free < reserve:
        raise OutOfSpaceError(
            "the server's disk is nearly full, and takes nothing new",
            hint="abort studies that nobody needs, and tell the operator; reading still works",
        )


def reserve_bytes(context: ServiceContext) -> int:
    """Return how much stays free: the setting, or a twentieth of a small disk."""
    return min(context.settings.free_bytes_reserve, context.folders.total_bytes() // 20)


def check_usage(context: ServiceContext, records: Records, party: bytes) -> None:
    """Refuse what was just added if its sender has sent more than one party may."""
    limits = context.settings
    records.lock_party(party)
    messages = records.message_bytes(party)
    if messages > limits.party_message_bytes:
        raise _over("messages", limits.party_message_bytes)
    if messages + records.held_bytes(party) > limits.party_disk_bytes:
        raise _over("chunks and messages", limits.party_disk_bytes)


def _over(what: str, most: int) -> QuotaError:
    return QuotaError(
        f"your {what} would have more than {most:,} bytes on the server",
        hint="abort studies that nobody needs; finished ones are archived in time; or ask the"
        " operator",
    )
