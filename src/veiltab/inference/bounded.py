"""Statistics that lie within known bounds: means of scores, and ratios of such sums.

Here all scores are moved to 0..1.  The mean θ of such a score has at most the variance θ(1 − θ), so
that Var_T = κθ(1 − θ) with a κ of at most 1, which is estimated.  With it the variance of the
estimate is quadratic in θ, as that of a share is, and the interval is found in the same way: within
the bounds, never empty, and for a score of 0 and 1 that of the share itself.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core.intervals import (
    Interval,
    Quadratic,
    ShapeAt,
    feldman_cousins,
    feldman_cousins_side,
    proportion_interval,
)
from veiltab.core.released import Shares
from veiltab.core.shape import Shape
from veiltab.core.uncertainty import CovarianceForm
from veiltab.inference.atoms import Atoms

Errors = tuple[Any, Any, Any]
"""Standard, sampling and privacy error: numbers, or arrays with one for each row of atoms."""


@dataclass(frozen=True, slots=True, eq=False)
class Correction:
    """What a second-order estimate adds to a mean: to its value, and to its variance by cause."""

    value: Any = 0.0
    sampling: Any = 0.0
    privacy: Any = 0.0


NOTHING = Correction()


@dataclass(frozen=True, slots=True, eq=False)
class BoundedMean:
    """The mean of a score between 0 and ``top``, whose mean is known to lie within 0..1."""

    atoms: Atoms
    scores: Shares
    correction: Correction = NOTHING
    top: Any = 1.0

    @property
    def value(self) -> Shares:
        """The unbiased estimate; noise may take it out of its bounds."""
        value: Shares = (self.atoms.shares * self.scores).sum(axis=-1) + self.correction.value
        return value

    def errors(self) -> Errors:
        """Return the three errors, at the plausible distribution."""
        design, gradient = self.atoms.design, self.scores[..., np.newaxis, :]
        sampling, privacy = (
            np.maximum(self.atoms.covariance(form, gradient)[..., 0, 0], 0) + more
            for form, more in (
                (design.sampling, self.correction.sampling),
                (design.privacy, self.correction.privacy),
            )
        )
        return np.sqrt(sampling + privacy), np.sqrt(sampling), np.sqrt(privacy)

    def interval(self, critical: float) -> Interval:
        """Return the interval within 0..1."""
        shaped = None if self.atoms.design.normal else self._shape_at
        return feldman_cousins(self.value, self._variance(), critical, shaped)

    def side(self, number: float, critical: float) -> NDArray[np.int8]:
        """Tell on which side of the interval a number lies: −1 below, 1 above, 0 within."""
        shaped = None if self.atoms.design.normal else self._shape_at
        truth = np.full(self.value.shape, number)
        return feldman_cousins_side(truth, self.value, self._variance(), critical, shaped)

    def _variance(self) -> Quadratic:
        """Return the variance of the estimate as a quadratic in the mean."""
        likely, fractions = self.atoms.likely, self.atoms.fractions
        true, even = ((shares * self.scores).sum(axis=-1) for shares in (likely, fractions))
        spread = (likely * self.scores**2).sum(axis=-1) - true**2
        uneven = (fractions * self.scores**2).sum(axis=-1) - even**2
        most = true * (self.top - true)
        relative = np.where(most > 0, np.clip(spread / np.where(most > 0, most, 1), 0, 1), 1.0)
        truth, uniform, shift = _coefficients(self.atoms.design.total, likely)
        more = self.correction.sampling + self.correction.privacy
        return (
            uniform * uneven + shift * even**2 + more,
            truth * relative * self.top - 2 * shift * even,
            shift - truth * relative,
        )

    def _shape_at(self, mean: Shares) -> Shape:
        """Return the shape at another mean: people are moved to the lowest or the highest score."""
        likely = self.atoms.likely
        true = (likely * self.scores).sum(axis=-1)
        lower = mean <= true
        left = np.where(lower, mean / np.where(true > 0, true, 1), 1.0)
        rest = np.where(true < self.top, self.top - true, 1)
        left = np.where(lower, left, np.clip((self.top - mean) / rest, 0, 1))
        where = np.where(lower, self.scores.argmin(axis=-1), self.scores.argmax(axis=-1))
        moved = np.arange(self.scores.shape[-1]) == where[..., np.newaxis]
        share = left[..., np.newaxis]
        shape = self.atoms.shape(self.scores, share * likely + (1 - share) * moved)
        assert shape is not None  # noqa: S101 - asked of laws that are not normal
        return shape


@dataclass(frozen=True, slots=True, eq=False)
class BoundedRatio:
    """The ratio of two sums over atoms, ``part`` and ``whole``, where 0 ≤ part ≤ whole."""

    atoms: Atoms
    part: Shares
    whole: Shares

    @property
    def sums(self) -> tuple[Shares, Shares]:
        """Both sums, without bias."""
        shares = self.atoms.shares
        return (shares * self.part).sum(axis=-1), (shares * self.whole).sum(axis=-1)

    @property
    def value(self) -> Shares:
        """The ratio of both sums; 0 where the denominator is not positive."""
        part, whole = self.sums
        value: Shares = np.divide(part, whole, where=whole > 0, out=np.zeros_like(part))
        return value

    @property
    def gradient(self) -> Shares:
        """The weights of part − ratio × whole."""
        inside = np.clip(self.value, 0, 1)[..., np.newaxis]
        gradient: Shares = self.part - inside * self.whole
        return gradient

    def errors(self, correction: Correction = NOTHING) -> Errors:
        """Return the three errors, by the delta method."""
        design, gradient = self.atoms.design, self.gradient[..., np.newaxis, :]
        whole = self.sums[1]
        safe = np.where(whole > 0, whole, 1.0)
        sampling, privacy = (
            np.maximum(self.atoms.covariance(form, gradient)[..., 0, 0], 0) / safe**2 + more
            for form, more in (
                (design.sampling, correction.sampling),
                (design.privacy, correction.privacy),
            )
        )
        return np.sqrt(sampling + privacy), np.sqrt(sampling), np.sqrt(privacy)

    def interval(self, critical: float) -> Interval:
        """Return Fieller's interval within 0..1; it is unbounded where the whole is near zero."""
        return proportion_interval(*self.sums, self._covariance(), critical, self.shape_at)

    def side(self, number: float, critical: float) -> NDArray[np.int8]:
        """Tell on which side of the interval a number lies, where the whole is clearly there."""
        whole, covariance = self.sums[1], self._covariance()
        variance = (
            covariance[..., 0, 0] / whole**2,
            -2 * covariance[..., 0, 1] / whole**2,
            covariance[..., 1, 1] / whole**2,
        )
        truth = np.full(self.value.shape, number)
        return feldman_cousins_side(truth, self.value, variance, critical, self.shape_at)

    @property
    def shape_at(self) -> ShapeAt | None:
        """The shape of part − ratio × whole at each ratio; None for the normal law.

        It is not that at the estimated ratio: with few people in the whole, that one goes along
        with the estimate, and limits on both sides would come too near.
        """
        if self.atoms.design.normal:
            return None
        return self._shape_at

    def _shape_at(self, ratio: Shares) -> Shape:
        shape = self.atoms.shape(self.part - ratio[..., np.newaxis] * self.whole)
        assert shape is not None  # noqa: S101 - asked of laws that are not normal
        return shape

    def clear(self, critical: float, times: float) -> Any:  # noqa: ANN401 - one truth value, or many
        """Tell whether the denominator exceeds ``times`` the half-width of its interval."""
        variance = np.maximum(self._covariance()[..., 1, 1], 0)
        return self.sums[1] > times * critical * np.sqrt(variance)

    def _covariance(self) -> Shares:
        both = np.broadcast_arrays(self.part, self.whole)
        return self.atoms.covariance(self.atoms.design.total, np.stack(both, axis=-2))


