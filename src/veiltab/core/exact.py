"""Formulas on arrays that run on floats every day, and on Fractions when they are checked."""

import math
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


def square_roots(numbers: "Numbers") -> "Numbers":
    """Return the square roots, in kind; Fractions must be squares of Fractions."""
    import numpy as np  # noqa: PLC0415 - as above

    if numbers.dtype != object:
        roots: Numbers = np.sqrt(numbers)
        return roots
    exact = [Fraction(math.isqrt(x.numerator), math.isqrt(x.denominator)) for x in numbers.flat]
    rational = np.array(exact, dtype=object).reshape(numbers.shape)
    if not (rational**2 == numbers).all():
        raise ValueError("an exact root was asked of what is no square")
    return rational
