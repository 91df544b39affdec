"""Invitations: the operator draws a code for somebody, and a stranger who shows it becomes a party.

A code has 75 random bits (see ``veiltab.wire.invitations``).  The service takes at most 40 tries a
second from all strangers together by default, which makes 2^26 in the 14 days of an invitation; so
nobody guesses one.
"""

from collections.abc import Callable

from veiltab.core.hashing import labelled_hash
from veiltab.errors import InvitationError
from veiltab.server.context import ServiceContext
from veiltab.server.db.records import unknown_invitation
from veiltab.server.http.auth import Newcomer, use_once
from veiltab.wire.invitations import draw_code, read_code

DEFAULT_DAYS = 14
SECONDS_A_DAY = 86_400


def invite(
    context: ServiceContext,
    name: str,
    days: int = DEFAULT_DAYS,
    hand_over: Callable[[str, int], None] = lambda _code, _expires: None,
) -> str:
    """Return a new one-time code; ``name`` reminds the operator for whom it is.

    Only a hash of the code is kept, so it cannot be shown again.  ``hand_over`` is given the code
    and the time of its end; if it fails, there is no invitation.
    """
    code = draw_code(context.entropy)
    expires = context.now + days * SECONDS_A_DAY
    with context.database.transaction() as records:
        records.add_invitation(_hash(code), name, context.now, expires)
        hand_over(code, expires)
    return code


def register(context: ServiceContext, newcomer: Newcomer) -> bool:
    """Register a party that shows an invitation; ``False`` if it was registered before."""
    with context.database.transaction() as records:
        use_once(records, newcomer.signature)
        records.use_invitation(_hash(newcomer.invitation), newcomer.party, context.now)
        keys = newcomer.keys
        new = records.add_party(keys.identity, context.now)
        for rotation in keys.rotations if new else ():
            records.add_rotation(rotation, keys.sealing_key)
        return new


def _hash(code: str) -> bytes:
    """Hash a code; it has 75 random bits, so a fast hash is enough."""
    try:
        return labelled_hash("invitation", read_code(code).encode())
    except InvitationError:
        raise unknown_invitation() from None