def difference_interval(
    values: tuple[Any, Any],
    intervals: tuple[Interval, Interval],
    correlation: Any,  # noqa: ANN401 - a number, or one for each
) -> Interval:
    """Return the interval of a difference of two numbers that have intervals of their own.

    It recovers the variance of each number from the side of its interval that matters (Zou and
    Donner, 2008), and so is as skew as the two, and within the same bounds.
    """
    bounded = intervals[0].bounded & intervals[1].bounded
    lows, highs = (
        [np.where(bounded, end, limit) for end in ends]
        for ends, limit in (
            ((intervals[0].low, intervals[1].low), 0.0),
            ((intervals[0].high, intervals[1].high), 1.0),
        )
    )
    first, second = (np.clip(values[i], lows[i], highs[i]) for i in (0, 1))
    down, up = (first - lows[0], highs[1] - second), (highs[0] - first, second - lows[1])
    below, above = (
        np.sqrt(np.maximum(x**2 + y**2 - 2 * correlation * x * y, 0)) for x, y in (down, up)
    )
    return Interval(first - second - below, first - second + above, bounded)


def _coefficients(form: CovarianceForm, likely: Shares) -> tuple[Any, Any, Any]:
    """Return x, y and z; of many releases, a number for each."""
    floats = form.like(likely)
    x, y, z = (
        value[..., 0] if isinstance(value, np.ndarray) else value
        for value in (floats.truth, floats.uniform, floats.shift)
    )
    return x, y, z
