"""Invitations and registration: how a stranger becomes a party."""

import hashlib

from veiltab.core.entropy import random_bytes
from veiltab.service.authentication import Newcomer, use_once
from veiltab.service.context import Context

CODE_BYTES = 20
DEFAULT_DAYS = 14
SECONDS_A_DAY = 86_400


def invite(context: Context, name: str, days: int = DEFAULT_DAYS) -> str:
    """Return a new one-time code for somebody; ``name`` is for the operator's own memory.

    Only a hash of it is kept, so the code cannot be shown again.
    """
    code = random_bytes(CODE_BYTES, context.entropy).hex()
    with context.database.transaction() as records:
        records.add_invitation(_hash(code), name, context.now, context.now + days * SECONDS_A_DAY)
    return code


def register(context: Context, newcomer: Newcomer) -> bool:
    """Register a party that shows an invitation; ``False`` if it was registered before."""
    with context.database.transaction() as records:
        use_once(records, newcomer.signature)
        records.use_invitation(_hash(newcomer.invitation), newcomer.identity.party_id, context.now)
        return records.add_party(newcomer.identity, context.now)


def _hash(code: str) -> bytes:
    """Hash a code; it has 160 random bits, so nothing slower is needed."""
    return hashlib.sha256(b"veiltab/v1/invitation\x00" + code.strip().lower().encode()).digest()
