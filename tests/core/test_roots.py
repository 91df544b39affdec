"""Two searches: where a growing function is last not positive, and where a valley is deepest."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veiltab.core.roots import last_root, least_place

GROWING: dict[str, Callable[[float], float]] = {
    "straight": lambda x: x,
    "bent up": lambda x: math.expm1(min(x, 300.0)),
    "bent down": lambda x: -math.expm1(-max(x, -300.0)),
    "flat at the root": lambda x: x**3,
    "steep at the root": lambda x: math.copysign(abs(x) ** 0.2, x),
    "a step": lambda x: 50.0 if x > 0 else -1e-9,
}


class Recorded:
    """A function that remembers where it was evaluated."""

    def __init__(self, function: Callable[[float], float]) -> None:
        """Wrap the function."""
        self.function = function
        self.places: list[float] = []

    def __call__(self, place: float) -> float:
        """Evaluate it."""
        self.places.append(place)
        return self.function(place)


@given(
    shape=st.sampled_from(sorted(GROWING)),
    low=st.floats(-50, 50),
    distance=st.floats(0, 60),
    room=st.floats(0, 20),
    fineness=st.tuples(st.floats(0.01, 5), st.sampled_from([1e-2, 1e-5, 1e-9])),
)
def test_the_root_is_found_from_below(
    shape: str, low: float, distance: float, room: float, fineness: tuple[float, float]
) -> None:
    """Not positive where it was evaluated, positive a tolerance on: anywhere in low..most."""
    root, (step, tolerance) = low + distance, fineness
    function = Recorded(lambda x: GROWING[shape](x - root))
    found = last_root(function, low, root + room, step, tolerance)
    assert found is not None
    assert found in function.places
    assert function.function(found) <= 0
    assert low <= min(function.places) <= max(function.places) <= root + room
    # A tolerance further on it is positive, or that is beyond the most.
    assert found + tolerance >= root - 1e-12


@given(low=st.floats(-5, 5), room=st.floats(0, 100), step=st.floats(0.01, 5))
def test_the_most_is_reached_if_nothing_is_positive(low: float, room: float, step: float) -> None:
    """Growing steps do not leap over the end of the range: the end itself is tried."""
    assert last_root(lambda _: -1.0, low, low + room, step, 1e-3) == low + room


def test_there_may_be_no_place_at_all() -> None:
    """A function that is positive from the start has no such place, and is evaluated once."""
    function = Recorded(lambda x: x + 10)
    assert last_root(function, -9.0, 5.0, 1.0, 1e-6) is None
    assert function.places == [-9.0]


def test_a_zero_counts_as_not_positive() -> None:
    """The promise may be met exactly."""
    assert last_root(lambda x: x, 0.0, 10.0, 1.0, 1e-9) == 0.0
    assert last_root(lambda x: max(x - 3.0, 0.0), 0.0, 10.0, 1.0, 1e-9) == pytest.approx(3.0)


def test_a_start_beyond_the_most_is_the_answer_or_none() -> None:
    """Nothing above the start is tried."""
    assert last_root(lambda _: -1.0, 7.0, 5.0, 1.0, 1e-6) == 7.0
    assert last_root(lambda _: 1.0, 7.0, 5.0, 1.0, 1e-6) is None


@pytest.mark.parametrize("shape", ["straight", "bent up", "bent down"])
def test_smooth_functions_take_few_evaluations(shape: str) -> None:
    """Each evaluation may be a whole plan, so a millionth of the way must not cost a hundred."""
    function = Recorded(lambda x: GROWING[shape]((x - 3.7) / 4))
    found = last_root(function, 0.0, 44.0, 1.0, 1e-6)
    assert found == pytest.approx(3.7, abs=1e-6)
    assert len(function.places) <= 30


def test_the_worst_functions_end_too() -> None:
    """Every step leaves at most 95% of the bracket, whatever the function."""
    function = Recorded(GROWING["a step"])
    assert last_root(function, -1e-3, 44.0, 40.0, 1e-6) == pytest.approx(0, abs=1e-6)
    assert len(function.places) <= 2 + math.log(40 / 1e-6) / -math.log(0.95) + 1


VALLEYS: dict[str, Callable[[float], float]] = {
    "round": lambda x: x * x,
    "sharp": abs,
    "steep on one side": lambda x: math.expm1(x) - x,
    "flat": lambda x: x**4,
}


@given(
    shape=st.sampled_from(sorted(VALLEYS)),
    bottom=st.floats(-20, 20),
    left=st.floats(0, 30),
    right=st.floats(0, 30),
)
def test_the_deepest_place_of_a_valley(
    shape: str, bottom: float, left: float, right: float
) -> None:
    """To the tolerance, wherever it lies between the ends, at an end included."""
    function = VALLEYS[shape]
    tried = Recorded(lambda place: function(place - bottom))
    place = least_place(tried, bottom - left, bottom + right, 1e-6)
    assert bottom - left <= place <= bottom + right
    # Next to the bottom a round valley is as flat as floats can tell.
    assert function(place - bottom) <= function(2e-6) + 1e-15
    assert place in tried.places
    assert len(tried.places) <= 45
