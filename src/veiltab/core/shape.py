"""How far from normal the error of an estimate is, and what that means for intervals.

Decoys of a single cell are few and their number is skew, and the noise of a published copy has
heavy tails.  A normal interval would hold too rarely for such cells.  So the first four cumulants
of the error are computed exactly, and a *score* turns an error into the normal deviate that is
about as unlikely: Wilson and Hilferty's cube root (1931) for the skewness of a gamma law, then
Wallace's transformation (1959) for the tails of Student's law with the remaining excess.  Both are
closed forms with closed inverses.  On the short side of a skew law the score stays below what the
cube root says, which makes intervals a little too wide rather than too short.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

Series = tuple[Any, Any, Any, Any]
"""The coefficients of s, s², s³ and s⁴ of a function that is zero at s = 0."""

LOGARITHM: Series = (1.0, -1 / 2, 1 / 3, -1 / 4)
FACTORIALS = (1, 2, 6, 24)

_LEAST = 1e-6
"""Smaller skewness or excess makes no difference, and would be divided by."""

_LEAST_VARIANCE = 1e-150
"""A smaller variance is rounding, and its square is zero."""

SHORT_SIDE = 1 / 4
"""On the short side a score is at most 1 + this × the skewness times the deviation itself."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """The skewness of a law and its excess kurtosis, both zero for the normal law."""

    skewness: "Array"
    excess: "Array"

    @classmethod
    def of_cumulants(cls, cumulants: Series) -> "Shape":
        """Return the shape of a law with these first four cumulants."""
        _, second, third, fourth = (np.asarray(x, dtype=np.float64) for x in cumulants)
        safe = np.where(second > _LEAST_VARIANCE, second, 1.0)
        return cls(third / safe**1.5, fourth / safe**2)

    def score(self, deviation: "Array") -> "Array":
        """Return the normal deviates that are as unlikely as these standardised errors."""
        side, skewness, freedom = self._parameters()
        turned = side * deviation
        base = 1 + skewness * turned / 2
        gamma = 6 / skewness * (np.cbrt(np.maximum(base, 0)) - 1) + skewness / 6
        gamma = np.where(base > 0, gamma, -np.inf)  # a gamma law has nothing there
        bounded = np.maximum(gamma, (1 + SHORT_SIDE * skewness) * turned)
        skew = np.where(turned < 0, bounded, gamma)
        tail = np.sqrt(freedom * np.log1p(skew**2 / (freedom - 2)))
        scores: Array = side * np.sign(skew) * _wallace(freedom) * tail
        return scores

    def deviation(self, score: "Array | float") -> "Array":
        """Return the standardised errors that have these scores: the inverse of :meth:`score`."""
        side, skewness, freedom = self._parameters()
        turned = side * score
        tail = np.expm1((turned / _wallace(freedom)) ** 2 / freedom)
        skew = np.sign(turned) * np.sqrt(tail * (freedom - 2))
        root = np.maximum(1 + skewness * (skew - skewness / 6) / 6, 0)
        gamma = 2 / skewness * (root**3 - 1)
        bounded = np.minimum(gamma, skew / (1 + SHORT_SIDE * skewness))
        deviations: Array = side * np.where(bounded < 0, bounded, gamma)
        return deviations

    def _parameters(self) -> "tuple[Array, Array, Array]":
        """Return the side of the long tail, the skewness towards it, and Student's freedom."""
        side = np.where(self.skewness < 0, -1.0, 1.0)
        skewness = np.maximum(np.abs(self.skewness), _LEAST)
        rest = np.maximum(self.excess - 1.5 * skewness**2, _LEAST)
        return side, skewness, 4 + 6 / rest


def _wallace(freedom: "Array") -> "Array":
    ratio: Array = (8 * freedom + 1) / (8 * freedom + 3)
    return ratio


def compose(outer: Sequence[Any], inner: Series) -> Series:
    """Return the series of outer(inner(s)), up to the fourth power."""
    a, b, c, d = inner
    f, g, h, i = outer
    square = a * a  # products, because powers of arrays are slow
    return (
        f * a,
        f * b + g * square,
        f * c + 2 * g * a * b + h * square * a,
        f * d + g * (2 * a * c + b * b) + 3 * h * square * b + i * square * square,
    )


def from_moments(moments: Sequence[Any]) -> Series:
    """Return the series of E[exp(sX)] − 1, from the first four moments of X."""
    first, second, third, fourth = (m / f for m, f in zip(moments, FACTORIALS, strict=True))
    return first, second, third, fourth


def cumulants_of(series: Series) -> Series:
    """Return the cumulants of a law from the series of its logarithm of E[exp(sX)]."""
    first, second, third, fourth = (c * f for c, f in zip(series, FACTORIALS, strict=True))
    return first, second, third, fourth
