"""Lets the same formulas run on arrays of floats and, when they are checked, of Fractions."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # planning needs no arrays, and importing NumPy would triple its start-up time
    from numpy.typing import NDArray

    Numbers = NDArray[Any]
    """An array of float64, or an object array of Fractions; results are of the same kind."""


def number_like(numbers: "Numbers") -> Callable[[Fraction], Any]:
    """Return the type for coefficients of this array: Fraction or float."""
    return Fraction if numbers.dtype == object else float


def square_roots(numbers: "Numbers") -> "Numbers":
    """Return the square roots; Fractions must be squares of Fractions."""
    import numpy as np  # noqa: PLC0415 - as above

    if numbers.dtype != object:
        roots: Numbers = np.sqrt(numbers)
        return roots
    exact = [Fraction(math.isqrt(x.numerator), math.isqrt(x.denominator)) for x in numbers.flat]
    rational = np.array(exact, dtype=object).reshape(numbers.shape)
    if not (rational**2 == numbers).all():
        raise ValueError("these Fractions have no exact square root")
    return rational
