"""The states of studies and vaults, and the events of their audit logs (service spec 6 and 7)."""

from enum import StrEnum


class State(StrEnum):
    """Where a study stands, in the order in which a study can get there."""

    PROPOSED = "proposed"
    OPEN = "open"
    UPLOADED = "uploaded"
    SAMPLED = "sampled"
    JOINED = "joined"
    RELEASED = "released"
    ABORTED = "aborted"


IN_ORDER = tuple(str(state) for state in State if state is not State.ABORTED)
"""The states that a study goes through if nobody ends it."""


class VaultState(StrEnum):
    """Where a vault stands, in the order in which a vault can get there."""

    PROPOSED = "proposed"
    OPEN = "open"
    STORED = "stored"
    CLOSED = "closed"


ENDED = (str(State.RELEASED), str(State.ABORTED), str(VaultState.CLOSED))
"""The states in which a study or a vault has ended: nothing more is sent for it."""


class AuditEvent(StrEnum):
    """What an entry of the audit log can be about."""

    PROPOSED = "proposed"
    SIGNED = "signed"
    OPENED = "opened"
    SECRET = "secret"  # noqa: S105 - a message was passed on, sealed
    ALIGNED = "aligned"
    UPLOADED = "uploaded"
    COMPLETE = "complete"
    SAMPLED = "sampled"
    REPADDED = "repadded"
    RELEASED = "released"
    GRANTED = "granted"
    REVOKED = "revoked"
    PUBLISHED = "published"
    ABORTED = "aborted"
    CLOSED = "closed"
    ARCHIVED = "archived"
