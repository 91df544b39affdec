"""Formulas on arrays that run on floats every day, and on Fractions when they are checked."""

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # planning needs no arrays, and importing NumPy would triple its start-up time
    from numpy.typing import NDArray

    Numbers = NDArray[Any]
    """An array of float64, or an object array of Fractions; answers come in kind."""


def number_like(numbers: "Numbers") -> Callable[[Fraction], Any]:
    """Return what turns an exact coefficient into a number as exact as the array is."""
    return Fraction if numbers.dtype == object else float
