"""Pearson's correlation with an interval that needs no small errors.

ρ is the correlation exactly if Cov(x, y) − ρ·√(Var(x)·Var(y)) is zero.  With scores a and b that
are standardised by the estimate itself this is, to first order, the mean of ab − ρ(a² + b²)/2: a
linear statistic, whose variance and shape are known for each ρ.  The interval holds all ρ for which
its estimate is not unusual, as Fieller's set does for a ratio; it lies within −1..1.

The variance is that at a distribution which has the correlation ρ: for a ρ between zero and the
estimate, the mixture of the estimated distribution and of independence with the same margins; for a
larger ρ, what lies on the same line a little beyond the estimate.  Releases run along the first
axis.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from veiltab.core import estimators
from veiltab.core.bounded import bounded_interval
from veiltab.core.intervals import Interval
from veiltab.core.uncertainty import ReleaseDesign
from veiltab.inference.second_order import PluggedCovariance

Array = NDArray[np.float64]

BEYOND = 1 / 4
"""How far beyond the estimated distribution, as a part of its distance from independence."""

_TINY = 1e-150


@dataclass(frozen=True, slots=True, eq=False)
class Correlation:
    """The correlation in each release: plain estimate, interval, and standard errors.

    ``clearness`` says how many standard errors the variances of both attributes are above zero,
    one column for each; where that is not positive, the other numbers have no meaning.
    """

    value: Array
    interval: Interval
    error: Array
    privacy_error: Array
    clearness: Array


def estimate_correlation(
    tables: Array, design: ReleaseDesign, scores: tuple[Array, Array], critical: float
) -> Correlation:
    """Estimate the correlation of rows and columns with these scores, in each table."""
    releases, rows, columns = tables.shape
    shares = tables.reshape(releases, -1)
    plausible = estimators.project(shares)
    total, privacy = (
        PluggedCovariance(plausible, np.full((1, rows * columns), 1 / (rows * columns)), form)
        for form in (design.total.like(shares), design.privacy.like(shares))
    )
    per_cell = np.repeat(scores[0], columns), np.tile(scores[1], rows)
    standardised, clearness = zip(*(_standardise(shares, s, total) for s in per_cell), strict=True)
    proper = plausible.reshape(tables.shape)
    independent = proper.sum(axis=2)[:, :, np.newaxis] * proper.sum(axis=1)[:, np.newaxis, :]
    moments = _Moments.of(shares, (standardised[0], standardised[1]), total, design)
    ones = np.ones(releases)

    def score(rho: Array) -> Array:
        return moments.score(rho, independent.reshape(releases, -1))

    weights = moments.weights(np.clip(moments.plain, -1, 1))
    return Correlation(
        value=moments.plain,
        interval=bounded_interval(score, -ones, ones, critical),
        error=_error(weights, total),
        privacy_error=_error(weights, privacy),
        clearness=np.stack(clearness, axis=1),
    )


def _standardise(
    shares: Array, scores: Array, covariance: PluggedCovariance
) -> tuple[Array, Array]:
    """Return scores with mean 0 and variance 1, and the variance in standard errors."""
    centred = scores - (shares * scores).sum(axis=1, keepdims=True)
    variance = (shares * centred**2).sum(axis=1)
    clearness = variance / np.maximum(_error(centred**2, covariance), _TINY)
    safe = np.where(variance > 0, variance, 1.0)
    return centred / np.sqrt(safe)[:, np.newaxis], clearness


def _error(weights: Array, covariance: PluggedCovariance) -> Array:
    variance = (weights * covariance.times(weights)).sum(axis=1)
    error: Array = np.sqrt(np.maximum(variance, 0))
    return error


@dataclass(frozen=True, slots=True, eq=False)
class _Moments:
    """The mean of ab and of (a² + b²)/2, and everything about the error of their difference."""

    products: Array
    squares: Array
    plain: Array
    product: Array
    square: Array
    covariance: PluggedCovariance
    design: ReleaseDesign

    @classmethod
    def of(
        cls,
        shares: Array,
        standardised: tuple[Array, Array],
        covariance: PluggedCovariance,
        design: ReleaseDesign,
    ) -> "_Moments":
        left, right = standardised
        plain = (shares * left * right).sum(axis=1)
        # The product of two estimated means is off by their covariance, on average.
        together = (left * covariance.times(right)).sum(axis=1)
        apart = [(side * covariance.times(side)).sum(axis=1) for side in (left, right)]
        return cls(
            products=left * right,
            squares=(left**2 + right**2) / 2,
            plain=plain,
            product=plain + together,
            square=1 + (apart[0] + apart[1]) / 2,
            covariance=covariance,
            design=design,
        )

    def weights(self, rho: Array) -> Array:
        """Return what each cell counts in the statistic that is zero at the correlation."""
        return self.products - rho[:, np.newaxis] * self.squares

    def score(self, rho: Array, independent: Array) -> Array:
        """Return how unusual the estimate would be if ρ were the correlation."""
        weights = self.weights(rho)
        whole = np.where(self.plain == 0, _TINY, self.plain)
        mixed = np.clip(1 - rho / whole, -BEYOND, 1)[:, np.newaxis]
        apart = independent - self.covariance.shares
        at = estimators.project(self.covariance.shares + mixed * apart)
        covariance = replace(self.covariance, shares=at)
        error = np.maximum(_error(weights, covariance), _TINY)
        deviation = (self.product - rho * self.square) / error
        if self.design.normal:
            return deviation
        even = np.broadcast_to(covariance.fractions, weights.shape)
        return self.design.shape(weights, at, even).score(deviation)
