"""How many cases a test has: many tiny ones in one test, and few examples that take long."""

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

Item = TypeVar("Item")

ALL_EXAMPLES = "VEILTAB_ALL_EXAMPLES"
"""Set by ``make soak``."""


def examples(number: int) -> settings:
    """Try so many examples in ``make soak``, and a third of them else: each takes long."""
    return settings(max_examples=number if ALL_EXAMPLES in os.environ else number // 3)


def thinned(cases: Sequence[Item], by: int = 3) -> Sequence[Item]:
    """Return all cases in ``make soak``, and every third of them else: a grid without some rows."""
    return cases if ALL_EXAMPLES in os.environ else cases[::by]


def in_soak(*cases: Any) -> "list[ParameterSet]":
    """Mark cases of ``pytest.mark.parametrize`` that `make soak` alone runs: each takes long.

    Those that `make test` keeps are chosen so that every kind of failure would show.
    """
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.soak)
        for case in cases
    ]


def for_each(
    name: str, cases: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for every case, as its argument of this name; a failure says for which.

    Like ``pytest.mark.parametrize``, but as one test: for cases that take microseconds.  Tests that
    need fixtures of their own for each case cannot use it.
    """
    values = list(cases)
    assert values, "no case at all would pass any test"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            for value in values:
                try:
                    test(*args, **kwargs, **{name: value})
                except BaseException as error:
                    error.add_note(f"in the case {name} = {value!r}")
                    raise

        signature = inspect.signature(test)
        rest = [each for each in signature.parameters.values() if each.name != name]
        run.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return run

    return decorate
