"""Estimating equations: Σ T̂(c) ψ(c; β) = 0 over the cells c of a table.

ψ is the score of a respondent in cell c.  With the true shares the sum is zero at the true β, and
T̂ is unbiased; so the equations are unbiased whatever the noise, although some T̂ are negative.
They are linear in T̂, so their covariance is known at every β, for every mechanism.

Parameters and shares have one vector along the last axis.  Axes in front of it stand for many β at
once, and for the shares that each belongs to; answers have the same axes in front.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from veiltab.core.released import Shares
from veiltab.inference.models.families import Family

Flags = NDArray[np.bool_]


class Equations(ABC):
    """As many equations as parameters, for the cells of a table."""

    parameters: int

    @abstractmethod
    def scores(self, parameters: Shares) -> Shares:
        """Return ψ: a row for each equation, a column for each cell."""

    @abstractmethod
    def jacobian(self, parameters: Shares, shares: Shares) -> Shares:
        """Return the derivatives of Σ T̂ψ: a row for each equation, a column per parameter."""

    @abstractmethod
    def combined_slopes(self, parameters: Shares, combination: Shares) -> Shares:
        """Return the derivatives of combination·ψ: a row per parameter, a column for each cell."""

    @abstractmethod
    def start(self, shares: Shares) -> Shares:
        """Return parameters to start from; ``shares`` are all above zero."""

    def proper(self, parameters: Shares) -> Flags:
        """Tell whether the parameters describe chances at all."""
        return np.asarray(np.isfinite(parameters).all(axis=-1))

    @abstractmethod
    def extent(self, parameters: Shares) -> Shares:
        """Return the largest linear predictor: on a logit scale, 30 is certainty."""


@dataclass(frozen=True, eq=False)
class RegressionEquations(Equations):
    """A regression: cells are patterns of covariates × cells of the outcome.

    ``design`` has the axes pattern, predictor and parameter; ``levels`` is the level of each cell
    of the outcome.
    """

    family: Family
    design: Shares
    levels: Shares
    origin: Shares

    @property
    def parameters(self) -> int:  # type: ignore[override]  # read-only
        """The number of columns of the design."""
        return int(self.design.shape[2])

    @cached_property
    def _in_level(self) -> Shares:
        """Which cell of the outcome is in which level: a row for each cell."""
        members: Shares = np.eye(self.family.levels)[self.levels]
        return members

    @cached_property
    def _rows(self) -> Shares:
        """The design with a row for each predictor of each pattern."""
        return self.design.reshape(-1, self.parameters)

    def predictors(self, parameters: Shares) -> Shares:
        """Return the linear predictors of each pattern."""
        flat: Shares = parameters @ self._rows.T
        return flat.reshape(*parameters.shape[:-1], *self.design.shape[:2])

    def scores(self, parameters: Shares) -> Shares:
        """Return Σ_r z_r ∂ℓ/∂η_r."""
        first = self.family.first(self.predictors(parameters))
        return self._by_cell(first)

    def jacobian(self, parameters: Shares, shares: Shares) -> Shares:
        """Return Σ T̂ Σ_rs z_r z_sᵀ ∂²ℓ/∂η_r∂η_s."""
        second = self.family.second(self.predictors(parameters))
        by_pattern = shares.reshape(*shares.shape[:-1], len(self.design), self.levels.size)
        weights = by_pattern @ self._in_level
        mean = np.einsum("...gk,...gkrs->...grs", weights, second)
        bent = (mean @ self.design).reshape(*mean.shape[:-3], *self._rows.shape)
        slopes: Shares = self._rows.T @ bent
        return slopes

    def combined_slopes(self, parameters: Shares, combination: Shares) -> Shares:
        """Return Σ_rs (a·z_r) z_s ∂²ℓ/∂η_r∂η_s."""
        second = self.family.second(self.predictors(parameters))
        along = self.predictors(combination)
        return self._by_cell(np.einsum("...gr,...gkrs->...gks", along, second))

    def _by_cell(self, slopes: Shares) -> Shares:
        """Return derivatives by parameters and cells from those by level and predictor."""
        by_pattern = slopes[..., self.levels, :] @ self.design
        cells = len(self.design) * self.levels.size
        by_cell = by_pattern.reshape(*slopes.shape[:-3], cells, self.parameters)
        return np.swapaxes(by_cell, -1, -2)

    def start(self, shares: Shares) -> Shares:
        """Return the given origin."""
        return np.broadcast_to(self.origin, (*shares.shape[:-1], self.parameters))

    def proper(self, parameters: Shares) -> Flags:
        """Tell whether every level has a positive chance, or there are no chances."""
        finite = np.asarray(np.isfinite(parameters).all(axis=-1))
        if self.family.predictors == 1:
            return finite
        means = self.family.means(self.predictors(np.where(finite[..., np.newaxis], parameters, 0)))
        proper: Flags = finite & (means > 0).all(axis=(-1, -2))
        return proper

    def extent(self, parameters: Shares) -> Shares:
        """Return the largest linear predictor."""
        extent: Shares = np.abs(parameters @ self._rows.T).max(axis=-1)
        return extent


@dataclass(frozen=True, eq=False)
class LogLinearEquations(Equations):
    """A log-linear model of the cells: ψ = x − E_μ(x), with μ ∝ exp(x·β).

    The shares sum to one and so do the fitted ones: the intercept is not free, and left out here.
    The columns of ``design`` are centred over the cells.
    """

    design: Shares

    @property
    def parameters(self) -> int:  # type: ignore[override]  # read-only
        """The number of columns without the intercept."""
        return int(self.design.shape[1])

    def fitted(self, parameters: Shares) -> Shares:
        """Return the fitted shares of the cells."""
        chances: Shares = softmax(parameters @ self.design.T, axis=-1)
        return chances

    def scores(self, parameters: Shares) -> Shares:
        """Return x less its mean under the model."""
        mean = self.fitted(parameters) @ self.design
        return self.design.T - mean[..., np.newaxis]

    def _spread(self, parameters: Shares) -> Shares:
        fitted = self.fitted(parameters)
        mean = fitted @ self.design
        spread: Shares = self.design.T @ (fitted[..., np.newaxis] * self.design)
        return spread - mean[..., np.newaxis] * mean[..., np.newaxis, :]

    def jacobian(self, parameters: Shares, shares: Shares) -> Shares:
        """Return −Cov_μ(x), times the sum of the shares, which is one."""
        total = shares.sum(axis=-1)[..., np.newaxis, np.newaxis]
        slopes: Shares = -self._spread(parameters) * total
        return slopes

    def combined_slopes(self, parameters: Shares, combination: Shares) -> Shares:
        """Return the same for every cell: it has no covariance with anything."""
        slopes: Shares = -self._spread(parameters) @ combination[..., np.newaxis]
        return np.broadcast_to(slopes, (*slopes.shape[:-1], len(self.design)))

    def start(self, shares: Shares) -> Shares:
        """Return least squares on the logarithms."""
        start: Shares = np.log(shares) @ np.linalg.pinv(self.design).T
        return start

    def extent(self, parameters: Shares) -> Shares:
        """Return the range of the logarithms of fitted shares."""
        return np.asarray(np.ptp(parameters @ self.design.T, axis=-1))
