"""Estimating equations: Σ T̂(c) ψ(c; β) = 0 over the cells c of a table.

ψ is the score of a respondent in cell c.  With the true shares the sum is zero at the true β, and
T̂ is unbiased; so the equations are unbiased whatever the noise, although some T̂ are negative.
They are linear in T̂, so their covariance is known at every β, for every mechanism.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import softmax

from veiltab.core.released import Shares
from veiltab.inference.models.families import Family


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

    def proper(self, parameters: Shares) -> bool:
        """Tell whether the parameters describe chances at all."""
        return bool(np.isfinite(parameters).all())

    @abstractmethod
    def extent(self, parameters: Shares) -> float:
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

    def predictors(self, parameters: Shares) -> Shares:
        """Return the linear predictors of each pattern."""
        return self.design @ parameters

    def scores(self, parameters: Shares) -> Shares:
        """Return Σ_r z_r ∂ℓ/∂η_r."""
        first = self.family.first(self.predictors(parameters))[:, self.levels]
        by_pattern = first @ self.design
        return by_pattern.reshape(-1, self.parameters).T

    def jacobian(self, parameters: Shares, shares: Shares) -> Shares:
        """Return Σ T̂ Σ_rs z_r z_sᵀ ∂²ℓ/∂η_r∂η_s."""
        second = self.family.second(self.predictors(parameters))
        weights = shares.reshape(len(self.design), -1) @ self._in_level
        mean = np.einsum("gk,gkrs->grs", weights, second)
        flat = self.design.reshape(-1, self.parameters)
        slopes: Shares = flat.T @ (mean @ self.design).reshape(flat.shape)
        return slopes

    def combined_slopes(self, parameters: Shares, combination: Shares) -> Shares:
        """Return Σ_rs (a·z_r) z_s ∂²ℓ/∂η_r∂η_s."""
        second = self.family.second(self.predictors(parameters))
        along = self.design @ combination
        bent = np.einsum("gr,gkrs->gks", along, second)[:, self.levels]
        slopes: Shares = (bent @ self.design).reshape(-1, self.parameters).T
        return slopes

    def start(self, shares: Shares) -> Shares:  # noqa: ARG002 - the interface
        """Return the given origin."""
        return self.origin

    def proper(self, parameters: Shares) -> bool:
        """Tell whether every level has a positive chance, or there are no chances."""
        if not np.isfinite(parameters).all():
            return False
        if self.family.predictors == 1:
            return True
        return bool((self.family.means(self.predictors(parameters)) > 0).all())

    def extent(self, parameters: Shares) -> float:
        """Return the largest linear predictor."""
        return float(np.abs(self.predictors(parameters)).max())


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
        chances: Shares = softmax(self.design @ parameters)
        return chances

    def scores(self, parameters: Shares) -> Shares:
        """Return x less its mean under the model."""
        scores: Shares = (self.design - self.fitted(parameters) @ self.design).T
        return scores

    def _spread(self, parameters: Shares) -> Shares:
        fitted = self.fitted(parameters)
        mean = fitted @ self.design
        spread: Shares = self.design.T @ (fitted[:, np.newaxis] * self.design) - np.outer(
            mean, mean
        )
        return spread

    def jacobian(self, parameters: Shares, shares: Shares) -> Shares:
        """Return −Cov_μ(x), times the sum of the shares, which is one."""
        slopes: Shares = -self._spread(parameters) * shares.sum()
        return slopes

    def combined_slopes(self, parameters: Shares, combination: Shares) -> Shares:
        """Return the same for every cell: it has no covariance with anything."""
        slope = -self._spread(parameters) @ combination
        return np.repeat(slope[:, np.newaxis], len(self.design), axis=1)

    def start(self, shares: Shares) -> Shares:
        """Return least squares on the logarithms."""
        return np.linalg.lstsq(self.design, np.log(shares), rcond=None)[0].astype(np.float64)

    def extent(self, parameters: Shares) -> float:
        """Return the range of the logarithms of fitted shares."""
        return float(np.ptp(self.design @ parameters))
