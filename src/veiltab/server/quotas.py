"""What one party may use of the server: messages, space on the disk, and time of the processor.

Every quota is checked inside the transaction that writes, after it has written: what is over is
rolled back.
"""

from collections.abc import Callable
from typing import TypeVar

from veiltab.errors import OutOfSpaceError, QuotaError
from veiltab.server.context import ServiceContext
from veiltab.server.db.records import Records
from veiltab.server.http.auth import Sender
from veiltab.server.limits import GIB, KIB, too_large

T = TypeVar("T")
SECONDS_A_DAY = 86_400
MAX_BLOCKS = 1_000
MAX_CHUNKS = 2**18
"""Chunks of one curator in a study or vault: as many as an upload could name."""

MAX_BUNDLED = 8_192
"""Chunks of one bundle: more than any table has that fills it."""

MOST_OF_ONE = 64 * GIB
ROOM_STEPS = 16
"""In how many steps of the reserve an asker can tell how much room is left."""

UPLOAD_BYTES, UPLOAD_BYTES_A_CHUNK = 256 * KIB, 100


def check_space(context: ServiceContext) -> None:
    """Refuse what would take space while the disk is nearly full."""
    if not has_room(context):
        raise OutOfSpaceError(
            "the server's disk is nearly full, and takes nothing new",
            hint="abort studies that nobody needs, and tell the operator; reading still works",
        )


def check_room(
    context: ServiceContext, records: Records, scope: bytes, party: bytes, total: int
) -> None:
    """Refuse an upload of so many bytes before any of them is sent, if there is no room for it.

    What is left is known to an asker in large steps only: else it could ask before and after
    somebody else's upload, and so measure it.
    """
    more = max(0, total - records.held_by_study(scope).get(party, 0))
    if not more:
        return
    most = disk_quota(context)
    if records.message_bytes(party) + records.held_bytes(party) + more > most:
        raise _over("chunks and messages", most)
    reserve = reserve_bytes(context)
    left, step = context.folders.free_bytes() - reserve, max(1, reserve // ROOM_STEPS)
    if more > step * -(-max(0, left) // step):
        raise OutOfSpaceError(
            "the server's disk has no room for your upload",
            hint="nothing of it was sent now, and nothing is lost: tell the server's operator, and"
            " run the same command again when there is room",
        )


def has_room(context: ServiceContext) -> bool:
    """Tell whether the disk takes anything new."""
    return context.folders.free_bytes() >= reserve_bytes(context)


def reserve_bytes(context: ServiceContext) -> int:
    """Return how much stays free: the setting, or a twentieth of a small disk."""
    return min(context.settings.free_bytes_reserve, context.folders.total_bytes() // 20)


def disk_quota(context: ServiceContext) -> int:
    """Return how many bytes one party may keep: the setting, or an eighth of the disk to 64 GiB."""
    chosen = context.settings.party_disk_bytes
    return min(MOST_OF_ONE, context.folders.total_bytes() // 8) if chosen is None else chosen


def parse_in_turn(
    context: ServiceContext, sender: Sender, loads: Callable[[bytes], T], most: int
) -> T:
    """Parse a message that may be long, one such message at a time, in turn by party."""
    check_space(context)
    size = sum(map(len, sender.pieces))
    if size > most:
        raise too_large("the message", most)
    if size <= context.settings.small_bytes:
        return loads(sender.body)
    with context.lane.turn(sender.party):
        return loads(sender.body)


def upload_bytes(context: ServiceContext, scope: bytes, party: bytes) -> int:
    """Return how long an upload may be: it names chunks, and those were sent before."""
    with context.database.reading() as records:
        chunks = records.held_chunks(scope, party)
    return UPLOAD_BYTES + UPLOAD_BYTES_A_CHUNK * chunks


def check_chunk_count(records: Records, scope: bytes, party: bytes) -> None:
    """Refuse the chunks that were just counted if they are more than any upload can name."""
    if records.held_chunks(scope, party) > MAX_CHUNKS:
        raise QuotaError(
            f"you would have sent more than {MAX_CHUNKS:,} chunks for this",
            hint="send each chunk once; split a larger table into several studies",
        )


def check_usage(context: ServiceContext, records: Records, party: bytes) -> None:
    """Refuse what was just added if its sender has sent more than one party may."""
    most_messages, most = context.settings.party_message_bytes, disk_quota(context)
    records.lock_party(party)
    messages = records.message_bytes(party)
    if messages > most_messages:
        raise _over("messages", most_messages)
    if messages + records.held_bytes(party) > most:
        raise _over("chunks and messages", most)


def _over(what: str, most: int) -> QuotaError:
    return QuotaError(
        f"your {what} would have more than {most:,} bytes on the server",
        hint="abort studies that nobody needs; finished ones are archived in time; or ask the"
        " operator",
    )
