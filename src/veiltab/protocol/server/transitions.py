"""How a study moves from state to state: one table, and what is not in it cannot happen."""

from enum import StrEnum

from veiltab.errors import StateError
from veiltab.wire.states import State


class Event(StrEnum):
    """What moves a study to its next state."""

    ALL_SIGNED = "every curator has signed"
    ALL_UPLOADED = "every curator has uploaded"
    ROWS_JOINED = "the server has put the uploads side by side"
    ROWS_DRAWN = "the server has drawn rows of stored tables"
    ALL_REPADDED = "every curator has re-padded the drawn rows"
    PERTURBED = "the joined rows were perturbed, once"
    ABORTED = "a curator or the operator has aborted"


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.PROPOSED, Event.ALL_SIGNED): State.OPEN,
    (State.OPEN, Event.ALL_UPLOADED): State.UPLOADED,
    (State.UPLOADED, Event.ROWS_JOINED): State.JOINED,
    (State.OPEN, Event.ROWS_DRAWN): State.SAMPLED,
    (State.SAMPLED, Event.ALL_REPADDED): State.JOINED,
    (State.JOINED, Event.PERTURBED): State.RELEASED,
    (State.PROPOSED, Event.ABORTED): State.ABORTED,
    (State.OPEN, Event.ABORTED): State.ABORTED,
    (State.UPLOADED, Event.ABORTED): State.ABORTED,
    (State.SAMPLED, Event.ABORTED): State.ABORTED,
    (State.JOINED, Event.ABORTED): State.ABORTED,
}


def advance(state: State, event: Event) -> State:
    """Return the state that follows an event; refuse an event that cannot happen in this state."""
    following = TRANSITIONS.get((state, event))
    if following is None:
        possible = [str(event) for at, event in TRANSITIONS if at is state]
        raise StateError(
            f"a study that is {state} cannot take: {event}",
            hint=f"what it can take now: {'; '.join(possible) or 'nothing, it has ended'}",
        )
    return following


def expect(state: State, *allowed: State) -> None:
    """Refuse a step that is possible only in other states."""
    if state not in allowed:
        raise StateError(
            f"the study is {state}, not {' or '.join(allowed)}",
            hint="look at the study's status, which says what it waits for",
        )
