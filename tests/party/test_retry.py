"""Asking again: how often, how long, and what people are told meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.http_wire import FakeTime
from veiltab.errors import ConnectionFailedError, ParameterError, StateError
from veiltab.party.connection import MAX_RETRY_AFTER, Retry, TryAgainError


def policy(time: FakeTime, **changes: Any) -> Retry:
    """Build a policy that waits as long as it may, in fake time."""
    fields: dict[str, Any] = {"sleep": time.sleep, "clock": time.clock, "jitter": lambda: 1.0}
    return Retry(**fields | changes)


def failing(times: int, after: float | None = None) -> Callable[[], str]:
    """Return something that fails a few times, then succeeds."""
    left = [times]

    def attempt() -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise TryAgainError(f"failure {times - left[0]}", after)
        return "done"

    return attempt


def test_success_does_not_wait() -> None:
    """The first try is at once, and an answer ends it."""
    time = FakeTime()
    assert policy(time).run(failing(0)) == "done"
    assert time.slept == []


def test_waits_double_up_to_the_cap() -> None:
    """Exponential backoff."""
    time = FakeTime()
    assert policy(time, base=0.5, cap=6.0).run(failing(6)) == "done"
    assert time.slept == [0.5, 1.0, 2.0, 4.0, 6.0, 6.0]


def test_waits_are_drawn_down_to_nothing() -> None:
    """Full jitter: the whole wait is drawn, not a part of it."""
    time = FakeTime()
    draws = iter([0.0, 0.5, 0.25])
    assert policy(time, base=2.0, cap=100.0, jitter=lambda: next(draws)).run(failing(3)) == "done"
    assert time.slept == [0.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("after", "expected"),
    [(3.0, 3.5), (0.0, 0.5), (-1.0, 0.5), (1e9, MAX_RETRY_AFTER + 0.5)],
)
def test_the_server_can_ask_for_patience(after: float, expected: float) -> None:
    """Its wait is kept and spread out a little, but it cannot stop a client for hours."""
    time = FakeTime()
    assert policy(time, base=0.5).run(failing(1, after)) == "done"
    assert time.slept == [expected]


@given(
    total=st.floats(0, 1_000),
    base=st.floats(0, 10),
    cap=st.floats(0, 100),
    jitter=st.floats(0, 1),
    after=st.none() | st.floats(0, 1e6),
)
def test_it_ends_in_time(
    total: float, base: float, cap: float, jitter: float, after: float | None
) -> None:
    """Whatever the policy, it gives up when its time is over, or its tries."""
    time = FakeTime(now=0)
    retry = policy(time, total=total, base=base, cap=cap, jitter=lambda: jitter, attempts=50)
    with pytest.raises(ConnectionFailedError):
        retry.run(failing(10**9, after))
    assert time.now <= total * (1 + 1e-9)
    assert len(time.slept) < 50


def test_by_default_it_goes_on_for_five_minutes() -> None:
    """Long enough for a server to be restarted; the last try is at the very end."""
    time = FakeTime(now=0)
    with pytest.raises(ConnectionFailedError, match=r"failure 25.*tried 25 times") as caught:
        policy(time).run(failing(10**9))
    assert time.now == pytest.approx(300)
    assert "run this again" in caught.value.hint


def test_the_number_of_tries_can_be_limited() -> None:
    """One attempt means none after it."""
    time = FakeTime()
    with pytest.raises(ConnectionFailedError, match="tried 1 times"):
        policy(time, attempts=1).run(failing(1))
    assert time.slept == []


def test_slow_tries_use_up_the_time_too() -> None:
    """The limit is on everything, not on the waits alone."""
    time = FakeTime(now=0)

    def attempt() -> None:
        time.now += 200
        raise TryAgainError("it takes too long")

    with pytest.raises(ConnectionFailedError, match="tried 2 times"):
        policy(time, total=300).run(attempt)


def test_people_are_told() -> None:
    """Before each wait: why, and for how long."""
    time = FakeTime()
    told: list[tuple[str, float]] = []
    retry = policy(time, base=1.0, on_wait=lambda reason, wait: told.append((reason, wait)))
    assert retry.run(failing(2)) == "done"
    assert told == [("failure 1", 1.0), ("failure 2", 2.0)]


def test_other_errors_end_it_at_once() -> None:
    """A refusal is an answer."""
    time = FakeTime()

    def attempt() -> None:
        raise StateError("the study is over", hint="start another one")

    with pytest.raises(StateError):
        policy(time).run(attempt)
    assert time.slept == []


def test_the_default_jitter_is_between_nothing_and_everything() -> None:
    """And not always the same."""
    draws = [Retry().jitter() for _ in range(50)]
    assert all(0 <= draw < 1 for draw in draws)
    assert len(set(draws)) > 1


@pytest.mark.parametrize(
    "change", [{"attempts": 0}, {"total": -1.0}, {"base": -1.0}, {"cap": -1.0}]
)
def test_impossible_policies_are_refused(change: dict[str, Any]) -> None:
    """No tries, or negative times."""
    with pytest.raises(ParameterError):
        Retry(**change)
