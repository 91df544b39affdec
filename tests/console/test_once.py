"""A form is carried out once: two clicks get one answer, and a failure may be sent again."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.cases import for_each
from tests.support.pages import Clock
from veiltab.console.once import REPEATED_SECONDS, Once
from veiltab.errors import InputError, StateError


def test_two_clicks_at_the_same_time_are_one() -> None:
    """The second waits for the first, and gets its answer."""
    once, done = Once(), []

    def work() -> str:
        time.sleep(0.05)
        done.append(1)
        return f"answer {len(done)}"

    number = once.new()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: once.run(number, work), range(4)))
    assert answers == ["answer 1"] * 4
    assert once.run(once.new(), work) == "answer 2"


def test_an_answer_is_forgotten() -> None:
    """Later the same form is refused, and what it was answered is nowhere any more."""
    clock = Clock()
    once = Once(clock)
    number = once.new()
    assert once.run(number, lambda: "a code") == "a code"
    clock.now += REPEATED_SECONDS
    with pytest.raises(StateError, match="sent before"):
        once.run(number, lambda: "another")
    assert all(sent.answer is None for sent in once._sent.values())


def test_what_fails_may_be_sent_again() -> None:
    """Nothing was done, so nothing is done twice."""
    once = Once()
    number = once.new()

    def fail() -> str:
        raise InputError("no", hint="yes")

    with pytest.raises(InputError):
        once.run(number, fail)
    assert once.run(number, lambda: "done") == "done"


@for_each("number", ["", "x", "-1", "1" * 100, "1 "])
def test_other_numbers_are_refused(number: str) -> None:
    """Every form of ours has one."""
    with pytest.raises(StateError, match="incomplete"):
        Once().run(number, lambda: "done")
