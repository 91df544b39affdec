"""Finding where a smooth function passes zero, and where it is least, in few evaluations.

Plans without δ search too, so this module must not import NumPy or SciPy.
"""

import math
from collections.abc import Callable

GOLDEN = (math.sqrt(5) - 1) / 2

EDGE = 0.05
"""A guess keeps this share of the bracket's width from its ends, so that every step shrinks it."""


def last_root(
    function: Callable[[float], float], low: float, most: float, step: float, tolerance: float
) -> float | None:
    """Return the last place, to ``tolerance``, where the function is not positive.

    The search goes up from ``low`` by growing steps, at most to ``most``, then by secants within
    a bracket.  What is returned was evaluated; None if the function is positive at ``low``.
    """
    below = function(low)
    if below > 0:
        return None
    while True:
        if low >= most:
            return low
        high = min(low + step, most)
        above = function(high)
        if above > 0:
            break
        low, below, step = high, above, 1.5 * step
    while high - low > tolerance:
        guess = low - below * (high - low) / (above - below)
        guess = min(max(guess, low + EDGE * (high - low)), high - EDGE * (high - low))
        value = function(guess)
        if value > 0:
            high, above = guess, value
        else:
            low, below = guess, value
    return low


def least_place(
    function: Callable[[float], float], low: float, high: float, tolerance: float
) -> float:
    """Return where a function with a single valley between two places is least, to ``tolerance``.

    By golden sections: each step keeps one of two inner places and costs one evaluation.
    """
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > tolerance:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = function(right)
    return left if at_left <= at_right else right
