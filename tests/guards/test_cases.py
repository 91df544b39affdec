"""Many cases in one test are all run, and a failure says which it was."""

import inspect

import pytest

from tests.support.cases import for_each


def test_every_case_is_run() -> None:
    """All pairs, where two are stacked."""
    seen = []

    @for_each("left", range(3))
    @for_each("right", "ab")
    def run(left: int, right: str) -> None:
        seen.append((left, right))

    run()
    assert seen == [(left, right) for left in range(3) for right in "ab"]


def test_a_failure_names_its_case() -> None:
    """And the cases behind it are not run."""

    @for_each("number", range(10))
    def run(number: int) -> None:
        assert number < 7

    with pytest.raises(AssertionError) as caught:
        run()
    assert caught.value.__notes__ == ["in the case number = 7"]


def test_no_cases_are_refused() -> None:
    """An empty list would pass whatever is tested."""
    with pytest.raises(AssertionError, match="no case"):
        for_each("number", [])


def test_pytest_sees_the_other_arguments() -> None:
    """They stay fixtures, or parameters of their own."""

    @for_each("number", [1])
    def run(number: int, tmp_path: object) -> None:
        del number, tmp_path

    assert list(inspect.signature(run).parameters) == ["tmp_path"]
